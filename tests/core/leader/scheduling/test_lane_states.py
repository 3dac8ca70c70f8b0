"""The plain names of a lane's states are its states."""

from __future__ import annotations

from wakugumi.core.leader.records import Lane
from wakugumi.core.leader.scheduling import lane_states
from wakugumi.core.leader.scheduling.lane_states import LaneState
from wakugumi.core.subject import parse_subject


def test_each_state_has_its_plain_name() -> None:
    assert {state.name: getattr(lane_states, state.name) for state in LaneState} == dict(LaneState.__members__)


def test_a_lane_is_parked_in_two_of_them_and_begins_in_none() -> None:
    lane = Lane(parse_subject("job.assign.x"), [])
    assert lane.waits_in is LaneState.NOWHERE
    parked = set()
    for state in LaneState:
        lane.waits_in = state
        if lane.is_parked:
            parked.add(state)
    assert parked == {LaneState.PARKED, LaneState.REFUSED}
