"""How busy is a leader? The answers to `status` and `top`: one row per subject, group, worker, client.

No function here changes the leader's state. A list that is too long for an answer is cut to
the busiest rows, a list of failures to the latest.
"""

from __future__ import annotations

from heapq import nlargest, nsmallest
from typing import NamedTuple
from uuid import UUID

from wakugumi.core.access.identity import Sight
from wakugumi.core.backoff import TURN_STRIDE
from wakugumi.core.buckets import OTHERS
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader.answer_records import (
    ClientRow,
    FailureRow,
    GroupRow,
    StatusAnswer,
    SubjectRow,
    TopAnswer,
    WorkerRow,
)
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.questions import AskTop
from wakugumi.core.leader.records import ClientRecord, PatternPool, WorkerRecord
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.leader.stats import BROADCASTS, Cell
from wakugumi.core.subject import Pattern, Subject, group_of
from wakugumi.limits.leader import CLIENT_ROWS_MAX, LIST_ROWS_MAX


def status(leader: LeaderState, now: float, limit: int = LIST_ROWS_MAX, sight: Sight | None = None) -> StatusAnswer:
    """A sight that hides clients leaves the load in numbers: no subjects, no groups, and only clients in sight."""
    counts = leader.lifecycle.counts
    submitted_per_s, finished_per_s = leader.lifecycle.stats.rates(now)
    hides = sight is not None and not sight.sees_all
    subjects, subjects_total = ([], 0) if hides else _subjects(leader, now, limit)
    groups, groups_total = ([], 0) if hides else _groups(leader, now, limit)
    return StatusAnswer(
        up_s=now - leader.started_at,
        workers=len(leader.roster),
        slots_free=sum(worker.usable_credit for worker in leader.roster),
        clients=sum(1 for client in leader.clients.by_id.values() if client.conns),
        queued=leader.lanes.queued,
        queued_bytes=leader.lifecycle.open_bytes,
        backing_off=leader.lifecycle.backing_off,
        running=sum(client.in_flight for client in leader.clients.by_id.values()),
        undelivered=len(leader.clients.results.undelivered),
        submitted=counts.submitted,
        finished_ok=counts.finished_ok,
        finished_failed=counts.finished_failed,
        redelivered=counts.redelivered,
        dead=counts.dead,
        letters=len(leader.clients.dead.letters),
        durable=leader.durable,
        disk_low=leader.disk_low,
        full=leader.full,
        subjects=subjects,
        busiest=[_client_row(client) for client in _busiest(leader, sight)],
        slots=sum(slots_of(worker) for worker in leader.roster),
        submitted_per_s=submitted_per_s,
        finished_per_s=finished_per_s,
        subjects_total=subjects_total,
        groups=groups,
        groups_total=groups_total,
        stalled=leader.stalled,
    )


def capacity(leader: LeaderState) -> dict[str, int]:
    """Running and queued jobs, slots and free slots, for the choice among groups (SPEC G1). No slot is free while
    commits are stalled: no job would be assigned."""
    running = limit = free = 0
    for worker in leader.roster:
        if worker.conn is not None:
            running += len(worker.jobs)
            if worker.serves:
                limit += slots_of(worker)
                free += 0 if leader.stalled else worker.usable_credit
    return {"running": running, "limit": limit, "queued": leader.lanes.queued, "free": free}


def top(leader: LeaderState, question: AskTop, now: float, sight: Sight | None = None) -> TopAnswer:
    limit = max(1, min(question.limit, LIST_ROWS_MAX))
    workers = nsmallest(limit, leader.roster, key=lambda worker: (-len(worker.jobs), worker.label))
    failures = [
        FailureRow(show_job_id(it.job), it.program, it.subject, it.worker, it.reason, now - it.at)
        for it in reversed(leader.lifecycle.stats.failures)
        if sight is None or _is_seen(leader, it.job, sight)
    ]
    return TopAnswer(
        status=status(leader, now, limit, sight),
        workers=[worker_row(worker, now, sight) for worker in workers],
        workers_total=len(leader.roster.by_id),
        failures=failures[:limit],
    )


def worker_row(worker: WorkerRecord, now: float, sight: Sight | None = None) -> WorkerRow:
    """A sight that hides clients hides the worker's patterns, which name the work of others, and the job that it is
    kept free for."""
    hides = sight is not None and not sight.sees_all
    return WorkerRow(
        worker=str(UUID(bytes_le=worker.id)),
        name=worker.name,
        state=worker.state,
        patterns=[] if hides else list(worker.patterns),
        credit=worker.credit,
        running=len(worker.jobs),
        cpu=worker.cpu,
        seen_s=now - worker.seen_at,
        slots=worker.slots,
        kept_for="" if hides else _kept_for(worker),
        rests=worker.rests,
        weight=TURN_STRIDE // worker.stride,
        held_by=worker.held_by,
        as_root=worker.as_root,
    )


def _kept_for(worker: WorkerRecord) -> str:
    large = None if worker.kept_for is None or worker.kept_for.needs is None else worker.kept_for.needs.large
    return "" if large is None else show_job_id(large.id)


class _Place(NamedTuple):
    """Sort key of rows: the most queued first, then the most running, then the most ended, then by name."""

    less_queued: int
    less_running: int
    less_ended: int
    name: str


def _subjects(leader: LeaderState, now: float, limit: int) -> tuple[list[SubjectRow], int]:
    """Rows of subjects with jobs now or since the leader began, OTHERS last; and the number of such subjects."""
    stats = leader.lifecycle.stats
    cells = stats.by_subject()
    others = cells.pop(OTHERS, None)
    busy = [lane for lane in leader.lanes.busy_lanes() if owner_of(lane.subject) is None]
    total = len(busy) + bool(others) + sum(not _queued(leader, name) for name in cells)
    longest = nlargest(limit, busy, key=lambda lane: lane.queued)
    names = cells.keys() | {lane.subject for lane in longest}
    rows = [
        SubjectRow(name, -less, _matching_count(leader, name), stats.figures(cells.get(name, []), now))
        for less, _, _, name in nsmallest(
            limit, (_place(name, _queued(leader, name), cells.get(name, [])) for name in names)
        )
    ]
    if others:
        rows = [*rows[: limit - 1], SubjectRow(OTHERS, 0, 0, stats.figures(others, now))]
    return rows, total


def _queued(leader: LeaderState, subject: str) -> int:
    if subject == BROADCASTS:
        return sum(lane.queued for lane in leader.lanes.busy_lanes() if owner_of(lane.subject) is not None)
    lane = leader.lanes.lane(Subject(Pattern(subject)))
    return lane.queued if lane is not None else 0


class _Members:
    """Workers, slots and queued jobs of one group."""

    def __init__(self) -> None:
        self.workers = self.slots = self.slots_free = self.queued = 0


def _groups(leader: LeaderState, now: float, limit: int) -> tuple[list[GroupRow], int]:
    """Rows of groups that have workers, or whose workers had jobs since the leader began; and the number of groups."""
    cells = leader.lifecycle.stats.by_group()
    groups: dict[str, _Members] = {name: _Members() for name in cells}
    for worker in leader.roster:
        for name in leader.lifecycle.stats.groups_of(worker.patterns) - {""}:
            members = groups.setdefault(name, _Members())
            members.workers += worker.conn is not None
            members.slots += slots_of(worker)
            members.slots_free += worker.usable_credit
    by_pool: dict[PatternPool, str] = {}
    for lane in leader.lanes.busy_lanes():
        for pool in lane.all_pools:
            if pool not in by_pool:
                by_pool[pool] = group_of(pool.pattern)
        for name in {by_pool[pool] for pool in lane.all_pools} - {""}:
            groups[name].queued += lane.queued
    rows = []
    for _, _, _, name in nsmallest(
        limit, (_place(name, it.queued, cells.get(name, [])) for name, it in groups.items())
    ):
        it = groups[name]
        figures = leader.lifecycle.stats.figures(cells.get(name, []), now)
        rows.append(GroupRow(name, it.workers, it.slots, it.slots_free, it.queued, figures))
    return rows, len(groups)


def _place(name: str, queued: int, cells: list[Cell]) -> _Place:
    running = sum(cell.running for cell in cells)
    ended = sum(cell.ok + cell.failed for cell in cells)
    return _Place(-queued, -running, -ended, name)


def slots_of(worker: WorkerRecord) -> int:
    return worker.slots or worker.credit + len(worker.jobs)


def _matching_count(leader: LeaderState, name: str) -> int:
    if name == BROADCASTS:
        return 0
    subject = Subject(Pattern(name))
    lane = leader.lanes.lane(subject)
    pools = lane.all_pools if lane is not None else leader.roster.pools_for(subject)
    if len(pools) == 1:
        return len(pools[0].members)
    return len({number for pool in pools for number in pool.members})


def _is_seen(leader: LeaderState, job_id: JobId, sight: Sight) -> bool:
    job = leader.jobs.get(job_id)
    return sight.sees_all or (job is not None and sight.sees(job.client.id))


def _busiest(leader: LeaderState, sight: Sight | None) -> list[ClientRecord]:
    clients = [client for client in leader.clients.by_id.values() if client.open_jobs]
    if sight is not None:
        clients = [client for client in clients if sight.sees(client.id)]
    return nlargest(CLIENT_ROWS_MAX, clients, key=lambda client: client.open_jobs)


def _client_row(client: ClientRecord) -> ClientRow:
    return ClientRow(
        client=client.id,
        connected=bool(client.conns),
        cap=client.cap,
        running=client.in_flight,
        unfinished=client.open_jobs,
        unfetched_bytes=client.undelivered_bytes,
    )
