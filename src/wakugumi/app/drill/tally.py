"""What became of every job of a drill, how often did its program run, and why more than once? The marks tell.

A program may run again for three reasons: its worker was killed before it was done there; or it was done, but the
killed worker was not back when the leader had waited for as long as it does (SPEC L4); or its leader was away for
longer than the client waits, and another one adopted the job (SPEC K5). For every other run beyond the first
the nearest thing to blame is named, in this order: its worker was killed after it was done, the leader was killed
between the two runs, the client was, a process was stopped for a while; or no fault happened.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

import msgspec

from wakugumi.app.drill import marks as dm
from wakugumi.app.drill.fleet import leader_of
from wakugumi.app.drill.marks import DrillMark
from wakugumi.app.show.output import duration, one
from wakugumi.limits.client import ADOPT_GRACE_S, RECONNECT_MAX_S
from wakugumi.limits.leader import REATTACH_GRACE_S

OK: Final = "OK"
FREEZE_LOOK_S: Final = 5.0
CLOCK_S: Final = 0.02
"""How far apart two marks of one moment may be: programs tell the time to a hundredth of a second."""


class Cause(StrEnum):
    """Why a program ran once more."""

    WORKER = "worker"
    AWAY = "away"
    ADOPTED = "adopted"
    WORKER_LATER = "worker-later"
    LEADER = "leader"
    CLIENT = "client"
    STOPPED = "stopped"
    NOTHING = "nothing"


_SAID: Final = {
    Cause.WORKER: ("its worker was killed while it ran there", "needed: nobody else had its result"),
    Cause.AWAY: (
        "its killed worker was away for too long",
        f"allowed: it was done there, and after {REATTACH_GRACE_S:g} s the leader gives it to others",
    ),
    Cause.ADOPTED: (
        "its leader was away for longer than the grace",
        f"allowed: after {ADOPT_GRACE_S:g} s the client gives it to another leader",
    ),
    Cause.WORKER_LATER: ("its worker was killed after it was done", "must not be: a worker's results outlive it"),
    Cause.LEADER: ("a leader was killed", "must not be: programs outlive their leader"),
    Cause.CLIENT: ("a client was killed", "must not be: jobs outlive their client"),
    Cause.STOPPED: ("somebody was stopped for a while", "must not be: a short silence is no death"),
    Cause.NOTHING: ("for no reason that can be seen", "must not be"),
}


class Durations(msgspec.Struct, frozen=True):
    """Some durations, in seconds."""

    count: int
    least: float
    median: float
    most: float


class Rates(msgspec.Struct, frozen=True):
    """Results per second around a freeze."""

    before: float
    """In the last FREEZE_LOOK_S before it."""
    after: float
    """In the same time that begins as long after it: by then the others must have taken over."""
    share: float
    for_s: float


class Count(msgspec.Struct, frozen=True):
    """The outcome of a drill."""

    jobs: int
    accepted: int
    never_accepted: int
    finished: int
    failed: int
    """Finished, but not OK: the program itself never fails."""
    lost: list[int]
    """Accepted, and then forgotten by the leader or never finished."""
    refused: dict[str, int]
    """Errors that the client got instead of a result, by code."""
    delivered_twice: list[int]
    """More than one result in one life of the client."""
    never_ran: list[int]
    """Finished, and no program ever began."""
    executions: int
    beyond_one: int
    why: dict[Cause, int]
    again: dict[int, Cause]
    """Which jobs ran again, and the worst of the reasons."""
    running_on_killed: int
    """Programs that had begun on workers when these were killed, and were not done."""
    kills: dict[str, int]
    kills_planned: int
    kills_with_work: int
    """While some accepted job was unfinished."""
    stops: int
    died: list[str]
    """Processes that ended though nobody had killed them."""
    longest_pause_s: float
    to_assignment: Durations | None
    """From a restarted leader's listening to the next start of a program."""
    took_s: float
    through_freeze: Rates | None = None
    """How the others did while a leader was frozen."""

    @property
    def wrong(self) -> list[str]:
        """Faults of the grid, as sentences. Empty if the drill was passed."""
        refused = ", ".join(f"{number} x {code}" for code, number in self.refused.items())
        kills = sum(self.kills.values())
        wrongs = [
            (self.lost, f"{one(len(self.lost), 'accepted job')} lost: {some(self.lost)}"),
            (self.never_accepted, f"{one(self.never_accepted, 'job')} never accepted"),
            (self.failed, f"{one(self.failed, 'job')} failed, and the program never does"),
            (self.refused, f"refused: {refused}"),
            (self.delivered_twice, f"results delivered twice, of the jobs {some(self.delivered_twice)}"),
            (self.never_ran, f"results of programs that never ran, of the jobs {some(self.never_ran)}"),
        ]
        found = [sentence for is_wrong, sentence in wrongs if is_wrong]
        for cause in (Cause.WORKER_LATER, Cause.LEADER, Cause.CLIENT, Cause.STOPPED, Cause.NOTHING):
            if self.why[cause]:
                jobs = [job for job, blamed in self.again.items() if blamed is cause]
                found.append(f"{one(self.why[cause], 'program')} ran again, {_SAID[cause][0]}: {some(jobs)}")
        if kills < self.kills_planned:
            planned = one(self.kills_planned, "planned kill")
            found.append(f"{kills:,} of {planned} happened: less was tried than asked for")
        if self.died:
            found.append(f"ended without being killed: {', '.join(self.died[:10])}")
        return found

    @property
    def notes(self) -> list[str]:
        """Allowed facts that explain the numbers."""
        if self.beyond_one <= self.running_on_killed:
            return []
        ran = f"{one(self.beyond_one, 'execution')} beyond one, and {self.running_on_killed:,} were running on killed"
        return [f"{ran} workers; {self.why[Cause.AWAY]:,} were done on workers that stayed away for too long"]

    def rows(self) -> list[tuple[str, str, str]]:
        """A table for people: count, number, meaning."""
        shown = [
            ("jobs", f"{self.jobs:,}", f"the drill took {duration(self.took_s)}"),
            ("accepted", f"{self.accepted:,}", "the leader said that it has them"),
            ("finished", f"{self.finished:,}", "the client has a result"),
            ("lost", f"{len(self.lost):,}", "accepted, and then forgotten or never finished"),
            ("results delivered twice", f"{len(self.delivered_twice):,}", "to one and the same client"),
        ]
        if self.failed:
            shown.append(("failed", f"{self.failed:,}", "a result that is not OK, of a program that never fails"))
        killed = ", ".join(f"{number} {kind}" for kind, number in sorted(self.kills.items()))
        planned = "" if sum(self.kills.values()) == self.kills_planned else f" of {self.kills_planned} planned"
        shown += [
            ("kills", f"{sum(self.kills.values()):,}", f"{killed or 'none'}{planned}; by SIGKILL"),
            ("kills that met work", f"{self.kills_with_work:,}", "some accepted job was unfinished"),
            ("stops", f"{self.stops:,}", "SIGSTOP, and SIGCONT a little later"),
            ("running on killed workers", f"{self.running_on_killed:,}", "programs that were cut off"),
            ("executions", f"{self.executions:,}", "every start of a program left a mark"),
            ("executions beyond one", f"{self.beyond_one:,}", "programs that ran again, because:"),
        ]
        always = {Cause.WORKER, Cause.LEADER}
        for cause, (because, meaning) in _SAID.items():
            if self.why[cause] or cause in always:
                shown.append((f"  {because}", f"{self.why[cause]:,}", meaning))
        shown.append(("longest pause", duration(self.longest_pause_s), "without a result, as the client saw it"))
        if (spread := self.to_assignment) is not None:
            bounds = f"{duration(spread.least)} to {duration(spread.most)}, {one(spread.count, 'time')}"
            meaning = f"from a restarted leader's listening to its first job; median, of {bounds}"
            shown.append(("restart to work", duration(spread.median), meaning))
        if (rates := self.through_freeze) is not None:
            rate = f"{rates.after:.1f} of {rates.before:.1f} results/s"
            meaning = f"{rate}, from {FREEZE_LOOK_S:g} s after the freeze on; it took {duration(rates.for_s)}"
            shown.append(("others while one was frozen", f"{rates.share:.0%}", meaning))
        if self.died:
            shown.append(("ended by themselves", f"{len(self.died):,}", "processes that nobody had killed"))
        return shown


class _Run(NamedTuple):
    at: int
    """Which line of the marks."""
    life: str


def count(marks: Sequence[DrillMark], jobs: int, kills_planned: int, leaders: int = 1) -> Count:
    """Read the marks of a whole drill, in the order in which they were made."""
    by_what: defaultdict[str, list[DrillMark]] = defaultdict(list)
    for mark in marks:
        by_what[mark.what].append(mark)
    runs = _runs(marks)
    done = {mark.job for mark in by_what[dm.RESULT]}
    accepted = {mark.job for mark in by_what[dm.ACCEPTED]}
    deliveries = Counter((mark.life, mark.job) for mark in by_what[dm.RESULT])
    cut = {(mark.life, mark.job) for mark in by_what[dm.CUT]}
    began = {(run.life, job) for job, of_job in runs.items() for run in of_job}
    blame = _Blame(marks, cut, leaders)
    causes = {job: [blame.cause(job, *two) for two in pairwise(of_job)] for job, of_job in runs.items()}
    why = Counter(cause for of_job in causes.values() for cause in of_job)
    worst = list(Cause)
    return Count(
        jobs=jobs,
        accepted=len(accepted),
        never_accepted=jobs - len(accepted | done),
        finished=len(done),
        failed=len({mark.job for mark in by_what[dm.RESULT] if mark.rest != OK}),
        lost=sorted((accepted - done) | {mark.job for mark in by_what[dm.FORGOTTEN]}),
        refused=dict(Counter(mark.rest for mark in by_what[dm.REFUSED])),
        delivered_twice=sorted({job for (_, job), times in deliveries.items() if times > 1}),
        never_ran=sorted(done - runs.keys()),
        executions=sum(map(len, runs.values())),
        beyond_one=why.total(),
        why={cause: why[cause] for cause in Cause},
        again={job: max(of_job, key=worst.index) for job, of_job in sorted(causes.items()) if of_job},
        running_on_killed=len(cut & began),
        kills=dict(Counter(mark.kind for mark in by_what[dm.KILL])),
        kills_planned=kills_planned,
        kills_with_work=_with_work(marks),
        stops=len(by_what[dm.STOP]),
        died=[f"{mark.life} ({mark.rest})" for mark in by_what[dm.DIED]],
        longest_pause_s=_longest_pause(marks),
        to_assignment=_to_assignment(marks),
        took_s=marks[-1].at - marks[0].at if marks else 0.0,
        through_freeze=_through_freeze(marks),
    )


class _Blame:
    """Finds what happened between two runs of a job."""

    def __init__(self, marks: Sequence[DrillMark], cut: set[tuple[str, int]], leaders: int) -> None:
        self._leaders = leaders
        self._absences = _absences(marks) if leaders > 1 else {}
        self._marks = marks
        self._cut = cut
        self._killed = {mark.life: at for at, mark in enumerate(marks) if mark.what == dm.KILL}
        self._faults = [(at, mark) for at, mark in enumerate(marks) if mark.what in {dm.KILL, dm.STOP, dm.FREEZE}]

    def cause(self, job: int, first: _Run, second: _Run) -> Cause:
        killed_at = self._killed.get(first.life)
        if killed_at is not None and killed_at < second.at:
            if (first.life, job) in self._cut:
                return Cause.WORKER
            return Cause.AWAY if self._was_away(first.life, killed_at, second.at) else Cause.WORKER_LATER
        if self._was_adopted(first, second):
            return Cause.ADOPTED
        between = [mark for at, mark in self._faults if first.at < at < second.at]
        for cause, kind in ((Cause.LEADER, "leader"), (Cause.CLIENT, "client")):
            if any(mark.what == dm.KILL and mark.kind == kind for mark in between):
                return cause
        return Cause.STOPPED if any(mark.what in {dm.STOP, dm.FREEZE} for mark in between) else Cause.NOTHING

    def _was_adopted(self, first: _Run, second: _Run) -> bool:
        """Was its leader away for as long as a client waits, before the second run, and was that another leader's?"""
        if self._leaders == 1:
            return False
        one_leader, other = (leader_of(run.life.partition(".")[0], self._leaders) for run in (first, second))
        began, until = self._marks[first.at].at, self._marks[second.at].at
        return one_leader != other and any(
            min(back, until) - max(away, began) >= ADOPT_GRACE_S - CLOCK_S
            for away, back in self._absences.get(one_leader, ())
        )

    def _was_away(self, life: str, killed_at: int, until: int) -> bool:
        """Did its worker stay away for as long as a leader waits? Only a welcome that came later, or none, shows it."""
        if self._marks[until].at - self._marks[killed_at].at < REATTACH_GRACE_S - CLOCK_S:
            return False
        name = life.partition(".")[0]
        return not any(
            mark.what in {dm.UP, dm.START} and mark.life != life and mark.life.partition(".")[0] == name
            for mark in self._marks[killed_at:until]
        )


def _absences(marks: Sequence[DrillMark]) -> dict[str, list[tuple[float, float]]]:
    """From when to when each leader was out of its client's reach, which tries again after pauses that double."""
    absences: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    since: dict[str, float] = {}
    for mark in marks:
        name = mark.life.partition(".")[0]
        if mark.kind != "leader":
            continue
        if mark.what in {dm.KILL, dm.DIED, dm.STOP, dm.FREEZE}:
            since.setdefault(name, mark.at)
        elif mark.what in {dm.UP, dm.GO} and name in since:
            away_at = since.pop(name)
            absences[name].append((away_at, mark.at + min(RECONNECT_MAX_S, max(1.0, mark.at - away_at))))
    for name, at in since.items():
        absences[name].append((at, float("inf")))
    return dict(absences)


def _through_freeze(marks: Sequence[DrillMark]) -> Rates | None:
    began = next((mark.at for mark in marks if mark.what == dm.FREEZE), None)
    if began is None:
        return None
    ended = next((mark.at for mark in marks if mark.what == dm.GO and mark.at > began), marks[-1].at)
    results = [mark.at for mark in marks if mark.what == dm.RESULT]
    before = sum(began - FREEZE_LOOK_S <= at < began for at in results) / FREEZE_LOOK_S
    after = sum(began + FREEZE_LOOK_S <= at < began + 2 * FREEZE_LOOK_S for at in results) / FREEZE_LOOK_S
    return Rates(before, after, after / before if before else 0.0, ended - began)


def _runs(marks: Iterable[DrillMark]) -> dict[int, list[_Run]]:
    runs: defaultdict[int, list[_Run]] = defaultdict(list)
    for at, mark in enumerate(marks):
        if mark.what == dm.START:
            runs[mark.job].append(_Run(at, mark.life))
    return dict(runs)


def _with_work(marks: Iterable[DrillMark]) -> int:
    open_jobs = _OpenJobs()
    met = 0
    for mark in marks:
        open_jobs.take(mark)
        met += mark.what == dm.KILL and bool(open_jobs.jobs)
    return met


def _longest_pause(marks: Iterable[DrillMark]) -> float:
    """Without a result, while there was a job to wait for."""
    open_jobs = _OpenJobs()
    longest, since = 0.0, 0.0
    for mark in marks:
        waited = bool(open_jobs.jobs)
        open_jobs.take(mark)
        if mark.what == dm.RESULT:
            longest = max(longest, mark.at - since) if waited else longest
            since = mark.at
        elif not waited:
            since = mark.at
    return longest


class _OpenJobs:
    """Jobs that are accepted and not finished."""

    def __init__(self) -> None:
        self.jobs: set[int] = set()
        self._done: set[int] = set()

    def take(self, mark: DrillMark) -> None:
        if mark.what == dm.ACCEPTED and mark.job not in self._done:
            self.jobs.add(mark.job)
        elif mark.what == dm.RESULT:
            self._done.add(mark.job)
            self.jobs.discard(mark.job)


def _to_assignment(marks: Iterable[DrillMark]) -> Durations | None:
    taken: list[float] = []
    listening: float | None = None
    lives = 0
    for mark in marks:
        if mark.what == dm.UP and mark.kind == "leader":
            lives += 1
            listening = mark.at if lives > 1 else None
        elif mark.what == dm.KILL and mark.kind == "leader":
            listening = None
        elif mark.what == dm.START and listening is not None:
            taken.append(max(0.0, mark.at - listening))
            listening = None
    return Durations(len(taken), min(taken), median(taken), max(taken)) if taken else None


def some(jobs: Sequence[int]) -> str:
    """The first of them, for a message."""
    return ", ".join(map(str, jobs[:10])) + (", …" if len(jobs) > 10 else "")
