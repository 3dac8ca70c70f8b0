"""What the contest concludes from its numbers: above all that it never claims a goal on numbers that are not there."""

import pytest

from report import (
    Contender,
    Event,
    Figure,
    Goal,
    Ratio,
    Report,
    Results,
    absolute_rows,
    judge_figure,
    judge_ratio,
    markdown_table,
    number,
    plain_table,
    read,
)

TITLES = {"ours": "Wakugumi", "slow": "Slow & Sons", "fast": "Fast"}
FASTER = Ratio("jobs/s", "jobs", "per_s", "ours", ("slow",), Goal("at least", 2.0))
SOONER = Ratio("p50", "single", "p50_ms", "ours", ("slow", "fast"), Goal("at most", 0.75))


def results_with(event: str, measure: str, **by_entry: list[float]) -> Results:
    results = Results()
    for entry, values in by_entry.items():
        for round_number, value in enumerate(values, start=1):
            results.record(entry, event, round_number, {measure: value})
    return results


def test_a_ratio_is_taken_within_each_round_and_its_median_counts() -> None:
    # The machine was slow for both in the second round. The medians alone, 200 and 100, would say 2.
    results = results_with("jobs", "per_s", ours=[200.0, 30.0, 400.0], slow=[100.0, 10.0, 100.0])
    row = judge_ratio(FASTER, results, TITLES)
    assert (row.value, row.spread, row.goal, row.verdict) == ("3.00x", "2..4", ">= 2x", "met")


def test_rounds_in_which_only_one_took_part_do_not_count() -> None:
    results = results_with("jobs", "per_s", ours=[150.0, 9_000.0], slow=[100.0])
    row = judge_ratio(FASTER, results, TITLES)
    assert (row.value, row.verdict) == ("1.50x", "NOT MET")


def test_with_no_round_in_common_nothing_is_claimed() -> None:
    results = Results()
    results.record("ours", "jobs", 1, {"per_s": 900.0})
    results.record("slow", "jobs", 2, {"per_s": 1.0})
    row = judge_ratio(FASTER, results, TITLES)
    assert (row.value, row.verdict) == ("-", "not measured: no round in which both took part")


def test_of_several_rivals_the_one_with_the_lowest_time_is_the_one_to_beat() -> None:
    results = results_with("single", "p50_ms", ours=[1.6], slow=[64.0], fast=[2.0])
    row = judge_ratio(SOONER, results, TITLES)
    assert (row.what, row.value, row.verdict) == ("p50, against Fast (the best)", "0.80x", "NOT MET")


def test_of_several_rivals_the_one_with_the_highest_rate_is_the_one_to_beat() -> None:
    both = Ratio("jobs/s", "jobs", "per_s", "ours", ("slow", "fast"))
    row = judge_ratio(both, results_with("jobs", "per_s", ours=[500.0], slow=[100.0], fast=[1000.0]), TITLES)
    assert (row.what, row.value, row.verdict) == ("jobs/s, against Fast (the best)", "0.50x", "no goal")


@pytest.mark.parametrize(
    ("present", "verdict"),
    [({"slow": [1.0]}, "not measured: no Wakugumi"), ({"ours": [1.0]}, "not measured: no Slow & Sons")],
)
def test_who_is_missing_is_said_instead_of_a_ratio(present: dict[str, list[float]], verdict: str) -> None:
    assert judge_ratio(FASTER, results_with("jobs", "per_s", **present), TITLES).verdict == verdict


@pytest.mark.parametrize(
    ("sense", "value", "met"),
    [("at least", 2.0, True), ("at least", 1.99, False), ("at most", 2.0, True), ("at most", 2.01, False)],
)
def test_a_goal_is_met_at_its_limit_and_not_beyond(sense: str, value: float, met: bool) -> None:
    assert Goal("at least" if sense == "at least" else "at most", 2.0).is_met_by(value) is met


def test_a_figure_is_what_was_told() -> None:
    figure = Figure("restart_s", "restart", "s", Goal("at most", 10))
    results = results_with("noop", "restart_s", leader=[3.0])
    results.figures["restart_s"] = 11.5
    row = judge_figure(figure, results)
    assert (row.value, row.spread, row.goal, row.verdict) == ("11.5 s", "-", "<= 10 s", "NOT MET")


def test_a_figure_of_an_entry_is_the_median_of_its_own_rounds_and_of_nobody_elses() -> None:
    figure = Figure("leader_cpu_us", "leader CPU", "us", Goal("at most", 13), of=("durable", "noop"))
    results = results_with("noop", "leader_cpu_us", durable=[10.0, 14.0, 13.0], memory=[5.0, 5.0, 5.0])
    results.figures["leader_cpu_us"] = 99.0
    row = judge_figure(figure, results)
    assert (row.value, row.spread, row.verdict) == ("13 us", "10..14", "met")
    del results.readings["durable", "noop"]
    assert judge_figure(figure, results).verdict == "not measured: nobody told leader_cpu_us"


def test_a_figure_without_a_goal_is_never_met() -> None:
    results = Results(figures={"peak_mib": 300.0})
    row = judge_figure(Figure("peak_mib", "peak", "MiB"), results)
    assert (row.value, row.goal, row.verdict) == ("300 MiB", "-", "no goal")


def test_a_figure_that_nobody_told_is_not_met_by_silence() -> None:
    row = judge_figure(Figure("waku_run_s", "waku run", "s", Goal("at most", 0.4)), Results())
    assert (row.value, row.goal, row.verdict) == ("-", "<= 0.4 s", "not measured: nobody told waku_run_s")


def test_a_throughput_answer_becomes_a_rate_and_keeps_its_further_numbers() -> None:
    answer = {"jobs": 2000, "seconds": 4, "leader_cpu_us": 9.5, "comment": "fine"}
    assert read("throughput", 2000, answer) == {"per_s": 500.0, "leader_cpu_us": 9.5}


def test_a_latency_answer_keeps_its_percentiles() -> None:
    assert read("latency", 300, {"p50_ms": 2, "p99_ms": 7.5, "n": 80}) == {"p50_ms": 2.0, "p99_ms": 7.5}


@pytest.mark.parametrize(
    ("turn", "answer", "reason"),
    [
        ("throughput", {"jobs": 1999, "seconds": 1}, "did 1999 of 2000 jobs"),
        ("throughput", {"jobs": 2000}, "without a positive 'seconds'"),
        ("throughput", {"jobs": 2000, "seconds": 0}, "without a positive 'seconds'"),
        ("throughput", {"jobs": 2000, "seconds": float("inf")}, "without a positive 'seconds'"),
        ("latency", {"p50_ms": 1.0, "n": 5}, "without a positive 'p99_ms'"),
        ("latency", {"p50_ms": float("nan"), "p99_ms": 1.0, "n": 5}, "without a positive 'p50_ms'"),
    ],
)
def test_an_answer_that_proves_less_than_was_asked_is_refused(
    turn: str, answer: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        read(turn, 2000, answer)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.3712, "0.371"), (2.0, "2"), (2.5, "2.5"), (18.44, "18.4"), (485.3, "485"), (20_633.4, "20 633")],
)
def test_numbers_have_three_digits_and_spaces_between_thousands(value: float, text: str) -> None:
    assert number(value) == text


def test_the_slow_get_fewer_jobs_and_all_get_few_when_it_has_to_be_quick() -> None:
    event = Event("noop", "no-op jobs", "throughput", 60_000, 600, ("ours", "slow"), slow=("slow",))
    assert [event.jobs_for(name, quick=False) for name in event.entries] == [60_000, 10_000]
    assert [event.jobs_for(name, quick=True) for name in event.entries] == [600, 100]


def test_absolute_numbers_are_medians_with_their_spread_in_the_order_of_the_events() -> None:
    event = Event("single", "one at a time", "latency", 300, 30, ("ours", "slow"))
    results = results_with("single", "p99_ms", slow=[70.0, 66.0, 90.0])
    for round_number, p50 in enumerate([64.0, 63.0, 65.0], start=1):
        results.readings["slow", "single"][round_number]["p50_ms"] = p50
    assert absolute_rows([event], results, TITLES) == [
        ["one at a time", "Slow & Sons", "p50, ms", "64", "63..65"],
        ["one at a time", "Slow & Sons", "p99, ms", "70", "66..90"],
    ]


def test_a_plain_table_lines_up_without_trailing_spaces() -> None:
    assert plain_table(("a", "bb"), [("long", "x")]) == "a     bb\n----  --\nlong  x"


def test_a_bar_in_a_cell_does_not_break_the_markdown_table() -> None:
    assert markdown_table(("a",), [("x|y",)]) == "| a |\n| --- |\n| x\\|y |"


@pytest.fixture
def report() -> Report:
    results = results_with("jobs", "per_s", ours=[900.0], slow=[300.0])
    results.versions["slow"] = {"Slow": "1.2", "Store": "3"}
    results.missing["fast"] = "not installed"
    return Report(
        title="Benchmarks of abaci",
        introduction="How they count.",
        command="make bench",
        day="2030-01-02",
        rounds=1,
        machine={"CPU": "Abacus 2"},
        contenders={name: Contender(title, f"what {title} does") for name, title in TITLES.items()},
        events=[Event("jobs", "whole jobs", "throughput", 2000, 200, ("ours", "slow", "fast"))],
        ratios=[FASTER, SOONER],
        figures=[Figure("waku_run_s", "waku run", "s", Goal("at most", 0.4))],
        results=results,
        notes=["Only 1 of 5 rounds."],
    )


def test_the_document_says_what_how_where_and_who_was_missing(report: Report) -> None:
    lines = report.as_document().splitlines()
    assert lines[:3] == ["# Benchmarks of abaci", "", "How they count."]
    assert "| jobs/s, against Slow & Sons | 3.00x | 3..3 | >= 2x | met |" in lines
    assert "| whole jobs | Slow & Sons | jobs/s | 300 | 300..300 |" in lines
    assert "| Fast | not installed |" in lines
    assert "| Slow & Sons | Slow 1.2, Store 3 | what Slow & Sons does |" in lines
    assert "| CPU | Abacus 2 |" in lines
    assert "| Made | 2030-01-02, 1 round, by `make bench` |" in lines
    assert lines[-1] == "Only 1 of 5 rounds."


def test_a_figure_that_nobody_asked_for_is_shown_all_the_same(report: Report) -> None:
    report.results.figures["restart_s"] = 0.25
    assert "| restart_s | 0.25 | - | - | no goal |" in report.as_document().splitlines()


def test_the_terminal_shows_the_same_verdicts_and_whatever_is_missing(report: Report) -> None:
    text = report.for_terminal()
    assert text.startswith("Benchmarks of abaci: median of 1 round;")
    assert any(line.startswith("jobs/s, against Slow & Sons") and line.endswith("met") for line in text.splitlines())
    assert "p50, against Slow & Sons or Fast" in text
    assert "not measured: nobody told waku_run_s" in text
    assert "Fast        not installed" in text
    assert "\x1b" not in text
