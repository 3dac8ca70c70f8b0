"""Jobs that wait while no leader serves their client."""

from __future__ import annotations

from wakugumi.core.client.patience import LeaderPatience


def test_without_a_time_jobs_wait_for_ever() -> None:
    patience = LeaderPatience()
    patience.look(100.0, waits=True)
    assert patience.due_at is None


def test_the_time_counts_from_the_first_look_without_a_leader() -> None:
    patience = LeaderPatience()
    patience.patience_s = 5.0
    assert patience.due_at is None
    patience.look(100.0, waits=True)
    patience.look(103.0, waits=True)
    assert patience.due_at == 105.0
    patience.patience_s = 30.0
    assert patience.due_at == 130.0


def test_a_leader_that_serves_ends_the_wait() -> None:
    patience = LeaderPatience()
    patience.patience_s = 5.0
    patience.look(100.0, waits=True)
    patience.look(102.0, waits=False)
    assert patience.due_at is None
    patience.look(110.0, waits=True)
    assert patience.due_at == 115.0
