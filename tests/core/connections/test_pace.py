"""Senders of inputs and readers of answers that are too slow."""

from __future__ import annotations

import pytest

from wakugumi.core.connections.pace import InputPace, OutputPace
from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_S

pytestmark = pytest.mark.spec("N3")


def test_a_sender_has_less_time_left_until_enough_came() -> None:
    pace = InputPace()
    pace.came(BODY_RECEIVED_MIN_BYTES - 1, 5.0)
    assert pace.left_s == BODY_RECEIVED_MIN_S - 5.0
    pace.came(1, 5.0)
    assert pace.left_s == BODY_RECEIVED_MIN_S
    pace.came(1, 20.0)
    assert pace.left_s == 0.0, "what came before does not count"


def test_our_own_time_with_a_piece_does_not_count() -> None:
    pace = InputPace()
    pace.came(1)
    assert pace.left_s == BODY_RECEIVED_MIN_S


@pytest.mark.parametrize(
    ("read", "sent", "is_too_slow"),
    [
        (0, 0, True),
        (BODY_RECEIVED_MIN_BYTES - 1, BODY_RECEIVED_MIN_BYTES - 1, True),
        (BODY_RECEIVED_MIN_BYTES, 0, False),
        (0, BODY_RECEIVED_MIN_BYTES, False),
    ],
)
def test_a_reader_must_read_enough_or_send_enough_meanwhile(read: int, sent: int, is_too_slow: bool) -> None:
    pace = OutputPace(unread=10**6, dropped=7)
    assert pace.is_too_slow(10**6 - read, 7 + sent) == is_too_slow


def test_a_reader_is_looked_at_again_from_where_it_was() -> None:
    pace = OutputPace(unread=10**6, dropped=0)
    assert not pace.is_too_slow(0, 0)
    assert pace.is_too_slow(0, 0)
