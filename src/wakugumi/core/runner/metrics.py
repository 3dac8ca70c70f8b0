"""Which metrics does a machine publish about the programs that it ran? The counts of its station. (SPEC O2)"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from wakugumi.core import metric_table as table
from wakugumi.core.buckets import OTHERS
from wakugumi.core.metrics import Buckets, Family, Sample, coarse
from wakugumi.core.runner.counts import RunCounts
from wakugumi.limits.http import METRIC_SERIES_MAX


def run_families(runs: RunCounts, *, running: int, limit: int, free: int) -> Iterator[Family]:
    """Metrics of a worker or a node."""
    yield table.RUN_SLOTS.with_value(limit)
    yield table.RUN_SLOTS_FREE.with_value(free)
    yield table.RUN_JOBS_RUNNING.with_value(running)
    yield table.RUN_JOBS_STARTED.with_value(runs.started)
    yield table.RUN_JOBS_FINISHED.with_samples([(("ok",), runs.ok), (("failed",), runs.failed)])
    yield table.RUN_FAILURES.with_samples(_first(runs.reasons))
    yield table.RUN_EXIT_CODES.with_samples(_first({str(code): count for code, count in runs.exit_codes.items()}))
    yield table.RUN_BUSY.with_value(runs.busy)
    yield table.RUN_TIME._replace(histograms=[Buckets((), coarse(runs.ran), runs.ran_s)])


def _first(counts: dict[str, int]) -> list[Sample]:
    """The first names that were counted, and the rest as one: so no count ever shrinks."""
    samples = [Sample((name,), count) for name, count in islice(counts.items(), METRIC_SERIES_MAX)]
    rest = sum(islice(counts.values(), METRIC_SERIES_MAX, None))
    return [*samples, Sample((OTHERS,), rest)] if rest else samples
