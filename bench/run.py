"""`make bench`, `make bench-durable`, `make bench-before`: the rounds of a contest. `programme.py` has each as data.

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

from contest import START_LIMIT_S, Entry, Failed, Player, adopt_orphans, end_orphans, warm
from environment import ROOT, NoRivals, NotOnDisk, disk, machine, pin_to_two_cpus, rivals_python
from programme import DURABLE, RIVALS, Programme, before
from report import Contender, Event, Report, Results, number, read

RUN_LIMIT_S = 570.0  # all of it, installation included: ten minutes with half a minute to end everyone
TURN_LIMIT_S = 60.0
WARM_CPU_S = 0.2
WARM_SHARE = 20  # before each counted turn, one of this fraction of its jobs is taken and forgotten


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    started = time.monotonic()
    programme, options = _options()
    entries = [entry for entry in programme.entries if not options.only or entry.name in options.only]
    cpus = pin_to_two_cpus()
    facts = machine(cpus) | (disk(programme.folder) if programme.on_disk else {})
    for what, fact in facts.items():
        _say(f"{what}: {fact}")
    contest = Contest(programme, cpus, quick=options.quick, deadline=started + RUN_LIMIT_S)
    with _players(entries, programme.folder, contest.results) as players:
        rounds = contest.hold(players, 1 if options.quick else options.rounds)
    report = Report(
        title=programme.title,
        introduction=programme.introduction,
        command=_command(programme),
        day=datetime.datetime.now(datetime.UTC).date().isoformat(),
        rounds=rounds,
        machine=facts,
        contenders={entry.name: Contender(entry.title, entry.does) for entry in programme.entries},
        events=programme.events,
        ratios=programme.ratios,
        figures=programme.figures,
        results=contest.results,
        notes=contest.notes,
    )
    print(report.for_terminal())
    if programme.document is None:
        return
    document = programme.document.relative_to(ROOT)
    if options.quick or options.only:
        _say(f"{document} stays as it was: only a full run writes it")
    else:
        programme.document.parent.mkdir(exist_ok=True)
        programme.document.write_text(report.as_document())
        _say(f"wrote {document}")


class Contest:
    """The rounds: whose turn it is, and what was heard."""

    def __init__(self, programme: Programme, cpus: list[int], *, quick: bool, deadline: float) -> None:
        self.results = Results()
        self.notes: list[str] = []
        self._programme = programme
        self._cpus = cpus
        self._quick = quick
        self._deadline = deadline

    def hold(self, players: dict[str, Player], rounds: int) -> int:
        """Hold the rounds, then ask for the single figures. Returns the number of rounds that were held."""
        tellers = [player for player in players.values() if player.entry.tells_figures]
        held = 0
        while held < rounds:
            begun = time.monotonic()
            for event in self._programme.events:
                self._hold_event(event, players, held + 1, rounds)
            held += 1
            left_s = self._left_s() - self._programme.figures_limit_s
            if held < rounds and left_s < 1.2 * (time.monotonic() - begun):
                self.notes.append(f"Only {held} of {rounds} rounds: a run ends within ten minutes.")
                break
        for player in tellers:
            if player.entry.name in players:
                self._ask_for_figures(player)
        return held

    def _hold_event(self, event: Event, players: dict[str, Player], round_number: int, rounds: int) -> None:
        for name in event.entries:
            if name not in players:
                continue
            jobs = event.jobs_for(name, quick=self._quick)
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
                _say(f"round {round_number}/{rounds}  {event.title:22} {title:22} {heard}")

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
            told = player.ask("figures", max(1.0, min(self._programme.figures_limit_s, self._left_s())))
        except Failed as failure:
            self.notes.append(f"{player.entry.title} told no figures: {failure}")
            return
        self.results.figures |= {key: float(value) for key, value in told.items() if isinstance(value, int | float)}

    def _left_s(self) -> float:
        return self._deadline - time.monotonic()


@contextmanager
def _players(entries: list[Entry], folder: Path, results: Results) -> Iterator[dict[str, Player]]:
    """Start everyone who can take part; end everyone, and whatever they left behind, come what may."""
    adopt_orphans()
    players: dict[str, Player] = {}
    rivals = _python_of_rivals(entries)
    try:
        for entry in entries:
            try:
                python = entry.python or (Path(sys.executable) if entry.ours else rivals)
                _start(entry, python, folder, players, results)
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


def _start(entry: Entry, python: Path | NoRivals, folder: Path, players: dict[str, Player], results: Results) -> None:
    if not entry.script.exists():
        raise Failed(f"{entry.script.relative_to(ROOT)} does not exist", ended=True)
    if isinstance(python, NoRivals):
        raise python
    _say(f"starting {entry.title} …")
    player = players[entry.name] = Player(entry, python, folder)
    player.wait_until_ready(START_LIMIT_S)
    results.versions[entry.name] = player.versions


def _options() -> tuple[Programme, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--durable", action="store_true", help="what the journal costs, instead of the rivals in memory"
    )
    help_text = "this checkout against another one, whose `make setup` was run"
    parser.add_argument("--before", type=Path, metavar="FOLDER", help=help_text)
    parser.add_argument("--quick", action="store_true", help="one round with few jobs: does everything work?")
    parser.add_argument("--rounds", type=_positive, default=5, metavar="N", help="rounds to hold (default: 5)")
    help_text = "let only this contestant take part; may be given again"
    parser.add_argument("--only", action="append", metavar="NAME", help=help_text)
    options = parser.parse_args()
    programme = DURABLE if options.durable else RIVALS
    if options.before is not None:
        programme = before(options.before.resolve())
        if not (options.before / ".venv" / "bin" / "python").exists():
            parser.error(f"--before {options.before}: no .venv/bin/python there\nhint: run `make setup` in that folder")
    names = [entry.name for entry in programme.entries]
    if unknown := [name for name in options.only or () if name not in names]:
        parser.error(f"--only {unknown[0]}: not in this contest, whose contestants are {', '.join(names)}")
    return programme, options


def _command(programme: Programme) -> str:
    """What to type for the same run again."""
    words = sys.argv[1:]
    if words == (["--durable"] if programme is DURABLE else []):
        return programme.command
    return f".venv/bin/python bench/run.py {' '.join(words)}"


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
    except NotOnDisk as reason:
        sys.exit(str(reason))
