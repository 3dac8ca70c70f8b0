"""A worker whose disk is full, beside a healthy one: real processes, and a file system without room or inodes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.whole.conftest import WAKU, WITHIN_S, Running

pytestmark = pytest.mark.spec("W9")

ROOM = "size=100m", "dd if=/dev/zero of=filler/file bs=1M count=90"
INODES = "size=100m,nr_inodes=300", "until ! touch filler/$((n += 1)); do :; done"
"""A file system, and what leaves less of it than a worker needs."""


class Private(Running):
    """A command with mounts of its own."""

    command = Path(shutil.which("unshare") or "/usr/bin/unshare")


@pytest.fixture
def sick(grid, programs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Private]:
    """A worker with eight slots, whose disk is full once it has told its leader of them."""
    options, fill = request.param
    jobs = tmp_path / "small"
    jobs.mkdir()
    private = ["--mount"] if os.geteuid() == 0 else ["--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o {options},mode=700 none {jobs}"
    if subprocess.run([Private.command, *private, "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("no private mounts allowed here: a full disk cannot be had")
    words = ["worker", grid.host, grid.port, "job.assign.>", "--programs", programs, "--jobs", jobs]
    words += ["--slots", "8", "--cpu-cap", "0.95", "--name", "sick"]
    # Its mounts are its own, and nobody else gets at them.
    told = f"until [ -e {tmp_path}/%s ]; do sleep 0.05; done"
    life = f"{told % 'fill'}; cd {jobs}; mkdir filler; {fill}; touch {tmp_path}/filled; {told % 'free'}; rm -r filler"
    command = [*private, "sh", "-c", f'{mount} && {{ {{ {life}; }} 2>&- & exec "$0" "$@"; }}', WAKU, *words]
    worker = Private(command, tmp_path)
    worker.until(lambda text: "the leader speaks version" in text)
    (tmp_path / "fill").touch()
    until = monotonic() + WITHIN_S
    while not (tmp_path / "filled").exists():
        assert monotonic() < until
        sleep(0.01)
    yield worker
    (tmp_path / "free").touch()
    if worker.process.poll() is None:
        worker.process.kill()
    worker.process.communicate()


@pytest.mark.parametrize(
    ("sick", "why"),
    [
        pytest.param(ROOM, "bytes are free in", id="no room"),
        pytest.param(INODES, "no inodes are free in", id="no inodes"),
    ],
    indirect=["sick"],
)
def test_a_sick_worker_takes_no_job_from_a_healthy_one_and_heals_by_itself(
    grid, sick: Private, why: str, waku, tmp_path: Path
) -> None:
    done = waku("client", grid.host, grid.port, "desk", "50", "--program", "calcA", "--count", "50", "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 50
    assert {row["worker"] for row in rows} == {"w1"}
    assert json.loads(waku("dead", "list", "-o", "json").stdout)["total"] == 0

    listed = {row["name"]: row for row in json.loads(waku("workers", "list", "-o", "json").stdout)["workers"]}
    assert listed["sick"]["state"] == "resting"
    assert why in listed["sick"]["rests"]
    assert "sick rests: " in waku("workers", "list").stderr
    sick.until(lambda text: "out of order" in text and why in text)

    (tmp_path / "free").touch()
    sick.until(lambda text: "in order again" in text)
    grid.worker.signal()
    assert grid.worker.end()[0] == 0
    done = waku("client", grid.host, grid.port, "desk", "--program", "calcA", "--count", "5", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert {row["worker"] for row in json.loads(done.stdout)} == {"sick"}


@pytest.mark.spec("F11")
def test_a_program_that_one_worker_lacks_is_run_by_the_other(grid, start, waku, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    words = ["worker", grid.host, grid.port, "job.assign.>", "--programs", empty, "--jobs", tmp_path / "other"]
    lacks = start(*words, "--slots", "16", "--cpu-cap", "0.95", "--name", "lacks")
    lacks.until(lambda text: "the leader speaks version" in text)
    done = waku("client", grid.host, grid.port, "desk", "50", "--program", "calcA", "--count", "50", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert {row["worker"] for row in json.loads(done.stdout)} == {"w1"}
    done = waku("client", grid.host, grid.port, "desk", "--program", "nobody-has-it", "--count", "1")
    assert done.returncode == 1
    assert "has no program 'nobody-has-it'" in done.stdout


def test_more_slots_than_descriptors_are_refused_at_the_start(grid, waku, programs: Path, tmp_path: Path) -> None:
    words = ["worker", grid.host, grid.port, "--programs", programs, "--jobs", tmp_path / "many", "--slots", "30"]
    command = ["sh", "-c", 'ulimit -n 64 && exec "$0" "$@"', WAKU, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "30 slots may need 220 open files at once, and this process may have 64" in done.stderr
    assert "say --slots 4" in done.stderr
