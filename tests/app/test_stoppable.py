"""A command that waits ends in order, and leaves the process as it found it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from wakugumi.adapters.loop.signals import STOP_SIGNALS
from wakugumi.app.stoppable import Stopped, run


async def _answer() -> int:
    return 42


async def _stop_me() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()


def test_what_the_signals_did_before_they_do_again_afterwards() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    assert run(_answer()) == 42
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
    with pytest.raises(Stopped):
        run(_stop_me())
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
