"""How do a leader's effects become frames?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from wakugumi.core.ids import ClientId, ConnId, JobId, Verdict, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.answer_records import ExplainAnswer
from wakugumi.core.leader.jobs.broadcast import PARTS
from wakugumi.limits.wire import FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX
from wakugumi.roles.access.keys import GridKeys
from wakugumi.roles.leader.effects import Effects, record_of
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.old_peers import OldPeers
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import CAPS, RESTS, ZSTD, read_welcome
from wakugumi.wire.messages.job import FAILED, OK, read_refusal, read_result, unpack_ids
from wakugumi.wire.messages.payload import encode

CONN = ConnId(1)
JOB, OTHER = JobId(bytes(range(16))), JobId(b"o" * 16)


class FakePeer:
    """A client of our own that exchanges blobs, unless a test makes it another one."""

    def __init__(self, *, receipts: bool = True, blobs: bool = True, is_client: bool = True) -> None:
        self.client_id = ClientId("desk")
        self.receipts, self.blobs, self.is_client = receipts, blobs, is_client
        self.zstd = self.rests = self.paused = False
        self.link = self
        self.sent: list[fr.Frame] = []
        self.did: list[object] = []
        self._decoder = fr.Decoder(FRAME_BYTES_MAX)
        self._decoder.trust()

    def send(self, data: bytes) -> None:
        self.sent += self._decoder.feed(data)

    def close(self, why: str) -> None:
        self.did.append(why)

    def abort(self) -> None:
        self.did.append("abort")

    def complain(self, text: str) -> None:
        self.did.append(text)

    def set_reading(self) -> None:
        self.did.append(self.paused)


class World:
    def __init__(self) -> None:
        self.posted: list[object] = []
        self.to_old: list[object] = []
        self.keys = SimpleNamespace(have_rules=False)
        self.hub = SimpleNamespace(drive=SimpleNamespace(post=self.posted.append), packed=False)
        old = SimpleNamespace(
            send_job=lambda _peer, effect: self.to_old.append(effect),
            send_result=lambda _peer, job, result: self.to_old.append((job, result)),
            when_written=lambda _peer, then: then(),
        )
        self.table = Effects(cast(Hub, self.hub), None, cast(OldPeers, old), cast(GridKeys, self.keys)).table

    def perform(self, effect: Any, peer: FakePeer | None = None) -> list[fr.Frame]:
        peer = peer or FakePeer()
        self.table[type(effect)](cast(Any, peer), effect)
        return peer.sent


@pytest.fixture
def world() -> World:
    return World()


def test_a_verdict_is_a_failed_result() -> None:
    record = record_of(JOB, "desk", "calcA", Verdict("dead", "five attempts"))
    assert (record.job_id, record.client_id, record.exec_name) == (show_job_id(JOB), "desk", "calcA")
    assert (record.status, record.reason, record.stderr, record.exit_code) == (FAILED, "dead", "five attempts", None)


def test_the_list_of_a_broadcast_is_the_output_of_a_good_result() -> None:
    record = record_of(JOB, "desk", "calcA", Verdict(PARTS, "[]"))
    assert (record.status, record.stdout, record.stderr, record.exit_code) == (OK, "[]", "", 0)


@pytest.mark.parametrize(
    ("effect", "kind"),
    [
        (ev.SendReceipts(CONN, [JOB, OTHER]), fr.RECEIPT),
        (ev.SendFetch(CONN, [JOB, OTHER]), fr.FETCH),
        (ev.SendWorkerConfirms(CONN, [JOB, OTHER]), fr.CONFIRM),
    ],
)
def test_ids_of_one_effect_are_one_frame(world: World, effect: object, kind: int) -> None:
    (frame,) = world.perform(effect)
    assert (frame.type, list(unpack_ids(frame.payload))) == (kind, [JOB, OTHER])


def test_more_ids_than_a_frame_holds_are_several_frames(world: World) -> None:
    count = PAYLOAD_BYTES_MAX // 16 + 1
    jobs = [JobId(number.to_bytes(16, "big")) for number in range(count)]
    frames = world.perform(ev.SendReceipts(CONN, jobs))
    assert len(frames) == 2
    assert [job for frame in frames for job in unpack_ids(frame.payload)] == jobs


def test_a_refusal_names_its_job(world: World) -> None:
    (frame,) = world.perform(ev.SendRefusal(CONN, JOB, "full", "no room"))
    refusal = read_refusal(frame.payload)
    assert (frame.type, frame.corr_id, refusal.code, refusal.message) == (fr.REFUSAL, JOB, "full", "no room")


def test_a_result_for_a_client_without_confirms_counts_as_delivered_once_written(world: World) -> None:
    (frame,) = world.perform(ev.SendResult(CONN, JOB, "calcA", b""), FakePeer(receipts=False))
    result = read_result(JOB, frame.payload)
    assert (result.job_id, result.exec_name, result.exit_code) == (show_job_id(JOB), "calcA", 0)
    assert world.posted == [ev.Confirmed(CONN, (JOB,))]


def test_a_refusal_as_a_result_is_not_a_delivery(world: World) -> None:
    effect = ev.SendResult(CONN, JOB, "", Verdict("full", "no room"), is_refusal=True)
    (frame,) = world.perform(effect, FakePeer(receipts=False))
    assert read_result(JOB, frame.payload).reason == "full"
    assert world.posted == []


def test_an_own_client_gets_the_bytes_of_a_result_as_they_are(world: World) -> None:
    for payload in (b"", b"any bytes"):
        (frame,) = world.perform(ev.SendResult(CONN, JOB, "calcA", payload))
        assert (frame.type, frame.msg_id, frame.payload) == (fr.RESULT, JOB, payload)
    assert world.posted == [], "it confirms by itself"


@pytest.mark.parametrize(("blobs", "packed"), [(False, False), (True, True)])
def test_content_that_a_peer_may_not_read_goes_another_way(world: World, blobs: bool, packed: bool) -> None:
    world.hub.packed = packed
    assert world.perform(ev.SendResult(CONN, JOB, "calcA", b"payload"), FakePeer(blobs=blobs)) == []
    assert world.to_old == [(JOB, b"payload")]


@pytest.mark.parametrize("is_client", [True, False])
def test_a_welcome_names_what_the_peer_can_use(world: World, is_client: bool) -> None:
    peer = FakePeer(is_client=is_client)
    peer.zstd = peer.rests = True
    (frame,) = world.perform(ev.SendWelcome(CONN), peer)
    welcome = read_welcome(frame.payload)
    assert {ZSTD, RESTS} <= set(welcome.wants)
    assert (CAPS in welcome.wants) is is_client
    assert welcome.blobs == ""


@pytest.mark.spec("O1")
def test_a_worker_hears_that_keys_have_rules_and_a_client_does_not(world: World) -> None:
    for have_rules in (False, True):
        world.keys.have_rules = have_rules
        for is_client in (False, True):
            (frame,) = world.perform(ev.SendWelcome(CONN), FakePeer(is_client=is_client))
            assert read_welcome(frame.payload).keys_have_rules is (have_rules and not is_client)


def test_an_answer_that_fits_no_frame_is_refused(world: World) -> None:
    small, large = (ExplainAnswer("one", "queued", ["x" * size]) for size in (1, fr.payload_max("")))
    (frame,) = world.perform(ev.SendAnswer(CONN, b"q" * 16, small))
    assert (frame.type, frame.corr_id, frame.subject, frame.payload) == (fr.ASK, b"q" * 16, "", encode(small))
    (frame,) = world.perform(ev.SendAnswer(CONN, b"q" * 16, large))
    assert (frame.subject, read_refusal(frame.payload).code) == ("refused", "too-big")


def test_reading_stops_and_goes_on(world: World) -> None:
    peer = FakePeer()
    world.perform(ev.PauseReading(CONN), peer)
    world.perform(ev.ResumeReading(CONN), peer)
    world.perform(ev.Complain(CONN, "odd"), peer)
    world.perform(ev.Close(CONN, "gone"), peer)
    assert peer.did == [True, False, "odd", "gone", "abort"]


def test_the_machine_is_told_when_all_is_written(world: World) -> None:
    world.perform(ev.TellWhenPeerWritten(CONN))
    assert world.posted == [ev.PeerWritten(CONN)]
