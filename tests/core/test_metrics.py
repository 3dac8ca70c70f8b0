"""Counters and timings make records; no stranger's word makes them grow without bound."""

from __future__ import annotations

from wakugumi.core.metrics import OTHERS, Buckets, Counter, Kind, Sample, Timing, counter, gauge, histogram


def test_a_counter_without_labels_is_told_before_anything_happened() -> None:
    came = Counter(counter("wakugumi_came_total", "what came"))
    assert came.family().samples == [Sample((), 0)]
    came.add()
    came.add(amount=3)
    assert came.family().samples == [Sample((), 4)]
    assert came.family().kind is Kind.COUNTER


def test_a_counter_tells_its_labels_apart() -> None:
    ended = Counter(counter("wakugumi_ended_total", "what ended", "group", "code"))
    for group, code in [("a", "0"), ("a", "1"), ("a", "0")]:
        ended.add(group, code)
    assert ended.family().labels == ("group", "code")
    assert ended.family().samples == [Sample(("a", "0"), 2), Sample(("a", "1"), 1)]


def test_what_comes_beyond_the_bound_is_counted_among_the_others() -> None:
    ended = Counter(counter("wakugumi_ended_total", "what ended", "code"), series_max=2)
    for code in ["1", "2", "3", "4", "1"]:
        ended.add(code)
    assert ended.family().samples == [Sample(("1",), 2), Sample(("2",), 1), Sample((OTHERS,), 2)]


def test_a_timing_puts_each_time_into_the_bucket_whose_bound_it_does_not_exceed() -> None:
    ran = Timing(histogram("wakugumi_run_seconds", "how long", bounds=(1, 2)))
    for seconds in (0.5, 1.0, 1.5, 7.0):
        ran.took(seconds)
    assert ran.family().histograms == [Buckets((), (2, 1, 1), 10.0)]
    assert ran.family().bounds == (1, 2)


def test_a_timing_is_bounded_too() -> None:
    ran = Timing(histogram("wakugumi_run_seconds", "how long", "program", bounds=(1,)), series_max=1)
    for program in ("a", "b", "c", "a"):
        ran.took(0.5, program)
    assert ran.family().histograms == [Buckets(("a",), (2, 0), 1.0), Buckets((OTHERS,), (2, 0), 1.0)]


def test_a_single_value_is_a_family_of_one() -> None:
    assert gauge("wakugumi_slots", "places").with_value(4).samples == (Sample((), 4),)
    assert counter("wakugumi_x_total", "x").with_value(4).kind is Kind.COUNTER
