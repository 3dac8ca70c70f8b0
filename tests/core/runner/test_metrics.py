"""Which metrics does a machine report of the programs it ran?"""

from __future__ import annotations

import pytest

from wakugumi.core.runner.counts import RunCounts
from wakugumi.core.runner.metrics import run_families
from wakugumi.limits.http import METRIC_SERIES_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O2")]


def test_a_program_with_many_exit_codes_makes_no_more_series_than_are_allowed() -> None:
    runs = RunCounts()
    for code in range(256):
        runs.ended("exit", code, 0.1)
    families = {family.name: family for family in run_families(runs, running=0, limit=1, free=1)}
    samples = families["wakugumi_run_exit_codes_total"].samples
    assert len(samples) == METRIC_SERIES_MAX + 1
    assert sum(sample.value for sample in samples) == 256
