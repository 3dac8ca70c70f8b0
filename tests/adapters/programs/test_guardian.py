"""Who ends the programs when the worker itself dies?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.eventually import eventually_blocking
from tests.kit.processes import has_ended

DEADLINE_S = 30.0

WORKER = """
import asyncio, os, signal, sys, time
from pathlib import Path
from wakugumi.adapters.programs.guardian import guard

def serve(main):
    from wakugumi.adapters.loop.event_loop import run
    run(main())

{run}

if __name__ == "__main__":
    sys.exit(guard(run))
"""

RUN_JOBS = """
def run():
    from wakugumi.adapters.programs.output_files import Captures
    from wakugumi.adapters.programs.processes import Processes
    async def main():
        processes = Processes(asyncio.get_running_loop(), lambda child: None)
        captures = Captures(".")
        for number, script in enumerate(SCRIPTS):
            program = Path(f"program-{number}").absolute()
            program.write_text("#!/bin/sh\\n" + script)
            program.chmod(0o755)
            processes.start(f"job-{number}", [os.fsencode(program)], ".", captures.take(), timeout_s=1000)
        Path("worker.pid").write_text(str(os.getpid()))
        if STUCK:
            time.sleep(1000)
        await asyncio.sleep(1000)
    serve(main)

SCRIPTS = [
    "echo $$ > plain.pid; exec sleep 1000",
    "trap '' TERM HUP INT; echo $$ > stubborn.pid; while :; do sleep 0.05; done",
    "setsid sh -c 'echo $$ > stray.pid; exec sleep 1000' & exec sleep 1000",
    "setsid env -i PATH=$PATH sh -c 'echo $$ > hidden.pid; sleep 1000 & wait' & exec sleep 1000",
]
STUCK = False
"""
NAMES = ["worker", "plain", "stubborn", "stray", "hidden"]


class Guarded:
    """A process that runs `guard`, and what is below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, run: str) -> subprocess.Popen[bytes]:
        script = self.folder / "worker.py"
        script.write_text(WORKER.format(run=run))
        self.process = subprocess.Popen(
            [sys.executable, str(script)], cwd=self.folder, stdout=subprocess.PIPE, start_new_session=True
        )
        return self.process

    def pid(self, name: str) -> int:
        file = self.folder / f"{name}.pid"
        eventually_blocking(lambda: file.exists() and file.read_text().strip() != "")
        return int(file.read_text())

    def close(self) -> None:
        """Should a test fail, its processes must not stay."""
        for file in self.folder.glob("*.pid"):
            if (pid := file.read_text().strip()) and not has_ended(int(pid)):
                os.kill(int(pid), signal.SIGKILL)
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path)
    yield guarded
    guarded.close()


@pytest.mark.spec("W3")
@pytest.mark.parametrize("stuck", [False, True], ids=["busy with its loop", "stuck"])
def test_kill_9_of_the_worker_leaves_nothing_running(guarded: Guarded, stuck: bool) -> None:
    process = guarded.start(RUN_JOBS.replace("STUCK = False", f"STUCK = {stuck}"))
    pids = [guarded.pid(name) for name in NAMES]
    assert not any(map(has_ended, pids))
    os.kill(pids[0], signal.SIGKILL)
    assert process.wait(DEADLINE_S) == 128 + signal.SIGKILL
    assert all(map(has_ended, pids)), "and the guardian has waited for that"


@pytest.mark.spec("W3")
def test_kill_9_of_the_guardian_ends_the_worker_and_its_jobs(guarded: Guarded) -> None:
    process = guarded.start(RUN_JOBS)
    pids = [guarded.pid(name) for name in NAMES]
    assert not any(map(has_ended, pids))
    process.kill()
    process.wait(DEADLINE_S)
    eventually_blocking(lambda: all(map(has_ended, pids)))


@pytest.mark.spec("W3")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_worker_once_and_its_exit_code_comes_back(
    guarded: Guarded, number: signal.Signals
) -> None:
    process = guarded.start(
        f"""
def run():
    got = []
    signal.signal({number.value}, lambda *_: got.append(1))
    Path("worker.pid").write_text(str(os.getpid()))
    while not got:
        time.sleep(0.01)
    time.sleep(0.2)
    print(len(got), flush=True)
    return 7
"""
    )
    guarded.pid("worker")
    os.killpg(process.pid, number)  # as a terminal does: to the whole group
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (out, process.returncode) == (b"1\n", 7)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return 0", 0),
        ("return 3", 3),
        ("sys.exit(4)", 4),
        ("sys.exit('words')", 1),
        ("raise RuntimeError('a bug')", 1),
        ("os.kill(os.getpid(), signal.SIGSEGV); time.sleep(9)", 128 + signal.SIGSEGV),
    ],
)
def test_the_guardian_ends_as_the_worker_did(guarded: Guarded, body: str, code: int) -> None:
    process = guarded.start(f"def run():\n    {body}\n")
    assert process.wait(DEADLINE_S) == code


def test_what_the_worker_printed_is_there_once(guarded: Guarded) -> None:
    process = guarded.start("print('before')\ndef run():\n    print('inside')\n    return 0\n")
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert out == b"before\ninside\n"


def test_what_a_worker_leaves_when_it_stops_by_itself_is_ended_too(guarded: Guarded) -> None:
    process = guarded.start(
        """
def run():
    if os.fork() == 0:
        os.setsid()
        Path("stray.pid").write_text(str(os.getpid()))
        time.sleep(1000)
    while not Path("stray.pid").exists():
        time.sleep(0.01)
    return 0
"""
    )
    assert process.wait(DEADLINE_S) == 0
    assert has_ended(guarded.pid("stray"))


def test_an_ignored_sigchld_does_not_confuse_it(guarded: Guarded) -> None:
    process = guarded.start("signal.signal(signal.SIGCHLD, signal.SIG_IGN)\ndef run():\n    return 6\n")
    assert process.wait(DEADLINE_S) == 6
