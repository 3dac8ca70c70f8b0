"""How is a leader asked a question, and how does its answer come back?

ask_one, ask_several ──► PendingQuestions ── Ask ──► failover … the leader's answer ──► the awaiting caller
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from wakugumi.core.access import key_questions as kq
from wakugumi.core.access.browser_links import AskLink, BrowserLink
from wakugumi.core.access.known_as import AskMe, KnownAs
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientEvent
from wakugumi.core.ids import show_job_id
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.errors import ConfigError, PeerError, Refused, WakugumiError
from wakugumi.roles.client.files.inputs import NOTHING, Attached
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.request import given_id
from wakugumi.roles.client.session.leader_status import LeaderStatuses
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import CachePutResult
from wakugumi.wire.messages.job import read_refusal
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.untrusted_json import Unreadable, read_json

ANSWERS: Final[dict[type[object], type[an.Answer]]] = {
    qu.AskStatus: an.StatusAnswer,
    qu.AskTop: an.TopAnswer,
    qu.AskJobs: an.JobsAnswer,
    qu.AskJob: an.JobRow,
    qu.AskStory: an.StoryAnswer,
    qu.AskExplain: an.ExplainAnswer,
    qu.AskCancel: an.CancelAnswer,
    qu.AskWorkers: an.WorkersAnswer,
    qu.AskDrain: an.WorkerRow,
    qu.AskResume: an.WorkerRow,
    qu.AskDead: an.DeadAnswer,
    qu.AskLetter: an.LetterAnswer,
    qu.AskRequeue: an.DeadDoneAnswer,
    qu.AskDrop: an.DeadDoneAnswer,
    qu.AskCaches: an.CachesAnswer,
    qu.AskCache: an.CacheAnswer,
    qu.AskPin: an.CacheRow,
    qu.AskDropCache: an.CacheRow,
    kq.AskKeys: kq.KeysAnswer,
    kq.AskKey: kq.KeyRow,
    kq.AskMakeKey: kq.MadeKey,
    kq.AskRevokeKey: kq.KeyRow,
    AskMe: KnownAs,
    AskLink: BrowserLink,
}

ABOUT_ONE: Final = (qu.AskJob, qu.AskStory, qu.AskExplain, qu.AskLetter, qu.AskDrain, qu.AskResume, qu.AskCache)
"""Questions about one job, worker or cache, which one of several leaders has."""
_UNKNOWN: Final = frozenset({"unknown-job", "unknown-worker", "no-cache"})


class PendingQuestions:
    """Questions with a waiting caller, by their ids. `post` hands them to `failover`."""

    def __init__(self, statuses: LeaderStatuses, uploads: Uploads, post: Callable[[ClientEvent], None]) -> None:
        self._statuses = statuses
        self._uploads = uploads
        self._post = post
        self._answers: dict[bytes, asyncio.Future[ev.AnswerQuestion]] = {}
        self._on_progress: dict[bytes, Callable[[CachePutResult], None]] = {}
        """Callbacks for the progress of a put."""
        self._ended: WakugumiError | None = None

    def __contains__(self, ask: bytes) -> bool:
        return ask in self._answers

    async def ask(
        self,
        ask: bytes,
        frame: bytes,
        leader: str = "",
        attached: Attached = NOTHING,
        on_progress: Callable[[CachePutResult], None] | None = None,
    ) -> ev.AnswerQuestion:
        """Ask this leader, or any that serves; it may ask for the content in `attached`, and report progress. Raises
        Refused if the leader cannot answer, or ConfigError."""
        if self._ended is not None:
            raise self._ended
        endpoint = self._statuses.find(leader) if leader else None
        if leader and endpoint is None:
            raise ConfigError(f"{leader} is none of the leaders", f"they are {self._statuses.name}")
        future: asyncio.Future[ev.AnswerQuestion] = asyncio.get_running_loop().create_future()
        self._answers[ask] = future
        if attached:
            self._uploads.hold(ask, frame, attached)
        if on_progress is not None:
            self._on_progress[ask] = on_progress
        self._post(ev.Ask(ask, frame, endpoint.no if endpoint is not None else ANY_LEADER))
        try:
            return await future
        finally:
            del self._answers[ask]
            self._uploads.release(ask)
            self._on_progress.pop(ask, None)
            if not future.done() or future.cancelled():
                self._post(ev.Forget(ask))

    def answer(self, effect: ev.AnswerQuestion | ev.NoAnswer) -> None:
        future = self._answers.get(effect.ask)
        if future is None or future.done():
            return
        if isinstance(effect, ev.AnswerQuestion):
            future.set_result(effect)
        else:
            future.set_exception(Refused(effect.code, effect.text))

    def progress(self, ask: bytes, result: CachePutResult) -> None:
        if (on_progress := self._on_progress.get(ask)) is not None:
            on_progress(result)

    def refuse(self, ask: bytes, no: Refused) -> None:
        """The question's content cannot be sent to its leader."""
        future = self._answers[ask]
        if not future.done():
            future.set_exception(no)
            self._post(ev.Forget(ask))

    def fail(self, error: WakugumiError) -> None:
        """There will be no more answers."""
        self._ended = error
        for future in self._answers.values():
            if not future.done():
                future.set_exception(error)


async def ask_one(questions: PendingQuestions, question: qu.Question, leader: str = "") -> an.Answer:
    """Ask this leader, or any that serves. Raises Refused."""
    if isinstance(question, qu.AskJob | qu.AskStory | qu.AskExplain | qu.AskLetter):
        question = msgspec.structs.replace(question, job=show_job_id(given_id(question.job)[0]))
    elif isinstance(question, qu.AskDead | qu.AskRequeue | qu.AskDrop):
        question = msgspec.structs.replace(question, jobs=[show_job_id(given_id(job)[0]) for job in question.jobs])
    ask = os.urandom(16)
    answer = await questions.ask(ask, fr.encode(fr.ASK, ask, payload=encode(question)), leader)
    if answer.refused:
        no = read_refusal(answer.payload)
        raise Refused(no.code, no.message)
    try:
        return read_json(answer.payload, ANSWERS[type(question)])
    except Unreadable as error:
        raise PeerError(f"the leader's answer cannot be read: {error}") from None


async def ask_several(
    questions: PendingQuestions, question: qu.Question, leaders: Sequence[str]
) -> dict[str, an.Answer | Refused]:
    """The answer of each of these leaders, by its address."""
    asked = (ask_one(questions, question, leader) for leader in leaders)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Refused):
            raise answer
    return dict(zip(leaders, answers))  # type: ignore[arg-type]


def answer_that_knows(answers: Mapping[str, an.Answer | Refused]) -> an.Answer:
    """The answer of a leader that knows the subject of the question. Raises Refused if none does."""
    for answer in answers.values():
        if not isinstance(answer, Refused):
            return answer
    refusals = [answer for answer in answers.values() if isinstance(answer, Refused)]
    # A refusal by a leader that knows the job is more useful than "unknown".
    raise min(refusals, key=lambda no: no.code in _UNKNOWN)
