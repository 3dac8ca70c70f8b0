"""Several `waku gateway` processes on one state folder, which come and go."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.fake_group import a_problem, call, groups_of, submit, words
from tests.whole.conftest import Running, port_of

Start = Callable[..., Running]


@pytest.mark.anyio
@pytest.mark.spec("G5")
async def test_a_gateway_that_is_stopped_leaves_the_state_to_who_lives(home: Path, start: Start) -> None:
    state = home / "gateway"

    async def accept(port: int, name: str) -> None:
        assert (await submit(port, name, query="?async=1")).status == 202

    async def seen(*ports: int) -> list[int]:
        return [(await call(port, "GET", f"/status/job{number}")).status for port in ports for number in range(4)]

    async with groups_of("a") as [group]:
        group.say(a_problem(503, "full"))
        lives, stopped = start(*words([group], state)), start(*words([group], state))
        port = port_of(lives)
        await accept(port, "job0")
        await accept(port_of(stopped), "job1")
        stopped.signal(signal.SIGTERM)
        code, _, _ = await asyncio.get_running_loop().run_in_executor(None, stopped.end)
        assert code == 0
        await accept(port, "job2")
        later = start(*words([group], state))
        other = port_of(later)
        await accept(other, "job3")
        assert await seen(port, other) == [200] * 8
        for gate in (lives, later):
            gate.signal(signal.SIGKILL)
            gate.process.wait()
        assert await seen(port_of(start(*words([group], state)))) == [200] * 4
