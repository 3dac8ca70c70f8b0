"""Those who ask a leader by HTTP as clients of its state machine: how many there are, and when they are let go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.old_peers import OldWorker
from tests.roles.a_group import Caller, a_group, get, nothing_is_left, pages_of, post
from tests.roles.a_leader import Running

from wakugumi.roles import http_callers
from wakugumi.roles.leader import HttpSettings

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G1")]


@pytest.fixture
async def leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(http_callers, "HTTP_GONE_S", 0.01)
    async with a_group(tmp_path, http=HttpSettings(program="pricer")) as leader:
        assert (await get(leader, "/health")).status == 200
        yield leader


async def test_all_jobs_of_a_client_id_go_over_one_counter(leader: Running) -> None:
    callers = pages_of(leader).callers
    async with Caller(leader.port) as one, Caller(leader.port) as two, Caller(leader.port) as three:
        await one.send("/dispatch/one")
        await two.send("/dispatch/two")
        await leader.until(lambda machine: machine.lanes.queued == 2)
        assert (callers.waiting, callers.counters) == (2, 1)
        await three.send("/dispatch/one")  # Whose refusal would it be?
        await leader.until(lambda _: callers.waiting == 3)
        assert callers.counters == 2
    await nothing_is_left(leader)


async def test_a_counter_that_nobody_uses_is_let_go_and_so_is_its_client(leader: Running) -> None:
    callers = pages_of(leader).callers
    callers._linger_s = 0.05
    async with OldWorker(leader.port) as worker, Caller(leader.port) as caller:
        await worker.hello("job.assign.>", credit=1)
        await caller.send("/dispatch/one?client=desk")
        job = await worker.assigned()
    await nothing_is_left(leader)
    assert callers.counters == 1, "the job that goes on is still its own"
    async with OldWorker(leader.port) as worker:
        await worker.hello("job.assign.>", credit=1)
        await worker.ack(await worker.assigned(), ExitCode=0)
        await leader.until(lambda machine: not machine.callers.clients)
    assert job.msg_id
    assert callers.counters == 0
    insiders = leader.leader.insiders
    assert not insiders
    # And then again.
    assert (await post(leader, "/dispatch/one?client=desk")).status == 200


async def test_only_so_many_client_ids_are_known_at_once(leader: Running) -> None:
    callers = pages_of(leader).callers
    callers._clients_max = 1
    async with Caller(leader.port) as caller:
        await caller.send("/dispatch/one?client=a")
        await leader.until(lambda machine: machine.lanes.queued == 1)
        answer = await post(leader, "/dispatch/two?client=b")
        assert (answer.status, answer.code, answer.head["retry-after"]) == (503, "full", "1")
    await nothing_is_left(leader)
