"""How does a caller by HTTP become a client of the leader's machine? By a session: a client's connection inside the
leader.

    request ──► session of its client id ──► Submitted ──► dispatch ──► SendResult ──► session ──► the answer

The job of an HTTP request is treated like any other: journalled, fair, capped, explained (SPEC L5–L9).
The result is confirmed once its answer is written. If the caller disconnects meanwhile, the result stays unconfirmed
for HTTP_UNREAD_S, in case the request is repeated; a stopping leader does not wait for that.

At most one request per job waits in a session, so a refusal belongs to that request; a second one gets another session.
A job goes on if its caller disconnects: the session confirms the result, and the leader keeps it for a repeated
request. A repeated request replaces the disconnected caller while the job is unfinished. It is answered only after its
own receipt: an earlier result may be the answer to another request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple, TypeVar

from wakugumi.adapters.http.page import HttpRequest
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.answer_records import Answer
from wakugumi.core.leader.events import LeaderDo
from wakugumi.core.leader.questions import Question
from wakugumi.errors import Lost, Refused
from wakugumi.limits.http import HTTP_CLIENTS_MAX, HTTP_GONE_S, HTTP_LINGER_S, HTTP_UNREAD_S
from wakugumi.limits.wire import READ_BYTES_LARGE
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.questions import Questions

log = logging.getLogger("wakugumi.leader")

A = TypeVar("A")


class HttpCallers:
    """All callers of one leader by HTTP."""

    def __init__(
        self,
        hub: Hub,
        questions: Questions,
        cap: int,
        *,
        linger_s: float = HTTP_LINGER_S,
        clients_max: int = HTTP_CLIENTS_MAX,
    ) -> None:
        """`cap` bounds the jobs in flight of one client id."""
        self._hub = hub
        self._questions = questions
        self._cap = cap
        self.linger_s = linger_s
        self.clients_max = clients_max
        self._clients: dict[ClientId, list[HttpClientSession]] = {}
        self._admin: AdminConnection | None = None
        self._tasks = Tasks()
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Visits that wait for an answer."""
        return sum(len(session.requests) for session in self.sessions())

    async def wait_for(
        self, request: HttpRequest, client: ClientId, job: JobId, say: Callable[[ConnId], ev.Submitted | ev.Claimed]
    ) -> ev.SendResult:
        """The result of a job: `say` submits the job, or claims its result. Raises Refused, or Lost if the caller
        disconnects before."""
        session = self._session(client, job)
        answer: asyncio.Future[ev.SendResult] = asyncio.get_running_loop().create_future()
        session.enter(job, request, answer)
        event = say(session.conn)
        self._hub.drive.post(event)
        if isinstance(event, ev.Submitted) and len(event.payload) >= READ_BYTES_LARGE:
            self._hub.drive.flush()
        try:
            return await answer
        finally:
            session.leave(job, answer)

    def written(self, effect: ev.SendResult) -> None:
        """Confirm a result of `wait_for`: its answer was written, or is an error."""
        session = self._hub.local_peers.get(effect.conn)
        if isinstance(session, HttpClientSession):
            session.written(effect.job)

    def adopt(self, by_client: Mapping[ClientId, Sequence[JobId]]) -> None:
        """Claim these results, and confirm each that arrives: their callers waited before this leader was started."""
        for client, jobs in by_client.items():
            try:
                session = self._session(client, jobs[0])
            except Refused:  # Too many clients, or stopping: other callers ask for theirs.
                return
            session.left.update(dict.fromkeys(jobs, _Left(is_told=False, goes_on=False)))
            self._hub.drive.post(ev.Claimed(session.conn, tuple(jobs)))

    async def ask(self, question: Question) -> Answer:
        """Raises Refused."""
        if self._admin is None:
            self._admin = AdminConnection(self._hub, self._questions)
            self._hub.local_peers[self._admin.conn] = self._admin
        return await self._admin.ask(question)

    async def close(self) -> None:
        """Refuse all requests as `stopping`. Accepted jobs are kept if the leader has a journal."""
        self._closed = True
        for session in self.sessions():
            session.refuse_all("stopping", "the leader is shutting down")
        if self._admin is not None:
            self._admin.refuse_all("stopping", "the leader is shutting down")
        await self._tasks.close()

    def sessions(self) -> list[HttpClientSession]:
        return [session for sessions in self._clients.values() for session in sessions]

    def _session(self, client: ClientId, job: JobId) -> HttpClientSession:
        """A session of this client where no request waits for this job, or left before its receipt; or else a new one.
        Raises Refused."""
        if self._closed:
            raise Refused("stopping", "the leader is shutting down")
        for session in self._clients.get(client, ()):
            if job not in session.requests and ((left := session.left.get(job)) is None or left.is_told):
                return session
        if client not in self._clients and len(self._clients) >= self.clients_max:
            raise Refused("full", f"{len(self._clients)} client ids are in use over HTTP")
        session = HttpClientSession(self._hub)
        self._clients.setdefault(client, []).append(session)
        self._hub.local_peers[session.conn] = session
        self._hub.drive.post(ev.ClientJoined(session.conn, client, self._cap, receipts=True, heartbeats=False))
        if self._looking is None:
            self._looking = self._tasks.start_loop(self._look_after, name="callers by HTTP")
        return session

    async def _look_after(self) -> None:
        """Release requests whose callers disconnected, and remove sessions unused for `linger_s`."""
        clock = asyncio.get_running_loop().time
        while self._clients:
            await asyncio.sleep(HTTP_GONE_S)
            for client, sessions in list(self._clients.items()):
                for session in list(sessions):
                    session.look(clock(), stopping=self._hub.stopping)
                    if clock() - session.used_at >= self.linger_s:
                        sessions.remove(session)
                        del self._hub.local_peers[session.conn]
                        self._hub.drive.post(ev.Left(session.conn))
                if not sessions:
                    del self._clients[client]
        self._looking = None


class _Left(NamedTuple):
    """A job whose caller disconnected before its result."""

    is_told: bool
    """The leader has answered that caller's request, and has the job."""
    goes_on: bool
    """The leader has the job even if it refuses that request: an earlier caller left the job here."""


class _Unread(NamedTuple):
    """A result that was handed to a request and is not confirmed."""

    since: float
    request: HttpRequest


class _Waiting:
    """A request that waits for its job."""

    __slots__ = ("answer", "goes_on", "is_told", "request", "takes_over")

    def __init__(self, request: HttpRequest, answer: asyncio.Future[ev.SendResult], *, takes_over: bool) -> None:
        self.request = request
        self.answer = answer
        self.takes_over = self.goes_on = takes_over
        self.is_told = False


class HttpClientSession:
    """One of the connections of one client id inside the leader."""

    def __init__(self, hub: Hub) -> None:
        self.conn = hub.new_conn()
        self.requests: dict[JobId, _Waiting] = {}
        self.left: dict[JobId, _Left] = {}
        """Jobs whose callers disconnected before their results."""
        self.unread: dict[JobId, _Unread] = {}
        """Results that were handed to a request and are not written to it yet, or never will be."""
        self.used_at = asyncio.get_running_loop().time()
        self._post = hub.drive.post

    def perform(self, effect: LeaderDo) -> None:
        if isinstance(effect, ev.SendResult):
            self.left.pop(effect.job, None)
            waiting = self.requests.get(effect.job)
            if waiting is not None and waiting.takes_over and not waiting.is_told:
                waiting.goes_on = False  # This result answers the disconnected caller.
                self.written(effect.job)
            elif waiting is not None and not waiting.answer.done():
                self.unread[effect.job] = _Unread(asyncio.get_running_loop().time(), waiting.request)
                _settle(waiting.answer, effect)
            else:  # No request waits: confirmed for the disconnected caller, and kept for a repeated request.
                self.written(effect.job)
        elif isinstance(effect, ev.SendReceipts):
            for job in effect.jobs:
                if (waiting := self.requests.get(job)) is not None:
                    waiting.is_told = True
                elif job in self.left:
                    self.left[job] = _GOES_ON
        elif isinstance(effect, ev.SendRefusal):
            left = self.left.pop(effect.job, None)
            if left is not None and left.goes_on and not left.is_told:
                self.left[effect.job] = _GOES_ON
            if effect.job in self.requests:
                _settle(self.requests[effect.job].answer, Refused(effect.code, effect.text))
        elif isinstance(effect, ev.TellWhenPeerWritten):  # Each answer has a connection of its own.
            self._post(ev.PeerWritten(self.conn))
        elif isinstance(effect, ev.Complain):
            log.warning("a caller by HTTP: %s", effect.text)

    def written(self, job: JobId) -> None:
        """Confirm the result of a job: it was written, or no caller is expected to read it."""
        self.unread.pop(job, None)
        self._post(ev.Confirmed(self.conn, (job,)))

    def enter(self, job: JobId, request: HttpRequest, answer: asyncio.Future[ev.SendResult]) -> None:
        """A request begins to wait for this job."""
        self.requests[job] = _Waiting(request, answer, takes_over=self.left.pop(job, None) is not None)

    def leave(self, job: JobId, answer: asyncio.Future[ev.SendResult]) -> None:
        """A request no longer waits for this job: it was answered, or its caller disconnected."""
        waiting = self.requests.pop(job)
        if not answer.done() or answer.cancelled() or isinstance(answer.exception(), Lost):
            self.left[job] = _Left(waiting.is_told, waiting.goes_on)
        elif waiting.goes_on and not waiting.is_told and isinstance(answer.exception(), Refused):
            self.left[job] = _GOES_ON

    def look(self, now: float, *, stopping: bool) -> None:
        """Release requests whose callers disconnected, and confirm results that were not read in time."""
        for waiting in list(self.requests.values()):
            if waiting.request.is_gone:
                _settle(waiting.answer, Lost("the caller disconnected before its job was done", "dead"))
        for job, unread in list(self.unread.items()):
            # A stopping leader does not wait for a repeated request.
            if now - unread.since >= HTTP_UNREAD_S or (stopping and unread.request.is_gone):
                self.written(job)
        if self.requests or self.left or self.unread:
            self.used_at = now

    def refuse_all(self, code: str, text: str) -> None:
        for waiting in self.requests.values():
            _settle(waiting.answer, Refused(code, text))


_GOES_ON: Final = _Left(is_told=True, goes_on=True)


class AdminConnection:
    """The connection of all questions by HTTP. It joins neither as a client nor as a worker."""

    def __init__(self, hub: Hub, questions: Questions) -> None:
        self.conn = hub.new_conn()
        self._drive = hub.drive
        self._questions = questions
        self._asked: dict[bytes, asyncio.Future[Answer]] = {}
        self._ids = count(1)

    async def ask(self, question: Question) -> Answer:
        """Raises Refused."""
        ask_id = next(self._ids).to_bytes(16, "little")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[ask_id] = answer
        try:
            self._questions.ask(self._drive, ev.QuestionAsked(self.conn, ask_id, question), 0)
            return await answer
        finally:
            del self._asked[ask_id]

    def perform(self, effect: LeaderDo) -> None:
        if isinstance(effect, ev.SendAnswer) and effect.ask_id in self._asked:
            _settle(self._asked[effect.ask_id], effect.answer)
        elif isinstance(effect, ev.SendNo) and effect.ask_id in self._asked:
            _settle(self._asked[effect.ask_id], Refused(effect.code, effect.text))

    def refuse_all(self, code: str, text: str) -> None:
        for answer in self._asked.values():
            _settle(answer, Refused(code, text))


def _settle(answer: asyncio.Future[A], outcome: A | Refused | Lost) -> None:
    if answer.done():
        return
    if isinstance(outcome, Refused | Lost):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
