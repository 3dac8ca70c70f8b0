"""Nodes that a leader knows by address: a real leader and client, real sockets, and nodes that do what they like."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.kit.a_leader import DEADLINE_S, Running, a_leader
from tests.kit.certificates import make_certificates
from tests.kit.fake_node import FakeNode, a_node
from tests.kit.hostile_answers import ODD, answers
from tests.kit.known_nodes import a_group, hand_in, known_to

from wakugumi.adapters.http import client
from wakugumi.adapters.net.tls import client_context, server_context
from wakugumi.core.backoff import parse_policies
from wakugumi.core.connections import answer_pace
from wakugumi.core.ids import job_id_from_name
from wakugumi.core.leader.admin.explain import explain
from wakugumi.core.leader.admin.overview import worker_row
from wakugumi.core.leader.nodes import health, jobs, machine, unwanted
from wakugumi.core.leader.nodes.machine import NodeAt
from wakugumi.core.subject import worker_patterns
from wakugumi.roles.client.grid import connect
from wakugumi.roles.client.job import Job
from wakugumi.roles.leader.nodes import remote_node
from wakugumi.roles.leader.nodes.remote_node import RemoteNodes
from wakugumi.wire.messages.job import JobLimits

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for seconds here."""
    monkeypatch.setattr(health, "NODE_POLL_S", 0.02)
    monkeypatch.setattr(health, "backoff_s", lambda failures, _chance: min(0.02 * 2**failures, 0.2))
    monkeypatch.setattr(jobs, "NODE_AGAIN_S", 0.02)


def why(leader: Running, job: Job) -> str:
    machine = leader.machine
    return " ".join(explain(machine, machine.jobs[job_id_from_name(job.id)], machine.roster.now).reasons)


@pytest.mark.spec("G1", "N2")
async def test_a_job_runs_at_a_node_and_its_result_is_as_a_workers() -> None:
    async with a_node() as node, a_group(node) as (_, grid):
        result = await (await grid.submit("calc", args=["--fast", "in.txt"], files={"in.txt": b"text"}, timeout_s=7.5))
    assert (result.ok, result.stdout, result.stderr) == (True, "printed\n", "said\n")
    assert dict(result.files) == {"out": b"TEXT"}
    assert (result.exit_code, result.run_s, result.worker) == (0, 0.5, "fake")
    (asked,) = node.asked
    assert asked.query == {"program": ["calc"], "arg": ["--fast", "in.txt"], "timeout": ["7.500000"]}
    assert b'filename="in.txt"' in asked.body


async def test_a_job_that_wants_to_be_retried_is_retried() -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        node.heads |= {"Waku-Status": "FAILED", "Waku-Exit-Code": "3", "Waku-Reason": "exit"}
        job = await hand_in(grid, retries=1)
        await leader.until(lambda machine: machine.lifecycle.backing_off)
        node.done.clear()
        node.heads |= {"Waku-Status": "OK", "Waku-Exit-Code": "0"}
        assert (await job).ok
        assert len(node.began) == 2


@pytest.mark.spec("G1")
async def test_never_more_jobs_than_slots_and_each_slot_is_used() -> None:
    async with a_node() as one, a_node() as other, a_group(one, other) as (leader, grid):
        one.go.clear()
        other.go.clear()
        jobs = [await hand_in(grid) for _ in range(7)]
        await leader.until(lambda machine: machine.lanes.queued == 3)
        await one.until(lambda node: len(node.running) == len(other.running) == 2)
        one.go.set()
        other.go.set()
        assert all([(await job).ok for job in jobs])
        assert sorted([*one.began, *other.began]) == sorted(job.id for job in jobs)


@pytest.mark.spec("G1")
async def test_busy_is_no_attempt_and_the_job_goes_where_there_is_room() -> None:
    async with a_node() as liar, a_group(liar) as (leader, grid):
        liar.limit, liar.lies = 0, 4
        job = await hand_in(grid)
        await liar.until(lambda node: len(node.asked) >= 3)
        await leader.until(lambda _: "resting" in why(leader, job))
        async with a_node() as honest, known_to(leader, honest):
            assert (await job).ok
            assert (honest.began, liar.began) == ([job.id], [])
        known = next(iter(leader.machine.jobs.values()))
        assert known.attempts == len(known.history) == 1


@pytest.mark.spec("G1")
async def test_what_others_run_at_a_node_counts() -> None:
    async with a_node() as node:
        node.others = 1
        node.go.clear()
        async with a_group(node) as (leader, grid):
            jobs = [await hand_in(grid) for _ in range(2)]
            await node.until(lambda node: node.running)
            polls = node.polls
            await node.until(lambda node: node.polls >= polls + 3)
            await leader.until(lambda machine: machine.lanes.queued == 1)
            assert node.busy == 0
            node.go.set()
            assert all([(await job).ok for job in jobs])


async def test_too_many_requests_is_busy_too() -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        node.status = 429, {}
        job = await hand_in(grid)
        await leader.until(lambda machine: any("429" in worker.rests for worker in machine.roster))
        node.status = None
        assert (await job).ok
        assert len(next(iter(leader.machine.jobs.values())).history) == 1


async def test_one_that_has_less_than_it_says_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "backoff_s", lambda _failures, _chance: 60.0)
    async with a_node() as liar, a_node() as other, a_group(liar) as (leader, grid), known_to(leader, other):
        liar.limit, liar.lies, other.limit = 0, 4, 0
        job = await hand_in(grid)
        await liar.until(lambda node: node.busy)
        polls = other.polls
        await other.until(lambda node: node.polls >= polls + 5)
        assert liar.busy == 1
        other.limit = 1
        assert (await job).ok


@pytest.mark.spec("G1")
async def test_a_node_that_is_gone_when_a_job_comes_has_not_begun_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        await leader.until(lambda machine: any(worker.credit for worker in machine.roster))
        monkeypatch.setattr(health, "NODE_POLL_S", 60.0)
        polls = node.polls
        await node.until(lambda node: node.polls > polls)
        await node.stop()
        job = await hand_in(grid)
        await leader.until(lambda machine: any("cannot be reached" in worker.rests for worker in machine.roster))
        await node.start()
        assert (await job).ok
        known = next(iter(leader.machine.jobs.values()))
        assert [attempt.outcome for attempt in known.history] == ["ok"]


@pytest.mark.spec("G4", "L4")
async def test_a_node_that_is_not_there_is_no_attempt_and_it_is_found_when_it_comes() -> None:
    async with a_node() as node:
        await node.stop()
        async with a_group(node) as (leader, grid):
            job = await hand_in(grid)
            await leader.until(lambda machine: any("cannot be reached" in worker.rests for worker in machine.roster))
            await leader.until(lambda machine: machine.jobs)
            await leader.until(lambda _: "resting" in why(leader, job))
            await node.start()
            assert (await job).ok
            known = next(iter(leader.machine.jobs.values()))
            assert known.attempts == 1


async def test_a_node_that_hangs_loses_its_job_however_rarely_it_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SILENCE_MAX_S", 0.3)
    monkeypatch.setattr(jobs, "REATTACH_GRACE_S", 0.05)
    monkeypatch.setattr(health, "backoff_s", lambda _failures, _chance: 60.0)
    monkeypatch.setattr(jobs, "NODE_QUESTION_S", 0.05)
    async with a_node() as node, a_group(node) as (leader, grid):
        node.go.clear()
        job = await hand_in(grid)
        await node.until(lambda node: node.running)
        monkeypatch.setattr(machine, "NODE_POLL_TIMEOUT_S", 0.05)  # Not before: on a busy machine the node must join.
        node.deaf_to |= {"GET", "POST", "DELETE"}
        async with a_node() as other, known_to(leader, other):
            assert (await job).ok
            assert other.began == [job.id]


@pytest.mark.parametrize("takes", ["", "job"])
async def test_a_node_that_stalls_in_the_midst_of_an_answer_loses_its_job(
    takes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers polls all the while."""
    monkeypatch.setattr(answer_pace, "BODY_RECEIVED_MIN_S", 0.1)
    monkeypatch.setattr(jobs, "REATTACH_GRACE_S", 0.05)
    async with a_node() as node, a_group(node) as (leader, grid):
        node.takes = takes
        await node.until(lambda node: node.polls > 1)
        node.tricks += ["stall-answer", "stall-answer"]
        job = await hand_in(grid)
        await node.until(lambda node: node.began)
        async with a_node() as other, known_to(leader, other):
            assert (await job).ok
            assert other.began == [job.id]
        assert not node.tricks


async def test_jobs_that_take_every_connection_do_not_make_a_node_seem_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CALLS_MAX", 1)
    monkeypatch.setattr(health, "CALLS_MAX", 1)
    monkeypatch.setattr(machine, "NODE_POLL_TIMEOUT_S", 0.5)
    async with a_node() as node, a_node() as other, a_group(node) as (leader, grid):
        node.go.clear()
        jobs = [await hand_in(grid) for _ in range(2)]
        await node.until(lambda node: node.running)
        polls = node.polls
        await node.until(lambda node: node.polls >= polls + 5)
        assert not any(worker.rests for worker in leader.machine.roster)
        await leader.until(lambda machine: machine.lanes.queued == 1)  # Where another may have it.
        async with known_to(leader, other):
            assert (await jobs[1]).ok
        node.go.set()
        assert (await jobs[0]).ok


async def test_one_that_cannot_be_asked_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(remote_node.RemoteNode, "_ask_capacity", broken)
        async with a_node() as node, a_group(node) as (leader, grid):
            job = await hand_in(grid)
            await leader.until(lambda machine: any("ZeroDivision" in worker.rests for worker in machine.roster))
            patch.undo()
            assert (await job).ok


@pytest.mark.parametrize("said", [b"", b"[1,2]", b'{"running":-1,"limit":3}', b'{"limit":3}', b"x" * 100_000])
async def test_a_capacity_that_is_none_is_out_of_order(said: bytes) -> None:
    async with a_node() as node:
        node.capacity = said
        async with a_group(node) as (leader, grid):
            await leader.until(lambda machine: any("capacity" in worker.rests for worker in machine.roster))
            job = await hand_in(grid)
            node.capacity = None
            assert (await job).ok


async def test_a_capacity_beyond_all_bounds_is_bounded() -> None:
    async with a_node() as node:
        node.lies = 10**9
        async with a_group(node) as (leader, grid):
            await leader.until(lambda machine: any(worker.credit for worker in machine.roster))
            assert (await (await hand_in(grid))).ok


@pytest.mark.spec("G1", "L3")
@pytest.mark.parametrize("fault", ["500", "507", "no-zip", "cut"])
async def test_a_sick_node_rests_and_does_not_eat_the_queue(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "backoff_s", lambda _failures, _chance: 60.0)
    monkeypatch.setattr(jobs, "REATTACH_GRACE_S", 0.05)
    async with a_node() as sick, a_node() as well, a_group(sick) as (leader, grid), known_to(leader, well):
        if fault.isdigit():
            sick.status = int(fault), {"code": "disk"} if fault == "507" else {}
        else:
            sick.tricks += [fault] * 1_000
        await leader.until(lambda machine: sum(worker.credit for worker in machine.roster) == 4)
        results = await asyncio.gather(*[await hand_in(grid) for _ in range(12)])
        assert all(result.ok for result in results)
        assert len({asked.job for asked in sick.asked if asked.method == "POST"}) <= sick.limit
        assert "resting" in {worker_row(worker, 0.0).state for worker in leader.machine.roster}


@pytest.mark.spec("G1")
async def test_one_that_was_sick_is_tried_with_one_job_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "backoff_s", lambda _failures, _chance: 0.05)
    async with a_node() as node, a_group(node) as (leader, grid):
        await leader.until(lambda machine: any(worker.credit for worker in machine.roster))
        node.tricks.append("no-zip")
        node.go.clear()
        jobs = [await hand_in(grid)]
        await leader.until(lambda machine: any(worker.rests for worker in machine.roster))
        jobs += [await hand_in(grid) for _ in range(3)]
        await node.until(lambda node: node.running)
        polls = node.polls
        await node.until(lambda node: node.polls >= polls + 3)
        assert len(node.running) == 1
        node.go.set()
        assert all(result.ok for result in await asyncio.gather(*jobs))


async def test_one_that_does_not_answer_a_cancel_is_polled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NODE_POLL_TIMEOUT_S", 0.1)
    monkeypatch.setattr(unwanted, "NODE_POLL_TIMEOUT_S", 0.1)
    async with a_node() as node, a_group(node) as (_, grid):
        node.deaf_to.add("DELETE")
        node.go.clear()
        jobs = [await hand_in(grid) for _ in range(2)]
        await node.until(lambda node: len(node.running) == 2)
        for job in jobs:
            await job.cancel()
        await node.until(lambda node: len([asked for asked in node.asked if asked.method == "DELETE"]) == 10)
        polls = node.polls
        await node.until(lambda node: node.polls >= polls + 10)
        assert len([asked for asked in node.asked if asked.method == "DELETE"]) == 10, "not for ever"
        node.running.clear()
        node.go.set()
        assert (await (await hand_in(grid))).ok


@pytest.mark.spec("U8")
async def test_a_job_that_sets_variables_goes_to_a_node_that_takes_them_and_to_no_other() -> None:
    async with a_node() as older, a_node() as newer, a_group(older, newer) as (leader, grid):
        await leader.until(lambda machine: len([worker for worker in machine.roster if worker.credit]) == 2)
        env = {"SEED": "7", "NOTE": "a=b & c"}
        job = await grid.submit("calc", args=["in.txt"], files={"in.txt": b"text"}, env=env)
        await leader.until(lambda machine: machine.lanes.queued == 1)
        assert "none knows of them" in why(leader, job)
        newer.takes = "env"
        assert (await job).ok
        assert [asked.query["env"] for asked in newer.asked if asked.method == "POST"] == [["NOTE=a=b & c", "SEED=7"]]
        assert not older.asked


@pytest.mark.spec("G1")
async def test_a_job_that_no_node_can_be_told_waits_for_a_worker_and_says_so() -> None:
    async with a_node() as node, a_group(node) as (leader, grid):
        await leader.until(lambda machine: any(worker.credit for worker in machine.roster))
        files = {"a": b"", "b": b""}
        asked = [
            await grid.submit("calc", args=["a"]),
            await grid.submit("calc", args=["a"], files=files),
            await grid.submit("calc", files={"a": b""}),
            await grid.submit("calc", args=["{input}"], files={"a": b""}),
            await grid.submit("calc", args=["a"], files={"a": b""}, limits=JobLimits(cpu_s=1.0)),
            await grid.submit("calc", args=["a"], files={"a": b""}, slots=2),
            await grid.submit("calc", args=["x" * 5_000], files={"a": b""}),
        ]
        assert (await (await hand_in(grid))).ok, "and others pass them"
        await leader.until(lambda machine: len(machine.jobs) == 8)
        for job in asked:
            assert "known by address cannot be told it" in why(leader, job)
        assert len(node.asked) == 1


@pytest.mark.spec("G4", "L2")
async def test_nodes_take_turns_by_their_weights() -> None:
    policies = parse_policies("round-robin")
    async with a_node() as one, a_node() as other, a_leader(policies=policies) as leader:
        one.limit = other.limit = 100
        async with known_to(leader, one, other, weights=(3, 1)), connect(f"127.0.0.1:{leader.port}") as grid:
            await leader.until(lambda machine: sum(worker.credit for worker in machine.roster) == 200)
            for job in [await hand_in(grid) for _ in range(40)]:
                assert (await job).ok
    assert (len(one.began), len(other.began)) == (30, 10)


@pytest.mark.spec("O3")
async def test_nodes_are_listed_with_their_urls_and_what_is_wrong_with_them() -> None:
    async with a_node() as node, a_node() as gone, a_group(node) as (leader, grid), known_to(leader, gone):
        node.go.clear()
        gone.limit = 0
        job = await hand_in(grid)
        await node.until(lambda node: node.running)
        await gone.stop()
        await leader.until(lambda machine: any(worker.rests for worker in machine.roster))
        rows = {worker.name: worker_row(worker, 0.0) for worker in leader.machine.roster}
        assert (rows[node.url].state, rows[node.url].running) == ("ready", 1)
        assert rows[gone.url].state == "resting"
        assert gone.url in rows[gone.url].rests
        node.go.set()
        assert (await job).ok


@pytest.mark.spec("N5", "G1")
async def test_a_node_over_tls_is_asked_if_it_is_the_one_that_is_believed(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path)
    node = FakeNode()
    await node.start(server_context(certs.server_cert, certs.server_key, certs.ca))
    at = [NodeAt(f"https://localhost:{node.port}", worker_patterns(""))]
    try:
        async with a_leader() as leader, connect(f"127.0.0.1:{leader.port}") as grid:
            job = await hand_in(grid)
            doubting = RemoteNodes(leader.leader.hub, leader.leader.blobs, at, client_context())
            await leader.until(lambda machine: any("cannot be reached" in worker.rests for worker in machine.roster))
            await doubting.close()
            believing = RemoteNodes(leader.leader.hub, leader.leader.blobs, at, client_context(certs.ca, certs.client))
            assert (await job).ok
            await believing.close()
    finally:
        await node.stop()


async def test_a_closed_leader_leaves_nothing_behind() -> None:
    async with a_node() as node, a_leader() as leader:
        async with known_to(leader, node), connect(f"127.0.0.1:{leader.port}") as grid:
            node.go.clear()
            await hand_in(grid)
            await node.until(lambda node: node.running)
        async with asyncio.timeout(DEADLINE_S):
            while any("Node" in task.get_name() for task in asyncio.all_tasks()):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert not leader.leader.hub.local_peers


@pytest.mark.spec("G1", "L4")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whatever_nodes_do_every_job_has_its_answer_and_nothing_is_left(seed: int) -> None:
    chance = random.Random(seed)
    async with a_node() as one, a_node() as two, a_node() as three, a_group(one, two, three) as (leader, grid):
        nodes = [one, two, three]
        for node in nodes:
            node.go.clear()
        jobs = [await hand_in(grid, text=b"job %d" % number) for number in range(60)]
        done = asyncio.gather(*jobs)
        while not done.done():
            node = chance.choice(nodes)
            match chance.randrange(8):
                case 0:
                    node.tricks.append(chance.choice(["busy", "cut", "cut-answer"]))
                case 1:
                    node.hang_up()
                case 2:
                    node.lies = chance.randrange(3)
                case 3:
                    await node.stop()
                    await asyncio.sleep(0.03 * chance.random())
                    await node.start()
                case _:  # What it runs may end.
                    node.go.set()
                    await asyncio.sleep(0.005)
                    node.go.clear()
            assert len(node.running) <= node.limit
            await asyncio.sleep(0.002)
        results = await done
        assert [dict(result.files) for result in results] == [{"out": b"JOB %d" % number} for number in range(60)]
        assert not any(worker.jobs for worker in leader.machine.roster)
        for node in nodes:
            node.go.set()


@pytest.mark.spec("G1")
async def test_whatever_a_node_answers_to_a_poll_it_is_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "backoff_s", lambda *_: 0.002)
    async with a_node() as node, a_group(node) as (_, grid):
        for answer in [*answers(b"200 X").values(), *answers(b"500 X").values(), *ODD.values()]:
            node.raw_capacity = answer
            seen = node.polls
            await node.until(lambda node, seen=seen: node.polls > seen + 1)  # type: ignore[misc]
        node.raw_capacity = None
        async with asyncio.timeout(DEADLINE_S):
            assert (await (await hand_in(grid))).ok
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
