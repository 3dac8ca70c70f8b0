"""Is a job sent again exactly when its blobs have arrived, and refused with a reason otherwise?"""

from __future__ import annotations

from typing import Any

import pytest

from wakugumi.core.flows import Abandon, ActFailed, Answered, Perform
from wakugumi.core.ids import ConnId
from wakugumi.core.transfers import upload_events as ev
from wakugumi.core.transfers.transfers import PutBlob, PutEnd
from wakugumi.core.transfers.uploads import UploadsMachine, could_fit
from wakugumi.errors import Lost, Refused
from wakugumi.limits.client import RECONNECT_MAX_S
from wakugumi.limits.files import UPLOAD_BROKEN_MAX, UPLOAD_ROUNDS_MAX, UPLOAD_UNREACHED_S, UPLOADS_AT_ONCE_MAX
from wakugumi.limits.wire import HELLO_DEADLINE_S, PAYLOAD_BYTES_MAX

ONE, TWO = ConnId(1), ConnId(2)
URL = "http://place"
A, B = "a" * 64, "b" * 64


class Blob:
    """Content of a test."""

    def __init__(self, name: str = "big.bin", size: int = 10, *, is_in_memory: bool = False) -> None:
        self.name = name
        self.size = size
        self.is_in_memory = is_in_memory


class Desk:
    """A machine at the hands of a test. All effects are noted; acts wait for `answer`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.machine = UploadsMachine(0.0, lambda: 0.5)
        self.acts: dict[int, Any] = {}
        self.done: list[Any] = []

    def hear(self, *events: ev.UploadsEvent) -> list[Any]:
        return self._note(self.machine.handle(events, self.now).do)

    def wait(self, seconds: float) -> list[Any]:
        until, did = self.now + seconds, []
        while (wake_at := self.machine.wake_at()) is not None and wake_at <= until:
            self.now = wake_at
            did += self._note(self.machine.tick(wake_at).do)
        self.now = until
        return did

    def answer(self, sha256: str = A, error: Lost | Refused | None = None, moved_s: float = 0.0) -> list[Any]:
        (number,) = (number for number, act in self.acts.items() if act.sha256 == sha256)
        del self.acts[number]
        return self.hear(Answered(number, PutEnd(error, moved_s)))

    def job(self, about: bytes = b"job", *, env: bool = False, **blobs: Blob) -> None:
        named = {name.lower() * 64: blob for name, blob in blobs.items()}
        self.hear(ev.JobHeld(about, b"frame of " + about, named, env))

    def leader(self, conn: ConnId = ONE, url: str | None = URL, *, env: bool = True) -> None:
        self.hear(ev.LeaderOpened(conn), ev.LeaderTakes(conn, url, env))

    def asks(self, *blobs: str, conn: ConnId = ONE, about: bytes = b"job") -> list[Any]:
        return self.hear(ev.BlobsAsked(conn, about, blobs))

    def _note(self, effects: Any) -> list[Any]:
        self.machine.check()
        said = []
        for effect in effects:
            match effect:
                case Perform():
                    self.acts[effect.number] = effect.act
                case Abandon():
                    del self.acts[effect.number]
                case ev.UploadWaits():
                    pass
                case _:
                    said.append(effect)
        self.done += said
        return said


def sent(about: bytes = b"job", conn: ConnId = ONE) -> ev.SendJob:
    return ev.SendJob(conn, b"frame of " + about)


def codes(effects: list[Any]) -> list[str]:
    return [effect.no.code for effect in effects]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_job_is_sent_again_when_all_its_blobs_have_arrived(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob(), B=Blob())
    assert desk.asks(A, B) == []
    assert desk.answer(A) == []
    assert desk.answer(B) == [sent()]
    desk.hear(ev.HeldEnded(b"job"))
    assert desk.machine.flows_open == 0


def test_a_blob_goes_to_a_place_once_for_all_jobs(desk: Desk) -> None:
    desk.leader()
    for about in (b"1", b"2"):
        desk.job(about, A=Blob())
        desk.asks(A, about=about)
    assert [act.url for act in desk.acts.values()] == [URL]
    assert desk.answer() == [sent(b"1"), sent(b"2")]


def test_few_blobs_travel_at_once(desk: Desk) -> None:
    desk.leader()
    names = "abcdef"
    desk.job(**{name: Blob() for name in names})
    desk.asks(*(name * 64 for name in names))
    assert len(desk.acts) == UPLOADS_AT_ONCE_MAX
    desk.answer(A)
    assert len(desk.acts) == UPLOADS_AT_ONCE_MAX


def test_a_leader_that_asks_twice_at_once_gets_the_job_once_its_blobs_are_there(desk: Desk) -> None:
    """Before, the job was sent while a blob was on its way, and then once more over no connection."""
    desk.leader()
    desk.job(A=Blob())
    desk.asks(A)
    assert desk.answer() == [sent()]
    desk.asks(A)
    assert desk.answer() == [], "the second time after a pause"
    desk.asks(A)
    assert desk.wait(RECONNECT_MAX_S) == [], "it is on its way again"
    desk.answer()
    assert desk.wait(RECONNECT_MAX_S) == [sent()]


def test_a_leader_that_asks_for_ever_is_refused(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob())
    for _ in range(UPLOAD_ROUNDS_MAX):
        assert desk.asks(A) == []
        desk.answer()
        desk.wait(RECONNECT_MAX_S)
    assert codes(desk.asks(A)) == ["no-blob"]
    assert not desk.acts


def test_a_lost_try_is_repeated_and_given_up_when_no_byte_goes_there(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob())
    desk.asks(A)
    while not desk.done:
        desk.answer(A, Lost("no route"), float("inf"))
        desk.wait(2 * RECONNECT_MAX_S)
    assert codes(desk.done) == ["no-leader"]
    assert desk.now > UPLOAD_UNREACHED_S
    for part in ("'big.bin'", URL, "no route"):
        assert part in desk.done[0].no.message


def test_a_place_that_takes_bytes_is_never_given_up(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob())
    desk.asks(A)
    while desk.now < 3 * UPLOAD_UNREACHED_S:
        desk.answer(A, Lost("cut"), 1.0)
        desk.wait(2 * RECONNECT_MAX_S)
    assert desk.answer() == [sent()]


@pytest.mark.parametrize(("code", "tries"), [("blob-broken", UPLOAD_BROKEN_MAX), ("denied", 1)])
def test_a_refusal_that_no_try_would_change_ends_the_job(desk: Desk, code: str, tries: int) -> None:
    desk.leader()
    desk.job(A=Blob(), B=Blob())
    desk.asks(A, B)
    for _ in range(tries):
        assert desk.done == []
        desk.answer(A, Refused(code, "no"))
        desk.wait(RECONNECT_MAX_S)
    assert codes(desk.done) == [code]
    assert not desk.acts, "its other blob stops"
    assert desk.machine.jobs[b"job"].refusal == desk.done[0].no


def test_a_busy_place_is_asked_for_ever(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob())
    desk.asks(A)
    for _ in range(100):
        desk.answer(A, Refused("blob-busy", "someone else"))
        desk.wait(2 * RECONNECT_MAX_S)
    assert desk.answer() == [sent()]


def test_an_act_that_fails_unforeseen_ends_its_jobs_alone(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob())
    desk.asks(A)
    (number,) = desk.acts
    assert codes(desk.hear(ActFailed(number, ZeroDivisionError("oh")))) == ["worker-error"]


def test_a_place_without_room_is_offered_the_job_again_after_growing_pauses(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob())
    desk.asks(A)
    assert codes(desk.answer(A, Refused("disk-full", "no room"))) == ["disk-full"]
    desk.asks(A)
    assert desk.answer(A, Refused("disk-full", "no room")) == []
    assert codes(desk.wait(RECONNECT_MAX_S)) == ["disk-full"]


def test_an_old_question_does_not_end_the_wait_for_room(desk: Desk) -> None:
    """Before, the blobs of the old question alone were sent, and then the job without the others."""
    desk.leader()
    desk.job(A=Blob(), B=Blob())
    for _ in range(2):
        desk.asks(A, B)
        desk.answer(A, Refused("disk-full", "no room"))
    assert desk.asks(B) == []
    assert not desk.acts
    assert codes(desk.wait(RECONNECT_MAX_S)) == ["disk-full"]


def test_a_changed_file_ends_its_own_jobs_and_no_others(desk: Desk) -> None:
    """Before, another job with the same content from elsewhere was refused too, for a file that it never named."""
    desk.leader()
    changed, whole = Blob("changed"), Blob("whole")
    desk.job(b"1", A=changed)
    desk.job(b"2", A=changed)
    desk.job(b"3", A=whole)
    for about in (b"1", b"2", b"3"):
        desk.asks(A, about=about)
    did = desk.answer(A, Refused("bad-request", "changed was changed"))
    assert [effect.about for effect in did] == [b"1", b"2"]
    assert [act.blob for act in desk.acts.values()] == [whole]
    assert desk.answer() == [sent(b"3")]


@pytest.mark.parametrize("when", ["before", "travelling", "pausing"])
def test_a_cancelled_job_is_refused_where_it_waits(desk: Desk, when: str) -> None:
    desk.leader()
    desk.job(A=Blob())
    if when != "before":
        desk.asks(A)
    if when == "pausing":
        desk.answer()
        desk.asks(A)
        desk.answer()
        desk.done.clear()
    desk.hear(ev.HeldCancelled(b"job"))
    if when == "before":
        desk.asks(A)
    assert codes(desk.done) == ["cancelled"]
    assert not desk.acts
    assert desk.wait(RECONNECT_MAX_S) == []


def test_content_that_the_job_does_not_bring_is_not_sent(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob())
    desk.asks(A)
    assert codes(desk.asks(B)) == ["no-blob"]
    assert not desk.acts


def test_with_its_leader_an_upload_ends_unless_another_connection_needs_it(desk: Desk) -> None:
    desk.leader()
    desk.leader(TWO)
    desk.job(b"1", A=Blob())
    desk.job(b"2", A=Blob())
    desk.asks(A, about=b"1")
    desk.asks(A, about=b"2", conn=TWO)
    desk.hear(ev.LeaderGone(ONE))
    assert len(desk.acts) == 1
    assert desk.answer() == [sent(b"2", TWO)]
    desk.asks(A, about=b"2", conn=TWO)
    desk.hear(ev.LeaderGone(TWO))
    assert not desk.acts
    assert desk.asks(A, about=b"2", conn=TWO) == []


def test_a_job_that_another_leader_asks_for_goes_there(desk: Desk) -> None:
    desk.leader()
    desk.leader(TWO, "http://elsewhere")
    desk.job(A=Blob())
    desk.asks(A)
    desk.asks(A, conn=TWO)
    assert [act.url for act in desk.acts.values()] == ["http://elsewhere"]
    assert desk.answer() == [sent(conn=TWO)]


def test_a_leader_that_asks_for_a_job_that_went_elsewhere_is_not_heard(desk: Desk) -> None:
    """Before, a late question took the uploads from the leader that had the job, and the job was sent to none."""
    desk.leader()
    desk.leader(TWO, "http://elsewhere")
    desk.job(A=Blob())
    assert desk.hear(ev.SubmitDue(ONE, b"job")) == [sent()]
    desk.asks(A)
    assert desk.hear(ev.SubmitDue(TWO, b"job")) == [sent(conn=TWO)]
    assert not desk.acts
    desk.asks(A, conn=TWO)
    desk.asks(A)
    assert [act.url for act in desk.acts.values()] == ["http://elsewhere"]
    assert desk.answer() == [sent(conn=TWO)]


def test_a_job_passes_unless_the_leader_does_not_take_it_or_another_one_asked_for_it(desk: Desk) -> None:
    desk.hear(ev.LeaderOpened(ONE))
    desk.job(A=Blob())
    assert desk.machine.passes(ONE, b"of no files")
    assert not desk.machine.passes(ONE, b"job"), "before its Welcome"
    desk.hear(ev.LeaderTakes(ONE, URL, True))
    desk.leader(TWO, None, env=False)
    assert desk.machine.passes(ONE, b"job")
    assert not desk.machine.passes(TWO, b"job"), "it takes no blobs"
    desk.hear(ev.LeaderTakes(TWO, URL, False))
    desk.asks(A)
    assert not desk.machine.passes(ONE, b"job"), "its blobs are on their way"
    desk.answer()
    assert desk.machine.passes(ONE, b"job")
    assert not desk.machine.passes(TWO, b"job"), "the machine must know that it went elsewhere"
    desk.job(b"small", env=True)
    assert desk.machine.passes(ONE, b"small")
    assert not desk.machine.passes(TWO, b"small")


def test_a_job_waits_for_the_welcome(desk: Desk) -> None:
    desk.hear(ev.LeaderOpened(ONE))
    desk.job(A=Blob())
    assert desk.hear(ev.SubmitDue(ONE, b"job")) == []
    assert desk.machine.waits_for_welcome(b"job")
    assert desk.hear(ev.LeaderTakes(ONE, URL, True)) == [sent()]
    assert desk.wait(2 * HELLO_DEADLINE_S) == []


@pytest.mark.parametrize("answer", [b"all in one", None, Refused("bad-request", "gone")])
def test_a_leader_without_a_welcome_gets_what_fits_a_frame(desk: Desk, answer: bytes | Refused | None) -> None:
    desk.hear(ev.LeaderOpened(ONE))
    desk.job(A=Blob())
    desk.hear(ev.SubmitDue(ONE, b"job"))
    assert desk.wait(HELLO_DEADLINE_S) == []
    ((number, act),) = desk.acts.items()
    assert isinstance(act, ev.InlineBlobs)
    did = desk.hear(ActFailed(number, answer) if isinstance(answer, Refused) else Answered(number, answer))
    if answer == b"all in one":
        assert did == [ev.SendJob(ONE, answer)]
    else:
        assert codes(did) == ["bad-request" if answer else "too-big"]


@pytest.mark.parametrize("gone", ["job", "leader"])
def test_a_frame_that_was_made_too_late_is_not_sent(desk: Desk, gone: str) -> None:
    desk.leader(url=None)
    desk.job(A=Blob())
    desk.hear(ev.SubmitDue(ONE, b"job"))
    (number,) = desk.acts
    desk.hear(ev.HeldEnded(b"job") if gone == "job" else ev.LeaderGone(ONE))
    assert desk.hear(Answered(number, b"frame")) == []


def test_a_leader_gets_no_job_that_it_does_not_take(desk: Desk) -> None:
    desk.leader(url=None, env=False)
    desk.job(b"1", A=Blob(size=PAYLOAD_BYTES_MAX))
    desk.job(b"2", env=True)
    assert codes(desk.hear(ev.SubmitDue(ONE, b"1"), ev.SubmitDue(ONE, b"2"))) == ["too-big", ev.NO_VARIABLES]
    assert all(isinstance(effect, ev.JobUnfit) for effect in desk.done)


def test_content_in_memory_counts_once(desk: Desk) -> None:
    desk.job(b"1", A=Blob(is_in_memory=True))
    desk.job(b"2", A=Blob(is_in_memory=True), B=Blob(size=5, is_in_memory=True))
    assert desk.machine.held_bytes == 15
    desk.hear(ev.HeldEnded(b"2"))
    assert desk.machine.held_bytes == 10
    desk.hear(ev.HeldEnded(b"1"))
    assert desk.machine.held_bytes == 0


def test_a_closed_machine_leaves_no_flow(desk: Desk) -> None:
    desk.leader()
    desk.job(A=Blob())
    desk.asks(A)
    desk.machine.close()
    assert desk.machine.flows_open == 0


def test_only_small_content_can_fit_a_frame() -> None:
    assert could_fit({A: Blob(size=PAYLOAD_BYTES_MAX // 2)})
    assert not could_fit({A: Blob(size=PAYLOAD_BYTES_MAX // 2), B: Blob(size=PAYLOAD_BYTES_MAX // 2)})


def test_the_source_of_a_blob_goes_along(desk: Desk) -> None:
    desk.leader()
    blob = Blob()
    desk.job(A=blob)
    desk.asks(A)
    assert list(desk.acts.values()) == [PutBlob(URL, A, blob)]
