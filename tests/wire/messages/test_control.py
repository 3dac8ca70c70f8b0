"""What workers tell of themselves and what leaders are asked, within bounds."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from tests.kit.hostile_payloads import DEEP, JOB_ID, complaint, payloads

from wakugumi.core.leader.questions import AskCancel, AskExplain, AskJobs, AskStatus
from wakugumi.errors import PeerError, Refused
from wakugumi.wire.messages.control import Holding, Load, read_holding, read_load, read_question, read_rest
from wakugumi.wire.messages.payload import encode


@given(payload=payloads)
def test_whatever_is_written_ends_as_a_peer_error_or_a_refusal(payload: bytes) -> None:
    for read in (read_load, read_rest, read_holding, read_question):
        assert len(complaint(read, payload)) < 500


def test_what_a_worker_holds_is_told_in_base64() -> None:
    text = base64.b64encode(JOB_ID).decode()
    payload = json.dumps({"Running": [text], "Finished": []}).encode()
    assert read_holding(payload) == Holding([JOB_ID], [])
    assert read_holding(encode(Holding([], [JOB_ID]))) == Holding([], [JOB_ID])
    assert read_holding(b'{"Kept":["%s"]}' % text.encode()) == Holding(kept=[JOB_ID])


@pytest.mark.parametrize(
    "payload", [b'{"Running":["AAAA"]}', b'{"Finished":["!"]}', b'{"Kept":[""]}', b'{"Running":"x"}', b""]
)
def test_holding_something_that_is_no_id_is_a_peers_fault(payload: bytes) -> None:
    with pytest.raises(PeerError, match="the payload of Holding"):
        read_holding(payload)


@pytest.mark.parametrize(("said", "heard"), [("0.25", 0.25), ("-1e308", 0.0), ("1e308", 1.0), ("7", 1.0)])
def test_a_load_is_a_share_whatever_was_said(said: str, heard: float) -> None:
    assert read_load(b'{"Cpu":%s}' % said.encode()).cpu == heard


def test_a_heartbeat_may_say_nothing() -> None:
    assert read_load(b"") == Load(0.0)


def test_questions_are_told_apart_by_their_tag() -> None:
    assert read_question(b'{"ask":"status"}') == AskStatus()
    assert read_question(b'{"ask":"explain","job":"x"}') == AskExplain("x")
    assert read_question(b'{"ask":"cancel","pattern":"job.assign.>"}') == AskCancel(pattern="job.assign.>")
    assert read_question(b'{"ask":"jobs","limit":5}') == AskJobs(limit=5)


@pytest.mark.parametrize("payload", [b"{}", b'{"ask":"weather"}', b'{"ask":"job"}', b'{"ask":7}', b"", DEEP])
def test_a_question_of_another_version_is_refused(payload: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_question(payload)
    assert caught.value.code == "unknown-question"
