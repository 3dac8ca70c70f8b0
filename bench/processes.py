"""Wakugumi's own processes, as the contestants need them: a leader that listens, a worker that runs programs.

All that they keep lies in the current directory, which is the contestant's own.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, get_args

from contestant import SERVER_STOP_S, running

WAKU = (sys.executable, "-m", "wakugumi")
Keeping = Literal["memory", "durable"]
"""Where a leader has its queue."""


def keeping_from(arguments: list[str]) -> Keeping:
    """The argument with which a contestant of ours is started."""
    match arguments:
        case ["memory"]:
            return "memory"
        case ["durable"]:
            return "durable"
        case _:
            raise SystemExit(f"say one of {', '.join(get_args(Keeping))}, and nothing else")


@contextmanager
def leading(keeping: Keeping) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A leader and its address. Its journal is new, and gone afterwards."""
    state = Path("state").absolute()
    leader, address = start_leader("0", "--memory") if keeping == "memory" else start_leader("0", "--state", str(state))
    try:
        yield leader, address
    finally:
        end(leader)
        shutil.rmtree(state, ignore_errors=True)


def start_leader(port: str, *words: str) -> tuple[subprocess.Popen[str], str]:
    """Returns when it listens, with its address."""
    leader = subprocess.Popen(
        [*WAKU, "leader", port, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert leader.stdout is not None
    address = leader.stdout.readline().strip()
    if not address:
        raise RuntimeError(f"the leader ended at once with exit code {leader.wait()}")
    return leader, address


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(SERVER_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def working(address: str, programs: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A worker with two slots, which minds the others' use of the CPUs as little as it may."""
    host, port = address.rsplit(":", 1)
    taking = ("--slots", "2", "--cpu-cap", "0.95")
    return running(
        *WAKU, "worker", host, port, *taking, "--programs", str(programs), "--jobs", "jobs", "--cache", "cache"
    )
