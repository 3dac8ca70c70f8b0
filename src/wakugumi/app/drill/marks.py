"""Which events of a drill are written down, and how? One line per event, by all processes, in one file.

    1234.56 start worker-2.3 17 4711      the program of job 17 began, as process 4711, on the third life of worker-2
    1234.58 end worker-2.3 17 4711
    1234.60 result client.1 17 OK         the client has its result
    1235.01 kill leader.1

Each line is one append, so the order of the lines is the order of the events of all processes. The time is that of
the machine since it was started: a shell reads it for nothing, to a hundredth of a second.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

FOLDER_PROGRAMS: Final = "programs"
PROGRAM: Final = "mark"
LIFE: Final = "DRILL_LIFE"
"""The variable in which every process of a drill finds the name of its life, and hands it on to its programs."""

START: Final = "start"
END: Final = "end"
ACCEPTED: Final = "accepted"
RESULT: Final = "result"
FORGOTTEN: Final = "forgotten"
"""The leader had accepted the job, and now does not know it."""
REFUSED: Final = "refused"
UP: Final = "up"
"""A leader listens; a worker was welcomed by one."""
KILL: Final = "kill"
STOP: Final = "stop"
FREEZE: Final = "freeze"
"""A long stop."""
GO: Final = "go"
CUT: Final = "cut"
"""A job that a killed worker had not finished: its directory has no `.done` (SPEC W4)."""
DIED: Final = "died"
"""A process ended that was not killed."""
ALLOW: Final = "allow"
"""Jobs up to this one may be handed in: the others wait for the faults that are to meet them."""
DRILL: Final = "drill"
"""Whose mark that is."""

# Two processes, the shell and `sleep`, and no third to tell the time: the cheapest that every machine has.
_SCRIPT: Final = """\
#!/bin/sh
number=$1 seconds=$2
[ $# = 2 ] || read -r number seconds < "$1"
read -r now rest < /proc/uptime
echo "$now start $DRILL_LIFE $number $$" >> '{marks}'
[ "$seconds" = 0 ] || sleep "$seconds"
[ $# = 2 ] || echo "$number" > number.txt
read -r now rest < /proc/uptime
echo "$now end $DRILL_LIFE $number $$" >> '{marks}'
"""


class DrillMark(NamedTuple):
    at: float
    what: str
    life: str
    """Whose: `leader.2` is the second life of the leader, `worker-1.3` the third of the first worker."""
    job: int = 0
    """Its number, from 1 on; 0 if it is about no job."""
    rest: str = ""

    @property
    def kind(self) -> str:
        return kind_of(self.life)


class Marks:
    """The file, for one who writes to it and may read what is new in it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._read_to = 0
        self._torn = b""

    def put(self, what: str, life: str, job: int = 0, rest: str = "") -> None:
        os.write(self._file, f"{now():.3f} {what} {life} {job} {rest}".rstrip().encode() + b"\n")

    def new(self) -> list[DrillMark]:
        """Marks that were written since the last call."""
        found: list[DrillMark] = []
        while data := os.pread(self._file, 1 << 20, self._read_to):
            self._read_to += len(data)
            *lines, self._torn = (self._torn + data).split(b"\n")
            found.extend(map(_parse, lines))
        return found

    def close(self) -> None:
        os.close(self._file)


def now() -> float:
    """The clock of /proc/uptime."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kind_of(life: str) -> str:
    """`worker` of `worker-2.3`"""
    return life.partition(".")[0].partition("-")[0]


def write_program(folder: Path, marks: Path) -> None:
    """The program of all jobs: `mark NUMBER SECONDS`, or `mark FILE` with both in a file, which writes number.txt."""
    programs = folder / FOLDER_PROGRAMS
    programs.mkdir()
    path = programs / PROGRAM
    path.write_text(_SCRIPT.format(marks=str(marks).replace("'", "'\\''")))
    path.chmod(0o755)


def _parse(line: bytes) -> DrillMark:
    at, what, life, job, *rest = line.decode().split(" ", 4)
    return DrillMark(float(at), what, life, int(job), *rest)
