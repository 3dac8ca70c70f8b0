"""Which jobs of a client are unfinished, and how does each of them end exactly once?

A job ends with a result, with a refusal, or, when the session itself ends, with the session's error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientEvent, LeaderNo
from wakugumi.core.ids import ConnId, JobId
from wakugumi.errors import PeerError, Refused, WakugumiError
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.job import Job
from wakugumi.roles.client.request import Request
from wakugumi.roles.client.result import Result
from wakugumi.roles.client.session.connections import LeaderConnections
from wakugumi.wire.messages.job import FAILED, JobResult, empty_result, read_result


class JobBook:
    """Unfinished jobs by their ids. `post` hands events to `failover`."""

    def __init__(self, connections: LeaderConnections, uploads: Uploads, post: Callable[[ClientEvent], None]) -> None:
        self._connections = connections
        self._uploads = uploads
        self._post = post
        self.unfinished: dict[JobId, Job] = {}
        self._claimants: dict[JobId, int] = {}
        """Number of waiting callers for each job that was not submitted here."""
        self.request_bytes = 0
        """Bytes of requests, which are kept to be sent again."""
        self.ended: WakugumiError | None = None
        """Why there will be no more results."""

    def find(self, key: JobId) -> Job | None:
        return self.unfinished.get(key)

    def start(self, request: Request, item: object, leader: LeaderNo = ANY_LEADER) -> tuple[Job, bool]:
        """The job, and whether it is a new one. Raises Refused if its id is in use for another request."""
        if self.ended is not None:
            raise self.ended
        known = self.unfinished.get(request.job)
        if known is not None:
            if known.request.frame != request.frame:
                what = "under way for another request" if known.request.frame else "being waited for with `wait`"
                raise Refused("conflict", f"the job id {request.id} is {what}")
            return known, False
        job = Job(request, item, self)
        self.unfinished[request.job] = job
        self.request_bytes += len(request.frame)
        if request.is_held:
            self._uploads.hold(request.job, request.frame, request.attached, env=request.env)
        self._post(ev.Submit(request.job, request.frame, leader, request.given))
        return job, True

    async def claim(self, key: JobId, name: str, leader: LeaderNo = ANY_LEADER) -> Result:
        """The result of a job that was submitted before, to this leader if given."""
        job = self.unfinished.get(key)
        if job is not None:
            return await (self._await_claim(key, job) if key in self._claimants else job)
        if self.ended is not None:
            raise self.ended
        self.unfinished[key] = job = Job(Request(key, name, "", b""), None, self)
        self._claimants[key] = 0
        self._post(ev.ClaimJob(key, leader))
        return await self._await_claim(key, job)

    async def _await_claim(self, key: JobId, job: Job) -> Result:
        """The claim lives as long as a caller waits for it."""
        self._claimants[key] += 1
        try:
            return await job
        finally:
            self._claimants[key] -= 1
            if not self._claimants[key]:
                del self._claimants[key]
                if not job.done():
                    self.unfinished.pop(key, None)
                    self._post(ev.Forget(key))

    def cancel(self, jobs: Iterable[Job]) -> None:
        keys = [job.request.job for job in jobs]
        if keys:
            self._post(ev.Cancel(keys))
            for key in keys:
                self._uploads.cancel(key)

    # Effects of `failover`.

    def accepted(self, keys: Sequence[JobId]) -> None:
        jobs = self.unfinished
        for key in keys:
            job = jobs.get(key)
            if job is not None:
                job.accept()

    def deliver(self, results: Sequence[ev.ResultReceived]) -> None:
        jobs = self.unfinished
        conn, leader, place = ConnId(0), "", ""
        for event in results:
            job = jobs.pop(event.job, None)
            if job is None:
                continue
            self.request_bytes -= len(job.request.frame)
            if job.request.is_held:
                self._uploads.release(event.job)
            try:
                # No caller reads the id in a record: the user's own will do.
                record = read_result(event.job, event.payload) if event.payload else empty_result(job.id)
            except PeerError as error:
                record = JobResult(job.id, status=FAILED, stderr=str(error), reason="bad-result")
            if event.conn != conn:
                conn = event.conn
                leader, place = self._connections.origin(conn)
            job.end(Result(record, job.request.id, job.item, leader, place))

    def give_up(self, key: JobId, code: str, text: str) -> None:
        job = self.unfinished.pop(key, None)
        if job is None:
            return
        self.request_bytes -= len(job.request.frame)
        refusal = self._uploads.refusal(key) if job.request.is_held else None
        if job.request.is_held:
            self._uploads.release(key)
        if code == "cancelled":  # As from a leader: a cancelled job has a result.
            record = JobResult(job.id, "", job.request.program, FAILED, stderr=text, reason=code)
            job.end(Result(record, job.id, job.item))
        elif refusal is not None and (refusal.code, refusal.message) == (code, text):
            job.end(refusal)  # The refusal was made here, with a hint.
        else:
            job.end(Refused(code, text))

    def fail(self) -> None:
        """The session has ended for the reason in `ended`: end all jobs with it."""
        assert self.ended is not None
        jobs = list(self.unfinished.values())
        self.unfinished.clear()
        for job in jobs:
            job.end(self.ended)
