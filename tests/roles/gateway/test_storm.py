"""Two gateways, groups that fail in every way, and many who want the same jobs: in the end every accepted job is done,
everybody has the same bytes, and nothing is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    Asked,
    FakeGroup,
    GatewayHere,
    Heard,
    Said,
    a_gateway,
    a_problem,
    call,
    groups_of,
    left_on_disk,
    open_files,
    submit,
    until_state,
)

pytestmark = pytest.mark.anyio

JOBS = 12
SIZES = {f"job{number}": 400_000 if number % 4 == 0 else 50 for number in range(JOBS)}
ANSWERS = {f"job{number}": 500_000 if number % 5 == 0 else 20 for number in range(JOBS)}


def make_stormy(group: FakeGroup, chance: Random) -> None:
    async def behave(asked: Asked) -> Said | None:
        name = asked.path.rpartition("/")[2]
        assert asked.content == name.encode() * SIZES[name], "a try gets the whole body"
        await asyncio.sleep(chance.random() * 0.03)
        # Each group makes a ZIP of its own: only one of them may be seen.
        body = f"{name} by {group.name} ".encode() * ANSWERS[name]
        kind = chance.choice(["ok"] * 4 + ["full", "broken", "dead", "half", "running"])
        if kind == "full":
            return a_problem(503, "full", **{"Retry-After": "0"})
        if kind == "broken":
            return a_problem(500, "worker-error")
        if kind == "running":
            return a_problem(423, "running", **{"Retry-After": "0"})
        if kind == "dead":
            return None
        if kind == "half":
            return Said(200, body[: len(body) // 2], {"Content-Length": str(len(body)), "Waku-Status": "OK"})
        return Said(200, body, {"Waku-Status": "OK"})

    group.behave = behave


async def insist(gate: GatewayHere, name: str, *, query: str = "", wanted: int = 200) -> Heard:
    """As a client does that was told to come again, or whose connection ended."""
    while True:
        try:
            heard = await submit(gate.port, name, name.encode() * SIZES[name], query=query)
        except (OSError, asyncio.IncompleteReadError):
            continue
        if heard.status == wanted:
            return heard
        assert heard.status in {500, 503}, heard
        await asyncio.sleep(0.02)


@pytest.mark.spec("G2", "G3", "G5")
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_groups_do_nothing_is_lost_and_everybody_gets_the_same(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    async with (
        groups_of("a", "b", "c") as groups,
        a_gateway(tmp_path, groups) as one,
        a_gateway(tmp_path, groups) as two,
    ):
        for group in groups:
            make_stormy(group, chance)
        gates = [one, two]
        accepted = [name for name in SIZES if chance.random() < 0.5]
        wants = [(name, chance.choice(gates)) for name in SIZES for _ in range(3)]
        chance.shuffle(wants)

        async def hand_in(name: str) -> None:
            # 503 while another request of the same id is being received: nothing was accepted, so come again.
            await insist(chance.choice(gates), name, query="?async=1", wanted=202)

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            asking = [(name, tasks.create_task(insist(gate, name))) for name, gate in wants]
            for name in accepted:
                tasks.create_task(hand_in(name))
        for name in SIZES:
            await until_state(chance.choice(gates).port, name, "done")
            kept = {(await call(gate.port, "GET", f"/result/{name}")).body for gate in gates}
            assert len(kept) == 1
            assert {task.result().body for asked, task in asking if asked == name} == kept
        for gate in gates:
            await eventually(lambda gate=gate: gate.server.gateway.flights == {} and not gate.server.gateway.queue)  # type: ignore[misc]
            assert gate.server.pages.submits == 0
            totals = await gate.server.gateway.store.totals()
            assert (totals.queued, totals.running, totals.ended) == (0, 0, JOBS)
        large = sum(size * 10 > 256 * 1024 for size in ANSWERS.values())
        await eventually(lambda: len(left_on_disk(tmp_path)) == large)
        await eventually(lambda: open_files(tmp_path) == [])
