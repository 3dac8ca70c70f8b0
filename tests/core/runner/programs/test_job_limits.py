"""The lower of two limits counts, and a message says whose it is."""

from __future__ import annotations

import pytest

from wakugumi.core.runner.programs.job_limits import ASKED, NO_LIMITS, lower


@pytest.mark.spec("W8")
@pytest.mark.parametrize(
    ("asked", "operators", "counts", "is_operators"),
    [(None, None, None, False), (5, None, 5, False), (None, 5, 5, True), (4, 5, 4, False), (6, 5, 5, True)],
)
def test_the_lower_limit_counts(
    asked: int | None, operators: int | None, counts: int | None, is_operators: bool
) -> None:
    value, whose = lower(asked, operators, "--job-memory")
    assert value == counts
    assert ("--job-memory" in whose) == is_operators
    assert (whose == ASKED) != is_operators


def test_of_two_equal_limits_the_jobs_own_is_named() -> None:
    assert lower(1.5, 1.5, "--job-cpu") == (1.5, ASKED)


def test_a_machine_has_no_limits_by_default() -> None:
    assert not any(NO_LIMITS)
