"""How does a result travel to another role? As it is, with its large parts behind it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.http.page import HttpRefusal, Stream
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR
from wakugumi.errors import Refused
from wakugumi.roles.http.envelope_response import envelope_of
from wakugumi.wire.messages.envelope import RESULT_TYPE
from wakugumi.wire.messages.job import FAILED, JobResult, write_result
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.anyio

SMALL = JobResult("x", stdout="out", output_archive=b"PK\0")
LARGE = b"archive" * 100_000


@pytest.mark.parametrize("payload", [write_result(SMALL), encode(SMALL)])
def test_a_small_result_is_its_envelope_whichever_form_was_kept(payload: bytes) -> None:
    ends: list[int] = []
    reply = envelope_of("x", SMALL, payload, {}, lambda: ends.append(1))
    assert (reply.status, reply.body, reply.content_type) == (200, write_result(SMALL), RESULT_TYPE)
    assert ends == [1]


def test_a_job_without_an_answer_is_a_problem() -> None:
    ends: list[int] = []
    lost = JobResult("x", status=FAILED, reason="timeout", stderr="slow")
    with pytest.raises(HttpRefusal) as caught:
        envelope_of("x", lost, encode(lost), {}, lambda: ends.append(1))
    assert (caught.value.code, ends) == ("timeout", [1])


async def test_large_parts_follow_in_their_order(tmp_path: Path) -> None:
    archive, stderr = tmp_path / "archive", tmp_path / "stderr"
    archive.write_bytes(LARGE)
    stderr.write_bytes(b"err")
    result = JobResult("x", archive_blob=ref_of_bytes(LARGE), stderr_blob=ref_of_bytes(b"err"))
    ends: list[int] = []
    reply = envelope_of("x", result, encode(result), {STDERR: stderr, ARCHIVE: archive}, lambda: ends.append(1))
    assert isinstance(reply.body, Stream)
    body = b"".join([piece async for piece in reply.body.pieces])
    assert (body, ends) == (write_result(result) + LARGE + b"err", [1])
    assert reply.body.size == len(body)


def test_a_part_that_is_gone_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    ends: list[int] = []
    result = JobResult("x", archive_blob=ref_of_bytes(LARGE))
    for parts in ({ARCHIVE: tmp_path / "gone"}, {}):
        ends.clear()
        with pytest.raises(Refused) as caught:
            envelope_of("x", result, encode(result), parts, lambda: ends.append(1))
        assert (caught.value.code, ends) == ("expired", [1])


def test_fields_of_the_result_are_kept() -> None:
    result = msgspec.structs.replace(SMALL, run_s=0.5, worker="mill", exit_code=0)
    assert envelope_of("x", result, encode(result), {}, lambda: None).body == write_result(result)
