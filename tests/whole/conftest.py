"""The command line as a user has it: real processes, real sockets, real files."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import IO, Protocol

import pytest

SCRIPTS = Path(sys.executable).parent
WAKU = SCRIPTS / "waku"
WITHIN_S = 60.0
"""Far more than anything takes: a deadline for what would otherwise hang."""


class Waku(Protocol):
    def __call__(
        self,
        *words: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and an environment without settings of ours."""
    for name in list(os.environ):
        if name.startswith(("WAKU_", "WORKER_", "CLIENT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", os.pathsep.join([str(SCRIPTS), os.environ.get("PATH", os.defpath)]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    access = tmp_path / "access.toml"
    access.touch(0o600)
    monkeypatch.setenv("WAKU_ACCESS", str(access))
    monkeypatch.setenv("WAKU_CACHE", str(tmp_path / "cache"))  # unless told, it would be the machine's own
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def waku(home: Path) -> Waku:
    """Runs a command to its end."""

    def run(
        *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WAKU, *words], cwd=cwd or home, env=env, input=stdin, capture_output=True, text=True, timeout=WITHIN_S
        )

    return run


class Running:
    """A command that runs beside the test."""

    command: Path = WAKU

    def __init__(self, words: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [self.command, *words],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._seen: dict[int, bytes] = {}

    def line(self) -> str:
        """The next line of stdout."""
        return self.until(lambda text: "\n" in text, self.process.stdout).partition("\n")[0]

    def until(self, said: Callable[[str], bool], stream: IO[bytes] | None = None) -> str:
        """All that it has said on stderr, once this holds."""
        file = stream or self.process.stderr
        assert file is not None
        number = file.fileno()
        until = monotonic() + WITHIN_S
        text = self._seen.get(number, b"")
        while not said(text.decode(errors="replace")):
            ready, _, _ = select.select([number], [], [], max(0.0, until - monotonic()))
            assert ready, f"it did not say what was waited for, but {text.decode(errors='replace')!r}"
            more = os.read(number, 65536)
            assert more, f"it ended, having said {text.decode(errors='replace')!r}"
            text += more
            self._seen[number] = text
        return text.decode(errors="replace")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, and all that it said on stdout and stderr."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        numbers = self.process.stdout.fileno(), self.process.stderr.fileno()
        before = [self._seen.get(number, b"") for number in numbers]
        after = self.process.communicate(timeout=WITHIN_S)
        out, err = ((first + last).decode(errors="replace") for first, last in zip(before, after))
        return self.process.returncode, out, err


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Running]]:
    """Starts commands; what still runs at the end of the test is ended."""
    started: list[Running] = []

    def run(*words: str | Path, env: Mapping[str, str] | None = None) -> Running:
        running = Running(words, home, env)
        started.append(running)
        return running

    yield run
    for running in reversed(started):
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


PROGRAMS = {
    "calcA": '#!/bin/sh\necho "calcA $*"\n',
    "fail": "#!/bin/sh\necho it went wrong >&2\nexit 3\n",
    "letters": '#!/bin/sh\ntr 0-9 a-j < "$1" > letters.txt\necho "read $1"\n',
    "odd": '#!/bin/sh\nread n < "$1"\nif [ $((n % 2)) = 1 ]; then echo "$n is odd" >&2; exit 9; fi\necho "$n"\n',
    "stay": '#!/bin/sh\necho began > "$1"\nwhile [ ! -e "$2" ]; do sleep 0.02; done\necho ended\n',
    "forever": "#!/bin/sh\nexec sleep 1000\n",
}


@pytest.fixture
def programs(home: Path) -> Path:
    folder = home.parent / "programs"
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


class GridHere:
    """A leader and a worker, each a process of its own."""

    def __init__(self, leader: Running, worker: Running, address: str) -> None:
        self.leader = leader
        self.worker = worker
        self.address = address
        self.host, _, self.port = address.rpartition(":")


@pytest.fixture
def grid(start: Callable[..., Running], programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GridHere]:
    """With WAKU_LEADER set. The old forms of the command line start it (SPEC K7)."""
    leader = start("leader", "0")
    address = leader.line()
    _, _, port = address.rpartition(":")
    limits = ["--slots", "8", "--cpu-cap", "off"]
    folders = ["--programs", programs, "--jobs", programs.parent / "jobs"]
    worker = start("worker", "127.0.0.1", port, "job.assign.>", *folders, *limits, "--name", "w1")
    worker.until(lambda text: "the leader speaks version" in text)
    monkeypatch.setenv("WAKU_LEADER", address)
    yield GridHere(leader, worker, address)
    for running in (worker, leader):
        if running.process.poll() is None:
            running.signal(signal.SIGKILL)


@pytest.fixture
def inputs(home: Path) -> Path:
    """Twelve files, 1.txt to 12.txt, each with its number."""
    folder = home / "in"
    folder.mkdir()
    for number in range(1, 13):
        (folder / f"{number}.txt").write_text(f"{number}\n")
    return folder


def port_of(gate: Running) -> int:
    """Where a gateway listens, as its first line says."""
    line = gate.line()
    assert line.startswith("http://127.0.0.1:"), line
    return int(line.rpartition(":")[2])
