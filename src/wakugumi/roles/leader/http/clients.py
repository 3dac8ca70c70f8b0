"""How is the machine of callers by HTTP driven? (`core/leader/callers`) This role keeps requests and their futures, and
sees which callers are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import NamedTuple, TypeVar

from wakugumi.adapters.http.page import HttpRequest
from wakugumi.adapters.loop.drive import Drive
from wakugumi.core.access.decide import check_question
from wakugumi.core.access.identity import Identity, Sight
from wakugumi.core.ids import ClientId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.answer_records import Answer
from wakugumi.core.leader.callers import events as cv
from wakugumi.core.leader.callers.machine import CALLERS, CallersMachine
from wakugumi.core.leader.events import LeaderDo
from wakugumi.core.leader.questions import Question
from wakugumi.errors import Lost, Refused
from wakugumi.limits.wire import READ_BYTES_LARGE
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.peer_access import log_act
from wakugumi.roles.leader.questions import Questions

log = logging.getLogger("wakugumi.leader")

A = TypeVar("A")


class GivenResult(NamedTuple):
    """The result of a job, for one request."""

    request: int
    effect: ev.SendResult


class _Waiting(NamedTuple):
    visit: HttpRequest
    answer: asyncio.Future[GivenResult]


class HttpCallers:
    """All callers of one leader by HTTP."""

    def __init__(self, hub: Hub, questions: Questions, cap: int) -> None:
        """`cap` bounds the jobs in flight of one client id."""
        self._hub = hub
        self._questions = questions
        self.machine = CallersMachine(cap, hub.new_conn, CALLERS)
        self.requests: dict[int, _Waiting] = {}
        """All requests that the machine knows."""
        self._numbers = count(1)
        self._admin: AdminConnection | None = None

    async def wait_for(
        self, visit: HttpRequest, client: ClientId, job: JobId, event: ev.Submitted | ev.Claimed
    ) -> GivenResult:
        """The result of a job: the event submits the job, or claims its result. Raises Refused, or Lost if the caller
        disconnects before."""
        number = next(self._numbers)
        waiting = self.requests[number] = _Waiting(visit, asyncio.get_running_loop().create_future())
        self._drive.post_now(cv.JobWanted(number, client, job, event))
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            self._drive.post_now(cv.HttpCallerGone(number))
            raise

    def written(self, given: GivenResult) -> None:
        """Confirm a result of `wait_for`: its answer was written, or is an error."""
        self._drive.post_now(cv.AnswerWritten(given.request))

    def adopt(self, by_client: Mapping[ClientId, Sequence[JobId]]) -> None:
        """Claim these results, and confirm each that arrives: their callers waited before this leader was started."""
        self._drive.post_now(cv.ResultsAdopted(by_client))

    async def ask(self, question: Question, identity: Identity) -> Answer:
        """Raises Refused."""
        if self._admin is None:
            self._admin = AdminConnection(self._hub, self._questions)
            self._hub.local_peers[self._admin.conn] = self._admin
        check_question(identity, question)
        log_act(identity, question)
        return await self._admin.ask(question, identity.sight())

    def close(self) -> None:
        """Refuse all requests as `stopping`. Accepted jobs are kept if the leader has a journal."""
        self._drive.post_now(cv.CallersClosed())
        if self._admin is not None:
            self._admin.refuse_all("stopping", "the leader is shutting down")

    def perform(self, effect: LeaderDo) -> None:
        """An effect of the leader's machine is an event of this one."""
        self._drive.post_now(effect)

    @cached_property
    def _drive(self) -> Drive[cv.CallersEvent, None, cv.CallersDo]:
        """Made by the first request: pages are made in a thread, without a loop."""
        drive: Drive[cv.CallersEvent, None, cv.CallersDo] = Drive(self.machine, self._perform, name="callers")
        drive.failed.add_done_callback(self._failed)
        return drive

    def _perform(self, effects: Sequence[cv.CallersDo]) -> None:
        for effect in effects:
            match effect:
                case cv.TellLeader(event):
                    self._hub.drive.post(event)
                    if isinstance(event, ev.Submitted) and len(event.payload) >= READ_BYTES_LARGE:
                        self._hub.drive.flush()
                case cv.GiveResult(number, result):
                    _settle(self.requests[number].answer, GivenResult(number, result))
                case cv.ReleaseRequest(number):
                    del self.requests[number]
                case cv.RefuseRequest(number, code, text):
                    _settle(self.requests.pop(number).answer, Refused(code, text))
                case cv.DropRequest(number):
                    lost = Lost("the caller disconnected before its job was done", "dead")
                    _settle(self.requests.pop(number).answer, lost)
                case cv.LookAtCallers(numbers):
                    gone = [number for number in numbers if self.requests[number].visit.is_gone]
                    self._drive.post(cv.CallersSeen(gone, self._hub.stopping))
                case cv.SessionOpened(conn):
                    self._hub.local_peers[conn] = self
                case cv.SessionClosed(conn):
                    del self._hub.local_peers[conn]
                case cv.WarnOfCaller(text):
                    log.warning("a caller by HTTP: %s", text)

    def _failed(self, failed: asyncio.Future[None]) -> None:
        """A failed machine of callers ends the whole leader."""
        if not failed.cancelled() and isinstance(error := failed.exception(), Exception):
            self._hub.drive.fail(error)


class AdminConnection:
    """The connection of all questions by HTTP. It joins neither as a client nor as a worker."""

    def __init__(self, hub: Hub, questions: Questions) -> None:
        self.conn = hub.new_conn()
        self._drive = hub.drive
        self._questions = questions
        self._asked: dict[bytes, asyncio.Future[Answer]] = {}
        self._ids = count(1)

    async def ask(self, question: Question, sight: Sight | None) -> Answer:
        """Raises Refused."""
        ask_id = next(self._ids).to_bytes(16, "little")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[ask_id] = answer
        try:
            self._questions.ask(self._drive, ev.QuestionAsked(self.conn, ask_id, question, sight), 0)
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
