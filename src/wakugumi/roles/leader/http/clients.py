"""How does somebody who asks by HTTP become a client of the leader's machine? By a counter: a client's door inside the
leader.

    visit ──► counter of its client id ──► Submitted ──► dispatch ──► SendResult ──► counter ──► the visit's answer

So a job that came by HTTP is one like any other: on disk before anything, fair, capped, explained (SPEC L5–L9). Its
result is confirmed once it is written; if its reader left meanwhile, it waits a while for that one to come again, but
not while the leader stops.

Of one job there is at most one visit at a counter, so that it is known whose refusal it is; the next one gets another.
Whoever leaves before the answer leaves the job to go on: its result is taken for them, and kept for whoever asks again.
Who asks again while it goes on takes the place of who left, and is answered once its own request has its receipt: what
was on its way before may be the answer to another one.
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
    """All that ask one leader by HTTP."""

    def __init__(
        self,
        hub: Hub,
        questions: Questions,
        cap: int,
        *,
        linger_s: float = HTTP_LINGER_S,
        clients_max: int = HTTP_CLIENTS_MAX,
    ) -> None:
        """`cap` is how many jobs of one client id may be in flight."""
        self._hub = hub
        self._questions = questions
        self._cap = cap
        self._linger_s = linger_s
        self._clients_max = clients_max
        self._clients: dict[ClientId, list[HttpClientSession]] = {}
        self._desk: AdminDesk | None = None
        self._tasks = Tasks()
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Visits that wait for an answer."""
        return sum(len(counter.visits) for counter in self._counters())

    @property
    def counters(self) -> int:
        return sum(map(len, self._clients.values()))

    async def wait_for(
        self, visit: HttpRequest, client: ClientId, job: JobId, say: Callable[[ConnId], ev.Submitted | ev.Claimed]
    ) -> ev.SendResult:
        """What becomes of a job: `say` submits it, or asks for its result. Raises Refused, or Lost if the visit ends
        before."""
        counter = self._counter(client, job)
        answer: asyncio.Future[ev.SendResult] = asyncio.get_running_loop().create_future()
        counter.enter(job, visit, answer)
        event = say(counter.conn)
        self._hub.drive.post(event)
        if isinstance(event, ev.Submitted) and len(event.payload) >= READ_BYTES_LARGE:
            self._hub.drive.flush()
        try:
            return await answer
        finally:
            counter.leave(job, answer)

    def written(self, effect: ev.SendResult) -> None:
        """What `wait_for` gave has been written to its visit."""
        counter = self._hub.local_peers.get(effect.conn)
        if isinstance(counter, HttpClientSession):
            counter.written(effect.job)

    def adopt(self, by_client: Mapping[ClientId, Sequence[JobId]]) -> None:
        """Take these results when they come, for whoever waited for them before this leader was started."""
        for client, jobs in by_client.items():
            try:
                counter = self._counter(client, jobs[0])
            except Refused:  # So many clients at once: the others ask for theirs.
                return
            counter.left.update(dict.fromkeys(jobs, _Left(is_told=False, goes_on=False)))
            self._hub.drive.post(ev.Claimed(counter.conn, tuple(jobs)))

    async def ask(self, question: Question) -> Answer:
        """Raises Refused."""
        if self._desk is None:
            self._desk = AdminDesk(self._hub, self._questions)
            self._hub.local_peers[self._desk.conn] = self._desk
        return await self._desk.ask(question)

    async def close(self) -> None:
        """Those who wait are told to come again: what was accepted is kept, where the leader keeps a journal."""
        self._closed = True
        for counter in self._counters():
            counter.refuse_all("stopping", "the leader is shutting down")
        if self._desk is not None:
            self._desk.refuse_all("stopping", "the leader is shutting down")
        await self._tasks.close()

    def _counters(self) -> list[HttpClientSession]:
        return [counter for counters in self._clients.values() for counter in counters]

    def _counter(self, client: ClientId, job: JobId) -> HttpClientSession:
        """One of this client's at which nobody waits for this job, or for word of it. Raises Refused."""
        if self._closed:
            raise Refused("stopping", "the leader is shutting down")
        for counter in self._clients.get(client, ()):
            if job not in counter.visits and ((left := counter.left.get(job)) is None or left.is_told):
                return counter
        if client not in self._clients and len(self._clients) >= self._clients_max:
            raise Refused("full", f"{len(self._clients)} client ids are in use over HTTP")
        counter = HttpClientSession(self._hub)
        self._clients.setdefault(client, []).append(counter)
        self._hub.local_peers[counter.conn] = counter
        self._hub.drive.post(ev.ClientJoined(counter.conn, client, self._cap, receipts=True, heartbeats=False))
        if self._looking is None:
            self._looking = self._tasks.start_loop(self._look_after, name="callers by HTTP")
        return counter

    async def _look_after(self) -> None:
        """Let those go that are gone, and counters that nobody used for a while."""
        clock = asyncio.get_running_loop().time
        while self._clients:
            await asyncio.sleep(HTTP_GONE_S)
            for client, counters in list(self._clients.items()):
                for counter in list(counters):
                    counter.look(clock(), stopping=self._hub.stopping)
                    if clock() - counter.used_at >= self._linger_s:
                        counters.remove(counter)
                        del self._hub.local_peers[counter.conn]
                        self._hub.drive.post(ev.Left(counter.conn))
                if not counters:
                    del self._clients[client]
        self._looking = None


class _Left(NamedTuple):
    """What becomes of a job whose visit left before it was done."""

    is_told: bool
    """The leader has answered that visit's request: it has the job."""
    goes_on: bool
    """It has the job whatever it answers: somebody left it here before."""


class _Unread(NamedTuple):
    """A result that a visit was given."""

    since: float
    visit: HttpRequest


class _Waiting:
    """Somebody waits for a job."""

    __slots__ = ("answer", "goes_on", "is_told", "takes_over", "visit")

    def __init__(self, visit: HttpRequest, answer: asyncio.Future[ev.SendResult], *, takes_over: bool) -> None:
        self.visit = visit
        self.answer = answer
        self.takes_over = self.goes_on = takes_over
        self.is_told = False


class HttpClientSession:
    """One door of one client id."""

    def __init__(self, hub: Hub) -> None:
        self.conn = hub.new_conn()
        self.visits: dict[JobId, _Waiting] = {}
        self.left: dict[JobId, _Left] = {}
        """Jobs whose visits left before they were done."""
        self.unread: dict[JobId, _Unread] = {}
        """Results that a visit was given and that are not written to it yet, or never will be."""
        self.used_at = asyncio.get_running_loop().time()
        self._post = hub.drive.post

    def perform(self, effect: LeaderDo) -> None:
        if isinstance(effect, ev.SendResult):
            self.left.pop(effect.job, None)
            waiting = self.visits.get(effect.job)
            if waiting is not None and waiting.takes_over and not waiting.is_told:
                waiting.goes_on = False  # This was for whoever left.
                self.written(effect.job)
            elif waiting is not None and not waiting.answer.done():
                self.unread[effect.job] = _Unread(asyncio.get_running_loop().time(), waiting.visit)
                _settle(waiting.answer, effect)
            else:  # Nobody waits: it is taken for who left, and the same is kept for whoever asks again.
                self.written(effect.job)
        elif isinstance(effect, ev.SendReceipts):
            for job in effect.jobs:
                if (waiting := self.visits.get(job)) is not None:
                    waiting.is_told = True
                elif job in self.left:
                    self.left[job] = _GOES_ON
        elif isinstance(effect, ev.SendRefusal):
            left = self.left.pop(effect.job, None)
            if left is not None and left.goes_on and not left.is_told:
                self.left[effect.job] = _GOES_ON
            if effect.job in self.visits:
                _settle(self.visits[effect.job].answer, Refused(effect.code, effect.text))
        elif isinstance(effect, ev.TellWhenPeerWritten):  # Each answer has a connection of its own.
            self._post(ev.PeerWritten(self.conn))
        elif isinstance(effect, ev.Complain):
            log.warning("a caller by HTTP: %s", effect.text)

    def written(self, job: JobId) -> None:
        """Its result is on its way to whoever waited for it, as far as we can tell."""
        self.unread.pop(job, None)
        self._post(ev.Confirmed(self.conn, (job,)))

    def enter(self, job: JobId, visit: HttpRequest, answer: asyncio.Future[ev.SendResult]) -> None:
        """Its visit waits from now on."""
        self.visits[job] = _Waiting(visit, answer, takes_over=self.left.pop(job, None) is not None)

    def leave(self, job: JobId, answer: asyncio.Future[ev.SendResult]) -> None:
        """Its visit does not wait any longer."""
        waiting = self.visits.pop(job)
        if not answer.done() or answer.cancelled() or isinstance(answer.exception(), Lost):
            self.left[job] = _Left(waiting.is_told, waiting.goes_on)
        elif waiting.goes_on and not waiting.is_told and isinstance(answer.exception(), Refused):
            self.left[job] = _GOES_ON

    def look(self, now: float, *, stopping: bool) -> None:
        """Who is gone? A stopping leader does not wait for them to come again."""
        for waiting in list(self.visits.values()):
            if waiting.visit.is_gone:
                _settle(waiting.answer, Lost("it left before its job was done", "dead"))
        for job, unread in list(self.unread.items()):
            # Its reader does not come again: as with who left before.
            if now - unread.since >= HTTP_UNREAD_S or (stopping and unread.visit.is_gone):
                self.written(job)
        if self.visits or self.left or self.unread:
            self.used_at = now

    def refuse_all(self, code: str, text: str) -> None:
        for waiting in self.visits.values():
            _settle(waiting.answer, Refused(code, text))


_GOES_ON: Final = _Left(is_told=True, goes_on=True)


class AdminDesk:
    """Where questions are asked. Nobody joins for that."""

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
