"""The limit of open files is raised for us, and is as it was for the programs, whichever way they are started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging, os, sys
from wakugumi.adapters.machine import open_files
from wakugumi.adapters.programs import spawn
logging.basicConfig(level="INFO", format="%(message)s")
before = open_files.open_files_max()
now = open_files.raise_open_files()
assert now == open_files.open_files_max()
assert open_files.connections_max() == now * 3 // 4
assert open_files.connections_max(3) == now * 3 // 4 // 3
os.dup2(1, 1023)
spawner = spawn.Spawner(dict(os.environb))
for start in (spawner.start, spawner.start_with):
    program = b"until [ $(ulimit -Sn) = %d ]; do :; done; ulimit -Sn; ulimit -Hn" % before
    pid = start([b"/bin/sh", b"-c", program], b"/", 1, 2, "job")
    assert os.waitpid(pid, 0)[1] == 0
"""


def said(soft: int, hard: int, tmp_path: Path, script: str = SCRIPT) -> tuple[list[str], str]:
    """What it prints on stdout, by words, and on stderr."""
    shell = f'ulimit -Sn {soft}; ulimit -Hn {hard}; exec "{sys.executable}" -c "$0"'
    words = ["/bin/sh", "-c", shell, script]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out.split(), err


def test_it_is_raised_to_the_hard_limit_and_programs_have_what_was_before(tmp_path: Path) -> None:
    out, err = said(1_000, 2_000, tmp_path)
    assert out == 2 * ["1000", "2000"]
    assert err == "open files: at most 2000 (1000 before), so at most 1500 connections\n"


def test_where_it_is_as_high_as_may_be_nothing_changes(tmp_path: Path) -> None:
    out, err = said(2_000, 2_000, tmp_path)
    assert out == 2 * ["2000", "2000"]
    assert err == "open files: at most 2000 (2000 before), so at most 1500 connections\n"


def test_where_nobody_can_limit_another_process_programs_start_all_the_same(tmp_path: Path) -> None:
    script = """
import os, resource
del resource.prlimit
from wakugumi.adapters.machine import open_files
from wakugumi.adapters.programs import spawn
open_files.raise_open_files()
pid = spawn.Spawner(dict(os.environb)).start([b"/bin/sh", b"-c", b"ulimit -Sn"], b"/", 1, 2, "job")
assert os.waitpid(pid, 0)[1] == 0
"""
    assert said(1_000, 2_000, tmp_path, script)[0] == ["2000"]


LIMITED = """
import asyncio, os
from pathlib import Path
from wakugumi.adapters.programs.resource_limits import JobBounds
from wakugumi.adapters.programs.output_files import Captures
from wakugumi.adapters.programs.processes import Processes
from wakugumi.wire.messages.job import JobLimits

async def main():
    ended = asyncio.Event()
    processes = Processes(asyncio.get_running_loop(), lambda child: ended.set())
    captures = Captures(".")
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1_100)]
    child = processes.start(
        "job",
        [b"/bin/sh", b"-c", b"sleep 50 & wait"],
        ".",
        captures.take(),
        timeout_s=50,
        bounds=JobBounds(JobLimits(processes=1)),
    )
    assert child.status_file > 1_024
    await ended.wait()
    print(child.reason)
    await processes.close()
asyncio.run(main())
"""


def test_limits_are_watched_where_more_files_are_open_than_select_knows(tmp_path: Path) -> None:
    out, _ = said(2_000, 2_000, tmp_path, LIMITED)
    assert out == ["process-limit"]
