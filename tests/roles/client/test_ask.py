"""Questions to leaders, and how their answers come back."""

from __future__ import annotations

import asyncio

import pytest

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ClientEvent, LeaderNo
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.errors import ConfigError, PeerError, Refused
from wakugumi.roles.client.ask import ANSWERS, PendingQuestions, answer_that_knows, ask_one, ask_several
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.session.leader_status import Endpoint, LeaderStatuses
from wakugumi.wire.messages.cache import PROGRESS, CachePutResult
from wakugumi.wire.messages.job import Refusal
from wakugumi.wire.messages.payload import encode

CANCELLED = an.CancelAnswer(1, 0, [])


class Asking:
    """Two leaders, a:1 and b:1, and what they are asked."""

    def __init__(self) -> None:
        self.events: list[ClientEvent] = []
        statuses = LeaderStatuses([Endpoint(name, lambda _owner, _access: asyncio.Future()) for name in ("a:1", "b:1")])
        uploads = Uploads(lambda *_: None, lambda *_: None, lambda *_: None)
        self.questions = PendingQuestions(statuses, uploads, self.events.append)

    async def asked(self) -> list[ev.Ask]:
        await asyncio.sleep(0)
        return [event for event in self.events if isinstance(event, ev.Ask)]


@pytest.fixture
async def asking() -> Asking:
    return Asking()


async def test_a_question_goes_to_the_leader_that_is_named_and_its_answer_comes_back(asking: Asking) -> None:
    waiting = Tasks().start(ask_one(asking.questions, qu.AskCancel([]), "b:1"), name="waiting", quiet=True)
    (asked,) = await asking.asked()
    assert asked.leader == LeaderNo(2)
    assert asked.ask in asking.questions
    asking.questions.answer(ev.AnswerQuestion(asked.ask, False, encode(CANCELLED)))
    assert await waiting == CANCELLED
    assert asked.ask not in asking.questions
    assert len(asking.events) == 1, "there is nothing to forget"


async def test_a_leader_that_is_none_of_ours_is_not_asked(asking: Asking) -> None:
    with pytest.raises(ConfigError, match="c:1 is none of the leaders"):
        await ask_one(asking.questions, qu.AskCancel([]), "c:1")


async def test_a_refusal_is_raised_and_an_answer_that_cannot_be_read_is_the_leaders_fault(asking: Asking) -> None:
    for refused, payload, error in ((True, encode(Refusal("no", "not you")), Refused), (False, b"{", PeerError)):
        asking.events.clear()
        waiting = Tasks().start(ask_one(asking.questions, qu.AskCancel([])), name="waiting", quiet=True)
        (asked,) = await asking.asked()
        asking.questions.answer(ev.AnswerQuestion(asked.ask, refused, payload))
        with pytest.raises(error):
            await waiting


async def test_a_question_that_nobody_waits_for_is_forgotten(asking: Asking) -> None:
    waiting = Tasks().start(ask_one(asking.questions, qu.AskCancel([])), name="waiting", quiet=True)
    (asked,) = await asking.asked()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert asking.events[-1] == ev.Forget(asked.ask)


async def test_a_put_tells_how_far_it_is_and_may_not_get_there(asking: Asking) -> None:
    told: list[CachePutResult] = []
    waiting = Tasks().start(asking.questions.ask(b"put", b"frame", on_progress=told.append), name="waiting", quiet=True)
    await asking.asked()
    progress = CachePutResult("cache", PROGRESS, "")
    asking.questions.progress(b"put", progress)
    asking.questions.progress(b"other", progress)
    assert told == [progress]
    asking.questions.refuse(b"put", Refused("too-big", "it does not get there"))
    with pytest.raises(Refused, match="does not get there"):
        await waiting
    assert asking.events[-1] == ev.Forget(b"put")


async def test_when_the_session_ends_nobody_waits_for_an_answer(asking: Asking) -> None:
    waiting = Tasks().start(ask_one(asking.questions, qu.AskCancel([])), name="waiting", quiet=True)
    await asking.asked()
    asking.questions.fail(Refused("closed", "the client was closed"))
    for each in (waiting, ask_one(asking.questions, qu.AskCancel([]))):
        with pytest.raises(Refused, match="was closed"):
            await each


async def test_each_of_several_leaders_answers_or_refuses_by_itself(asking: Asking) -> None:
    waiting = Tasks().start(ask_several(asking.questions, qu.AskCancel([]), ["a:1", "b:1"]), name="waiting", quiet=True)
    await asyncio.sleep(0)
    first, second = await asking.asked()
    asking.questions.answer(ev.AnswerQuestion(first.ask, False, encode(CANCELLED)))
    asking.questions.answer(ev.NoAnswer(second.ask, "not-supported", "old"))
    answers = await waiting
    assert answers["a:1"] == CANCELLED
    assert isinstance(answers["b:1"], Refused)


def test_the_leader_that_knows_answers_and_else_the_refusal_that_says_most_is_raised() -> None:
    unknown, busy = Refused("unknown-job", "no such job"), Refused("busy", "not now")
    assert answer_that_knows({"a:1": unknown, "b:1": CANCELLED}) is CANCELLED
    with pytest.raises(Refused, match="not now"):
        answer_that_knows({"a:1": unknown, "b:1": busy})


def test_each_question_has_a_kind_of_answer() -> None:
    assert set(ANSWERS) == set(qu.Question.__args__)
