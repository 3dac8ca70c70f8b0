"""What the contest's numbers say: readings into ratios, ratios against goals, both into a table and a document.

The rule: a ratio is Wakugumi against a rival *in the same round*, and the median of those ratios is what counts.
Absolute numbers come second, because they change with the machine and its other users. Pure: no clock, no files.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

Answer = dict[str, float]
UNITS = {"per_s": "jobs/s", "p50_ms": "p50, ms", "p99_ms": "p99, ms", "leader_cpu_us": "leader CPU, us/job"}
BIGGER_IS_BETTER = {"per_s"}
SLOW_SHARE = 6
VERDICT_HEADER = ("what", "value", "min..max", "goal", "verdict")
ABSOLUTE_HEADER = ("event", "contestant", "measure", "median", "min..max")
MISSING_HEADER = ("contestant", "why")
COUNTED = {"jobs", "seconds", "n"}  # part of an answer, no figure by itself


@dataclass(frozen=True)
class Goal:
    sense: Literal["at least", "at most"]
    limit: float

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.sense == "at least" else value <= self.limit

    def text(self, unit: str) -> str:
        return f"{'>=' if self.sense == 'at least' else '<='} {number(self.limit)}{unit}"


@dataclass(frozen=True)
class Event:
    """A discipline: the same turn for each of its contestants, in this order, every round.

    Those who are `slow` by nature get a sixth of the jobs: enough for a rate, and the run ends in time.
    """

    name: str
    title: str
    turn: Literal["throughput", "latency"]
    jobs: int
    quick_jobs: int
    entries: tuple[str, ...]
    slow: tuple[str, ...] = ()

    def jobs_for(self, entry: str, *, quick: bool) -> int:
        jobs = self.quick_jobs if quick else self.jobs
        return jobs // SLOW_SHARE if entry in self.slow else jobs


@dataclass(frozen=True)
class Ratio:
    """Wakugumi's `measure` divided by that of a rival, or by the best of several."""

    what: str
    event: str
    measure: str
    ours: str
    rivals: tuple[str, ...]
    goal: Goal | None = None


@dataclass(frozen=True)
class Figure:
    """A number of Wakugumi's own: what was told as `key` at the end, or the measure `key` of an entry in an event."""

    key: str
    what: str
    unit: str
    goal: Goal | None = None
    of: tuple[str, str] | None = None


@dataclass
class Results:
    """What was heard: readings by contestant, event and round, and why some are missing."""

    readings: dict[tuple[str, str], dict[int, Answer]] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    figures: Answer = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def record(self, entry: str, event: str, round_number: int, reading: Answer) -> None:
        self.readings.setdefault((entry, event), {})[round_number] = reading

    def by_round(self, entry: str, event: str, measure: str) -> dict[int, float]:
        rounds = self.readings.get((entry, event), {})
        return {round_number: reading[measure] for round_number, reading in rounds.items() if measure in reading}

    def values(self, figure: Figure) -> list[float]:
        """One per round, or the one that was told; none if nobody said."""
        if figure.of is not None:
            return list(self.by_round(*figure.of, figure.key).values())
        return [self.figures[figure.key]] if figure.key in self.figures else []


@dataclass(frozen=True)
class Contender:
    """A contestant as the reader meets it: what it does for a job, and what it does not."""

    title: str
    does: str


@dataclass(frozen=True)
class Row:
    what: str
    value: str
    spread: str
    goal: str
    verdict: str


def read(turn: str, asked: int, answer: Mapping[str, object]) -> Answer:
    """Turn an answer into a reading, or raise ValueError: a contestant that did less than asked has not won."""
    told = {key: float(value) for key, value in answer.items() if isinstance(value, int | float)}
    wanted = ("jobs", "seconds") if turn == "throughput" else ("p50_ms", "p99_ms", "n")
    for key in wanted:
        if not (math.isfinite(told.get(key, math.nan)) and told[key] > 0):
            raise ValueError(f"answered a {turn} turn without a positive {key!r}")
    reading = {key: value for key, value in told.items() if key not in COUNTED}
    if turn == "throughput":
        if told["jobs"] < asked:
            raise ValueError(f"did {told['jobs']:.0f} of {asked} jobs")
        reading["per_s"] = told["jobs"] / told["seconds"]
    return reading


def judge_ratio(ratio: Ratio, results: Results, titles: Mapping[str, str]) -> Row:
    goal = ratio.goal.text("x") if ratio.goal else "-"
    best = _best(ratio, results)
    what = f"{ratio.what}, against {titles[best]}" if best else f"{ratio.what}, against {_either(ratio.rivals, titles)}"
    if best is not None and len(ratio.rivals) > 1:
        what += " (the best)"
    ours = results.by_round(ratio.ours, ratio.event, ratio.measure)
    if best is None or not ours:
        lacking = [ratio.ours] if not ours else list(ratio.rivals)
        return Row(what, "-", "-", goal, f"not measured: no {_either(lacking, titles)}")
    theirs = results.by_round(best, ratio.event, ratio.measure)
    ratios = [ours[round_number] / theirs[round_number] for round_number in ours if round_number in theirs]
    if not ratios:
        return Row(what, "-", "-", goal, "not measured: no round in which both took part")
    value = median(ratios)
    return Row(what, f"{value:.2f}x", spread(ratios), goal, _verdict(ratio.goal, value))


def judge_figure(figure: Figure, results: Results) -> Row:
    values = results.values(figure)
    unit = f" {figure.unit}" if figure.unit else ""
    goal = figure.goal.text(unit) if figure.goal else "-"
    if not values:
        return Row(figure.what, "-", "-", goal, f"not measured: nobody told {figure.key}")
    value = median(values)
    among = spread(values) if figure.of else "-"
    return Row(figure.what, number(value) + unit, among, goal, _verdict(figure.goal, value))


def absolute_rows(events: Iterable[Event], results: Results, titles: Mapping[str, str]) -> list[list[str]]:
    """Event, contestant, measure, median and spread, for everything that was read."""
    rows: list[list[str]] = []
    for event in events:
        for entry in event.entries:
            rounds = results.readings.get((entry, event.name), {})
            measures = sorted({key for reading in rounds.values() for key in reading}, key=_measure_order)
            for measure in measures:
                values = list(results.by_round(entry, event.name, measure).values())
                unit = UNITS.get(measure, measure)
                rows.append([event.title, titles[entry], unit, number(median(values)), spread(values)])
    return rows


@dataclass(frozen=True)
class Report:
    """All that the terminal and the document show. `command` and `day` say how and when it was made."""

    title: str
    introduction: str
    command: str
    day: str
    rounds: int
    machine: Mapping[str, str]
    contenders: Mapping[str, Contender]
    events: Sequence[Event]
    ratios: Sequence[Ratio]
    figures: Sequence[Figure]
    results: Results
    notes: Sequence[str] = ()

    def for_terminal(self) -> str:
        parts = [
            f"{self.title}: median of {self._rounds()}; a ratio is Wakugumi / the other in the same round",
            plain_table(VERDICT_HEADER, self._verdicts()),
            "Absolute numbers (this machine, today)",
            plain_table(ABSOLUTE_HEADER, absolute_rows(self.events, self.results, self._titles())),
        ]
        if missing := self._missing():
            parts += ["Did not take part, or not all the way", plain_table(MISSING_HEADER, missing)]
        return "\n\n".join([*parts, *self.notes]) + "\n"

    def as_document(self) -> str:
        about = [[name, fact] for name, fact in self.machine.items()]
        about += [["Made", f"{self.day}, {self._rounds()}, by `{self.command}`"]]
        parts = [
            f"# {self.title}",
            self.introduction,
            "## Against the goals",
            markdown_table(VERDICT_HEADER, self._verdicts()),
            "## Absolute numbers",
            markdown_table(ABSOLUTE_HEADER, absolute_rows(self.events, self.results, self._titles())),
        ]
        if missing := self._missing():
            parts += ["## Did not take part, or not all the way", markdown_table(MISSING_HEADER, missing)]
        parts += [
            "## The contestants",
            markdown_table(("contestant", "versions", "what it does, and does not"), self._contenders()),
            "## The machine",
            markdown_table(("what", "value"), about),
            *self.notes,
        ]
        return "\n\n".join(parts) + "\n"

    def _titles(self) -> dict[str, str]:
        return {name: contender.title for name, contender in self.contenders.items()}

    def _rounds(self) -> str:
        return f"{self.rounds} round{'s' if self.rounds != 1 else ''}"

    def _verdicts(self) -> list[list[str]]:
        rows = [judge_ratio(ratio, self.results, self._titles()) for ratio in self.ratios]
        rows += [judge_figure(figure, self.results) for figure in self.figures]
        further = self.results.figures.keys() - {figure.key for figure in self.figures if figure.of is None}
        rows += [Row(key, number(self.results.figures[key]), "-", "-", "no goal") for key in sorted(further)]
        return [[row.what, row.value, row.spread, row.goal, row.verdict] for row in rows]

    def _missing(self) -> list[list[str]]:
        return [[self.contenders[name].title, reason] for name, reason in self.results.missing.items()]

    def _contenders(self) -> list[list[str]]:
        def versions(name: str) -> str:
            return ", ".join(" ".join(part) for part in self.results.versions.get(name, {}).items()) or "-"

        return [[contender.title, versions(name), contender.does] for name, contender in self.contenders.items()]


def plain_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns padded with spaces: readable in any terminal, log or mail."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def number(value: float) -> str:
    """Three significant digits at least, and thousands set apart: 0.37, 18.4, 20 633."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}".replace(",", " ")
    return text.rstrip("0").rstrip(".") if "." in text else text


def spread(values: Sequence[float]) -> str:
    return f"{number(min(values))}..{number(max(values))}"


def _best(ratio: Ratio, results: Results) -> str | None:
    medians = {
        rival: median(rounds.values())
        for rival in ratio.rivals
        if (rounds := results.by_round(rival, ratio.event, ratio.measure))
    }
    if not medians:
        return None
    choose = max if ratio.measure in BIGGER_IS_BETTER else min
    return choose(medians, key=medians.__getitem__)


def _either(names: Sequence[str], titles: Mapping[str, str]) -> str:
    return " or ".join(titles[name] for name in names)


def _verdict(goal: Goal | None, value: float) -> str:
    if goal is None:
        return "no goal"
    return "met" if goal.is_met_by(value) else "NOT MET"


def _measure_order(measure: str) -> tuple[int, str]:
    known = list(UNITS)
    return (known.index(measure) if measure in known else len(known), measure)
