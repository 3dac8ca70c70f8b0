"""The processes of a drill: how are they started, killed, stopped, and brought back?

    leader ── one process           worker-1 … ── a guardian, and the worker below it           client ── one process
    (leader-1 … if there are several: each has its own state, and workers are dealt out to them in turn)

Each of them is a Member with one life after the other, `worker-1.1`, `worker-1.2`, and a folder that its lives share.
No function here waits: `look` is called again and again, and does the acts that are due. All events are marked.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from wakugumi.adapters.programs.process_tree import children_of, kill_with_all_below, send, start_of, state_of
from wakugumi.app.drill import marks as dm
from wakugumi.app.drill.client import Orders, job_id
from wakugumi.app.drill.marks import Marks, now
from wakugumi.app.serve.free_ports import HOST, free_ports
from wakugumi.app.serve.tiers import NODE, TierProcess
from wakugumi.errors import ConfigError

LEADER: Final = "leader"
WORKER: Final = "worker"
CLIENT: Final = "client"
KINDS: Final = (LEADER, WORKER, CLIENT)
GUARDED: Final = (WORKER, NODE)
"""They run programs, below a guardian."""

_FIRST_START_WITHIN_S: Final = 30.0
_WELCOMED: Final = b"the leader speaks version"
"""Part of the log line of a worker that a leader has welcomed."""
_BACK_AFTER_S: Final = 0.5
"""When one that ended by itself is started again, as a system's supervisor would."""
_ID_START: Final = job_id(1)[:24]
"""How the directory of every job begins; the rest is its number."""
_OURS: Final = ("WAKU_", "WORKER_", "CLIENT_")
"""Settings of the user's shell, which the processes of a drill do not get."""
_CPU_CAP: Final = "off"
"""All workers share one machine: each would wait for the CPU that the others use."""


class State(Enum):
    RUNS = "runs"
    STOPPED = "stopped"
    DYING = "dying"
    AWAY = "away"
    ENDED = "ended"
    """It has done what it was there for."""


class Member:
    """One of the fleet, in one life after the other."""

    def __init__(self, name: str, words: Sequence[str], folder: Path, marks: Marks) -> None:
        self.name = name
        self.kind = dm.kind_of(name)
        self.words = words
        self.lives = 0
        self.state = State.AWAY
        self.started_at = 0.0
        self.seen_up = 0
        """Its last life that listened, or was welcomed."""
        self._folder = folder
        self._marks = marks
        self._process: subprocess.Popen[bytes] | None = None
        self._due_at = 0.0
        """When it comes back, or goes on."""
        self._away_s = 0.0
        self._dying: list[tuple[int, int]] = []

    @property
    def life(self) -> str:
        return f"{self.name}.{self.lives}"

    @property
    def output(self) -> Path:
        """File with the stdout of this life."""
        return self._folder / "logs" / f"{self.life}.out"

    @property
    def log(self) -> Path:
        return self.output.with_suffix(".log")

    def look(self, time: float) -> None:
        """Do what is due."""
        if self.state is State.AWAY and time >= self._due_at:
            self._start(time)
        elif self.state is State.STOPPED and time >= self._due_at:
            self._marks.put(dm.GO, self.life)
            self._signal(signal.SIGCONT)
            self.state = State.RUNS
        elif self.state is State.DYING and self._is_gone():
            self._lay_out()
            self.state, self._due_at = State.AWAY, time + self._away_s
        elif self.state is State.RUNS and self._process is not None and (code := self._process.poll()) is not None:
            if self.kind == CLIENT and code == 0:
                self.state = State.ENDED
                return
            self._marks.put(dm.DIED, self.life, rest=f"code {code}")
            self._lay_out()
            self.state, self._due_at = State.AWAY, time + _BACK_AFTER_S

    def look_whether_up(self) -> None:
        """Mark once per life that it has come so far."""
        if self.state is State.RUNS and self.lives > self.seen_up and self._is_up():
            self.seen_up = self.lives
            self._marks.put(dm.UP, self.life)

    def kill(self, away_s: float, *, guardian: bool = False) -> None:
        """SIGKILL; of a worker the one below its guardian, unless the guardian is meant."""
        assert self._process is not None
        self._marks.put(dm.KILL, self.life)
        outer, inner = self._process.pid, self._real
        self._dying = [(pid, start_of(pid)) for pid in (outer, inner)]
        send(outer if guardian else inner, signal.SIGKILL)
        self.state, self._away_s = State.DYING, away_s

    def stop(self, for_s: float, time: float, *, freeze: bool = False) -> None:
        """SIGSTOP, and SIGCONT after this time."""
        self._marks.put(dm.FREEZE if freeze else dm.STOP, self.life)
        self._signal(signal.SIGSTOP)
        self.state, self._due_at = State.STOPPED, time + for_s

    def end(self) -> None:
        """At once, with all below."""
        if self._process is not None:
            own = {self._process.pid} if self._process.poll() is None else set()
            kill_with_all_below(own | {pid for pid, start in self._dying if _lives(pid, start)})
            self._process.wait()
            self._process = None

    @property
    def _real(self) -> int:
        """The process that does the work."""
        assert self._process is not None
        below = children_of(self._process.pid) if self.kind in GUARDED else []
        return below[0] if below else self._process.pid

    def _is_up(self) -> bool:
        if self.kind == WORKER:
            return _WELCOMED in self.log.read_bytes()
        return self.kind != CLIENT and self.output.read_bytes().endswith(b"\n")

    def _signal(self, number: int) -> None:
        send(self._real, number)

    def _start(self, time: float) -> None:
        self.lives += 1
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        self.output.parent.mkdir(exist_ok=True)
        with open(self.output, "wb") as out, open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self.words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=self._folder,
                env={**environment, dm.LIFE: self.life},
            )
        self.state, self.started_at = State.RUNS, time

    def _is_gone(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None and not any(_lives(*one) for one in self._dying)

    def _lay_out(self) -> None:
        """Mark the jobs that a dead worker left unfinished."""
        for number in unfinished_in(self._folder / self.name) if self.kind in GUARDED else ():
            self._marks.put(dm.CUT, self.life, number)


class Fleet:
    """The processes of a drill. The `first` ones must be up before the others are started."""

    def __init__(self, members: Sequence[Member], first: Sequence[Member]) -> None:
        self.members = members
        self._first = first

    @property
    def is_up(self) -> bool:
        """All that are first have been, once."""
        return all(member.seen_up for member in self._first)

    def look(self) -> None:
        """Do what is due. Raises ConfigError if one that is first never comes up."""
        time = now()
        starting = [member for member in self._first if not member.seen_up]
        for member in self._first if starting else self.members:
            member.look(time)
            member.look_whether_up()
        for member in starting:
            if member.state is State.AWAY:
                raise ConfigError(f"the {member.name} cannot be started: {last_line(member.log)}")
            if not member.seen_up and time - member.started_at > _FIRST_START_WITHIN_S:
                raise ConfigError(f"the {member.name} did not listen within {_FIRST_START_WITHIN_S:g} s")

    def of(self, kind: str) -> list[Member]:
        return [member for member in self.members if member.kind == kind]

    def end(self) -> None:
        """End all processes, with all below them."""
        for member in reversed(self.members):
            member.end()


def grid_fleet(
    folder: Path, marks: Marks, leaders: int, workers: int, slots: int, orders: Orders, *, memory: bool
) -> Fleet:
    """Leaders, their workers and a client."""
    ports = [str(port) for port in free_ports(leaders)]
    members = []
    for number, port in enumerate(ports, 1):
        name = leader_name(number, leaders)
        journal = ("--memory",) if memory else ("--state", f"state-{name}")
        members.append(Member(name, ("wakugumi", "leader", port, *journal), folder, marks))
    limits = ("--slots", str(slots), "--cpu-cap", _CPU_CAP)
    for number in range(1, workers + 1):
        name = f"{WORKER}-{number}"
        worker = ("wakugumi", "worker", HOST, ports[(number - 1) % leaders], "--programs", dm.FOLDER_PROGRAMS)
        folders = ("--jobs", name, "--cache", f"{name}/.cache")
        members.append(Member(name, (*worker, *limits, *folders, "--name", name), folder, marks))
    orders = msgspec.structs.replace(orders, leader=",".join(f"{HOST}:{port}" for port in ports))
    client = ("wakugumi.app.drill.client", msgspec.json.encode(orders).decode())
    return Fleet([*members, Member(CLIENT, client, folder, marks)], members[:leaders])


def tiers_fleet(folder: Path, marks: Marks, parts: Sequence[TierProcess]) -> Fleet:
    """A gateway, its groups and their nodes, all at once: a process that asks another one asks until it is there."""
    members = [Member(part.name, ("wakugumi", *part.words), folder, marks) for part in parts]
    return Fleet(members, members)


def leader_name(number: int, leaders: int) -> str:
    return LEADER if leaders == 1 else f"{LEADER}-{number}"


def leader_of(worker: str, leaders: int) -> str:
    """Whose worker it is: `leader-2` for `worker-5` of three leaders."""
    return leader_name((int(worker.rpartition("-")[2]) - 1) % leaders + 1, leaders)


def unfinished_in(jobs_folder: Path) -> list[int]:
    """The numbers of the jobs whose directory has no `.done`."""
    if not jobs_folder.is_dir():
        return []
    names = [name for name in os.listdir(jobs_folder) if name.startswith(_ID_START)]
    return sorted(int(name[-12:], 16) for name in names if not (jobs_folder / name / ".done").exists())


def _lives(pid: int, start: int) -> bool:
    """Not a zombie, nor another process that was given the same number."""
    return start_of(pid) == start and state_of(pid) not in {"", "Z", "X"}


def last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
