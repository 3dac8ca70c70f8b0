"""A crowd of strangers at a leader's port, all of them real: it is cut off, costs a bounded memory, and known clients
are served meanwhile. `bench/strangers.py` is the same at full size, with figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.whole.conftest import GridHere, Waku

from wakugumi.core.connections.strangers import HARD
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import HALF_FRAMES_BYTES_MAX, STRANGERS_BYTES_MAX, STRANGERS_MAX

CROWD = Path(__file__).parents[3] / "bench" / "strangers.py"
STRANGERS, KNOWN, SECONDS, RATE = 400, 10, 4.0, 2_000


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return KIB * int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


@pytest.mark.spec("O6", "L9")
def test_a_crowd_of_strangers_costs_a_bounded_memory_and_known_clients_are_served(grid: GridHere, waku: Waku) -> None:
    assert waku("run", "calcA", "--", "0").returncode == 0
    leader = grid.leader.process
    before = resident_bytes(leader.pid)
    words = [sys.executable, CROWD, "--crowd", grid.port, str(STRANGERS), str(KNOWN), str(SECONDS), str(RATE)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "begins\n"
        beside = 0
        while crowd.poll() is None:
            done = waku("run", "calcA", "--", str(beside))
            assert (done.returncode, done.stdout) == (0, f"calcA {beside}\n"), done.stderr
            beside += 1
        told = json.loads(crowd.stdout.read())
    assert beside
    assert told["opened"] >= STRANGERS + KNOWN
    assert told["cut"], "garbage is cut off at once"
    grown = resident_bytes(leader.pid) - before
    assert grown <= STRANGERS_BYTES_MAX + HARD * (STRANGERS_MAX * 20 * KIB + HALF_FRAMES_BYTES_MAX)
    assert leader.poll() is None
