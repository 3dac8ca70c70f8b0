"""What is a metric? The record types of families, counters, gauges and histograms; `metric_table` lists the metrics.

`core/metric_table.py` has all families without values (SPEC O2). A role fills them for each request, and
`adapters/http/metrics_page.py` writes them for Prometheus. Counter and Timing count for a role.

The number of series is bounded: further label values are counted under OTHERS in every label. So a label may hold a
word that a stranger chose.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from operator import mul
from typing import Final, NamedTuple

from wakugumi.core.buckets import BOUNDS_S as FINE_S
from wakugumi.core.buckets import BUCKETS_PER_DOUBLING, OTHERS
from wakugumi.limits.http import METRIC_SERIES_MAX

BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400)
"""Upper bounds of the buckets, from a turn of the loop to the longest job."""


class Kind(Enum):
    COUNTER = "counter"
    """Only grows. The name ends in `_total`."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """One value of a counter or a gauge."""

    labels: tuple[str, ...]
    value: float


class Buckets(NamedTuple):
    """One histogram. Each count is of values up to its bound and above the bound before; the last has no bound."""

    labels: tuple[str, ...]
    counts: Sequence[int]
    sum: float


class Family(NamedTuple):
    """All values of one name. Names follow Prometheus: `wakugumi_…`, with the unit, counters with `_total`."""

    name: str
    help: str
    kind: Kind
    labels: tuple[str, ...] = ()
    samples: Sequence[Sample] = ()
    histograms: Sequence[Buckets] = ()
    bounds: Sequence[float] = ()

    def with_value(self, value: float) -> Family:
        """For a family without labels."""
        return self._replace(samples=(Sample((), value),))

    def with_samples(self, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
        """Each sample: one value for each label, and the number."""
        return self._replace(samples=[Sample(*sample) for sample in samples])


def gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, text, Kind.GAUGE, labels)


def counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, text, Kind.COUNTER, labels)


def histogram(name: str, text: str, *labels: str, bounds: Sequence[float] = BOUNDS_S) -> Family:
    return Family(name, text, Kind.HISTOGRAM, labels, bounds=bounds)


class Counter:
    """Counts by labels."""

    def __init__(self, family: Family, series_max: int = METRIC_SERIES_MAX) -> None:
        self._family = family
        self._series_max = series_max
        self._values: dict[tuple[str, ...], float] = {} if family.labels else {(): 0}

    def add(self, *labels: str, amount: float = 1) -> None:
        """One value for each label, in their order."""
        labels = _bounded(labels, self._values.keys(), self._series_max)
        self._values[labels] = self._values.get(labels, 0) + amount

    def family(self) -> Family:
        return self._family.with_samples(self._values.items())


class Timing:
    """Durations by labels."""

    def __init__(self, family: Family, series_max: int = METRIC_SERIES_MAX) -> None:
        self._family = family
        self._series_max = series_max
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        if not family.labels:
            self._begin(())

    def took(self, seconds: float, *labels: str) -> None:
        """One value for each label, in their order."""
        labels = _bounded(labels, self._counts.keys(), self._series_max)
        if labels not in self._counts:
            self._begin(labels)
        self._counts[labels][bisect_left(self._family.bounds, seconds)] += 1
        self._sums[labels] += seconds

    def family(self) -> Family:
        told = [Buckets(labels, tuple(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        return self._family._replace(histograms=told)

    def _begin(self, labels: tuple[str, ...]) -> None:
        self._counts[labels] = [0] * (len(self._family.bounds) + 1)
        self._sums[labels] = 0.0


def _bounded(labels: tuple[str, ...], known: Collection[tuple[str, ...]], series_max: int) -> tuple[str, ...]:
    return labels if labels in known or len(known) < series_max else (OTHERS,) * len(labels)


def coarse(counts: Sequence[int]) -> list[int]:
    """The counts of a fine histogram (`core/leader/stats.py`), in the buckets of COARSE_S."""
    ends = range(0, len(counts) - 1, _FINE_PER_COARSE)
    told = [counts[0], *(sum(counts[end - _FINE_PER_COARSE + 1 : end + 1]) for end in ends[1:])]
    return [*told, sum(counts[ends[-1] + 1 :])]


def about_us(counts: Sequence[int]) -> int:
    """Sum of the times of a fine histogram, in whole microseconds: each counts as the middle of its bucket, and the
    longest as the last bound. At most a tenth off, and the sum never shrinks."""
    return sum(map(mul, counts, _MIDDLES_US))


_FINE_PER_COARSE: Final = 2 * BUCKETS_PER_DOUBLING
COARSE_S: Final = FINE_S[::_FINE_PER_COARSE]
"""From 0.1 ms to five days, each four times the one before: each bucket of each series costs storage in Prometheus."""
_MIDDLES_US: Final = [
    round(1e6 * (low + high) / 2) for low, high in zip([0.0, *FINE_S], [*FINE_S, FINE_S[-1]], strict=True)
]
