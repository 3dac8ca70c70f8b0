"""What is told to those who watch? Families of counters, gauges and histograms, as plain records. (SPEC O2)

A role makes a list of Family whenever it is asked; `adapters/telemetry.py` writes them for Prometheus. What a role
counts itself it may count in a Counter or a Timing, which make their family when asked.

Nobody can make us hold, or tell, any number of series: a family has so many, and what comes beyond them is counted
under OTHERS in each label. So a label may hold a word that a stranger chose.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Final, NamedTuple

from wakugumi.limits import METRIC_SERIES_MAX

OTHERS: Final = "(others)"
"""The value of every label of what is not told apart."""
BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400)
"""What a time is at most, from a turn of the loop to the longest job."""


class Kind(Enum):
    COUNTER = "counter"
    """It only grows. Its name ends in `_total`."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """One value of a counter or a gauge."""

    labels: tuple[str, ...]
    value: float


class Buckets(NamedTuple):
    """One histogram: how many were at most each bound and above the one before; the last has no bound."""

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


def gauge(name: str, text: str, value: float) -> Family:
    return Family(name, text, Kind.GAUGE, samples=(Sample((), value),))


def counter(name: str, text: str, value: float) -> Family:
    return Family(name, text, Kind.COUNTER, samples=(Sample((), value),))


class Counter:
    """Counts by labels."""

    def __init__(self, name: str, text: str, *labels: str, series_max: int = METRIC_SERIES_MAX) -> None:
        self._family = Family(name, text, Kind.COUNTER, labels)
        self._series_max = series_max
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *labels: str, amount: float = 1) -> None:
        """One value for each label, in their order."""
        labels = _bounded(labels, self._values.keys(), self._series_max)
        self._values[labels] = self._values.get(labels, 0) + amount

    def family(self) -> Family:
        return self._family._replace(samples=[Sample(*pair) for pair in self._values.items()])


class Timing:
    """How long something took, by labels."""

    def __init__(
        self,
        name: str,
        text: str,
        *labels: str,
        bounds: Sequence[float] = BOUNDS_S,
        series_max: int = METRIC_SERIES_MAX,
    ) -> None:
        self._family = Family(name, text, Kind.HISTOGRAM, labels, bounds=bounds)
        self._series_max = series_max
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        if not labels:
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
