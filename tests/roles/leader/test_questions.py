"""How do questions reach a leader without delaying jobs? A real leader on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import msgspec
import pytest
from tests.kit.a_leader import OwnPeer, Running, a_leader

from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.limits.leader import QUESTIONS_PER_CONNECTION_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.control import Holding
from wakugumi.wire.messages.job import read_refusal

pytestmark = pytest.mark.anyio


NOTHING = Holding()


@pytest.fixture
async def leader() -> AsyncIterator[Running]:
    async with a_leader() as running:
        yield running


@pytest.fixture
async def client(leader: Running) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_client("desk-1")
        yield peer


@pytest.fixture
async def worker(leader: Running) -> AsyncIterator[OwnPeer]:
    async with OwnPeer(leader.port) as peer:
        await peer.hello_worker(uuid4(), holds=NOTHING)
        yield peer


@pytest.mark.spec("O6")
async def test_while_jobs_wait_questions_beyond_their_share_wait_too(
    leader: Running, client: OwnPeer, worker: OwnPeer
) -> None:
    job, questions = uuid4(), leader.leader.questions
    await client.submit(job)
    await client.expect(fr.RECEIPT)
    async with OwnPeer(leader.port) as asker:
        await asker.hello_client("curious")
        questions.share.spent(1e6)
        await asker.say(fr.encode(fr.ASK, uuid4().bytes, payload=b'{"ask":"status"}'))
        await leader.until(lambda _: len(questions.share) == 1)
        await worker.credit(1)
        await worker.expect(fr.ASSIGN_JOB)
        assert (await asker.expect(fr.ASK)).subject != "refused", "no job waits any longer"


@pytest.mark.spec("O6")
async def test_questions_that_wait_are_bounded_and_leave_with_their_connection(
    leader: Running, client: OwnPeer
) -> None:
    questions = leader.leader.questions
    await client.submit(uuid4())
    await client.expect(fr.RECEIPT)
    questions.share.spent(1e6)
    async with OwnPeer(leader.port) as asker:
        await asker.hello_client("curious")
        await asker.say(fr.encode(fr.ASK, uuid4().bytes, payload=b'{"ask":"status"}') * QUESTIONS_PER_CONNECTION_MAX)
        refused = await asker.ask(b'{"ask":"status"}')
        assert read_refusal(refused.payload).code == "full"
        assert len(questions.share) == QUESTIONS_PER_CONNECTION_MAX
    await leader.until(lambda _: not len(questions.share))


async def test_questions_are_answered_and_those_without_an_answer_refused(leader: Running, client: OwnPeer) -> None:
    job = uuid4()
    await client.submit(job)
    await client.expect(fr.RECEIPT)
    status = msgspec.json.decode((await client.ask(b'{"ask":"status"}')).payload, type=an.StatusAnswer)
    assert (status.queued, status.clients, status.workers) == (1, 1, 0)
    explain = msgspec.json.encode(qu.AskExplain(str(job)))
    answer = msgspec.json.decode((await client.ask(explain)).payload, type=an.ExplainAnswer)
    assert answer.job == str(job)
    assert "no worker" in answer.reasons[0]
    refused = await client.ask(msgspec.json.encode(qu.AskJob(str(uuid4()))))
    assert refused.subject == "refused"
    assert read_refusal(refused.payload).code == "unknown-job"
