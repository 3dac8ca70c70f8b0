"""A certificate is renewed in time, and not before."""

from __future__ import annotations

import pytest

from wakugumi.core.access.renewal import is_due

pytestmark = pytest.mark.spec("O1")


@pytest.mark.parametrize(
    ("now", "due"),
    [(0.0, False), (1_000.0, False), (1_599.0, False), (1_600.0, True), (1_900.0, True), (2_500.0, True)],
)
def test_a_certificate_is_due_when_a_third_of_its_life_is_left_and_once_it_is_over(now: float, due: bool) -> None:
    assert is_due(1_000.0, 1_900.0, now) is due
