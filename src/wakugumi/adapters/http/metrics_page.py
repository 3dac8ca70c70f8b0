"""How are a role's metrics published? In the text format of Prometheus, by its own library.

The role's records (`core/metrics.py`) are made anew for each request; none is kept here. They are all of one moment,
and are written one after the other, with other requests served in between. Metrics of the process itself (`process_…`)
are added. The library is imported by this file: import it where HTTP begins to be served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from wakugumi.adapters.http.page import HttpRequest, Page, Reply
from wakugumi.core.metrics import Family, Kind

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(collect: Callable[[], Iterable[Family]]) -> Page:
    """A page with all metrics."""
    process = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=process)

    async def page(_visit: HttpRequest) -> Reply:
        parts = [generate_latest(process)]
        for family in list(collect()):
            await asyncio.sleep(0)
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_MetricRecord(family))
            parts.append(generate_latest(registry))
        return Reply(200, b"".join(parts), CONTENT_TYPE)

    return page


class _MetricRecord(Collector):
    """A record in the form of the library."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def describe(self) -> Iterable[Metric]:
        """No descriptions in advance."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield _metric(self._family)


def _metric(family: Family) -> Metric:
    if family.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        bounds = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
        for labels, counts, total in family.histograms:
            histogram.add_metric(labels, list(zip(bounds, accumulate(counts))), total)
        return histogram
    make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        metric.add_metric(labels, value)
    return metric
