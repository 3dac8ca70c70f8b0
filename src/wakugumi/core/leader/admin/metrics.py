"""Which metrics does a leader publish? The counts of `stats` by group and subject, and sizes of its tables. (L8, O2)

The numbers are read from the leader's state at each request. Counts without a subject, such as those of declined jobs,
are in `Counts` of `core/leader/jobs/lifecycle.py`; counts per subject and group in `core/leader/stats.py`.

Only so many cells have series of their own; the rest is one series, OTHERS. The choice changes as subjects come and go,
and no counter may ever shrink: Prometheus would take that for a restart, and count all of it again. So the counts that
a cell once had in OTHERS stay there (its *base*), and the counts of a cell that lost its own series are not added to
OTHERS (*retired*).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from operator import add, sub
from typing import Final

from wakugumi.core import metric_table as table
from wakugumi.core.buckets import OTHERS
from wakugumi.core.leader.admin.overview import slots_of
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.leader.stats import BROADCASTS, NO_GROUP, Cell
from wakugumi.core.metrics import COARSE_S, Buckets, Family, about_us, coarse
from wakugumi.limits.http import METRIC_SERIES_MAX
from wakugumi.limits.leader import SWEEP_S

_NOBODY: Final = "(nobody)"
"""Label for the group of jobs that no worker had."""
IDLE_TURNS: Final = int(3600 / SWEEP_S)
"""Idle marks of one hour: from then on a cell without running jobs may lose its series to a busier one."""

_CAME, _OK, _FAILED, _REDELIVERED, _DEAD, _WAITED_US, _RAN_US = range(7)
_HEAD: Final = 7
_BUCKETS: Final = len(COARSE_S) + 1
_Key = tuple[int, ...]
Tally = list[int]
"""Counts of a cell: the seven above, then the buckets of delays and of run times."""


class LeaderMeters:
    """The metrics of one leader. It remembers which cells have series of their own."""

    def __init__(self, leader: LeaderState, series_max: int = METRIC_SERIES_MAX) -> None:
        self._leader = leader
        self._series_max = series_max
        self._told: dict[Cell, Tally] = {}
        """Cells with series of their own, and their counts as last published."""
        self._base: dict[Cell, Tally] = {}
        """Counts of each cell in `_told` that stay in OTHERS, from before the cell had series of its own."""
        self._rest: set[Cell] = set()
        """Cells that were last published within OTHERS."""
        self._seen: dict[Cell, tuple[_Key, Tally]] = {}
        """Key and counts of each cell at the last request. Counts are read anew only if the key changed."""
        self._retired = _NOTHING.copy()
        """Sum of the published counts of cells that lost their own series."""

    def families(self, now: float) -> list[Family]:
        return [*self.of_cells(), self._queued(), *self._of_leader(now)]

    # Counts by group and subject.

    def of_cells(self) -> Iterator[Family]:
        cells = {cell for cells in self._leader.lifecycle.stats.by_subject().values() for cell in cells}
        self._look_at(cells)
        self._choose(cells)
        rows = {_labels(cell): tally for cell, tally in self._told.items()}
        total = map(sum, zip(*(tally for _, tally in self._seen.values()))) if cells else _NOTHING
        others = list(map(sub, total, self._retired))
        for tally in self._told.values():
            others = list(map(sub, others, tally))
        apart = [(_labels(cell), cell.running) for cell in self._told]
        rest = sum(cell.running for cell in cells) - sum(running for _, running in apart)
        yield table.LEADER_JOBS_SUBMITTED.with_samples([*_came(rows), ((OTHERS,), others[_CAME])])
        rows[OTHERS, OTHERS] = others
        finished = [((*labels, "ok"), tally[_OK]) for labels, tally in rows.items()]
        finished += [((*labels, "failed"), tally[_FAILED]) for labels, tally in rows.items()]
        yield table.LEADER_JOBS_FINISHED.with_samples(finished)
        redelivered = ((labels, tally[_REDELIVERED]) for labels, tally in rows.items())
        yield table.LEADER_JOBS_REDELIVERED.with_samples(redelivered)
        yield table.LEADER_JOBS_DEAD.with_samples((labels, tally[_DEAD]) for labels, tally in rows.items())
        yield table.LEADER_JOBS_RUNNING.with_samples([*apart, ((OTHERS, OTHERS), rest)])
        yield _histogram(table.LEADER_DISPATCH_DELAY, rows, _HEAD, _WAITED_US)
        yield _histogram(table.LEADER_RUN, rows, _HEAD + _BUCKETS, _RAN_US)

    def _look_at(self, cells: set[Cell]) -> None:
        before, self._seen = self._seen, {}
        for cell in cells:
            key = (cell.accepted, cell.ok, cell.failed, cell.redelivered, cell.dead, cell.assigned)
            seen = before.get(cell)
            self._seen[cell] = seen if seen is not None and seen[0] == key else (key, _tally(cell))

    def _choose(self, cells: set[Cell]) -> None:
        """Choose the cells with series of their own, and their counts to publish."""
        for cell in self._told.keys() - cells:  # `stats` has added these to OTHERS.
            self._retire(cell)
        new = [cell for cell in cells if cell not in self._told and cell.subject != OTHERS]
        if len(self._told) + len(new) > self._series_max:
            for cell in [cell for cell in self._told if _is_idle(cell)]:
                self._retire(cell)
        for cell in nlargest(self._series_max - len(self._told), new, key=self._worth):
            self._base[cell] = self._seen[cell][1] if cell in self._rest else _NOTHING
            self._told[cell] = []
        for cell, base in self._base.items():
            self._told[cell] = list(map(sub, self._seen[cell][1], base))
        self._rest = cells - self._told.keys()

    def _worth(self, cell: Cell) -> tuple[bool, int]:
        came, *_, assigned = self._seen[cell][0]
        return not _is_idle(cell), came + assigned

    def _retire(self, cell: Cell) -> None:
        self._retired = list(map(add, self._retired, self._told.pop(cell)))
        del self._base[cell]

    # State of the leader now.

    def _queued(self) -> Family:
        lanes = self._leader.lanes.busy_lanes()
        queued: dict[str, int] = {}
        for lane in nlargest(self._series_max, lanes, key=lambda lane: lane.queued):
            subject = lane.subject if owner_of(lane.subject) is None else BROADCASTS
            queued[subject] = queued.get(subject, 0) + lane.queued
        queued[OTHERS] = queued.get(OTHERS, 0) + sum(lane.queued for lane in lanes) - sum(queued.values())
        return table.LEADER_JOBS_QUEUED.with_samples(((subject,), count) for subject, count in queued.items())

    def _of_leader(self, now: float) -> Iterator[Family]:
        leader = self._leader
        lifecycle, clients, roster = leader.lifecycle, leader.clients, leader.roster
        yield table.LEADER_QUEUED_BYTES.with_value(lifecycle.open_bytes)
        yield table.LEADER_JOBS_BACKING_OFF.with_value(lifecycle.backing_off)
        yield table.LEADER_RESULTS_UNDELIVERED.with_value(len(clients.results.undelivered))
        yield table.LEADER_DEAD_LETTERS.with_value(len(clients.dead.letters))
        yield table.LEADER_WORKERS.with_value(len(roster))
        yield table.LEADER_WORKERS_RESTING.with_value(sum(bool(worker.rests) for worker in roster))
        yield table.LEADER_RESTS.with_value(lifecycle.counts.rests)
        yield table.LEADER_JOBS_DECLINED.with_value(lifecycle.counts.declined)
        yield table.LEADER_SLOTS.with_value(sum(slots_of(worker) for worker in roster))
        yield table.LEADER_SLOTS_FREE.with_value(sum(worker.usable_credit for worker in roster))
        yield table.LEADER_CLIENTS.with_value(sum(bool(client.conns) for client in clients.by_id.values()))
        yield table.LEADER_FULL.with_value(leader.full)
        yield table.LEADER_DISK_LOW.with_value(leader.disk_low)
        yield table.LEADER_COMMITS_STALLED.with_value(bool(leader.stalled))
        yield table.LEADER_UP.with_value(now - leader.started_at)


def _is_idle(cell: Cell) -> bool:
    return cell.idle_marks >= IDLE_TURNS and not cell.running


def _tally(cell: Cell) -> Tally:
    head = [cell.accepted, cell.ok, cell.failed, cell.redelivered, cell.dead]
    if not (any(cell.waited) or any(cell.ran)):  # Half of all cells: those of NO_GROUP.
        return head + _NOTHING[len(head) :]
    return [*head, about_us(cell.waited), about_us(cell.ran), *coarse(cell.waited), *coarse(cell.ran)]


_NOTHING: Final = [0] * (_HEAD + 2 * _BUCKETS)


def _labels(cell: Cell) -> tuple[str, str]:
    if cell.group == NO_GROUP:
        return _NOBODY, cell.subject
    # A group with this very name gets one more pair of brackets.
    word = cell.group.strip("()")
    return f"({cell.group})" if f"({word})" == _NOBODY and word != cell.group else cell.group, cell.subject


def _came(rows: dict[tuple[str, str], Tally]) -> list[tuple[tuple[str, ...], int]]:
    return [((subject,), tally[_CAME]) for (group, subject), tally in rows.items() if group == _NOBODY]


def _histogram(family: Family, rows: dict[tuple[str, str], Tally], at: int, sum_at: int) -> Family:
    cells = [Buckets(labels, tally[at : at + _BUCKETS], tally[sum_at] / 1e6) for labels, tally in rows.items()]
    return family._replace(histograms=cells)
