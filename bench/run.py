"""`make bench`: who takes part, in what, for which goals, and the rounds themselves.

Every contestant is started once and stays up; a round gives each its turns one after the other (A B C A B C …), so that
whatever else the machine does hits all of them alike. The run is bounded in time: a contestant that hangs is ended, a
round that no longer fits is left out, and both are said.
"""

import argparse
import datetime
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from contest import START_LIMIT_S, Entry, Failed, Player, adopt_orphans, end_orphans, warm
from environment import ROOT, NoRivals, machine, pin_to_two_cpus, rivals_python
from report import Contender, Event, Figure, Goal, Ratio, Report, Results, number, read

DOCUMENT = ROOT / "docs" / "BENCHMARKS.md"
RUN_LIMIT_S = 570.0  # all of it, installation included: ten minutes with half a minute to end everyone
TURN_LIMIT_S = 60.0
FIGURES_LIMIT_S = 100.0  # 100 000 queued jobs and some starts of `waku`; kept back from the rounds
WARM_CPU_S = 0.2
WARM_SHARE = 20  # before each counted turn, one of this fraction of its jobs is taken and forgotten

ENTRIES = (
    Entry(
        "ours",
        "Wakugumi",
        "ours",
        "A leader with its queue in memory, a worker with two slots, a client. Each job gets its own directory, stdout "
        "and stderr are captured, what it wrote is zipped and returned, and its result is kept by the worker until the "
        "leader confirms it.",
        ours=True,
    ),
    Entry(
        "leader",
        "Wakugumi leader",
        "leader",
        "The leader alone: client and worker are processes that send and answer 200-byte jobs and run nothing.",
        ours=True,
    ),
    Entry(
        "hyperqueue",
        "HyperQueue",
        "rivals.hyperqueue",
        "By its Python API (the wheel holds no `hq` command): server and worker in one process, no journal, all jobs "
        "tasks of one submit. Each task gets its own directory, stdout and stderr go to files; nothing is zipped or "
        "returned. Its API looks for results once a second, we look every 1 to 10 ms. One by one it waits some 20 ms "
        "between two rounds of scheduling and some 40 ms for TCP's delayed acknowledgement, its worker's connection "
        "being without TCP_NODELAY.",
    ),
    Entry(
        "ray",
        "Ray",
        "rivals.ray",
        "`subprocess.run` in a task, two CPUs, no dashboard. Returns the exit code only: no directory, no capture, no "
        "ZIP; all state in memory. Even at rest it uses about 2 % of the two CPUs, in everybody's turns.",
    ),
    Entry(
        "celery",
        "Celery + Redis",
        "rivals.celery",
        "`subprocess.run` in a task, two prefork processes, broker and results in a Redis-compatible server (Valkey) "
        "without persistence. Returns the exit code only: no directory, no capture, no ZIP.",
    ),
    Entry(
        "gearmand",
        "Gearman",
        "rivals.gearmand",
        "The C job server and two of its C command-line workers, where they are installed. Returns stdout: no "
        "directory, no stderr, no ZIP; queue in memory.",
    ),
    Entry(
        "jetstream",
        "NATS JetStream",
        "rivals.jetstream",
        "Messages only: publish, pull, acknowledge, reply, from Python with uvloop, 2 000 in flight, fetched in "
        "batches, memory storage. Knows no programs, no credit, no fairness between clients.",
    ),
)

EVENTS = (
    Event("jobs", "whole /bin/true jobs", "throughput", 2000, 200, ("ours", "hyperqueue", "ray", "celery", "gearmand")),
    Event("single", "one at a time", "latency", 300, 30, ("ours", "hyperqueue", "ray", "celery", "gearmand")),
    Event("noop", "no-op jobs", "throughput", 60_000, 10_000, ("leader", "jetstream")),
)

RATIOS = (
    Ratio("whole jobs/s", "jobs", "per_s", "ours", ("hyperqueue",), Goal("at least", 2.0)),
    Ratio("whole jobs/s", "jobs", "per_s", "ours", ("ray",), Goal("at least", 1.0)),
    Ratio("whole jobs/s", "jobs", "per_s", "ours", ("celery",)),
    Ratio("whole jobs/s", "jobs", "per_s", "ours", ("gearmand",)),
    Ratio("one at a time, p50", "single", "p50_ms", "ours", ("ray", "celery", "hyperqueue"), Goal("at most", 0.75)),
    Ratio("one at a time, p99", "single", "p99_ms", "ours", ("celery",), Goal("at most", 1.0)),
    Ratio("one at a time, p50", "single", "p50_ms", "ours", ("gearmand",)),
    Ratio("no-op jobs/s", "noop", "per_s", "leader", ("jetstream",), Goal("at least", 2.5)),
)

FIGURES = (
    Figure("noop_per_s", "no-op jobs through the leader", "per s", Goal("at least", 60_000)),
    Figure("leader_cpu_us", "leader CPU per no-op job", "us", Goal("at most", 12)),
    Figure("leader_cpu_us_500_workers", "the same with 500 workers", "us", Goal("at most", 20)),
    Figure("queued_100k_mib", "memory for 100 000 queued jobs", "MiB", Goal("at most", 60)),
    Figure("waku_run_s", "`waku run` of /bin/true, from nothing", "s", Goal("at most", 0.4)),
    Figure("match_100k_us", "a subject matched against 100 000 patterns", "us", Goal("at most", 25)),
    Figure("match_ratio_100k_100", "that time, divided by that for 100 patterns", "", Goal("at most", 3)),
    Figure("join_ms", "a worker joins, with 100 000 patterns there", "ms", Goal("at most", 1)),
)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    started = time.monotonic()
    options = _options()
    entries = [entry for entry in ENTRIES if not options.only or entry.name in options.only]
    cpus = pin_to_two_cpus()
    facts = machine(cpus)
    contest = Contest(cpus, quick=options.quick, deadline=started + RUN_LIMIT_S)
    with _players(entries, contest.results) as players:
        rounds = contest.hold(players, 1 if options.quick else options.rounds)
    report = Report(
        command="make bench" if len(sys.argv) == 1 else f".venv/bin/python bench/run.py {' '.join(sys.argv[1:])}",
        day=datetime.datetime.now(datetime.UTC).date().isoformat(),
        rounds=rounds,
        machine=facts,
        contenders={entry.name: Contender(entry.title, entry.does) for entry in ENTRIES},
        events=EVENTS,
        ratios=RATIOS,
        figures=FIGURES,
        results=contest.results,
        notes=contest.notes,
    )
    print(report.for_terminal())
    if options.quick or options.only:
        _say(f"{DOCUMENT.relative_to(ROOT)} stays as it was: only a full run writes it")
    else:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(report.as_document())
        _say(f"wrote {DOCUMENT.relative_to(ROOT)}")


class Contest:
    """The rounds: whose turn it is, and what was heard."""

    def __init__(self, cpus: list[int], *, quick: bool, deadline: float) -> None:
        self.results = Results()
        self.notes: list[str] = []
        self._cpus = cpus
        self._quick = quick
        self._deadline = deadline

    def hold(self, players: dict[str, Player], rounds: int) -> int:
        """Hold the rounds, then ask for the single figures. Returns the number of rounds that were held."""
        held = 0
        while held < rounds:
            begun = time.monotonic()
            for event in EVENTS:
                self._hold_event(event, players, held + 1, rounds)
            held += 1
            left_s = self._left_s() - FIGURES_LIMIT_S
            if held < rounds and left_s < 1.2 * (time.monotonic() - begun):
                self.notes.append(f"Only {held} of {rounds} rounds: a run ends within ten minutes.")
                break
        for player in players.values():
            if player.entry.ours:
                self._ask_for_figures(player)
        if no_ops := self.results.by_round("leader", "noop", "per_s"):
            self.results.figures.setdefault("noop_per_s", median(no_ops.values()))
        return held

    def _hold_event(self, event: Event, players: dict[str, Player], round_number: int, rounds: int) -> None:
        jobs = event.quick_jobs if self._quick else event.jobs
        for name in event.entries:
            if name not in players:
                continue
            title = players[name].entry.title
            try:
                warm(self._cpus, WARM_CPU_S)
                self._turn(players[name], event, max(1, jobs // WARM_SHARE))
                reading = self._turn(players[name], event, jobs)
            except Failed as failure:
                self.results.missing[name] = f"{event.title}, round {round_number}: {failure}"
                _say(f"{title} failed: {failure}")
                if failure.ended:
                    players.pop(name).end()
            else:
                self.results.record(name, event.name, round_number, reading)
                heard = ", ".join(f"{key} {number(value)}" for key, value in reading.items())
                _say(f"round {round_number}/{rounds}  {event.title:22} {title:18} {heard}")

    def _turn(self, player: Player, event: Event, jobs: int) -> dict[str, float]:
        limit_s = min(TURN_LIMIT_S, self._left_s())
        if limit_s <= 0:
            raise Failed("no time left", ended=False)
        answer = player.ask(f"{event.turn} {jobs}", limit_s)
        try:
            return read(event.turn, jobs, answer)
        except ValueError as problem:
            raise Failed(str(problem), ended=False) from None

    def _ask_for_figures(self, player: Player) -> None:
        _say(f"figures of {player.entry.title} …")
        try:
            told = player.ask("figures", max(1.0, min(FIGURES_LIMIT_S, self._left_s())))
        except Failed as failure:
            self.notes.append(f"{player.entry.title} told no figures: {failure}")
            return
        self.results.figures |= {key: float(value) for key, value in told.items() if isinstance(value, int | float)}

    def _left_s(self) -> float:
        return self._deadline - time.monotonic()


@contextmanager
def _players(entries: list[Entry], results: Results) -> Iterator[dict[str, Player]]:
    """Start everyone who can take part; end everyone, and whatever they left behind, come what may."""
    adopt_orphans()
    players: dict[str, Player] = {}
    rivals = _python_of_rivals(entries)
    try:
        for entry in entries:
            try:
                _start(entry, Path(sys.executable) if entry.ours else rivals, players, results)
            except (Failed, NoRivals) as failure:
                results.missing[entry.name] = str(failure)
                _say(f"{entry.title} does not take part: {failure}")
                if entry.name in players:
                    players.pop(entry.name).end()
        yield players
    finally:
        for player in players.values():
            player.end()
        end_orphans()


def _python_of_rivals(entries: list[Entry]) -> Path | NoRivals:
    """Found once for all: a failed installation is not tried again for the next rival."""
    if all(entry.ours for entry in entries):
        return NoRivals("no rival takes part")
    try:
        return rivals_python()
    except NoRivals as reason:
        return reason


def _start(entry: Entry, python: Path | NoRivals, players: dict[str, Player], results: Results) -> None:
    if not entry.script.exists():
        raise Failed(f"{entry.script.relative_to(ROOT)} does not exist", ended=True)
    if isinstance(python, NoRivals):
        raise python
    _say(f"starting {entry.title} …")
    player = players[entry.name] = Player(entry, python)
    player.wait_until_ready(START_LIMIT_S)
    results.versions[entry.name] = player.versions


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one round with few jobs: does everything work?")
    parser.add_argument("--rounds", type=_positive, default=5, metavar="N", help="rounds to hold (default: 5)")
    names = [entry.name for entry in ENTRIES]
    help_text = f"let only this contestant take part; may be given again. One of {', '.join(names)}"
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=help_text)
    return parser.parse_args()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; every contestant was ended")
