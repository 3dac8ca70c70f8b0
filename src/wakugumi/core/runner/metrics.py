"""Which metrics does a machine report of the programs it ran? The counts of its station. (SPEC O2)"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from wakugumi.core.buckets import OTHERS
from wakugumi.core.metrics import COARSE_S, Buckets, Family, Kind, Sample, coarse, counter, gauge
from wakugumi.core.runner.counts import RunCounts
from wakugumi.limits.http import METRIC_SERIES_MAX


def run_families(runs: RunCounts, *, running: int, limit: int, free: int) -> Iterator[Family]:
    """Metrics of a worker or a node."""
    yield gauge("wakugumi_run_slots", "Places for running jobs.", limit)
    yield gauge("wakugumi_run_slots_free", "Places that a caller of this machine can have now.", free)
    yield gauge("wakugumi_run_jobs_running", "Jobs that run now, whoever wants them.", running)
    yield counter("wakugumi_run_jobs_started_total", "Jobs that were taken up.", runs.started)
    yield Family(
        "wakugumi_run_jobs_finished_total",
        "Jobs that ended, by status.",
        Kind.COUNTER,
        ("status",),
        [Sample(("ok",), runs.ok), Sample(("failed",), runs.failed)],
    )
    yield Family(
        "wakugumi_run_failures_total",
        "Jobs that failed, by the code of the reason.",
        Kind.COUNTER,
        ("reason",),
        _first(runs.reasons),
    )
    yield Family(
        "wakugumi_run_exit_codes_total",
        "Programs that ended, by exit code; 128 and its number if a signal ended one.",
        Kind.COUNTER,
        ("exit_code",),
        _first({str(code): count for code, count in runs.exit_codes.items()}),
    )
    yield counter("wakugumi_run_busy_total", "Callers sent away because all slots were taken.", runs.busy)
    yield Family(
        "wakugumi_run_seconds",
        "How long programs ran.",
        Kind.HISTOGRAM,
        histograms=[Buckets((), coarse(runs.ran), runs.ran_s)],
        bounds=COARSE_S,
    )


def _first(counts: dict[str, int]) -> list[Sample]:
    """Each count if there are few, otherwise the first ones and the sum of the rest: so no count ever shrinks."""
    samples = [Sample((name,), count) for name, count in islice(counts.items(), METRIC_SERIES_MAX)]
    rest = sum(islice(counts.values(), METRIC_SERIES_MAX, None))
    return [*samples, Sample((OTHERS,), rest)] if rest else samples
