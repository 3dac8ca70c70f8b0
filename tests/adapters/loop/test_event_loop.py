"""Which event loop runs a process?"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from wakugumi.adapters.loop.event_loop import GARBAGE, new_loop, run


@pytest.fixture(autouse=True)
def _garbage() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_a_process_has_uvloop_where_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = run(_loop())
    assert isinstance(loop, uvloop.Loop)
    assert loop.is_closed()


def test_without_uvloop_a_process_has_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    loop.close()
    assert isinstance(run(_loop()), asyncio.SelectorEventLoop)


def test_a_process_looks_for_garbage_seldom() -> None:
    async def threshold() -> tuple[int, int, int]:
        return gc.get_threshold()

    assert run(threshold()) == GARBAGE
