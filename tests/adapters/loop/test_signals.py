"""A process that counts its stop signals."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

COUNT = """
import asyncio, signal, sys
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals

async def main(wanted):
    enough = asyncio.Event()
    count = 0

    def heard():
        nonlocal count
        count += 1
        print(count, flush=True)
        if count == wanted:
            enough.set()

    on_stop_signals(asyncio.get_running_loop(), heard)
    print("ready", signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, flush=True)
    await enough.wait()

run(main(int(sys.argv[1])))
"""


def counting(wanted: int, shell: str = "") -> subprocess.Popen[str]:
    command = ["/bin/sh", "-c", f'{shell} exec "$@"', "sh", sys.executable, "-c", COUNT, str(wanted)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == f"ready {bool(shell)}\n"
    return process


@pytest.mark.spec("L10")
def test_each_stop_signal_is_one_call_however_often_it_comes() -> None:
    with counting(4) as process:
        assert process.stdout is not None
        for count, number in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM), start=1):
            process.send_signal(number)
            assert process.stdout.readline() == f"{count}\n"
        assert process.wait(timeout=20) == 0


def test_under_nohup_a_hangup_is_ignored_and_in_the_background_of_a_script_an_interrupt_is_not() -> None:
    with counting(1, "trap '' HUP INT;") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "1\n"
        assert process.wait(timeout=20) == 0
