"""The contest's side of a contestant: a process that is given turns, each with a deadline, and that is always ended.

Whatever a contestant does (no start, no answer, a wrong answer, death), the contest goes on: it becomes a `Failed` with
a reason for the table. Nothing outlives the contest: a contestant's processes are found as its descendants, and those
that lost their parent become children of this process.
"""

import ctypes
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

BENCH = Path(__file__).resolve().parent
START_LIMIT_S = 60.0
QUIT_LIMIT_S = 12.0  # Ray and Celery take 2 to 4 s
TERMINATE_LIMIT_S = 5.0
PR_SET_CHILD_SUBREAPER = 36
SETTINGS = ("WAKU_", "WORKER_", "CLIENT_", "XDG_")
"""How variables begin by which a user tells Wakugumi what to do, or all programs where to keep things."""


class Failed(Exception):
    """The contestant gave no usable answer. It is out of the contest if `ended`, else only this turn is lost."""

    def __init__(self, reason: str, *, ended: bool) -> None:
        super().__init__(reason)
        self.ended = ended


@dataclass(frozen=True)
class Entry:
    """Who takes part: `module` under bench/, run with Wakugumi's interpreter if it is `ours`, else with the rivals'."""

    name: str
    title: str
    module: str
    does: str
    arguments: tuple[str, ...] = ()
    """For the module: one script may take part in several ways."""
    ours: bool = False
    python: Path | None = None
    """The interpreter of another checkout, if not that of this one."""
    bench: Path | None = None
    """The bench folder of another checkout, whose scripts import its own module names; None for this one."""
    tells_figures: bool = False
    """Asked for figures when the rounds are over."""

    @property
    def script(self) -> Path:
        return (self.bench or BENCH) / (self.module.replace(".", "/") + ".py")


class Player:
    """One contestant's process, from its start to its end."""

    def __init__(self, entry: Entry, python: Path, folder: Path) -> None:
        self.entry = entry
        self.versions: dict[str, str] = {}
        self._unread = b""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="wb-", dir=folder))
        self._log = self._folder / "log.txt"
        home = {"HOME": str(self._folder), "TMPDIR": str(self._folder), "PYTHONPATH": str(entry.bench or BENCH)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", entry.module, *entry.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                env={**_neutral(os.environ), **home},
                bufsize=0,
                start_new_session=True,  # Ctrl-C reaches run.py alone, which then ends everyone in order
            )

    def wait_until_ready(self, limit_s: float) -> None:
        greeting = self._read_answer(limit_s)
        match greeting:
            case {"ready": dict(versions)}:
                self.versions = {str(part): str(version) for part, version in versions.items()}
            case {"absent": reason}:
                raise Failed(str(reason), ended=True)
            case _:
                raise Failed(f"greeted with {greeting!r}", ended=True)

    def ask(self, turn: str, limit_s: float) -> dict[str, object]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{turn}\n".encode())
        except BrokenPipeError:
            raise self._death() from None
        answer = self._read_answer(limit_s)
        if "error" in answer:
            raise Failed(str(answer["error"]), ended=False)
        return answer

    def end(self) -> None:
        """Ask it to quit; end by process id what is still there afterwards. Safe to call again."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.stdin.closed:
            return
        descendants = self._descendants()
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"quit\n")
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(QUIT_LIMIT_S)
        descendants |= self._descendants()
        self._process.kill()
        self._process.wait()
        _end_processes(descendants)
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _descendants(self) -> set[psutil.Process]:
        if self._process.poll() is not None:
            return set()  # its process id may be somebody else's by now
        return set(psutil.Process(self._process.pid).children(recursive=True))

    def _read_answer(self, limit_s: float) -> dict[str, object]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise Failed(f"no answer within {limit_s:.0f} s", ended=True)
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                raise self._death()
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Failed(f"answered {line[:80]!r}, which is no JSON object", ended=True)
        return answer

    def _death(self) -> Failed:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TERMINATE_LIMIT_S)
        last_words = self._log.read_text(errors="replace").strip().splitlines()
        reason = f"ended with exit code {self._process.poll()}"
        return Failed(f"{reason}: {last_words[-1][:160]}" if last_words else reason, ended=True)


def adopt_orphans() -> None:
    """Make this process the parent of whatever below it loses its own, so that nothing gets out of sight."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End what the contestants left behind. Call it when every player has been ended."""
    left = {process for process in psutil.Process().children(recursive=True) if _is_alive(process)}
    if left:
        print(f"ending what was left behind: {', '.join(map(str, left))}", file=sys.stderr)
    _end_processes(left)


def warm(cpus: list[int], seconds: float) -> None:
    """Keep each CPU busy for a moment: a virtual CPU that rested is slow at first, whoever comes first would pay."""

    def burn(cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})  # 0 is the calling thread
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            hashlib.pbkdf2_hmac("sha256", b"waku", b"gumi", 10_000)  # a few ms without the interpreter's lock

    burners = [threading.Thread(target=burn, args=(cpu,), name=f"burn-{cpu}") for cpu in cpus]
    for burner in burners:
        burner.start()
    for burner in burners:
        burner.join()


def _neutral(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what the user has set: a run is the same for everyone, and writes nothing outside its own folder."""
    return {name: value for name, value in environment.items() if not name.startswith(SETTINGS)}


def _end_processes(processes: set[psutil.Process]) -> None:
    """First ask, then kill, and wait each time until they are gone."""
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                end(process)  # compares start times: an id that was given to somebody else meanwhile is left alone
        deadline = time.monotonic() + TERMINATE_LIMIT_S
        while any(map(_is_alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.02)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
