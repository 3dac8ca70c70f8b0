"""Which leaves may go, and who is moved for that: what `leaves` says about itself, and whole leaders on it."""

from __future__ import annotations

from tests.kit.leader_world import job_id

from wakugumi.core.leader.journal.leaves import Leaves

SHEAF = 16


def test_leaves_go_from_the_beginning_once_nobody_stands_in_them() -> None:
    leaves = Leaves()
    first = leaves.hold(job_id(1), 10)
    for _ in range(SHEAF):
        leaves.next_leaf()
    second = leaves.hold(job_id(2), 10)
    for _ in range(SHEAF):
        leaves.next_leaf()
    assert leaves.droppable() is None
    leaves.release(second)
    assert leaves.droppable() is None, "an older one still stands there"
    leaves.release(first)
    assert leaves.droppable() == leaves.number // SHEAF * SHEAF
    assert leaves.droppable() is None
    leaves.check({})


def test_the_sheaf_that_is_written_to_is_never_dropped() -> None:
    leaves = Leaves()
    for _ in range(5):
        leaves.next_leaf()
        assert leaves.droppable() is None
