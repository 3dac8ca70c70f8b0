"""A worker beside programs that use all of the machine: it says how much it takes, is held back, and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from tests.whole.conftest import WITHIN_S, Running, Waku

from wakugumi.adapters.machine.usable_cpus import usable_cpus

pytestmark = pytest.mark.spec("W2")

CAP = "0.1"
CPUS = usable_cpus()


@pytest.fixture
def busy() -> Iterator[list[subprocess.Popen[bytes]]]:
    """One loop for each CPU that we may use."""
    if 0.2 * (os.cpu_count() or 1) > CPUS:
        pytest.skip("this machine has far more CPUs than we may use: others cannot keep it busy")
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(CPUS)]
    yield loops
    for loop in loops:
        loop.kill()
        loop.wait()


def test_a_worker_on_a_busy_machine_is_held_back_and_goes_on_taking_jobs(
    busy: list[subprocess.Popen[bytes]], start: Callable[..., Running], waku: Waku, programs: Path
) -> None:
    (programs / "nap").write_text("#!/bin/sh\nexec sleep 0.5\n")
    (programs / "nap").chmod(0o755)
    host, port = start("leader", "0").line().rsplit(":", 1)
    worker = start("worker", host, port, "--programs", programs, "--cpu-cap", CAP, "--name", "w1")
    log = worker.until(lambda text: "the leader speaks version" in text)
    assert f"worker: slots={CPUS} usable-cpus={CPUS} cpu-cap={CAP}" in log.splitlines()[0]

    until, states = monotonic() + WITHIN_S, set()
    while "held back" not in states:
        assert monotonic() < until, states
        client = start("client", host, port, "desk", "--program", "nap", "--count", str(4 * CPUS), "-o", "json")
        while client.process.poll() is None:
            (row,) = json.loads(waku("workers", "list", "--leader", f"{host}:{port}", "-o", "json").stdout)["workers"]
            states.add(row["state"])
        code, out, err = client.end()
        assert code == 0, err
        assert [(row["status"], row["worker"]) for row in json.loads(out)] == 4 * CPUS * [("OK", "w1")]
    assert [loop.poll() for loop in busy] == CPUS * [None]
