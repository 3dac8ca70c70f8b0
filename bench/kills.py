"""A leader is killed and started again: when does a worker that was there before get its next job?

The programs tell the time themselves, when they begin. Before the leader comes back, all that its last life had given
away is done; so the next mark is made by a job that the new life has given. The start of the program counts as well.
"""

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import wakugumi
from contestant import Answer, Contestant, perform
from processes import end, start_leader, working
from wakugumi.app.serve.free_ports import free_port

KILLS = 10
AWAY_MAX_S = 1.0
QUIET_S = 0.1
"""No mark for this long: what the killed leader had given away is done."""
JOBS = 2_000
"""More than are done meanwhile."""
JOBS_PER_LIFE = (2, 8)
"""Few: on a busy machine a worker takes a job only every other second."""
LOOK_S = 0.002
PATIENCE_S = 20.0
PROGRAM = """\
#!/bin/sh
date "+%s.%N $1" >> '{marks}'
"""


class Mark(NamedTuple):
    at: float
    number: str


class Killed(Contestant):
    versions = {"Wakugumi": wakugumi.__version__}  # noqa: RUF012

    def figures(self) -> Answer:
        folder = Path("kills").absolute()
        folder.mkdir()
        try:
            taken_s = _kill_again_and_again(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return {"next_job_median_s": median(taken_s), "next_job_max_s": max(taken_s)}


def _kill_again_and_again(folder: Path) -> list[float]:
    """Seconds from listening again to the next job, once per kill."""
    marks, programs = folder / "marks", folder / "programs"
    marks.touch()
    programs.mkdir()
    (programs / "mark").write_text(PROGRAM.format(marks=marks))
    (programs / "mark").chmod(0o755)
    # A port that stays free while the leader is away.
    words = (str(free_port()), "--state", str(folder / "state"))
    taken_s: list[float] = []
    leader, address = start_leader(*words)
    try:
        with working(address, programs):
            _hand_in(address)
            for _ in range(KILLS):
                _wait_for(marks, since=time.time(), count=random.randint(*JOBS_PER_LIFE))
                leader.send_signal(signal.SIGKILL)
                end(leader)
                _wait_until_quiet(marks)
                time.sleep(random.uniform(0, AWAY_MAX_S))
                started_at = time.time()
                leader, address = start_leader(*words)
                listening_at = time.time()
                first = _wait_for(marks, since=started_at, count=1)
                taken_s.append(max(0.0, first - listening_at))
    finally:
        end(leader)
    again = [number for number, times in Counter(mark.number for mark in _read(marks)).items() if times > 1]
    if again:
        raise RuntimeError(f"programs ran twice: {', '.join(again[:10])}")
    return taken_s


def _hand_in(address: str) -> None:
    """The client leaves when all are accepted; its jobs go on."""
    with wakugumi.Client(address, client_id="bench") as grid:
        for handle in [grid.submit("mark", args=[str(number)]) for number in range(JOBS)]:
            handle.accepted()


def _wait_for(marks: Path, *, since: float, count: int) -> float:
    """When so many marks have been made since then: the time of the first."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        made = [mark.at for mark in _read(marks) if mark.at >= since]
        if len(made) >= count:
            return min(made)
        time.sleep(LOOK_S)
    raise RuntimeError(f"no {count} jobs within {PATIENCE_S:.0f} s")


def _wait_until_quiet(marks: Path) -> None:
    seen, quiet_since = -1, time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        if (made := len(_read(marks))) != seen:
            seen, quiet_since = made, time.monotonic()
        time.sleep(LOOK_S)


def _read(marks: Path) -> list[Mark]:
    """Whole lines only: the last may just be written."""
    lines = [line.split() for line in marks.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [Mark(float(at), number) for at, number in lines]


@contextmanager
def opened() -> Iterator[Killed]:
    yield Killed()


if __name__ == "__main__":
    perform(opened())
