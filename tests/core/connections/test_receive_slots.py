"""Slots for inputs: how many, which sender loses its slot, and which is refused."""

from __future__ import annotations

import pytest

from wakugumi.core.connections.receive_slots import ReceiveSlots
from wakugumi.errors import Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.node import RECEIVE_BYTES_PER_S_MIN, RECEIVE_GRACE_S

pytestmark = pytest.mark.spec("N3")

LARGE = INLINE_FILE_BYTES_MAX + 1
LATER = RECEIVE_GRACE_S + 5.0


@pytest.fixture
def slots() -> ReceiveSlots[str]:
    slots: ReceiveSlots[str] = ReceiveSlots(2)
    assert slots.take("a", LARGE, 0.0) is None
    assert slots.take("b", None, 0.0) is None
    slots.check()
    return slots


def test_one_more_is_refused_while_the_others_are_young(slots: ReceiveSlots[str]) -> None:
    with pytest.raises(Refused, match="2 inputs are on their way already") as caught:
        slots.take("c", LARGE, RECEIVE_GRACE_S)
    assert caught.value.code == "busy"
    assert (slots.refused, len(slots)) == (1, 2)


def test_small_inputs_have_slots_of_their_own(slots: ReceiveSlots[str]) -> None:
    assert slots.take("c", INLINE_FILE_BYTES_MAX, 0.0) is None
    assert slots.take("d", 0, 0.0) is None
    with pytest.raises(Refused):
        slots.take("e", 1, 0.0)
    assert len(slots) == 4
    slots.check()


def test_the_slowest_sender_loses_its_slot(slots: ReceiveSlots[str]) -> None:
    slots.came("a", 1000)
    slots.came("b", 10)
    assert slots.take("c", LARGE, LATER) == "b"
    assert len(slots) == 2
    slots.came("b", 10**9)  # It has not learned of it yet.
    slots.free("b")
    assert len(slots) == 2
    assert slots.take("d", LARGE, LATER) == "a"
    with pytest.raises(Refused):
        slots.take("e", LARGE, LATER)


def test_a_sender_at_the_least_rate_keeps_its_slot(slots: ReceiveSlots[str]) -> None:
    for sender in "ab":
        slots.came(sender, int(RECEIVE_BYTES_PER_S_MIN * LATER))
    with pytest.raises(Refused):
        slots.take("c", LARGE, LATER)
    assert slots.take("c", LARGE, LATER + 1.0) == "a"


def test_a_slot_that_is_free_again_is_taken(slots: ReceiveSlots[str]) -> None:
    slots.free("a")
    slots.free("nobody")
    assert slots.take("c", LARGE, 0.0) is None
    slots.check()


def test_room_is_known_before_a_slot_is_taken(slots: ReceiveSlots[str]) -> None:
    assert slots.has_room(1, 0.0), "small inputs have slots of their own"
    assert not slots.has_room(LARGE, RECEIVE_GRACE_S)
    assert not slots.has_room(None, RECEIVE_GRACE_S)
    assert slots.has_room(LARGE, LATER), "a slow sender would lose its slot"
    assert len(slots) == 2
