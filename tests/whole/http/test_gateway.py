"""`waku gateway` as a process: killed with jobs queued and running, and nothing that it accepted is lost."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    Asked,
    Said,
    a_problem,
    call,
    groups_of,
    left_on_disk,
    submit,
    until_state,
    words,
)
from tests.whole.conftest import Running, port_of

Start = Callable[..., Running]


@pytest.mark.anyio
@pytest.mark.spec("G3", "G5")
@pytest.mark.parametrize("heir", ["the other one", "a new one"])
async def test_a_killed_gateway_leaves_its_accepted_jobs_to_another(home: Path, start: Start, heir: str) -> None:
    state = home / "gateway"
    async with groups_of("a", "b") as groups:
        is_open = asyncio.Event()

        async def behave(asked: Asked) -> Said | None:
            name = asked.path.rpartition("/")[2]
            if name.startswith("wait") and not is_open.is_set():
                return a_problem(503, "full")
            await is_open.wait()
            return Said(200, f"PK {name}".encode(), {"Waku-Status": "OK"})

        for group in groups:
            group.behave = behave
        first = start(*words(groups, state))
        port = port_of(first)
        other = start(*words(groups, state)) if heir == "the other one" else None
        names = [f"{kind}{number}" for kind in ("run", "wait") for number in range(15)]
        sizes = {name: 300_000 if number % 5 == 0 else 20 for number, name in enumerate(names)}
        for name in names:
            heard = await submit(port, name, name.encode() * sizes[name], query="?async=1")
            assert heard.status == 202
        await eventually(lambda: sum(name.startswith("run") for group in groups for name in group.names) == 15)
        first.signal(signal.SIGKILL)
        first.process.wait()
        is_open.set()
        port = port_of(other or start(*words(groups, state)))
        for name in names:
            await until_state(port, name, "done")
            assert (await call(port, "GET", f"/result/{name}")).body == f"PK {name}".encode()
        asked = Counter(name for group in groups for name in group.names if name.startswith("run"))
        assert set(asked) == {name for name in names if name.startswith("run")}
        bodies = {asked.path: asked.body for group in groups for asked in group.dispatched}
        assert all(len(bodies[f"/dispatch/{name}"]) > sizes[name] for name in names)
        await eventually(lambda: left_on_disk(state) == [])


@pytest.mark.anyio
async def test_it_says_where_it_is_and_ends_in_order(home: Path, start: Start) -> None:
    async with groups_of("a") as [group]:
        gate = start(*words([group], home / "gateway"))
        port = port_of(gate)
        assert (await submit(port, "monday")).body == b"PK by a"
        group.behave = group.hold
        waiting = asyncio.get_running_loop().create_task(submit(port, "tuesday"))
        await group.arrived.wait()
        await eventually(lambda: len(group.dispatched) == 2)
        gate.signal(signal.SIGTERM)
        await asyncio.get_running_loop().run_in_executor(None, gate.until, lambda text: "draining" in text)
        group.open.set()
        assert (await waiting).status == 200
        code, out, err = await asyncio.get_running_loop().run_in_executor(None, gate.end)
        assert (code, out) == (0, f"http://127.0.0.1:{port}\n")
        assert "job=tuesday" in err
        assert "gateway stopped" in err
