"""`waku drill`: are jobs lost when a process dies, at any time? Real processes are killed to find out. (SPEC O4)

    plan ─────────► fleet ─────────► marks ─────────► tally ─────────► table
    faults, from    leader, workers  what happened,   what became      and exit code 1 if
    one seed        and a client     by all of them   of every job     something is wrong

Each is a file beside this one. Here are the options, the loop that makes the faults happen, and the report. With
--groups the drill is that of tiers.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from cyclopts import Parameter

from wakugumi.app import EXIT_INTERRUPTED
from wakugumi.app.drill import marks as dm
from wakugumi.app.drill.client import Orders
from wakugumi.app.drill.fleet import CLIENT, KINDS, LEADER, Fleet, Member, State, grid_fleet
from wakugumi.app.drill.marks import DrillMark, Marks, now
from wakugumi.app.drill.plan import DrillOptions, Fault, ahead, plan
from wakugumi.app.drill.tally import OK, Count, count
from wakugumi.app.drill.tiers import TierCount, TierDrill
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Shown
from wakugumi.app.serve.guarded import guarded
from wakugumi.app.serve.tiers import GROUPS_MAX, NODES_MAX
from wakugumi.app.show.output import colour, duration, one, say, show, table_out
from wakugumi.app.show.progress import Tally, progress
from wakugumi.app.stoppable import Stopped, run
from wakugumi.errors import EXIT_JOB_FAILED, ConfigError
from wakugumi.limits.scheduling import CREDIT_MAX

N = TypeVar("N", int, float)

JOBS: Final = 500
WORKERS: Final = 3
SLOTS: Final = 4
NODES: Final = 2
TIMES: Final = 10
JOB_MS: Final = 20.0
AWAY_S: Final = 1.0
PATIENCE_S: Final = 120.0
"""Twice the time for which a restarted leader waits for the workers it knew."""
JOBS_MAX: Final = 1_000_000
WORKERS_MAX: Final = 100
LEADERS_MAX: Final = 10

_LOOK_EVERY_S: Final = 0.01
_STOPS_PER_KILL: Final = 0.2
_BY_SIGNAL: Final = 128
"""Exit codes from here on: the drill itself was killed, and did not clean up."""


class DrillReport(msgspec.Struct, frozen=True):
    """The answer with `-o json`."""

    passed: bool
    wrong: list[str]
    seed: int | msgspec.UnsetType
    """Unset for groups, whose faults come in a fixed order."""
    folder: str
    count: Count | TierCount


@with_settings
def drill(
    *,
    jobs: Annotated[int, Parameter(help="Number of jobs.")] = JOBS,
    leaders: Annotated[int, Parameter(help="Number of leaders; the client has all of them.")] = 1,
    workers: Annotated[int, Parameter(help="Number of workers, dealt out to the leaders in turn.")] = WORKERS,
    slots: Annotated[int, Parameter(help="Jobs that each worker runs at once.")] = SLOTS,
    kill: Annotated[str, Parameter(help="Kinds to kill: any of leader, worker, client.")] = ",".join(KINDS),
    times: Annotated[int, Parameter(help="Number of kills, all kinds together.")] = TIMES,
    stops: Annotated[
        int | None,
        Parameter(help="Number of pauses of one process. [default: a fifth of --times]"),
    ] = None,
    freeze: Annotated[
        float,
        Parameter(help="Seconds for which one of several leaders is stopped half-way, as if it were cut off."),
    ] = 0.0,
    away: Annotated[float, Parameter(help="Seconds after which the killed are back, at most.")] = AWAY_S,
    job_ms: Annotated[float, Parameter(help="Milliseconds that each program takes, give or take half.")] = JOB_MS,
    seed: Annotated[int | None, Parameter(help="Seed of the plan, to repeat a drill. [default: a new one]")] = None,
    patience: Annotated[float, Parameter(help="Seconds without any result after which it is given up.")] = PATIENCE_S,
    keep: Annotated[
        bool, Parameter(negative="", show_default=False, help="Keep the folder with marks and logs.")
    ] = False,
    groups: Annotated[
        int,
        Parameter(
            help="Number of groups behind a gateway: a node, a leader, a whole group and the gateway are killed then. "
            "Of the other options --jobs, --slots, --away, --job-ms, --patience and --keep count."
        ),
    ] = 0,
    nodes: Annotated[int, Parameter(help="Nodes of each group.")] = NODES,
    leader_memory: Annotated[
        bool, Parameter(negative="", show_default=False, help="Keep no journal, to see what is lost then.")
    ] = False,
    asking: Shown,
) -> int:
    """waku drill [--jobs N] [--workers W] [--kill KINDS] [--times K] [--seed S] [OPTIONS]

    Real processes on this machine, in a folder of their own: a leader, workers, and a client whose jobs leave a mark
    each time their program begins and ends. Each of them is killed (SIGKILL) or stopped for a while, at random from one
    seed, and brought back; the kills are spread over the jobs. Then the marks are counted: every accepted job must be
    finished, once in the eyes of the client, and a program may run again only if its worker was killed while it ran
    there.

    Exit code 1 if anything was lost, delivered twice, or run again without need, or if there were fewer kills than
    asked for; the folder is kept then, and named.

    With --groups it is a gateway with groups and nodes, reached by HTTP: a node, a leader, a whole group and the
    gateway are killed in turn while jobs are sent, and every job must be answered, the same when it is asked for again.

    Examples:
      waku drill
      waku drill --jobs 5000 --kill leader --times 50
      waku drill --jobs 5000 --kill worker,client --times 50 --seed 7 --keep
      waku drill --groups 2 --nodes 2 --jobs 1000
      waku drill --leader-memory --kill leader      what a leader without a journal loses
    """
    if sys.platform != "linux":
        raise ConfigError("a drill needs Linux: it finds and stops processes through /proc")
    wanted = DrillOptions(
        jobs=_within("jobs", jobs, 1, JOBS_MAX),
        leaders=_within("leaders", leaders, 1, LEADERS_MAX),
        workers=_within("workers", workers, leaders, WORKERS_MAX),
        slots=_within("slots", slots, 1, CREDIT_MAX),
        kinds=_kinds(kill),
        times=_within("times", times, 0, JOBS_MAX),
        stops=_within("stops", round(_STOPS_PER_KILL * times) if stops is None else stops, 0, JOBS_MAX),
        freeze_s=_within("freeze", freeze, 0.0, 3600.0),
        away_s=_within("away", away, 0.0, 3600.0),
        job_ms=_within("job-ms", job_ms, 0.0, 3_600_000.0),
        seed=random.SystemRandom().randrange(1_000_000) if seed is None else _within("seed", seed, 0, 2**63 - 1),
        patience_s=_within("patience", patience, 1.0, 86_400.0),
        keep=keep,
        memory=leader_memory,
        output=asking.output,
        groups=_within("groups", groups, 2 if groups else 0, GROUPS_MAX),
        nodes=_within("nodes", nodes, 1, NODES_MAX),
    )
    if freeze and leaders == 1:
        raise ConfigError("--freeze needs --leaders 2 or more: with one, nobody is left to go on meanwhile")
    folder = Path(tempfile.mkdtemp(prefix="waku-drill-"))
    code = guarded(lambda: _in_folder(wanted, folder))
    if code >= _BY_SIGNAL and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _in_folder(wanted: DrillOptions, folder: Path) -> int:
    kept = True
    try:
        passed = _passes(wanted, folder)
        kept = wanted.keep or not passed
        return 0 if passed else EXIT_JOB_FAILED
    except Stopped:
        kept = wanted.keep
        say("stopped: all that the drill had started has ended")
        return EXIT_INTERRUPTED
    finally:
        if kept:
            say(f"marks, logs and the leader's state are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _passes(wanted: DrillOptions, folder: Path) -> bool:
    """Run the drill, and show its outcome. Raises Stopped."""
    found = run(TierDrill(wanted, folder).run()) if wanted.groups else _Drill(wanted, folder).found()
    wrong = found.wrong
    seed = msgspec.UNSET if wanted.groups else wanted.seed
    report = DrillReport(not wrong, wrong, seed, str(folder) if wanted.keep or wrong else "", found)
    titles = ("what", "#number", "meaning")
    show(wanted.output, report, [str(number) for number in found.lost], lambda: table_out(titles, found.rows()))
    say()
    for sentence in found.notes:
        say(colour("note:", "yellow"), sentence)
    for sentence in wrong:
        say(colour("wrong:", "red"), sentence)
    if not wrong:
        say("passed: nothing was lost, and nothing ran twice without need")
    return not wrong


class _Drill:
    """One run: the faults still to come, and the marks so far."""

    def __init__(self, wanted: DrillOptions, folder: Path) -> None:
        self._wanted = wanted
        self._folder = folder
        self._chance = random.Random(wanted.seed)
        self._faults = plan(wanted, self._chance)
        self._seen: list[DrillMark] = []
        self._done: set[int] = set()
        self._open: set[int] = set()
        """Accepted, and not finished."""
        self._allowed = 0
        self._last_at = now()
        """Time of the last result or fault."""
        self._struck: Counter[str] = Counter()
        self._frozen_until = 0.0

    def found(self) -> Count:
        """Run it, and count. Raises Stopped."""
        wanted = self._wanted
        say(
            f"{one(wanted.jobs, 'job')} on {one(wanted.workers, 'worker')} with {one(wanted.slots, 'slot')} each"
            f"{'' if wanted.leaders == 1 else f', of {wanted.leaders} leaders'}; "
            f"{one(wanted.times, 'kill')} of {', '.join(wanted.kinds)} and {one(wanted.stops, 'stop')}; "
            f"repeat it with --seed {wanted.seed}"
        )
        run(self._run())
        return count(self._seen, wanted.jobs, wanted.times, wanted.leaders)

    async def _run(self) -> None:
        wanted = self._wanted
        path = self._folder / "marks"
        marks = Marks(path)
        dm.write_program(self._folder, path)
        tally = Tally(wanted.jobs)
        fleet = grid_fleet(
            self._folder,
            marks,
            wanted.leaders,
            wanted.workers,
            wanted.slots,
            self._orders(path),
            memory=wanted.memory,
        )
        drawn = progress(tally)
        try:
            (client,) = fleet.of(CLIENT)
            while client.state is not State.ENDED:
                fleet.look()
                self._take(marks.new(), tally)
                self._strike(fleet, drawn.say)
                self._allow(marks)
                drawn.show()
                if now() - self._last_at > wanted.patience_s:
                    drawn.say(f"given up: no result for {duration(wanted.patience_s)}")
                    break
                await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            drawn.close()
            fleet.end()
            self._take(marks.new(), tally)
            marks.close()

    def _orders(self, marks: Path) -> Orders:
        wanted = self._wanted
        cap = max(64, wanted.workers * wanted.slots)
        return Orders("", os.fspath(marks), wanted.jobs, wanted.job_ms, wanted.seed, cap)

    def _take(self, marks: Sequence[DrillMark], tally: Tally) -> None:
        self._seen += marks
        for mark in marks:
            if mark.what == dm.ACCEPTED and mark.job not in self._done:
                self._open.add(mark.job)
            elif mark.what == dm.RESULT and mark.job not in self._done:
                self._done.add(mark.job)
                self._open.discard(mark.job)
                tally.add(ok=mark.rest == OK)
                self._last_at = mark.at

    def _strike(self, fleet: Fleet, tell: Callable[[str], None]) -> None:
        """Make the next fault happen that is due, meets work and has a target. One without a target delays no other."""
        if not self._open and len(self._done) < self._wanted.jobs - 1:
            return
        time = now()
        if time < self._frozen_until:
            return
        for fault in self._faults:
            if len(self._done) < fault.after:
                return
            targets = [
                member
                for member in fleet.of(fault.kind)
                if member.state is State.RUNS and time - member.started_at >= fault.alive_s
            ]
            if targets:
                self._faults.remove(fault)
                # Leaders come in turn, so that each of several is struck.
                fewest = min(self._struck[member.name] for member in targets)
                in_turn = [member for member in targets if self._struck[member.name] == fewest]
                target = self._chance.choice(in_turn if fault.kind == LEADER else targets)
                self._struck[target.name] += 1
                self._do(fault, target, time, tell)
                return

    def _allow(self, marks: Marks) -> None:
        """Allow more jobs. The last job waits for the last fault; if all allowed jobs are done, a fault needs
        more to meet; while a leader is frozen, the others get all the work that they can do."""
        allowed = self._wanted.jobs
        if self._faults:
            most = self._faults[0].after + ahead(self._wanted)
            if now() < self._frozen_until:
                most = max(most, len(self._done) + ahead(self._wanted))
            elif not self._open:
                most = max(most, len(self._done) + self._wanted.slots)
            allowed = max(self._allowed, min(allowed - 1, most))
        if allowed != self._allowed:
            self._allowed = allowed
            marks.put(dm.ALLOW, dm.DRILL, allowed)

    def _do(self, fault: Fault, target: Member, time: float, tell: Callable[[str], None]) -> None:
        if fault.kill:
            target.kill(fault.away_s, guardian=fault.guardian)
        else:
            target.stop(fault.away_s, time, freeze=fault.freeze)
            if fault.freeze:
                self._frozen_until = time + fault.away_s
        self._last_at = time
        what = ("killed the guardian of" if fault.guardian else "killed") if fault.kill else "stopped"
        since = duration(time - self._seen[0].at)
        tell(f"{since}: {what} {target.life} for {fault.away_s:.2f} s; {one(len(self._done), 'job')} finished")


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(word for word in KINDS if word in text.split(","))
    unknown = [word for word in text.split(",") if word not in KINDS]
    if unknown:
        raise ConfigError(
            f"--kill names {unknown[0]!r}, which is none of {', '.join(KINDS)}", "write: --kill leader,worker"
        )
    return kinds


def _within(name: str, value: N, least: N, most: N) -> N:
    if not least <= value <= most:
        raise ConfigError(f"--{name} is {value:,.10g}, and must be {least:,.10g} to {most:,.10g}")
    return value
