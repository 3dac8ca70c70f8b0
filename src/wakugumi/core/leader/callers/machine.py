"""How does a caller by HTTP become a client of the leader's machine? The machine of all callers of one leader, with the
four doors of `core/step.py`.

    JobWanted ──► session of its client id ──► Submitted ──► dispatch ──► SendResult ──► session ──► GiveResult

The job of an HTTP request is treated like any other: journalled, fair, capped, explained (SPEC L5–L9).
The result is confirmed once its answer is written. If the caller disconnects meanwhile, the result stays unconfirmed
for HTTP_UNREAD_S, in case the request is repeated; a stopping leader does not wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.callers.events import (
    AnswerWritten,
    CallersClosed,
    CallersDo,
    CallersEvent,
    CallersSeen,
    HttpCallerGone,
    JobWanted,
    LookAtCallers,
    RefuseRequest,
    ResultsAdopted,
    SessionClosed,
    SessionOpened,
    TellLeader,
    WarnOfCaller,
)
from wakugumi.core.leader.callers.session import CallerRequest, CallerSession, LeftJob
from wakugumi.core.step import Step
from wakugumi.errors import Refused
from wakugumi.limits.http import HTTP_CLIENTS_MAX, HTTP_GONE_S, HTTP_LINGER_S, HTTP_UNREAD_S

_STOPPING: Final = ("stopping", "the leader is shutting down")


class CallerBounds(NamedTuple):
    """Times and numbers of a leader's callers; the limits have their reasons."""

    gone_s: float = HTTP_GONE_S
    linger_s: float = HTTP_LINGER_S
    unread_s: float = HTTP_UNREAD_S
    clients_max: int = HTTP_CLIENTS_MAX


CALLERS: Final = CallerBounds()


class CallersMachine:
    """All callers of one leader by HTTP. See `core/step.py` for the four doors."""

    def __init__(self, cap: int, new_conn: Callable[[], ConnId], bounds: CallerBounds) -> None:
        """`cap` bounds the jobs in flight of one client id."""
        self.bounds = bounds
        self._cap = cap
        self._new_conn = new_conn
        self.clients: dict[ClientId, list[CallerSession]] = {}
        self.sessions: dict[ConnId, CallerSession] = {}
        self.requests: dict[int, CallerRequest] = {}
        """All requests that wait, or whose results are not confirmed."""
        self._look_at: float | None = None
        self._is_closed = False
        self._do: list[CallersDo] = []

    def handle(self, events: Sequence[CallersEvent], now: float) -> Step[None, CallersDo]:
        for event in events:
            match event:
                case ev.LeaderDo():
                    self._perform(event, now)
                case JobWanted():
                    self._want(event, now)
                case AnswerWritten():
                    if (request := self.requests.get(event.request)) is not None:
                        request.session.confirm(request.job)
                case HttpCallerGone():
                    self._gone(event.request, is_stopping=False)
                case CallersSeen():
                    for number in event.gone:
                        self._gone(number, is_stopping=event.is_stopping)
                case ResultsAdopted():
                    self._adopt(event.by_client, now)
                case CallersClosed():
                    self._is_closed, self._look_at = True, None
                    for request in list(self.requests.values()):
                        if request.answered_at is None:
                            request.session.refuse(request, *_STOPPING)
        return self._step()

    def tick(self, now: float) -> Step[None, CallersDo]:
        if self._look_at is not None and now >= self._look_at:
            self._look(now)
        return self._step()

    def wake_at(self) -> float | None:
        return self._look_at

    @property
    def waiting(self) -> int:
        """Requests that wait for a result."""
        return sum(len(session.waiting) for session in self.sessions.values())

    def check(self) -> None:
        assert not self._do
        assert self._look_at is not None or self._is_closed or not self.sessions
        assert sum(map(len, self.clients.values())) == len(self.sessions)
        for conn, session in self.sessions.items():
            assert session.conn == conn
            assert session in self.clients[session.client]
            assert not session.waiting.keys() & session.left.keys()
            assert all(session.unread.values())
        for number, request in self.requests.items():
            assert request.number == number
            assert self.sessions[request.session.conn] is request.session
            if request.answered_at is None:
                assert request.session.waiting[request.job] is request
            else:
                assert request in request.session.unread[request.job]
        assert len(self.requests) == sum(
            len(session.waiting) + sum(map(len, session.unread.values())) for session in self.sessions.values()
        )

    def _step(self) -> Step[None, CallersDo]:
        do = self._do.copy()
        self._do.clear()  # Its sessions add to the same list.
        return Step(do=do)

    # Requests.

    def _want(self, event: JobWanted, now: float) -> None:
        try:
            session = self._session(event.client, event.sight, event.job, now)
        except Refused as error:
            self._do.append(RefuseRequest(event.request, error.code, error.message))
            return
        session.enter(event.request, event.job, now)
        self._do.append(TellLeader(replace(event.event, conn=session.conn)))

    def _session(self, client: ClientId, sight: Sight | None, job: JobId, now: float) -> CallerSession:
        """A session of this client and sight that takes this job, or else a new one. Raises Refused."""
        if self._is_closed:
            raise Refused(*_STOPPING)
        for session in self.clients.get(client, ()):
            if session.takes(job) and session.sight == sight:
                return session
        if client not in self.clients and len(self.clients) >= self.bounds.clients_max:
            raise Refused("full", f"{len(self.clients)} client ids are in use over HTTP")
        session = CallerSession(self._new_conn(), client, sight, now, self.requests, self._do)
        self.clients.setdefault(client, []).append(session)
        self.sessions[session.conn] = session
        joined = ev.ClientJoined(session.conn, client, self._cap, receipts=True, heartbeats=False, sight=sight)
        self._do += (SessionOpened(session.conn), TellLeader(joined))
        if self._look_at is None:
            self._look_at = now + self.bounds.gone_s
        return session

    def _adopt(self, by_client: Mapping[ClientId, Sequence[JobId]], now: float) -> None:
        """Claim these results, and confirm each that arrives."""
        for client, jobs in by_client.items():
            try:
                session = self._session(client, None, jobs[0], now)
            except Refused:  # Too many clients, or stopping: other callers ask for theirs.
                return
            session.left.update(dict.fromkeys(jobs, LeftJob(is_told=False, goes_on=False)))
            self._do.append(TellLeader(ev.Claimed(session.conn, tuple(jobs))))

    def _gone(self, number: int, *, is_stopping: bool) -> None:
        if (request := self.requests.get(number)) is not None:
            request.session.gone(request, is_stopping=is_stopping)

    # Time.

    def _look(self, now: float) -> None:
        """Ask which callers are gone, confirm results that were not read in time, and close sessions unused for
        `linger_s`."""
        if self.requests:
            self._do.append(LookAtCallers(tuple(self.requests)))
        for session in list(self.sessions.values()):
            session.confirm_unread(now - self.bounds.unread_s)
            if not session.is_idle:
                session.used_at = now
            elif now - session.used_at >= self.bounds.linger_s:
                self._close(session)
        self._look_at = now + self.bounds.gone_s if self.sessions else None

    def _close(self, session: CallerSession) -> None:
        del self.sessions[session.conn]
        self.clients[session.client].remove(session)
        if not self.clients[session.client]:
            del self.clients[session.client]
        self._do += (SessionClosed(session.conn), TellLeader(ev.Left(session.conn)))

    # Effects of the leader's machine.

    def _perform(self, effect: ev.LeaderDo, now: float) -> None:
        session = self.sessions.get(getattr(effect, "conn", ConnId(0)))
        if session is None:
            return
        match effect:
            case ev.SendResult():
                session.result_came(effect, now)
            case ev.SendReceipts():
                for job in effect.jobs:
                    session.receipt_came(job)
            case ev.SendRefusal():
                session.refusal_came(effect)
            case ev.TellWhenPeerWritten():  # Each answer has a connection of its own.
                self._do.append(TellLeader(ev.PeerWritten(effect.conn)))
            case ev.Close():  # The leader has too many clients.
                session.close("full", effect.why)
                self._close(session)
            case ev.Complain():
                self._do.append(WarnOfCaller(effect.text))
