"""Is a download tried a few times, and only where another try may help?"""

from __future__ import annotations

import pytest

from wakugumi.core.flows import ActFailed, Answered, FlowEvent
from wakugumi.core.transfers.downloads import DOWNLOAD_RETRY, DownloadMachine
from wakugumi.core.transfers.transfers import Arrived, GivenUp
from wakugumi.errors import Lost, Refused, WakugumiError

LOST = Lost("gone", "dead")


def after(*ends: WakugumiError | None) -> tuple[DownloadMachine, float]:
    """A machine whose tries ended like this, and the time of its last try."""
    machine, now = DownloadMachine(0.0, lambda: 0.5), 0.0
    (perform,) = machine.tick(0.0).do
    for number, end in enumerate(ends):
        event: FlowEvent = Answered(perform.number, None) if end is None else ActFailed(perform.number, end)
        assert not machine.handle([event], now).do
        machine.check()
        if number < len(ends) - 1:
            wake_at = machine.wake_at()
            assert wake_at is not None
            assert not machine.tick(now).do, "not before the pause is over"
            now = wake_at
            (perform,) = machine.tick(now).do
    return machine, now


def test_a_download_that_succeeds_is_over() -> None:
    machine, _ = after(None)
    assert isinstance(machine.outcome, Arrived)
    assert machine.wake_at() is None


@pytest.mark.parametrize("error", [LOST, Refused("full", "busy"), Refused("blob-busy", "busy")])
def test_a_lost_or_busy_place_is_tried_for_a_quarter_of_a_minute(error: WakugumiError) -> None:
    machine, last = after(*[error] * (DOWNLOAD_RETRY.tries_max - 1), None)
    assert isinstance(machine.outcome, Arrived)
    assert 15 <= last <= 16
    machine, _ = after(*[error] * DOWNLOAD_RETRY.tries_max)
    assert machine.outcome == GivenUp(error)


@pytest.mark.parametrize("code", ["no-blob", "blob-broken", "disk", "denied"])
def test_a_refusal_that_stays_ends_the_download(code: str) -> None:
    machine, _ = after(LOST, no := Refused(code, "never"))
    assert machine.outcome == GivenUp(no)
