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

from wakugumi.core.ids import ClientId, ConnId, job_id_from_name
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.questions import AskDrain
from wakugumi.core.subject import parse_subject
from wakugumi.errors import Refused
from wakugumi.roles.leader.http import clients

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G1")]


@pytest.fixture
async def leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(clients, "HTTP_GONE_S", 0.01)
    async with a_group(tmp_path, program="pricer") as leader:
        assert (await get(leader, "/health")).status == 200
        yield leader


async def test_all_jobs_of_a_client_id_go_over_one_counter(leader: Running) -> None:
    callers = pages_of(leader).callers
    async with Caller(leader.port) as one, Caller(leader.port) as two, Caller(leader.port) as three:
        await one.send("/dispatch/one")
        await two.send("/dispatch/two")
        await leader.until(lambda machine: machine.lanes.queued == 2)
        assert (callers.waiting, len(callers.sessions())) == (2, 1)
        await three.send("/dispatch/one")  # Whose refusal would it be?
        await leader.until(lambda _: callers.waiting == 3)
        assert len(callers.sessions()) == 2
    await nothing_is_left(leader)


async def test_a_counter_that_nobody_uses_is_let_go_and_so_is_its_client(leader: Running) -> None:
    callers = pages_of(leader).callers
    callers.linger_s = 0.05
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
        assert len(callers.sessions()) == 1, "the job that goes on is still its own"
        await worker.ack(job)
        await leader.until(lambda machine: not machine.clients.by_id)
    assert len(callers.sessions()) == 0
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

        def another(conn: ConnId) -> ev.Submitted:
            return ev.Submitted(conn, job, parse_subject("job.assign.pricer"), "pricer", 1.0, b"another request")

        with pytest.raises(Refused) as caught:
            await callers.wait_for(AVisit(), ClientId("http"), job, another)
        assert caught.value.code == "conflict"


@pytest.mark.spec("L6")
async def test_who_asks_again_takes_the_place_of_who_left(leader: Running) -> None:
    callers = pages_of(leader).callers
    callers.linger_s = 0.05
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        for _ in range(5):
            async with Caller(leader.port) as caller:
                await caller.send("/dispatch/one")
                await leader.until(lambda machine: bool(callers.waiting and machine.jobs))
                assert len(callers.sessions()) == 1
            await nothing_is_left(leader)
            await leader.until(lambda _: all(left.is_told for it in callers.sessions() for left in it.left.values()))
        another = await post(leader, "/dispatch/one", b"another input")
        assert another.status == 409
        assert [list(it.left) for it in callers.sessions()] == [[job_id_from_name("one")]], "it goes on all the same"
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/one")
            await worker.ack(await worker.assigned())
            assert (await caller.answer()).status == 200
        await leader.until(lambda machine: not machine.clients.by_id)


async def test_a_worker_that_is_drained_adds_nothing_to_the_capacity(leader: Running) -> None:
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=3)
        await leader.until(lambda _: leader.leader.hub.capacity()["free"] == 3)
        await pages_of(leader).callers.ask(AskDrain(str(worker.id)))
        assert leader.leader.hub.capacity() == {"running": 0, "limit": 0, "queued": 0, "free": 0}


async def test_only_so_many_client_ids_are_known_at_once(leader: Running) -> None:
    callers = pages_of(leader).callers
    callers.clients_max = 1
    async with Caller(leader.port) as caller:
        await caller.send("/dispatch/one?client=a")
        await leader.until(lambda machine: machine.lanes.queued == 1)
        answer = await post(leader, "/dispatch/two?client=b")
        assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "full", "1")
    await nothing_is_left(leader)


@pytest.mark.spec("F9", "L6")
@pytest.mark.parametrize("printed", [5, 3_000_000])
async def test_a_result_is_delivered_once_it_is_written_and_not_when_its_reader_left(
    leader: Running, monkeypatch: pytest.MonkeyPatch, printed: int
) -> None:
    monkeypatch.setattr(clients, "HTTP_GONE_S", 3600.0)  # Nobody sees that it left before it is answered.
    job = job_id_from_name("one")
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        async with Caller(leader.port) as caller:
            await caller.send("/dispatch/one")
            assigned = await worker.assigned()
            (waiting,) = [session.requests[job] for session in pages_of(leader).callers.sessions()]
        await leader.until(lambda _: waiting.request.is_gone)
        await worker.ack(assigned, Stdout="x" * printed)
        (session,) = pages_of(leader).callers.sessions()
        await leader.until(lambda _: job in session.unread and not session.requests)
        await asyncio.sleep(0)
        assert job in leader.machine.clients.results.undelivered, "nobody has it"
        assert (await post(leader, "/dispatch/one")).status == 200
        await leader.until(lambda machine: job not in machine.clients.results.undelivered)
        assert not session.unread


async def test_a_result_that_nobody_comes_back_for_is_let_go_after_a_while(
    leader: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = pages_of(leader).callers
    callers.linger_s = 0.05
    monkeypatch.setattr(clients, "HTTP_UNREAD_S", 0.2)
    job = job_id_from_name("one")
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        waiting = asyncio.get_running_loop().create_task(
            callers.wait_for(
                AVisit(),
                ClientId("http"),
                job,
                lambda conn: ev.Submitted(conn, job, parse_subject("job.assign.pricer"), "pricer", 1.0, b"{}"),
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
    (callers, job) = pages_of(leader).callers, job_id_from_name("one")
    async with OldWorker(leader.port) as worker, Caller(leader.port) as caller:
        await worker.hello("job.assign.>", credit=1)
        await caller.send("/dispatch/one?retries=0")
        await worker.ack(await worker.assigned(), Status="FAILED", Stderr="no", Reason=reason)
        assert (await caller.answer()).code == reason
        assert not any(session.unread for session in callers.sessions())
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
                lambda conn: ev.Submitted(conn, job, parse_subject("job.assign.pricer"), "pricer", 1.0, b"{}"),
            )
        )
        await worker.ack(await worker.assigned())
        await waiting
        assert not await leader.leader.drain(0.1), "its reader reads"
        assert job in leader.machine.clients.results.undelivered
        request.is_gone = True
        assert await leader.leader.drain(DEADLINE_S)
        assert job not in leader.machine.clients.results.undelivered
