"""Those who ask a leader by HTTP as clients of its state machine: how many there are, and when they are let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.a_group import Caller, a_group, get, nothing_is_left, pages_of, post
from tests.kit.a_leader import Running
from tests.kit.a_visit import AVisit
from tests.kit.old_peers import DEADLINE_S, OldWorker

from wakugumi.core.access.identity import EMBEDDED
from wakugumi.core.ids import ClientId, ConnId, JobId, job_id_from_name
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.questions import AskDrain
from wakugumi.core.subject import parse_subject
from wakugumi.errors import Refused

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G1")]


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Running]:
    async with a_group(tmp_path, program="pricer") as leader:
        assert (await get(leader, "/health")).status == 200
        bound(leader, gone_s=0.01)
        yield leader


def bound(leader: Running, **bounds: float) -> None:
    machine = pages_of(leader).callers.machine
    machine.bounds = machine.bounds._replace(**bounds)  # type: ignore[arg-type]


def submitted(job: JobId, payload: bytes = b"{}") -> ev.Submitted:
    return ev.Submitted(ConnId(0), job, parse_subject("job.assign.pricer"), "pricer", 1.0, payload)


async def test_all_jobs_of_a_client_id_go_over_one_counter(leader: Running) -> None:
    callers = pages_of(leader).callers.machine
    async with Caller(leader.port) as one, Caller(leader.port) as two, Caller(leader.port) as three:
        await one.send("/dispatch/one")
        await two.send("/dispatch/two")
        await leader.until(lambda machine: machine.lanes.queued == 2)
        assert (callers.waiting, len(callers.sessions)) == (2, 1)
        await three.send("/dispatch/one")  # Whose refusal would it be?
        await leader.until(lambda _: callers.waiting == 3)
        assert len(callers.sessions) == 2
    await nothing_is_left(leader)


async def test_a_counter_that_nobody_uses_is_let_go_and_so_is_its_client(leader: Running) -> None:
    callers = pages_of(leader).callers.machine
    bound(leader, linger_s=0.05)
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=3)
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/one?client=desk")
            job = await worker.assigned()
        await nothing_is_left(leader)
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/two?client=other")
            await worker.ack(await worker.assigned())
            await caller.answer()
        await leader.until(lambda machine: set(machine.clients.by_id) == {"desk"})
        assert len(callers.sessions) == 1, "the job that goes on is still its own"
        await worker.ack(job)
        await leader.until(lambda machine: not machine.clients.by_id)
    assert len(callers.sessions) == 0
    assert not leader.leader.hub.local_peers
    assert (await post(leader, "/dispatch/one?client=desk")).status == 200


@pytest.mark.spec("L6")
async def test_a_result_that_comes_for_who_left_is_not_the_answer_to_another_request(leader: Running) -> None:
    callers = pages_of(leader).callers
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/one")
            await worker.assigned()
        await nothing_is_left(leader)
        (conn,) = leader.machine.roster.by_conn
        job = job_id_from_name("one")
        leader.leader.drive.post(ev.Acked(conn, job, True, "", b""))

        another = submitted(job, b"another request")
        with pytest.raises(Refused) as caught:
            await callers.wait_for(AVisit(), ClientId("http"), job, another)
        assert caught.value.code == "conflict"


@pytest.mark.spec("L6")
async def test_who_asks_again_takes_the_place_of_who_left(leader: Running) -> None:
    callers = pages_of(leader).callers.machine
    bound(leader, linger_s=0.05)
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        for _ in range(5):
            async with Caller(leader.port) as caller:
                await caller.send("/dispatch/one")
                await leader.until(lambda machine: bool(callers.waiting and machine.jobs))
                assert len(callers.sessions) == 1
            await nothing_is_left(leader)
            await leader.until(
                lambda _: all(left.is_told for it in callers.sessions.values() for left in it.left.values())
            )
        another = await post(leader, "/dispatch/one", b"another input")
        assert another.status == 409
        assert [list(it.left) for it in callers.sessions.values()] == [[job_id_from_name("one")]], (
            "it goes on all the same"
        )
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/one")
            await worker.ack(await worker.assigned())
            assert (await caller.answer()).status == 200
        await leader.until(lambda machine: not machine.clients.by_id)


async def test_a_worker_that_is_drained_adds_nothing_to_the_capacity(leader: Running) -> None:
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=3)
        await leader.until(lambda _: leader.leader.hub.capacity()["free"] == 3)
        await pages_of(leader).callers.ask(AskDrain(str(worker.id)), EMBEDDED)
        assert leader.leader.hub.capacity() == {"running": 0, "limit": 0, "queued": 0, "free": 0}


async def test_only_so_many_client_ids_are_known_at_once(leader: Running) -> None:
    bound(leader, clients_max=1)
    async with Caller(leader.port) as caller:
        await caller.send("/dispatch/one?client=a")
        await leader.until(lambda machine: machine.lanes.queued == 1)
        answer = await post(leader, "/dispatch/two?client=b")
        assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "full", "1")
    await nothing_is_left(leader)


@pytest.mark.spec("F9", "L6")
@pytest.mark.parametrize("printed", [5, 3_000_000])
async def test_a_result_is_delivered_once_it_is_written_and_not_when_its_reader_left(
    leader: Running, printed: int
) -> None:
    bound(leader, gone_s=3600.0)  # Nobody sees that it left before it is answered.
    job = job_id_from_name("one")
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/one")
            assigned = await worker.assigned()
            (waiting,) = pages_of(leader).callers.requests.values()
        await leader.until(lambda _: waiting.visit.is_gone)
        await worker.ack(assigned, Stdout="x" * printed)
        (session,) = pages_of(leader).callers.machine.sessions.values()
        await leader.until(lambda _: bool(session.unread) and not session.waiting)
        await asyncio.sleep(0)
        assert job in leader.machine.clients.results.undelivered, "nobody has it"
        assert (await post(leader, "/dispatch/one")).status == 200
        await leader.until(lambda machine: job not in machine.clients.results.undelivered)
        assert not session.unread


async def test_a_result_that_nobody_comes_back_for_is_let_go_after_a_while(leader: Running) -> None:
    callers = pages_of(leader).callers
    bound(leader, linger_s=0.05, unread_s=0.2)
    job = job_id_from_name("one")
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        waiting = asyncio.get_running_loop().create_task(
            callers.wait_for(
                AVisit(),
                ClientId("http"),
                job,
                submitted(job),
            )
        )
        await worker.ack(await worker.assigned())
        await waiting
        assert job in leader.machine.clients.results.undelivered, "nobody said that it was written"
        await leader.until(lambda machine: job not in machine.clients.results.undelivered)
        await leader.until(lambda machine: not machine.clients.by_id)


@pytest.mark.spec("F9", "L6")
@pytest.mark.parametrize("reason", ["timeout", "unknown-program"])
async def test_a_job_that_ends_as_a_problem_is_delivered_with_it(leader: Running, reason: str) -> None:
    (callers, job) = pages_of(leader).callers.machine, job_id_from_name("one")
    async with OldWorker(leader.port) as worker, Caller(leader.port) as caller:
        await worker.hello("job.assign.>", credit=1)
        await caller.send("/dispatch/one?retries=0")
        await worker.ack(await worker.assigned(), Status="FAILED", Stderr="no", Reason=reason)
        assert (await caller.answer()).code == reason
        assert not any(session.unread for session in callers.sessions.values())
        await leader.until(lambda machine: job not in machine.clients.results.undelivered)
        assert await leader.leader.drain(DEADLINE_S)


@pytest.mark.spec("L6")
async def test_a_stopping_leader_does_not_wait_for_a_reader_that_left(leader: Running) -> None:
    job = job_id_from_name("one")
    request = AVisit()
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        waiting = asyncio.get_running_loop().create_task(
            pages_of(leader).callers.wait_for(
                request,
                ClientId("http"),
                job,
                submitted(job),
            )
        )
        await worker.ack(await worker.assigned())
        await waiting
        assert not await leader.leader.drain(0.1), "its reader reads"
        assert job in leader.machine.clients.results.undelivered
        request.is_gone = True
        assert await leader.leader.drain(DEADLINE_S)
        assert job not in leader.machine.clients.results.undelivered


async def test_a_leader_with_too_many_clients_answers_so(leader: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.leader.clients.CLIENTS_MAX", 0)
    for _ in range(2):
        answer = await post(leader, "/dispatch/one")
        assert (answer.status, answer.code) == (503, "full")
    assert not pages_of(leader).callers.requests
    assert not leader.leader.hub.local_peers
