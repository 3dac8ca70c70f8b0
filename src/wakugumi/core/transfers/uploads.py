"""How does the content of a job reach its leader, and how often is an upload tried before it is given up?

    SubmitJob ─► leader: Missing ─► the blobs it names go to its place ─► the same SubmitJob again

Content is sent when the leader asks for it, and not before; for `failover` the job counts as sent all the while. Broken
uploads are resumed while the connection to that leader lives; after it, `failover` sends the job anew, and blobs that
have arrived count. A blob goes to a place once, however many jobs wait for it. Cache puts are uploaded the same way.

A leader that takes no blobs gets a job with all content in its frame, if that fits. The job waits here until the
leader's Welcome arrives or is long overdue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from wakugumi.core.backoff import with_jitter
from wakugumi.core.flows import ActFailed, Answered, Flows, Timer
from wakugumi.core.ids import ConnId
from wakugumi.core.step import Step
from wakugumi.core.transfers.transfers import (
    GivenUp,
    Outcome,
    PutBlob,
    RetryRule,
    Transfer,
    Transfers,
    TryAgain,
    Turns,
)
from wakugumi.core.transfers.upload_events import (
    Blobs,
    BlobsAsked,
    HeldCancelled,
    HeldEnded,
    InlineBlobs,
    JobHeld,
    JobUnfit,
    LeaderGone,
    LeaderOpened,
    LeaderTakes,
    RefuseJob,
    SendJob,
    SubmitDue,
    UploadsDo,
    UploadsEvent,
    UploadWaits,
    no_variables,
    too_big_for_old,
)
from wakugumi.errors import Lost, Refused
from wakugumi.limits.client import RECONNECT_FIRST_S, RECONNECT_MAX_S
from wakugumi.limits.files import UPLOAD_BROKEN_MAX, UPLOAD_ROUNDS_MAX, UPLOAD_UNREACHED_S, UPLOADS_AT_ONCE_MAX
from wakugumi.limits.wire import HELLO_DEADLINE_S, PAYLOAD_BYTES_MAX

Key: TypeAlias = tuple[str, str]
"""URL of the place, and SHA-256."""


class HeldJob:
    """A job or a put that names blobs, until its end."""

    def __init__(self, event: JobHeld) -> None:
        self.about = event.about
        self.frame = event.frame
        self.blobs = event.blobs
        self.env = event.env
        self.is_cancelled = False
        self.sent_to = ConnId(0)
        """Connection that should have the job; 0 for a put, or if only `asked_by` can have it."""
        self.asked_by = ConnId(0)
        self.rounds = 0
        """Number of requests for blobs by `asked_by`."""
        self.conn = ConnId(0)
        """Connection that asks for blobs, or where the job will be offered again; 0 if none."""
        self.left: dict[str, Transfer[Key, None]] = {}
        """Blobs that have not arrived there yet."""
        self.later: Timer | None = None
        """Timer to send the job again, or to refuse it."""
        self.waits_for_room = False
        """`later` refuses the job."""
        self.refusals = 0
        """Number of times that a place had no room for it."""
        self.refusal: Refused | None = None
        """The last refusal."""


class _LeaderLink:
    """A connected leader."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.is_known = False
        """The Welcome has arrived, or is overdue."""
        self.url: str | None = None
        """The place for blobs."""
        self.env = False
        """Jobs with variables go only to workers that support them."""
        self.waiting: dict[bytes, HeldJob] = {}
        """Jobs that wait for the Welcome."""
        self.over: Timer | None = None

    def takes(self, job: HeldJob) -> bool:
        return (self.url is not None or not job.blobs) and (self.env or not job.env)


class UploadsMachine:
    """Content of one client's unfinished jobs and puts. See `core/step.py` for the four doors."""

    def __init__(self, now: float, chance: Callable[[], float]) -> None:
        self.held_bytes = 0
        """Bytes of content in memory, each blob counted once."""
        self.jobs: dict[bytes, HeldJob] = {}
        self._chance = chance
        self._flows = Flows(now)
        self._leaders: dict[ConnId, _LeaderLink] = {}
        self._in_memory: dict[str, int] = {}
        """Number of holders of each blob in memory."""
        self.turns = Turns(self._flows, UPLOADS_AT_ONCE_MAX)
        rule = RetryRule(RECONNECT_FIRST_S, RECONNECT_MAX_S, broken_max=UPLOAD_BROKEN_MAX, still_s=UPLOAD_UNREACHED_S)
        self.transfers: Transfers[Key, None] = Transfers(self._flows, rule, chance)
        self.transfers.on_retry = self._tell_retry

    def handle(self, events: Sequence[UploadsEvent], now: float) -> Step[None, UploadsDo]:
        self._flows.now = now
        for event in events:
            match event:
                case Answered() | ActFailed():
                    self._flows.hear(event)
                case JobHeld():
                    self.hold(event)
                case HeldEnded():
                    self.release(event.about)
                case HeldCancelled():
                    self._cancel(event.about)
                case LeaderOpened():
                    self._leaders[event.conn] = _LeaderLink(now)
                case LeaderTakes():
                    self._welcomed(event)
                case LeaderGone():
                    self._gone(event.conn)
                case SubmitDue():
                    self._submit(event.conn, event.about)
                case BlobsAsked():
                    self._asked(event)
        return Step(do=self._flows.run(now))

    def tick(self, now: float) -> Step[None, UploadsDo]:
        return Step(do=self._flows.run(now))

    def wake_at(self) -> float | None:
        return self._flows.wake_at()

    def check(self) -> None:
        self._flows.check()
        self.turns.check()
        self.transfers.check()
        waiting = 0
        for job in self.jobs.values():
            assert job.conn in self._leaders or not job.conn
            assert not (job.left and job.later)
            assert bool(job.conn) == bool(job.left or job.later)
            for sha256, transfer in job.left.items():
                assert transfer.key[1] == sha256
                assert job.about in transfer.waiting
            waiting += len(job.left)
        assert waiting == sum(len(transfer.waiting) for transfer in self.transfers.by_key.values())
        for leader in self._leaders.values():
            assert all(self.jobs.get(about) is job for about, job in leader.waiting.items())
        brought = [row for job in self.jobs.values() for row in job.blobs.items()]
        in_memory = {sha256: blob.size for sha256, blob in brought if blob.is_in_memory}
        assert self.held_bytes == sum(in_memory.values())

    def close(self) -> None:
        """Ends all flows where they rest."""
        self._flows.close()

    @property
    def flows_open(self) -> int:
        return self._flows.count

    def waits_for_welcome(self, about: bytes) -> bool:
        return any(about in leader.waiting for leader in self._leaders.values())

    def passes(self, conn: ConnId, about: bytes) -> bool:
        """May the job go to this leader as it is? Then no effect would follow from SubmitDue but SendJob."""
        job, leader = self.jobs.get(about), self._leaders.get(conn)
        if job is None:
            return True
        if leader is None or not leader.is_known or not leader.takes(job):
            return False
        return not job.blobs or (not job.conn and job.asked_by in {conn, ConnId(0)} and not job.sent_to)

    # Jobs and puts. `hold` has no effect, nor has `release` unless the job waits for its blobs: without an effect the
    # call is enough, and costs a small job with variables less than an event.

    def hold(self, event: JobHeld) -> None:
        self.jobs[event.about] = HeldJob(event)
        for sha256, blob in event.blobs.items():
            if blob.is_in_memory:
                count = self._in_memory.get(sha256, 0)
                self._in_memory[sha256] = count + 1
                self.held_bytes += 0 if count else blob.size

    def release(self, about: bytes) -> None:
        job = self.jobs.pop(about, None)
        if job is None:
            return
        self._leave(job)
        for leader in self._leaders.values():
            leader.waiting.pop(about, None)
        for sha256, blob in job.blobs.items():
            if blob.is_in_memory:
                self._in_memory[sha256] -= 1
                if not self._in_memory[sha256]:
                    del self._in_memory[sha256]
                    self.held_bytes -= blob.size

    def _cancel(self, about: bytes) -> None:
        job = self.jobs.get(about)
        if job is not None:
            job.is_cancelled = True
            if conn := job.conn:
                self._leave(job)
                self._refuse(conn, job, _cancelled())

    # Leaders.

    def _welcomed(self, event: LeaderTakes) -> None:
        if (leader := self._leaders.get(event.conn)) is not None:
            leader.url, leader.env = event.url, event.env
            self._leader_known(event.conn, leader)

    def _leader_known(self, conn: ConnId, leader: _LeaderLink) -> None:
        leader.is_known = True
        if leader.over is not None:
            leader.over.cancel()
        waiting, leader.waiting = leader.waiting, {}
        for job in waiting.values():
            self._go(conn, leader, job)

    def _gone(self, conn: ConnId) -> None:
        leader = self._leaders.pop(conn, None)
        if leader is not None and leader.over is not None:
            leader.over.cancel()
        for job in self.jobs.values():
            if job.conn == conn:
                self._leave(job)

    def _submit(self, conn: ConnId, about: bytes) -> None:
        job, leader = self.jobs.get(about), self._leaders.get(conn)
        if job is None or leader is None:
            return
        if job.conn != conn:
            self._leave(job)
        job.sent_to = conn
        if leader.is_known:
            self._go(conn, leader, job)
            return
        leader.waiting[about] = job
        if leader.over is None:
            until = leader.since + HELLO_DEADLINE_S
            leader.over = self._flows.call_at(until, partial(self._leader_known, conn, leader))

    def _go(self, conn: ConnId, leader: _LeaderLink, job: HeldJob) -> None:
        if leader.takes(job):
            self._flows.emit(SendJob(conn, job.frame))
        elif job.env and not leader.env:
            self._misfit(conn, job, no_variables())
        elif could_fit(job.blobs):
            self._flows.start(partial(self._send_inlined, conn, leader, job), "read files for an old leader")
        else:
            self._misfit(conn, job, too_big_for_old())

    async def _send_inlined(self, conn: ConnId, leader: _LeaderLink, job: HeldJob) -> None:
        frame, no = None, None
        try:
            frame = await InlineBlobs(job.frame, job.blobs)
        except Refused as error:
            no = error
        except Exception as error:
            no = Refused("worker-error", f"the job's files cannot be read: {error!r}"[:300])
        if self.jobs.get(job.about) is not job or self._leaders.get(conn) is not leader:
            return
        if no is not None:
            self._refuse(conn, job, no)
        elif job.is_cancelled:
            self._refuse(conn, job, _cancelled())
        elif frame is None:
            self._misfit(conn, job, too_big_for_old())
        else:
            self._flows.emit(SendJob(conn, frame))

    def _misfit(self, conn: ConnId, job: HeldJob, no: Refused) -> None:
        job.refusal = no
        self._flows.emit(JobUnfit(conn, job.about, no))

    def _refuse(self, conn: ConnId, job: HeldJob, no: Refused) -> None:
        job.refusal = no
        self._flows.emit(RefuseJob(conn, job.about, no))

    # Blobs on their way.

    def _asked(self, event: BlobsAsked) -> None:
        conn, job, leader = event.conn, self.jobs.get(event.about), self._leaders.get(event.conn)
        if job is None or leader is None or leader.url is None or job.sent_to not in {conn, ConnId(0)}:
            return  # Also if the job went to another leader meanwhile.
        if job.conn != conn:
            self._leave(job)
        elif job.waits_for_room:
            return  # The question is older than the refusal, which leads to a new one.
        if job.asked_by != conn:
            job.asked_by, job.rounds = conn, 0
        job.rounds += 1
        no = _why_not(job, event.blobs)
        if no is not None:
            self._leave(job)
            self._refuse(conn, job, no)
            return
        if job.later is not None:
            job.later.cancel()
        job.conn, job.later = conn, None
        for sha256 in event.blobs:
            if sha256 not in job.left:
                self._join(leader.url, job, sha256)
        if not job.left:
            self._send_again(job)

    def _join(self, url: str, job: HeldJob, sha256: str) -> None:
        """A broken source ends only jobs with this source: others bring the same content from elsewhere."""
        blob = job.blobs[sha256]

        async def put(_transfer: Transfer[Key, None]) -> None:
            async with self.turns:
                end = await PutBlob(url, sha256, blob)
            error = end.error
            if isinstance(error, Lost):
                raise TryAgain(error, moved_s=end.moved_s)
            if error is not None and error.code in {"blob-busy", "blob-broken"}:
                raise TryAgain(error, is_broken=error.code == "blob-broken")
            if error is not None:
                raise error

        def ended(outcome: Outcome[None]) -> None:
            sent = job.left.pop(sha256).ticket
            if isinstance(outcome, GivenUp):
                no = _why_given_up(url, blob.name, outcome)
                if no.code == "bad-request" and sent != blob:
                    self._join(url, job, sha256)
                else:
                    self._failed(job, no)
            elif not job.left:
                self._send_again(job)

        transfer = job.left[sha256] = self.transfers.join((url, sha256), job.about, put, ended)
        if transfer.ticket is None:
            transfer.ticket = blob

    def _tell_retry(self, transfer: Transfer[Key, None], again: TryAgain, _pause_s: float) -> None:
        url, sha256 = transfer.key
        job = self.jobs[next(iter(transfer.waiting))]  # type: ignore[index]
        self._flows.emit(UploadWaits(url, job.blobs[sha256].name, again.error, transfer.tries))

    def _failed(self, job: HeldJob, no: Refused) -> None:
        conn = job.conn
        self._leave(job)
        job.rounds = 0
        if no.code != "disk-full":
            self._refuse(conn, job, no)
            return
        # Offer the job again, to others and here: at once the first time, then after growing pauses.
        job.refusals += 1
        if job.refusals == 1:
            self._refuse(conn, job, no)
            return

        def refuse() -> None:
            self._leave(job)
            self._refuse(conn, job, no)

        job.conn, job.waits_for_room = conn, True
        self._later(job, min(RECONNECT_FIRST_S * 2 ** min(job.refusals - 2, 16), RECONNECT_MAX_S), refuse)

    def _send_again(self, job: HeldJob) -> None:
        """Send the same frame over the same connection: at once the first time, then after growing pauses."""
        conn = job.conn

        def send() -> None:
            job.conn, job.later = ConnId(0), None
            self._flows.emit(SendJob(conn, job.frame))

        if job.rounds == 1:
            send()
        else:
            self._later(job, min(RECONNECT_FIRST_S * 2 ** (job.rounds - 2) / 4, RECONNECT_MAX_S), send)

    def _later(self, job: HeldJob, pause_s: float, call: Callable[[], None]) -> None:
        job.later = self._flows.call_at(self._flows.now + with_jitter(pause_s, self._chance()), call)

    def _leave(self, job: HeldJob) -> None:
        """Stop all uploads for it that no other job needs."""
        if job.later is not None:
            job.later.cancel()
        for transfer in job.left.values():
            self.transfers.leave(transfer, job.about)
        job.conn, job.left, job.later, job.waits_for_room = ConnId(0), {}, None, False


def could_fit(blobs: Blobs) -> bool:
    """Is it worth to try? Decided by the sizes, without reading."""
    return sum(blob.size for blob in blobs.values()) * 4 // 3 <= PAYLOAD_BYTES_MAX


def _why_not(job: HeldJob, blobs: Sequence[str]) -> Refused | None:
    """Reason not to send these blobs."""
    if job.is_cancelled:
        return _cancelled()
    if any(sha256 not in job.blobs for sha256 in blobs):
        return Refused("no-blob", "the leader asks for content that nobody brought along")
    if job.rounds > UPLOAD_ROUNDS_MAX:
        return Refused("no-blob", "the leader asks again and again for content that it received")
    return None


def _why_given_up(url: str, name: str, end: GivenUp) -> Refused:
    if end.unforeseen is not None:
        return Refused("worker-error", f"{name!r} cannot be sent: {end.unforeseen!r}"[:300])
    if end.still_s:
        return Refused(
            "no-leader",
            f"{name!r} cannot be sent to {url}: no byte has gone there for {end.still_s:.0f} s: {end.error}",
            hint="the leader gave this address; it must be one that can be reached from here",
        )
    assert isinstance(end.error, Refused)
    return end.error


def _cancelled() -> Refused:
    return Refused("cancelled", "the job was cancelled before its files had arrived")
