"""Which worker with room is nearest to a job's files? (SPEC C8)

The worker that holds most of them; no job waits for it. Blobs are different: a worker that does not know blobs cannot
run such a job unless all of it fits a frame, so the job waits while a worker serves that knows blobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import TypeAlias

from wakugumi.core.ids import WorkerId
from wakugumi.core.leader.records import Lane, PatternPool, WorkerRecord
from wakugumi.core.leader.scheduling.roster import Roster, can_run, has_room, members_of, rank_of, ready_in
from wakugumi.core.requirements import Requirements
from wakugumi.limits.scheduling import FILES_WEIGHED_MAX, HOLDERS_LOOKED_MAX, HOLDERS_WEIGHED_MAX

Holders: TypeAlias = Callable[[str], Collection[WorkerId]]
"""Workers that hold a file: a blob by its SHA-256, or a cache as `cache:<id>`. Called for every job with files, so it
must not build a new collection; the caller does not keep the collection."""


def no_holders(_file: str) -> Collection[WorkerId]:
    """No known holders."""
    return ()


def nearest(
    lane: Lane, requirements: Requirements, best: WorkerRecord, roster: Roster, holders: Holders
) -> WorkerRecord | None:
    """The worker with room that holds most of the files; `best`, which can run the job, if none holds any. None if the
    job must wait for a worker that knows blobs."""
    pools = lane.pools_of(requirements)
    if requirements.blobs and not best.blobs:
        knowing = [it for it in members_of(pools) if it.blobs and it.serves and can_run(it, requirements)]
        able = [worker for worker in knowing if has_room(worker, requirements.slots)]
        if knowing and not able:
            return None
        best = min(able, key=lambda worker: rank_of(worker, lane.order), default=best)
    held = [found for file in requirements.files[:FILES_WEIGHED_MAX] if (found := holders(file))]
    if not held or all(best.id in them for them in held):
        return best
    near = [
        worker
        for worker in _with_room(pools, requirements.slots, roster, held)
        if (worker.blobs or not requirements.blobs or not best.blobs) and can_run(worker, requirements)
    ]
    return min(
        [best, *near], key=lambda worker: (-sum(worker.id in them for them in held), rank_of(worker, lane.order))
    )


def _with_room(
    pools: list[PatternPool], slots: int, roster: Roster, held: list[Collection[WorkerId]]
) -> dict[WorkerRecord, None]:
    """Workers that hold some of the files and have room. A busy grid has few workers with room, an idle one many: the
    smaller set, these or the holders, is searched."""
    by_id = roster.by_id
    ready = sum(len(pool.heap) for pool in pools)
    found: dict[WorkerRecord, None] = {}
    for them in held:
        if len(them) <= ready:
            able = (
                worker
                for worker_id in islice(them, HOLDERS_LOOKED_MAX)
                if (worker := by_id.get(worker_id)) is not None
                and has_room(worker, slots)
                and any(pool in pools for pool in worker.pools)
            )
        else:
            able = (
                worker
                for worker in islice(ready_in(pools), HOLDERS_LOOKED_MAX)
                if worker.id in them and has_room(worker, slots)
            )
        found |= dict.fromkeys(islice(able, HOLDERS_WEIGHED_MAX))
    return found
