"""Which of the workers that could take a job now is nearest to its files? (SPEC C8)

The one that holds most of them; nobody waits for it. Blobs are another matter: a worker that does not know them cannot
run such a job unless all of it fits a frame, so it goes to none of those while one serves that knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from wakugumi.core.job import WorkerId
from wakugumi.core.roster import Roster, Worker, has_room, members_of, rank_of
from wakugumi.core.wants import Wants
from wakugumi.limits import FILES_WEIGHED_MAX, HOLDERS_WEIGHED_MAX

if TYPE_CHECKING:
    from wakugumi.core.queues import Lane

Holders: TypeAlias = Callable[[str], Collection[WorkerId]]
"""Who holds a file: a blob by its SHA-256, or a cache as `cache:<id>`. It is asked for every job that names some, so it
must not make anything; and what it answers is not kept."""


def nobody(_file: str) -> Collection[WorkerId]:
    """Where nobody knows who holds what."""
    return ()


def nearest(lane: Lane, wants: Wants, best: Worker, roster: Roster, holders: Holders) -> Worker | None:
    """Of those with room the one that holds most of its files; `best`, if nobody holds any. None if it has to wait for
    one that knows blobs."""
    if wants.blobs and not best.blobs:
        knowing = [worker for worker in members_of(lane.pools) if worker.blobs and worker.serves]
        able = [worker for worker in knowing if has_room(worker, wants.slots)]
        if knowing and not able:
            return None
        best = min(able, key=lambda worker: rank_of(worker, lane.order), default=best)
    held = [found for file in wants.files[:FILES_WEIGHED_MAX] if (found := holders(file))]
    if not held or all(best.id in them for them in held):
        return best
    weighed: dict[WorkerId, None] = {}
    for them in held:
        weighed |= dict.fromkeys(islice(them, HOLDERS_WEIGHED_MAX))
    near = [
        worker
        for worker_id in weighed
        if (worker := roster.by_id.get(worker_id)) is not None
        and has_room(worker, wants.slots)
        and (worker.blobs or not wants.blobs or not best.blobs)
        and any(pool in lane.pools for pool in worker.pools)
    ]
    return min(
        [best, *near], key=lambda worker: (-sum(worker.id in them for them in held), rank_of(worker, lane.order))
    )
