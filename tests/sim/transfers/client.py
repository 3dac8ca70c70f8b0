"""A client as a simulated process: the real uploads machine, with jobs that go from leader to leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.transfers.place import File
from tests.sim.transfers.sender import Heard, Line, Sender

from wakugumi.core.flows import Abandon, ActFailed, Perform
from wakugumi.core.ids import ConnId
from wakugumi.core.transfers import upload_events as up
from wakugumi.core.transfers.transfers import PutBlob, PutEnd
from wakugumi.core.transfers.uploads import UploadsMachine
from wakugumi.errors import Refused
from wakugumi.limits.files import UPLOADS_AT_ONCE_MAX

if TYPE_CHECKING:
    from tests.sim.transfers.leader import AskingLeader
    from tests.sim.transfers.world import TransferWorld


class SimBlob:
    """Content that a job brings."""

    def __init__(self, file: File, *, is_in_memory: bool) -> None:
        self.name = file.sha256
        self.size = file.size
        self.file = file
        self.is_in_memory = is_in_memory

    def __repr__(self) -> str:
        return repr(self.file)


class SimJob:
    """One job of a client, until it is taken or refused."""

    def __init__(self, number: int, blobs: dict[str, SimBlob], *, env: bool) -> None:
        self.about = bytes(8) + number.to_bytes(8, "big")
        self.frame = self.about + b" as it is"
        self.blobs = blobs
        self.env = env
        self.line: Line | None = None
        """Where it was sent."""
        self.unfit: set[str] = set()
        self.is_cancelled = False
        self.outcome = ""

    def __repr__(self) -> str:
        return f"job{int.from_bytes(self.about, 'big')}"


class UploadingClient(Sender):
    """One client. It is paused at times, and never dies: its jobs would die with it."""

    kind = "client"
    uploads: UploadsMachine

    def __init__(self, world: TransferWorld, number: int) -> None:
        super().__init__(world, f"client{number}", UPLOADS_AT_ONCE_MAX)
        self.jobs: dict[bytes, SimJob] = {}
        self.asked: dict[tuple[ConnId, bytes], dict[str, float]] = {}
        """Blobs that the machine knows to be asked for since the job was sent, and when they were missing."""
        self.due: set[tuple[ConnId, bytes]] = set()
        """Jobs that the machine was told to send."""

    def born(self) -> None:
        self.uploads = UploadsMachine(self.clock.now, self.random.random)
        self.machine = Heard(self.uploads, self._heard)
        for leader in self.here.leaders:
            self.later(3.0, lambda leader=leader: self._dial(leader))  # type: ignore[misc]

    def has_work(self) -> bool:
        return bool(self.uploads.jobs)

    # As the session and `failover` do.

    def _dial(self, leader: AskingLeader) -> None:
        if not leader.is_alive:
            self.later(5.0, lambda: self._dial(leader))
            return
        line = self.open_line(leader)
        self.post(up.LeaderOpened(line.conn))
        url = None if leader.is_old else line.place.url
        line.to_sender(lambda: self.later(leader.welcome_s, lambda: self._welcome(line, url)))
        for job in self.jobs.values():
            if job.line is None and not job.outcome:
                self._submit(job)

    def _welcome(self, line: Line, url: str | None) -> None:
        if line.is_open and not (line.leader.is_old and self.random.random() < 0.5):
            self.post(up.LeaderTakes(line.conn, url, url is not None))

    def lost(self, line: Line) -> None:
        del self.lines[line.conn]
        self.here.judge.new_streak(self.name)
        self.post(up.LeaderGone(line.conn))
        self.later(5.0, lambda: self._dial(line.leader))
        for job in self.jobs.values():
            if job.line is line:
                job.line = None
                self._submit(job)

    def start_job(self, job: SimJob) -> None:
        self.jobs[job.about] = job
        held = up.JobHeld(job.about, job.frame, job.blobs, job.env)
        self.here.tell(self.name, "holds", held)
        self.uploads.hold(held)
        self._submit(job)

    def _submit(self, job: SimJob) -> None:
        lines = [line for line in self.lines.values() if line.leader.name not in job.unfit]
        if lines and not job.outcome:
            conn = self.random.choice(lines).conn
            job.line = self.lines[conn]
            if self.has_heard_all and self.uploads.passes(conn, job.about):
                self.due.add((conn, job.about))
                self.here.tell(self.name, "passes on", up.SendJob(conn, job.frame))
                self._send(conn, job.frame)
            else:
                self.post(up.SubmitDue(conn, job.about))

    def accepted(self, job: SimJob) -> None:
        self._end(job, "done")

    def cancel(self, job: SimJob) -> None:
        if not job.outcome:
            job.is_cancelled = True
            self.post(up.HeldCancelled(job.about))
            if job.line is None or self.random.random() < 0.3:
                self._end(job, "cancelled")

    def _end(self, job: SimJob, outcome: str) -> None:
        if not job.outcome:
            job.outcome = outcome
            self.here.judge.counts[f"jobs: {outcome}"] += 1
            self.post(up.HeldEnded(job.about))

    # The machine.

    def _heard(self, event: Any) -> None:
        match event:
            case up.SubmitDue(conn, about):
                self.due.add((conn, about))
            case up.BlobsAsked(conn, about, blobs):
                asked = self.asked.setdefault((conn, about), {})
                asked |= dict.fromkeys(blobs, self.asked_at(event))
            case up.HeldEnded(about):
                self.here.judge.new_streak(self.name)
                for row in [row for row in self.asked if row[1] == about]:
                    del self.asked[row]

    def do(self, effect: Any) -> None:
        match effect:
            case Perform(number, PutBlob() as act):
                blob = act.blob
                assert isinstance(blob, SimBlob)
                self.put(number, act, blob.file)
            case Perform(number, up.InlineBlobs() as act):
                self.later(1.0, lambda: self._inline(number, act))
            case Abandon(number):
                self.abandon(number)
            case up.SendJob(conn, frame):
                self._send(conn, frame)
            case up.RefuseJob(conn, about, no):
                self._refused(conn, self.jobs[about], no)
            case up.JobUnfit(conn, about, no):
                self._unfit(conn, self.jobs[about], no)

    def translated(self, end: PutEnd) -> PutEnd:
        error = end.error
        if isinstance(error, Refused) and error.code == "disk":
            error = Refused("disk-full", error.message)
        return PutEnd(error, end.moved_s)

    def _inline(self, number: int, act: up.InlineBlobs) -> None:
        files = [blob.file for blob in act.blobs.values() if isinstance(blob, SimBlob)]
        if any(file.state != "whole" for file in files):
            self.post(ActFailed(number, Refused("bad-request", "an input was changed")))
        else:
            about = act.frame[:16]
            self.answer(number, b"inlined " + about if sum(file.size for file in files) < 5_000 else None)

    def _send(self, conn: ConnId, frame: bytes) -> None:
        about = frame.removeprefix(b"inlined ")[:16]
        job, line = self.jobs[about], self.lines.get(conn)
        if line is not None:
            self.here.judge.sent(self, line, job)
            line.to_leader(lambda: line.leader.submitted(line, self, job, frame))

    def _refused(self, conn: ConnId, job: SimJob, no: Refused) -> None:
        self.here.judge.refused(self, conn, job, no)
        if job.line is None or job.line.conn != conn:
            return
        if no.code == "disk-full" and not job.is_cancelled:
            job.line = None
            self._submit(job)
        else:
            self._end(job, f"refused: {no.code}" if not job.is_cancelled else "cancelled")

    def _unfit(self, conn: ConnId, job: SimJob, no: Refused) -> None:
        if job.line is None or job.line.conn != conn:
            return
        job.unfit.add(job.line.leader.name)
        job.line = None
        if len(job.unfit) == len(self.here.leaders):
            self._end(job, f"unfit: {no.code}")
        else:
            self._submit(job)
