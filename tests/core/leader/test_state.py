"""What does a new leader know, and what follows from its options?"""

from __future__ import annotations

import pytest

from wakugumi.core.ids import ClientId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.state import LeaderState


def a_state(**options: object) -> LeaderState:
    return LeaderState(lambda: 0.5, **options)  # type: ignore[arg-type]


def test_a_new_leader_knows_nothing_and_takes_jobs() -> None:
    state = a_state(now=7.0)
    assert state.started_at == state.roster.now == 7.0
    assert (state.full, state.disk_low, state.stopping, state.stalled) == (False, False, False, "")
    assert not state.jobs
    assert not state.holds("0" * 64)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_leader_is_durable_if_it_has_a_journal(keeps: bool) -> None:
    assert a_state(keeps=keeps).durable is keeps


def test_a_low_disk_makes_it_full_until_there_is_room() -> None:
    state, seen = a_state(), []
    for low in (True, False):
        state.admission.disk_changed(ev.DiskLow(low), 0.0)
        state.admission.update()
        seen.append((state.disk_low, state.full))
    assert seen == [(True, True), (False, False)]


def test_a_file_is_held_as_long_as_a_result_names_it() -> None:
    state, job, blob = a_state(), JobId(b"j" * 16), "0" * 64
    state.file_references.keep(job, (blob,), ClientId("desk"))
    held = [state.holds(blob)]
    state.file_references.forget(job)
    held.append(state.holds(blob))
    assert held == [True, False]


def test_all_parts_share_their_tables() -> None:
    state = a_state()
    assert state.lifecycle.jobs is state.jobs
    assert state.lifecycle.file_references is state.file_references
