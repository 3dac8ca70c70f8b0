"""How much work was done, and how fast? Counts, dispatch delays and run times, per subject and per group. (SPEC L8)

    a job's subject ───┐
                       ├──► Cell: counts and two histograms; one for each subject in each group that ran it
    its worker's group ┘

Each event of a job is counted once; the figures of a subject or a group are the sum of its cells. Events before a
worker has the job count in the subject's cell of NO_GROUP. A histogram has four buckets per doubling,
so a quantile is exact to a fifth of itself, and recording a value is one bisection and one addition.

Recent figures need no counters of their own: every SWEEP_S the cells are copied (a *mark*), and a recent figure is the
difference to the oldest mark. The number of cells is bounded; the cells that were idle longest are added to OTHERS.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import ceil
from operator import add, sub
from typing import Final, NamedTuple

from wakugumi.core.buckets import BOUNDS_S, OTHERS
from wakugumi.core.ids import JobId
from wakugumi.core.leader.answer_records import Figures, Recent, Spread
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.subject import Pattern, Subject, group_of
from wakugumi.limits.leader import FAILURES_KEPT_MAX, STATS_CELLS_MAX

MARKS_KEPT: Final = 6
"""With one mark every 10 s, the oldest is 50 to 60 s old: "the last minute"."""
NO_GROUP: Final = ""
"""The group of jobs that no worker has."""
ANY_GROUP: Final = "*"
"""The group of workers that serve the jobs of all groups."""
BROADCASTS: Final = "(broadcasts)"
"""The subject that stands for all parts of broadcasts; each worker has a subject of its own for them."""
FOLD_FROM: Final = STATS_CELLS_MAX * 7 // 8
"""From this number of cells on, idle ones are added to OTHERS, to make room for the next 10 s."""
_CACHED_MAX: Final = 8 * STATS_CELLS_MAX
"""Number of remembered ways to a cell; beyond it all are forgotten and found anew."""


class Cell:
    """Counts and times of the jobs of one subject in one group."""

    __slots__ = (
        "accepted",
        "dead",
        "failed",
        "group",
        "idle_marks",
        "ok",
        "ran",
        "redelivered",
        "running",
        "subject",
        "waited",
    )

    def __init__(self, group: str, subject: str) -> None:
        self.group = group
        self.subject = subject
        self.accepted = 0
        """Accepted jobs; only NO_GROUP's cells count them."""
        self.running = 0
        self.ok = 0
        self.failed = 0
        self.redelivered = 0
        self.dead = 0
        self.waited = [0] * (len(BOUNDS_S) + 1)
        """Dispatch delays: from accepted, or queued again, to assigned."""
        self.ran = [0] * (len(BOUNDS_S) + 1)
        """Run times: from assigned to the answer that became the result."""
        self.idle_marks = 0
        """Number of marks in a row without a change."""

    @property
    def assigned(self) -> int:
        return sum(self.waited)


class CellMark(NamedTuple):
    """Counts of a cell at some time."""

    accepted: int
    assigned: int
    ended: int
    waited: list[int]
    ran: list[int]


class Failure(NamedTuple):
    """A job that failed and was not cancelled."""

    job: JobId
    program: str
    subject: Subject
    worker: str
    reason: str
    at: float


class Stats:
    """Statistics of one leader since it began."""

    def __init__(self, now: float) -> None:
        self._cells: dict[tuple[str, str], Cell] = {}
        self._unassigned: dict[Subject, Cell] = {}
        self._cells_by_groups: dict[frozenset[str], dict[Subject, Cell]] = {}
        self._cells_by_patterns: dict[tuple[Pattern, ...], dict[Subject, Cell]] = {}
        """Values of `_cells_by_groups` by patterns: a thousand workers with names of their own share one."""
        self._kinds: dict[tuple[Pattern, ...], frozenset[str]] = {}
        """Groups of workers by their patterns."""
        self._cached_count = 0
        self._marks: deque[tuple[float, dict[Cell, CellMark]]] = deque([(now, {})], maxlen=MARKS_KEPT)
        self.failures: deque[Failure] = deque(maxlen=FAILURES_KEPT_MAX)
        """The latest failures, the last one last."""

    # Events of a job: one call per job or attempt, a fraction of a microsecond.

    def accepted(self, subject: Subject) -> None:
        """A job was accepted."""
        cell = self._unassigned.get(subject)
        if cell is None:
            cell = self._unassigned_cell(subject)
        cell.accepted += 1

    def assigned(self, patterns: tuple[Pattern, ...], subject: Subject, waited_s: float) -> Cell:
        """A worker with these patterns gets a job. Returns the cell that must also count the end of this attempt."""
        cells = self._cells_by_patterns.get(patterns)
        cell = cells.get(subject) if cells is not None else None
        if cell is None:
            cell = self._cell_of(patterns, subject)
        cell.running += 1
        cell.waited[bisect_right(BOUNDS_S, waited_s)] += 1
        return cell

    def held(self, patterns: tuple[Pattern, ...], subject: Subject) -> Cell:
        """A worker with these patterns holds a job already. No patterns: the worker is away."""
        cell = self._cell_of(patterns, subject)
        cell.running += 1
        return cell

    def waited(self, cell: Cell, waited_s: float) -> None:
        """Count the dispatch delay of a `held` job."""
        cell.waited[bisect_right(BOUNDS_S, waited_s)] += 1

    def reattached(self, cell: Cell, patterns: tuple[Pattern, ...], subject: Subject) -> Cell:
        """The worker of a running job reconnected. Returns the cell of its group, which may be known only now."""
        if cell.group != NO_GROUP:
            return cell
        cell.running -= 1
        return self.held(patterns, subject)

    def lost(self, cell: Cell) -> None:
        """The attempt ended without an answer, and another one follows."""
        cell.running -= 1
        cell.redelivered += 1

    def given_back(self, cell: Cell) -> None:
        """The attempt never began."""
        cell.running -= 1

    def ended(self, cell: Cell | None, subject: Subject, ok: bool, ran_s: float | None) -> None:
        """The job has its result. No cell: no worker had it. `ran_s`: run time of the attempt that gave the result, if
        one did."""
        if cell is None:
            cell = self._unassigned.get(subject) or self._unassigned_cell(subject)
        else:
            cell.running -= 1
        if ok:
            cell.ok += 1
        else:
            cell.failed += 1
        if ran_s is not None:
            cell.ran[bisect_right(BOUNDS_S, ran_s)] += 1

    def add_mark(self, now: float) -> None:
        """Add a mark, and make room for new cells."""
        last = self._marks[-1][1]
        marks: dict[Cell, CellMark] = {}
        for cell in self._cells.values():
            mark = last.get(cell)
            if mark is None or _is_changed(cell, mark):
                mark = _marked(cell)
                cell.idle_marks = 0
            else:
                cell.idle_marks += 1
            marks[cell] = mark
        self._marks.append((now, marks))
        if len(self._cells) >= FOLD_FROM:
            self._fold_idle()

    # Figures.

    def by_subject(self) -> dict[str, list[Cell]]:
        found: dict[str, list[Cell]] = {}
        for cell in self._cells.values():
            found.setdefault(cell.subject, []).append(cell)
        return found

    def by_group(self) -> dict[str, list[Cell]]:
        found: dict[str, list[Cell]] = {}
        for cell in self._cells.values():
            if cell.group != NO_GROUP:
                found.setdefault(cell.group, []).append(cell)
        return found

    def figures(self, cells: Iterable[Cell], now: float) -> Figures:
        """The sum of these cells."""
        cells = list(cells)
        since, marks = self._marks[0]
        over_s = max(now - since, 1.0)
        new = [(cell, marks.get(cell, _NOTHING)) for cell in cells]
        new = [(cell, mark) for cell, mark in new if _is_changed(cell, mark)]
        return Figures(
            running=sum(cell.running for cell in cells),
            dispatched=sum(cell.assigned for cell in cells),
            finished_ok=sum(cell.ok for cell in cells),
            finished_failed=sum(cell.failed for cell in cells),
            redelivered=sum(cell.redelivered for cell in cells),
            dead=sum(cell.dead for cell in cells),
            dispatch_delay=spread(_total(cell.waited for cell in cells)),
            run_time=spread(_total(cell.ran for cell in cells)),
            recent=Recent(
                over_s=over_s,
                submitted_per_s=sum(cell.accepted - mark.accepted for cell, mark in new) / over_s,
                dispatched_per_s=sum(cell.assigned - mark.assigned for cell, mark in new) / over_s,
                finished_per_s=sum(cell.ok + cell.failed - mark.ended for cell, mark in new) / over_s,
                dispatch_delay=spread(_added((cell.waited, mark.waited) for cell, mark in new)),
                run_time=spread(_added((cell.ran, mark.ran) for cell, mark in new)),
            ),
        )

    def rates(self, now: float) -> tuple[float, float]:
        """Jobs submitted and finished per second, of all subjects, in the last minute."""
        since, marks = self._marks[0]
        over_s = max(now - since, 1.0)
        accepted = sum(cell.accepted for cell in self._cells.values()) - sum(mark.accepted for mark in marks.values())
        ended = sum(cell.ok + cell.failed for cell in self._cells.values()) - sum(m.ended for m in marks.values())
        return accepted / over_s, ended / over_s

    def total(self) -> tuple[int, int, int, int, int]:
        """Accepted, OK, failed, redelivered and dead jobs of all cells."""
        cells = self._cells.values()
        return (
            sum(cell.accepted for cell in cells),
            sum(cell.ok for cell in cells),
            sum(cell.failed for cell in cells),
            sum(cell.redelivered for cell in cells),
            sum(cell.dead for cell in cells),
        )

    def check(self, running: Mapping[Cell, int]) -> None:
        """`running`: number of running jobs by cell."""
        assert len(self._cells) <= STATS_CELLS_MAX + 2
        known = set(self._cells.values())
        for (group, subject), cell in self._cells.items():
            assert (cell.group, cell.subject) == (group, subject)
            assert cell.running == running.get(cell, 0)
            assert not cell.accepted or group == NO_GROUP
            assert sum(cell.ran) <= cell.ok + cell.failed
            assert min(cell.waited) >= 0 <= min(cell.ran)
        assert running.keys() <= known
        for cells in (self._unassigned, *self._cells_by_groups.values()):
            assert known.issuperset(cells.values())
        assert sum(map(len, self._cells_by_groups.values())) == self._cached_count <= _CACHED_MAX
        for _, marks in self._marks:
            for cell, mark in marks.items():
                assert cell in known
                assert mark.accepted <= cell.accepted
                assert mark.assigned == sum(mark.waited) <= cell.assigned
                assert mark.ended <= cell.ok + cell.failed

    # Cells.

    def groups_of(self, patterns: tuple[Pattern, ...]) -> frozenset[str]:
        """Groups of a worker with these patterns; the empty word means none."""
        kind = self._kinds.get(patterns)
        if kind is None:
            if len(self._kinds) >= _CACHED_MAX:
                self._clear_cache()
            kind = self._kinds[patterns] = frozenset(map(group_of, patterns))
        return kind

    def _unassigned_cell(self, subject: Subject) -> Cell:
        cell = self._cell(NO_GROUP, subject)
        if cell.subject == subject:
            self._unassigned[subject] = cell
        return cell

    def _cell_of(self, patterns: tuple[Pattern, ...], subject: Subject) -> Cell:
        """A job counts for the group that its subject names, if its worker is in that group; else for ANY_GROUP."""
        if not patterns:
            return self._unassigned.get(subject) or self._unassigned_cell(subject)
        if self._cached_count >= _CACHED_MAX:
            self._clear_cache()
        kind = self.groups_of(patterns)
        cells = self._cells_by_patterns[patterns] = self._cells_by_groups.setdefault(kind, {})
        cell = cells.get(subject)
        if cell is None:
            named = group_of(subject)
            cell = self._cell(named if named in kind else ANY_GROUP, subject)
            if cell.subject == subject:
                cells[subject] = cell
                self._cached_count += 1
        return cell

    def _cell(self, group: str, subject: str) -> Cell:
        if owner_of(subject) is not None:
            subject = BROADCASTS
        cell = self._cells.get((group, subject))
        if cell is None:
            if len(self._cells) < STATS_CELLS_MAX:
                return self._new_cell(group, subject)
            # The subject counts as OTHERS until there is room: a flood of subjects costs no more than other jobs.
            cell = self._cells.get((group, OTHERS)) or self._last_resort(group)
        return cell

    def _last_resort(self, group: str) -> Cell:
        group = NO_GROUP if group == NO_GROUP else OTHERS
        return self._cells.get((group, OTHERS)) or self._new_cell(group, OTHERS)

    def _new_cell(self, group: str, subject: str) -> Cell:
        cell = self._cells[group, subject] = Cell(group, subject)
        return cell

    def _clear_cache(self) -> None:
        self._unassigned.clear()
        self._cells_by_groups.clear()
        self._cells_by_patterns.clear()
        self._kinds.clear()
        self._cached_count = 0

    def _fold_idle(self) -> None:
        """Add the cells that are idle longest to OTHERS. A cell with running jobs is not idle."""
        last_resorts = {(NO_GROUP, OTHERS), (OTHERS, OTHERS)}
        idle = [
            cell
            for key, cell in self._cells.items()
            if cell.idle_marks and not cell.running and key not in last_resorts
        ]
        idle.sort(key=lambda cell: cell.idle_marks, reverse=True)
        self._clear_cache()
        for cell in idle[: len(self._cells) - STATS_CELLS_MAX * 3 // 4]:
            del self._cells[cell.group, cell.subject]
            self._fold(cell)

    def _fold(self, cell: Cell) -> None:
        into = self._last_resort(cell.group) if cell.subject == OTHERS else self._cell(cell.group, OTHERS)
        into.accepted += cell.accepted
        into.ok += cell.ok
        into.failed += cell.failed
        into.redelivered += cell.redelivered
        into.dead += cell.dead
        into.waited = list(map(add, into.waited, cell.waited))
        into.ran = list(map(add, into.ran, cell.ran))
        into.idle_marks = min(into.idle_marks, cell.idle_marks)
        for _, marks in self._marks:
            mark = marks.pop(cell, None)
            if mark is not None:
                marks[into] = _sum(marks.get(into, _NOTHING), mark)


_NOTHING: Final = CellMark(0, 0, 0, [0] * (len(BOUNDS_S) + 1), [0] * (len(BOUNDS_S) + 1))


def spread(counts: list[int]) -> Spread:
    """Quantiles of a histogram, each as the upper bound of its bucket."""
    so_far = list(accumulate(counts))
    total = so_far[-1]
    if not total:
        return Spread()
    last = len(BOUNDS_S) - 1
    p50, p95, p99 = (BOUNDS_S[min(bisect_left(so_far, ceil(share * total)), last)] for share in (0.50, 0.95, 0.99))
    return Spread(total, p50, p95, p99)


def _marked(cell: Cell) -> CellMark:
    return CellMark(cell.accepted, cell.assigned, cell.ok + cell.failed, cell.waited.copy(), cell.ran.copy())


def _is_changed(cell: Cell, mark: CellMark) -> bool:
    return mark[:3] != (cell.accepted, cell.assigned, cell.ok + cell.failed)


def _sum(one: CellMark, other: CellMark) -> CellMark:
    return CellMark(
        one.accepted + other.accepted,
        one.assigned + other.assigned,
        one.ended + other.ended,
        list(map(add, one.waited, other.waited)),
        list(map(add, one.ran, other.ran)),
    )


def _total(histograms: Iterable[list[int]]) -> list[int]:
    some = [counts for counts in histograms if any(counts)]
    if len(some) <= 1:
        return some[0] if some else _NOTHING.waited
    return list(map(sum, zip(*some)))


def _added(pairs: Iterable[tuple[list[int], list[int]]]) -> list[int]:
    """Sum of the differences of these histograms: first minus second of each pair."""
    now, before = list(zip(*pairs)) or ([], [])
    return list(map(sub, _total(now), _total(before)))
