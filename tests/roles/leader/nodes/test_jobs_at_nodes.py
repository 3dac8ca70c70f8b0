"""How does a node run one job? A real leader that repeats its request until it is answered."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from tests.kit.a_leader import a_leader
from tests.kit.fake_node import a_node
from tests.kit.known_nodes import a_group, hand_in, known_to

from wakugumi.adapters.journal.journal import Journal
from wakugumi.core.leader.nodes import health, jobs, machine
from wakugumi.roles.client.grid import connect
from wakugumi.roles.leader.nodes import node_exchange

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for seconds here."""
    monkeypatch.setattr(health, "NODE_POLL_S", 0.02)
    monkeypatch.setattr(health, "backoff_s", lambda failures, _chance: min(0.02 * 2**failures, 0.2))
    monkeypatch.setattr(jobs, "NODE_AGAIN_S", 0.02)


@pytest.mark.spec("G1")
async def test_a_node_that_runs_the_job_already_is_waited_for_there() -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        job_id = str(uuid4())
        node.running.add(job_id)
        job = await hand_in(grid, job_id)
        await node.until(lambda node: len(node.asked) >= 3)
        assert [bool(asked.body) for asked in node.asked[:3]] == [True, False, False], "its input is not sent again"
        node.running.discard(job_id)
        assert (await job).ok
        assert leader.machine.jobs[next(iter(leader.machine.jobs))].attempts == 1


@pytest.mark.spec("L4")
async def test_a_connection_that_is_cut_while_a_job_runs_does_not_run_it_twice() -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        node.go.clear()
        job = await hand_in(grid)
        await node.until(lambda node: node.running)
        node.hang_up()
        await node.until(lambda node: len(node.asked) >= 3)
        assert [bool(asked.body) for asked in node.asked[:3]] == [True, False, False]
        node.go.set()
        assert (await job).ok
        assert len(node.began) == 1
        assert next(iter(leader.machine.jobs.values())).attempts == 1


@pytest.mark.parametrize("trick", ["cut", "cut-answer"])
@pytest.mark.spec("L4")
async def test_an_answer_that_is_cut_off_is_asked_for_again(trick: str) -> None:
    async with a_node() as node, a_group(node) as (_, grid):
        node.tricks.append(trick)
        result = await (await hand_in(grid))
        assert dict(result.files) == {"out": b"TEXT"}
        assert len(node.began) == 1


@pytest.mark.spec("L3", "L4")
async def test_a_node_that_dies_with_a_job_loses_it_to_another_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "REATTACH_GRACE_S", 0.1)
    async with a_node() as dying, a_group(dying) as (leader, grid):
        dying.go.clear()
        job = await hand_in(grid)
        await dying.until(lambda node: node.running)
        await dying.stop()
        async with a_node() as other, known_to(leader, other):
            assert (await job).ok
            assert other.began == [job.id]
        known = next(iter(leader.machine.jobs.values()))
        assert [attempt.outcome for attempt in known.history] == ["worker-lost", "ok"]
        await dying.start()
        await dying.until(lambda node: any(asked.method == "DELETE" for asked in node.asked))


async def test_a_node_that_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SILENCE_MAX_S", 0.05)
    monkeypatch.setattr(machine, "NODE_POLL_TIMEOUT_S", 0.05)
    async with a_node() as node, a_group(node) as (leader, grid):
        node.tricks.append("silent")
        job = await hand_in(grid)
        await node.until(lambda node: node.asked)
        node.capacity = b"nonsense"
        await leader.until(lambda machine: any("no capacity" in worker.rests for worker in machine.roster))
        await node.until(lambda node: len(node.asked) >= 2)
        node.capacity = None
        assert (await job).ok


async def test_a_job_that_fails_by_a_bug_is_an_attempt_and_holds_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    result_of = node_exchange.result_of

    async def broken(*_: object) -> None:
        monkeypatch.setattr(node_exchange, "result_of", result_of)
        raise ZeroDivisionError

    monkeypatch.setattr(node_exchange, "result_of", broken)
    async with a_node() as node, a_group(node) as (leader, grid):
        node.limit = 1
        assert (await (await hand_in(grid))).ok
        known = next(iter(leader.machine.jobs.values()))
        assert [attempt.outcome for attempt in known.history] == ["worker-error", "ok"]


@pytest.mark.spec("L10")
async def test_a_cancelled_job_is_cancelled_at_its_node_and_its_slot_is_free() -> None:
    async with a_node() as node, a_group(node) as (_, grid):
        node.limit = 1
        node.go.clear()
        job = await hand_in(grid)
        await node.until(lambda node: node.running)
        await job.cancel()
        await node.until(lambda node: any(asked.method == "DELETE" for asked in node.asked))
        node.go.set()
        assert (await (await hand_in(grid))).ok


@pytest.mark.spec("L7")
async def test_a_leader_that_is_started_anew_asks_the_same_node_for_the_same_job(tmp_path: Path) -> None:
    async with a_node() as node, a_node() as other:
        node.go.clear()
        journal = Journal.open(tmp_path / "state")
        async with (
            a_leader(journal=journal) as leader,
            known_to(leader, node),
            connect(f"127.0.0.1:{leader.port}", client_id="me") as grid,
        ):
            job = await hand_in(grid, "one")
            await node.until(lambda node: node.running)
        asked = len(node.asked)
        async with (
            a_leader(journal=Journal.open(tmp_path / "state")) as leader,
            known_to(leader, other, node),
            connect(f"127.0.0.1:{leader.port}", client_id="me") as grid,
        ):
            again = await hand_in(grid, "one")
            await node.until(lambda node: len(node.asked) > asked)
            assert not node.asked[asked].body, "it is asked for what it has"
            node.go.set()
            assert (await again).ok
            known = next(iter(leader.machine.jobs.values()))
            assert known.attempts == 1
    assert (len(node.began), other.began) == (1, [])
    assert job.id == again.id


@pytest.mark.spec("L7")
async def test_a_job_that_never_reached_its_node_is_sent_by_the_next_leader(tmp_path: Path) -> None:
    async with a_node() as node:
        node.tricks += ["silent"]
        async with (
            a_leader(journal=Journal.open(tmp_path / "state")) as leader,
            known_to(leader, node),
            connect(f"127.0.0.1:{leader.port}", client_id="me") as grid,
        ):
            await hand_in(grid, "one")
            await node.until(lambda node: node.asked)
        async with (
            a_leader(journal=Journal.open(tmp_path / "state")) as leader,
            known_to(leader, node),
            connect(f"127.0.0.1:{leader.port}", client_id="me") as grid,
        ):
            assert (await (await hand_in(grid, "one"))).ok
            assert len(node.began) == 1
