"""A process without file descriptors says so, on both loops, and goes on when there are some."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from weakref import ref

import pytest
import uvloop
from tests.kit.eventually import eventually

from wakugumi.adapters.net import descriptor_shortage
from wakugumi.adapters.net.connect import accept, bound_port

pytestmark = pytest.mark.anyio

DEADLINE_S = 20.0


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 50, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _until_said(caplog: pytest.LogCaptureFixture, lines: int) -> None:
    await eventually(lambda: len(caplog.messages) >= lines)


@pytest.mark.usefixtures("few_descriptors")
async def test_who_is_turned_away_for_want_of_a_descriptor_is_told_of_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptor_shortage, "LOOK_S", 0.02)
    came = asyncio.Event()

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            came.set()
            transport.close()

    server = await accept("127.0.0.1", 0, Door)
    other = await accept("127.0.0.1", 0, Door)  # The same lines serve all ports of a process.
    with socket.socket() as late, socket.socket() as early:
        taken: list[int] = []
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        try:
            early.setblocking(False)
            early.connect_ex(("127.0.0.1", bound_port(server)))
            await _until_said(caplog, 1)
            for _ in range(10):
                await asyncio.sleep(descriptor_shortage.LOOK_S)
        finally:
            for number in taken:
                os.close(number)
        assert len(caplog.messages) == 1
        assert "new connections are turned away: all" in caplog.messages[0]
        assert "hint: raise its limit of open files" in caplog.messages[0]
        await _until_said(caplog, 2)
        assert "accepted again" in caplog.messages[1]
        came.clear()
        late.setblocking(False)
        late.connect_ex(("127.0.0.1", bound_port(other)))
        async with asyncio.timeout(DEADLINE_S):
            await came.wait()
    for one in (server, other):
        one.close()
        await one.wait_closed()
    assert len(caplog.messages) == 2


async def test_other_exceptions_of_the_loop_are_told_as_before(caplog: pytest.LogCaptureFixture) -> None:
    server = await accept("127.0.0.1", 0, asyncio.Protocol)
    asyncio.get_running_loop().call_exception_handler({"message": "something else"})
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == ["something else"]
    server.close()
    await server.wait_closed()


async def test_after_the_last_server_the_loop_has_the_handler_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptor_shortage, "LOOK_S", 0.001)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    for _ in range(2):
        server = await accept("127.0.0.1", 0, asyncio.Protocol)
        assert loop.get_exception_handler() != before
        server.close()
        await server.wait_closed()
        await eventually(lambda: loop.get_exception_handler() == before)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_that_ends_soon_after_its_servers_is_freed(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def serve() -> ref[asyncio.AbstractEventLoop]:
        server = await accept("127.0.0.1", 0, asyncio.Protocol)
        server.close()
        await server.wait_closed()
        return ref(asyncio.get_running_loop())

    with asyncio.Runner(loop_factory=new_loop) as runner:
        loop = runner.run(serve())
    del runner
    gc.collect()
    assert loop() is None
