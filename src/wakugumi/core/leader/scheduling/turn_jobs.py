"""Which jobs does a client's turn hold, and in which order?

A turn of plain jobs is one deque, first in first out. Other turns have a queue for each row: priority, slots and,
after `split_by_kind`, kind. A cancelled job stays in its queue and is skipped by its state; `Turn.gone` counts it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from typing import Final

from wakugumi.core.ids import JobId
from wakugumi.core.leader.jobs.states import QUEUED
from wakugumi.core.leader.records import JobRecord, Kind, Lane, Row, Turn, TurnNeeds
from wakugumi.core.requirements import Requirements
from wakugumi.limits.scheduling import PRIORITY_AGE_S

_ANY_KIND: Final[Kind] = (0, ())
_PLAIN: Final = (0, 1, _ANY_KIND)


def slots_of(job: JobRecord) -> int:
    return 1 if job.requirements is None else job.requirements.slots


def is_simple(job: JobRecord) -> bool:
    return job.requirements is not None and job.requirements.simple


def due_of(job: JobRecord) -> float:
    """Place in the order: the time since when the job waits, minus its priority. A job that is queued again has the
    time of its submit."""
    waits_since = job.submitted_at if job.attempts else job.since
    return waits_since if job.requirements is None else waits_since - PRIORITY_AGE_S * job.requirements.priority


def is_picky(job: JobRecord, lane: Lane) -> bool:
    requirements = job.requirements
    return requirements is not None and (
        requirements.slots > 1
        or (lane.sticky and bool(requirements.key))
        or requirements.blobs
        or requirements.unnamed
        or requirements.env
        or bool(requirements.shuns)
    )


def add(turn: Turn, job: JobRecord, *, first: bool) -> None:
    """Queue a job with requirements."""
    assert job.requirements is not None
    needs = turn.needs
    if needs is None:
        needs = turn.needs = TurnNeeds()
    needs.count += 1
    needs.picky += is_picky(job, turn.lane)
    queue = _queue_of(turn, job)
    if first:
        queue.appendleft(job)
    else:
        queue.append(job)


def remove(turn: Turn, job: JobRecord) -> None:
    """Remove a job from its queue."""
    _queue_of(turn, job).remove(job)
    _uncount(turn, job)


def pull(turn: Turn, jobs: dict[JobId, JobRecord]) -> list[JobRecord]:
    """Remove these jobs, which have the same requirements. Returns them in their order. One pass, up to the last of
    them."""
    queue = _queue_of(turn, next(iter(jobs.values())))
    pulled: list[JobRecord] = []
    passed: list[JobRecord] = []
    while len(pulled) < len(jobs):
        job = queue.popleft()
        (pulled if jobs.get(job.id) is job else passed).append(job)
    queue.extendleft(reversed(passed))
    for job in pulled:
        _uncount(turn, job)
    return pulled


def size(turn: Turn) -> int:
    """Number of jobs in the queues, including those that are gone."""
    return len(turn.jobs) + (0 if turn.needs is None else sum(len(queue) for queue in turn.needs.queues.values()))


def purge(turn: Turn) -> None:
    """Remove all jobs that are gone."""
    assert turn.needs is not None
    for queue in (turn.jobs, *turn.needs.queues.values()):
        gone = [job for job in queue if job.state is not QUEUED]
        left = [job for job in queue if job.state is QUEUED]
        queue.clear()
        queue.extend(left)
        for job in gone:
            _uncount(turn, job)
    turn.gone = 0


def prune(turn: Turn) -> None:
    """Remove jobs that are gone from the heads of the queues: each search would step over them."""
    assert turn.needs is not None
    for queue in (turn.jobs, *turn.needs.queues.values()):
        while queue and queue[0].state is not QUEUED:
            turn.gone -= 1
            _uncount(turn, queue.popleft())


def split_by_kind(turn: Turn) -> None:
    """Give each kind of job a queue of its own: kinds that no worker can run are skipped at once, however many jobs."""
    assert turn.needs is not None
    turn.is_split = True
    queues = [list(queue) for queue in (turn.jobs, *turn.needs.queues.values())]
    turn.jobs.clear()
    turn.needs.queues.clear()
    for jobs in queues:
        for job in jobs:
            _queue_of(turn, job).append(job)


def in_order(turn: Turn, skip: set[Row] | None = None) -> Iterator[JobRecord]:
    """Queued jobs, the next one first. Rows that the caller adds to `skip` meanwhile are left out from there on."""
    if turn.needs is None or not turn.needs.queues:
        yield from (job for job in turn.jobs if job.state is QUEUED)
        return
    rows = [(_PLAIN, turn.jobs), *turn.needs.queues.items()]
    heap = []
    for (priority, slots, kind), queue in rows:
        jobs = (job for job in queue if job.state is QUEUED)
        if (job := next(jobs, None)) is not None:
            heap.append((due_of(job), -priority, -slots, kind, job, jobs))
    heapify(heap)
    while heap:
        _, priority, slots, kind, job, jobs = heap[0]
        yield job
        following = None if skip and (-priority, -slots, kind) in skip else next(jobs, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (due_of(following), priority, slots, kind, following, jobs))


def kind_of(requirements: Requirements) -> Kind:
    """Key of the workers that are able to run a job."""
    return 4 * requirements.env + 2 * requirements.unnamed + requirements.simple, requirements.shuns


def row_of(turn: Turn, requirements: Requirements) -> Row:
    return requirements.priority, requirements.slots, kind_of(requirements) if turn.is_split else _ANY_KIND


def _queue_of(turn: Turn, job: JobRecord) -> deque[JobRecord]:
    requirements = job.requirements
    if requirements is None or (row := row_of(turn, requirements)) == _PLAIN:
        return turn.jobs
    assert turn.needs is not None
    queue = turn.needs.queues.get(row)
    if queue is None:
        queue = turn.needs.queues[row] = deque()
    return queue


def _uncount(turn: Turn, job: JobRecord) -> None:
    needs = turn.needs
    if job.requirements is None or needs is None:
        return
    needs.count -= 1
    needs.picky -= is_picky(job, turn.lane)
    row = row_of(turn, job.requirements)
    if row in needs.queues and not needs.queues[row]:
        del needs.queues[row]
    if not needs.count:
        assert needs.kept is None
        turn.needs = None
