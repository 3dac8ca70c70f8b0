"""What a machine counts of its programs."""

from __future__ import annotations

import pytest

from wakugumi.core.buckets import BOUNDS_S
from wakugumi.core.runner.counts import RunCounts


@pytest.mark.spec("O2")
def test_each_end_is_counted_by_reason_exit_code_and_run_time() -> None:
    runs = RunCounts()
    runs.ended("", 0, 0.0)
    runs.ended("exit", 3, BOUNDS_S[1])
    runs.ended("timeout", 143, 2 * BOUNDS_S[-1])
    assert (runs.ok, runs.failed) == (1, 2)
    assert runs.exit_codes == {0: 1, 3: 1, 143: 1}
    assert runs.reasons == {"exit": 1, "timeout": 1}
    assert [at for at, count in enumerate(runs.ran) if count] == [0, 2, len(BOUNDS_S)]
    assert runs.ran_s == BOUNDS_S[1] + 2 * BOUNDS_S[-1]


@pytest.mark.spec("O2")
def test_a_job_whose_program_never_ran_has_neither_exit_code_nor_run_time() -> None:
    runs = RunCounts()
    runs.ended("unknown-program", None, 0.0)
    assert (runs.failed, runs.exit_codes, sum(runs.ran)) == (1, {}, 0)
