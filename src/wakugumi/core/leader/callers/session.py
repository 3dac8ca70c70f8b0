"""What does one session of a client id know about its jobs? A session is a client's connection inside the leader.

At most one request per job waits in a session, so a refusal belongs to that request; a second one gets another session.
A job goes on if its caller disconnects: the session confirms the result, and the leader keeps it for a repeated
request. A repeated request replaces the disconnected caller while the job is unfinished. It is answered only after its
own receipt: an earlier result may be the answer to another request.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.callers.events import (
    CallersDo,
    DropRequest,
    GiveResult,
    RefuseRequest,
    ReleaseRequest,
    TellLeader,
)


class LeftJob(NamedTuple):
    """A job whose caller disconnected before its result."""

    is_told: bool
    """The leader has answered that caller's request, and has the job."""
    goes_on: bool
    """The leader has the job even if it refuses that request: an earlier caller left the job here."""


_GOES_ON: Final = LeftJob(is_told=True, goes_on=True)


class CallerRequest:
    """A request that waits for its job, or whose result is not confirmed."""

    __slots__ = ("answered_at", "goes_on", "is_told", "job", "number", "session")

    def __init__(self, number: int, job: JobId, session: CallerSession, *, goes_on: bool) -> None:
        self.number = number
        self.job = job
        self.session = session
        self.goes_on = goes_on
        """It replaces a disconnected caller, whose result is not here yet."""
        self.is_told = False
        """The leader has answered this request, and has the job."""
        self.answered_at: float | None = None
        """None while the request waits for its job."""


class CallerSession:
    """One of the connections of one client id inside the leader."""

    __slots__ = ("_do", "_requests", "client", "conn", "left", "sight", "unread", "used_at", "waiting")

    def __init__(
        self,
        conn: ConnId,
        client: ClientId,
        sight: Sight | None,
        now: float,
        requests: dict[int, CallerRequest],
        do: list[CallersDo],
    ) -> None:
        self.conn = conn
        self.client = client
        self.sight = sight
        """Sight of all callers of this session."""
        self.waiting: dict[JobId, CallerRequest] = {}
        self.left: dict[JobId, LeftJob] = {}
        """Jobs whose callers disconnected before their results."""
        self.unread: dict[JobId, list[CallerRequest]] = {}
        """Requests that were answered with a result which is not written yet, or never will be."""
        self.used_at = now
        self._requests = requests
        self._do = do

    def takes(self, job: JobId) -> bool:
        """No request waits for this job here, or left before its receipt."""
        return job not in self.waiting and ((left := self.left.get(job)) is None or left.is_told)

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.left or self.unread)

    # Requests.

    def enter(self, number: int, job: JobId, now: float) -> None:
        """A request begins to wait for this job."""
        request = CallerRequest(number, job, self, goes_on=self.left.pop(job, None) is not None)
        self.waiting[job] = self._requests[number] = request
        self.used_at = now

    def gone(self, request: CallerRequest, *, is_stopping: bool) -> None:
        """The caller disconnected. A result that it did not read stays unconfirmed, in case the request is repeated; a
        stopping leader does not wait for that."""
        if request.answered_at is None:
            self._end(request)
            self.left[request.job] = LeftJob(request.is_told, request.goes_on)
            self._do.append(DropRequest(request.number))
        elif is_stopping:
            self.confirm(request.job)

    def confirm(self, job: JobId) -> None:
        """A request was answered with the result, or no caller is expected to read it."""
        self._release(job)
        self._do.append(TellLeader(ev.Confirmed(self.conn, (job,))))

    def refuse(self, request: CallerRequest, code: str, text: str) -> None:
        self._end(request)
        if request.goes_on and not request.is_told:
            self.left[request.job] = _GOES_ON
        self._do.append(RefuseRequest(request.number, code, text))

    def close(self, code: str, text: str) -> None:
        """The session ends: all of its requests are refused or released."""
        for request in list(self.waiting.values()):
            self.refuse(request, code, text)
        for job in list(self.unread):
            self._release(job)

    def confirm_unread(self, until: float) -> None:
        """Confirm results that were last given to a request by then."""
        for job, requests in list(self.unread.items()):
            if (requests[-1].answered_at or 0.0) <= until:
                self.confirm(job)

    # Effects of the leader's machine.

    def result_came(self, effect: ev.SendResult, now: float) -> None:
        left = self.left.pop(effect.job, None)
        if left is not None and left.goes_on and not left.is_told:  # The last caller's request is not answered yet.
            self.left[effect.job] = LeftJob(is_told=False, goes_on=False)
        request = self.waiting.get(effect.job)
        if request is None:  # Confirmed for the disconnected caller, and kept for a repeated request.
            self.confirm(effect.job)
        elif request.goes_on and not request.is_told:  # This result answers the disconnected caller.
            request.goes_on = False
            self.confirm(effect.job)
        else:
            del self.waiting[effect.job]
            self.unread.setdefault(effect.job, []).append(request)
            request.answered_at = now
            self._do.append(GiveResult(request.number, effect))

    def receipt_came(self, job: JobId) -> None:
        if (request := self.waiting.get(job)) is not None:
            request.is_told = True
        elif job in self.left:
            self.left[job] = _GOES_ON

    def refusal_came(self, effect: ev.SendRefusal) -> None:
        left = self.left.pop(effect.job, None)
        if left is not None and left.goes_on and not left.is_told:
            self.left[effect.job] = _GOES_ON
        if (request := self.waiting.get(effect.job)) is not None:
            self.refuse(request, effect.code, effect.text)

    def _end(self, request: CallerRequest) -> None:
        del self.waiting[request.job]
        del self._requests[request.number]

    def _release(self, job: JobId) -> None:
        for request in self.unread.pop(job, ()):
            del self._requests[request.number]
            self._do.append(ReleaseRequest(request.number))
