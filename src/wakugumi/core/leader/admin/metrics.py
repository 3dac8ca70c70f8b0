"""What does a leader tell those who watch? What `stats` has counted per group and subject, and what it holds. (L8, O2)

Nothing is counted for this: it is read from what the leader has anyway, when somebody asks.

Only so many cells are told apart; the rest is told as one, under OTHERS. Which they are changes as subjects come and
go, and no counter may ever shrink: whoever watches takes that for a restart, and counts all of it again. So what was
told of a cell among the others stays there (its *base*), and what was told of it apart is never added to them
(*retired*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest
from operator import add, sub
from typing import Final

from wakugumi.core.buckets import OTHERS
from wakugumi.core.leader.admin.overview import slots_of
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.leader.stats import BROADCASTS, NOBODY, Cell
from wakugumi.core.metrics import COARSE_S, Buckets, Family, Kind, Sample, about_us, coarse, counter, gauge
from wakugumi.limits.http import METRIC_SERIES_MAX
from wakugumi.limits.leader import SWEEP_S

_NOBODY: Final = "(nobody)"
"""The group of jobs that no worker had."""
_LABELS: Final = ("group", "subject")
_IDLE_TURNS: Final = int(3600 / SWEEP_S)
"""After an hour without a job a cell gives up its place to a busier one."""

_CAME, _OK, _FAILED, _REDELIVERED, _DEAD, _WAITED_US, _RAN_US = range(7)
_HEAD: Final = 7
_BUCKETS: Final = len(COARSE_S) + 1
_Key = tuple[int, ...]
Tally = list[int]
"""What a cell has counted: the seven above, then the buckets of delays and of run times."""


class LeaderMeters:
    """The metrics of one leader. It remembers which cells it tells apart."""

    def __init__(self, leader: LeaderState, series_max: int = METRIC_SERIES_MAX) -> None:
        self._leader = leader
        self._series_max = series_max
        self._told: dict[Cell, Tally] = {}
        """Cells that are told apart, and what was told of them last."""
        self._base: dict[Cell, Tally] = {}
        """What was told of these among the others before."""
        self._rest: set[Cell] = set()
        """Cells that were told among the others last."""
        self._seen: dict[Cell, tuple[_Key, Tally]] = {}
        """What each cell had counted when it was last looked at: of thousands only a few have changed since."""
        self._retired = _NOTHING.copy()
        """What was told of cells that are no longer told apart."""

    def families(self, now: float) -> list[Family]:
        return [*self._of_cells(), self._queued(), *self._of_leader(now)]

    # What was counted, by group and subject.

    def _of_cells(self) -> Iterator[Family]:
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
        yield _counter(
            "submitted", "Jobs that were accepted.", [*_came(rows), ((OTHERS,), others[_CAME])], ("subject",)
        )
        rows[OTHERS, OTHERS] = others
        finished = [((*labels, "ok"), tally[_OK]) for labels, tally in rows.items()]
        finished += [((*labels, "failed"), tally[_FAILED]) for labels, tally in rows.items()]
        yield _counter("finished", "Jobs that have their result, by its status.", finished, (*_LABELS, "status"))
        text = "Attempts that were lost, after which the job was queued again."
        yield _counter("redelivered", text, [(labels, tally[_REDELIVERED]) for labels, tally in rows.items()])
        text = "Jobs that used up their attempts."
        yield _counter("dead", text, [(labels, tally[_DEAD]) for labels, tally in rows.items()])
        yield Family(
            "wakugumi_leader_jobs_running",
            "Jobs that are with a worker.",
            Kind.GAUGE,
            _LABELS,
            [Sample(labels, running) for labels, running in [*apart, ((OTHERS, OTHERS), rest)]],
        )
        text = "From accepted, or queued again, to assigned; the sum is an estimate."
        yield _histogram("wakugumi_leader_dispatch_delay_seconds", text, rows, _HEAD, _WAITED_US)
        text = "From assigned to the answer that became the result; the sum is an estimate."
        yield _histogram("wakugumi_leader_run_seconds", text, rows, _HEAD + _BUCKETS, _RAN_US)

    def _look_at(self, cells: set[Cell]) -> None:
        before, self._seen = self._seen, {}
        for cell in cells:
            key = (cell.came, cell.ok, cell.failed, cell.redelivered, cell.dead, cell.assigned)
            seen = before.get(cell)
            self._seen[cell] = seen if seen is not None and seen[0] == key else (key, _tally(cell))

    def _choose(self, cells: set[Cell]) -> None:
        """Which cells are told apart, and what is told of each."""
        for cell in self._told.keys() - cells:  # `stats` has added them to its others
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

    # What there is now.

    def _queued(self) -> Family:
        lanes = self._leader.lanes.busy_lanes()
        queued: dict[str, int] = {}
        for lane in nlargest(self._series_max, lanes, key=lambda lane: lane.queued):
            subject = lane.subject if owner_of(lane.subject) is None else BROADCASTS
            queued[subject] = queued.get(subject, 0) + lane.queued
        queued[OTHERS] = queued.get(OTHERS, 0) + sum(lane.queued for lane in lanes) - sum(queued.values())
        return Family(
            "wakugumi_leader_jobs_queued",
            "Jobs that wait for a worker: the longest queues.",
            Kind.GAUGE,
            ("subject",),
            [Sample((subject,), count) for subject, count in queued.items()],
        )

    def _of_leader(self, now: float) -> Iterator[Family]:
        leader = self._leader
        clients = leader.clients.by_id.values()
        yield gauge("wakugumi_leader_queued_bytes", "Requests of jobs that are not done.", leader.lifecycle.open_bytes)
        yield gauge(
            "wakugumi_leader_jobs_backing_off", "Jobs that wait for their next try.", leader.lifecycle.backing_off
        )
        undelivered = len(leader.clients.results.undelivered)
        yield gauge("wakugumi_leader_results_undelivered", "Results that their client does not have yet.", undelivered)
        letters = len(leader.clients.dead.letters)
        yield gauge("wakugumi_leader_dead_letters", "Dead jobs that wait for a person.", letters)
        yield gauge("wakugumi_leader_workers", "Workers that are connected, or may re-attach.", len(leader.roster))
        resting = sum(bool(worker.rests) for worker in leader.roster)
        yield gauge("wakugumi_leader_workers_resting", "Workers of them that are out of order or said busy.", resting)
        counts = leader.lifecycle.counts
        yield counter("wakugumi_leader_rests_total", "Times that a worker began to rest.", counts.rests)
        yield counter(
            "wakugumi_leader_jobs_declined_total",
            "Jobs given back by a worker or node that had not begun them.",
            counts.declined,
        )
        slots = sum(slots_of(worker) for worker in leader.roster)
        yield gauge("wakugumi_leader_slots", "Places for jobs on all workers.", slots)
        free = sum(worker.usable_credit for worker in leader.roster)
        yield gauge("wakugumi_leader_slots_free", "Places of them that can be given a job now.", free)
        yield gauge("wakugumi_leader_clients", "Clients that are connected.", sum(bool(it.conns) for it in clients))
        yield gauge("wakugumi_leader_full", "1 while the queue is full, and further jobs are refused.", leader.full)
        yield gauge("wakugumi_leader_disk_low", "1 while the journal's disk is nearly full.", leader.disk_low)
        text = "1 while nothing is committed to the journal for 5 s or more."
        yield gauge("wakugumi_leader_commits_stalled", text, bool(leader.stalled))
        yield counter("wakugumi_leader_up_seconds_total", "How long the leader has been up.", now - leader.started_at)


def _is_idle(cell: Cell) -> bool:
    return cell.idle_turns >= _IDLE_TURNS and not cell.running


def _tally(cell: Cell) -> Tally:
    head = [cell.came, cell.ok, cell.failed, cell.redelivered, cell.dead]
    if not (any(cell.waited) or any(cell.ran)):  # Half of all cells: those of NOBODY.
        return head + _NOTHING[len(head) :]
    return [*head, about_us(cell.waited), about_us(cell.ran), *coarse(cell.waited), *coarse(cell.ran)]


_NOTHING: Final = [0] * (_HEAD + 2 * _BUCKETS)


def _labels(cell: Cell) -> tuple[str, str]:
    if cell.group == NOBODY:
        return _NOBODY, cell.subject
    # A group may be called so as well, and is told with one more pair of brackets.
    word = cell.group.strip("()")
    return f"({cell.group})" if f"({word})" == _NOBODY and word != cell.group else cell.group, cell.subject


def _came(rows: dict[tuple[str, str], Tally]) -> list[tuple[tuple[str, ...], int]]:
    return [((subject,), tally[_CAME]) for (group, subject), tally in rows.items() if group == _NOBODY]


def _counter(
    name: str, text: str, rows: Sequence[tuple[tuple[str, ...], int]], labels: tuple[str, ...] = _LABELS
) -> Family:
    return Family(f"wakugumi_leader_jobs_{name}_total", text, Kind.COUNTER, labels, [Sample(*row) for row in rows])


def _histogram(name: str, text: str, rows: dict[tuple[str, str], Tally], at: int, sum_at: int) -> Family:
    told = [Buckets(labels, tally[at : at + _BUCKETS], tally[sum_at] / 1e6) for labels, tally in rows.items()]
    return Family(name, text, Kind.HISTOGRAM, _LABELS, histograms=told, bounds=COARSE_S)
