"""How long does a leader have to greet? A client and a worker wait equally long."""

from __future__ import annotations

from wakugumi.core.greeting import SILENT_LEFT, WELCOME_AGAIN_WITHIN_S, WELCOME_WITHIN_S
from wakugumi.limits.wire import SILENCE_MAX_S


def test_a_leader_that_was_there_before_has_longer_and_all_tries_end() -> None:
    assert 0 < WELCOME_WITHIN_S < WELCOME_AGAIN_WITHIN_S < SILENCE_MAX_S
    assert SILENT_LEFT > 0
