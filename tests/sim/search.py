"""Run many worlds: in one process or several, by number or by minutes, with the real core or a mutant.

Processes share the seeds by turns (the first takes every second one from the first, and so on), each reports one line
of JSON, and the sums are printed as tables (`report.py`). A seed that fails is run again here, with its story.
"""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from collections import Counter
from typing import Any, Final

import msgspec
from tests.sim.checker import BROKEN, Broken
from tests.sim.kinds import KINDS, SimWorld
from tests.sim.mutants import MUTANTS, SEEDS_MAX, Mutant, pin_seeds, pinned_seeds, world_of
from tests.sim.report import Sums, Told
from tests.sim.story import Story, show

STORY_LINES: Final = 60
_TOLD_MAX: Final = 3
_FAILED_MAX: Final = 100


class Share(msgspec.Struct):
    """The worlds of one process, and what came of them."""

    first: int
    every: int
    seeds: int
    minutes: float = 0.0
    jobs: int | None = None
    kinds: list[str] = []
    sums: dict[str, Sums] = {}


def live_through(share: Share) -> Share:
    """Every seed of the share, as a world of each kind, or as many as there is time for."""
    stop_at = time.monotonic() + 60 * share.minutes if share.minutes else float("inf")
    share.sums = {kind: Sums() for kind in share.kinds}
    seed = share.first
    while seed < share.first + share.seeds * share.every and time.monotonic() < stop_at:
        for kind, sums in share.sums.items():
            if len(sums.failed) < _FAILED_MAX:
                _live(kind, seed, share.jobs, sums)
        seed += share.every
    return share


def _live(kind: str, seed: int, jobs: int | None, sums: Sums) -> None:
    began_s = time.process_time()
    try:
        counts = Counter(sums.counts)
        counts.update(_world(kind, seed, jobs).run())
        sums.counts = dict(counts)
    except Exception as error:
        sums.failed[seed] = Told(error.sort if isinstance(error, Broken) else BROKEN, what_of(error))
    sums.cpu_s += time.process_time() - began_s


def _world(kind: str, seed: int, jobs: int | None = None, story: Story | None = None) -> SimWorld:
    """`jobs` are for leaders."""
    options: dict[str, Any] = {} if jobs is None or kind != "leaders" else {"jobs": jobs}
    return KINDS[kind].load()(seed, story=story, **options)


def what_of(error: Exception) -> str:
    """One line."""
    if isinstance(error, Broken):
        return error.what
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {at.name}, line {at.lineno}: {str(error) or at.line}"


def live_through_in_parallel(shares: list[Share]) -> list[Share]:
    encoder = msgspec.json.Encoder()
    command = [sys.executable, "-m", "tests.sim", "--share"]
    children = [
        subprocess.Popen([*command, encoder.encode(share).decode()], stdout=subprocess.PIPE) for share in shares
    ]
    done = []
    for child in children:
        out, _ = child.communicate()
        if child.returncode:
            raise RuntimeError(f"a process of the simulator ended with {child.returncode}")
        done.append(msgspec.json.decode(out, type=Share))
    return done


def tell(kind: str, seed: int, jobs: int | None = None, lines: int = STORY_LINES, *, always: bool = False) -> list[str]:
    """The story of a seed that fails; of one that does not, too, if it is wanted."""
    world = _world(kind, seed, jobs, Story())
    assert world.story is not None
    try:
        world.run()
    except Exception as error:
        job = error.job if isinstance(error, Broken) else None
        told = world.story.of(job, lines)
        if not isinstance(error, Broken):
            told += "".join(traceback.format_exception(error)).splitlines()
        about = "" if job is None else f" ({show(job)})"
        return [*told, f"BROKEN: {what_of(error)}{about}", f"again: {replay_command(kind, seed, jobs)}"]
    return world.story.of(None, lines) if always else []


def replay_command(kind: str, seed: int, jobs: int | None = None) -> str:
    if jobs is not None:
        return f"python -m tests.sim --kind {kind} --seed {seed} --jobs-per-world {jobs}"
    return f"make sim KIND={kind} SEED={seed}"


def first_seed_that_finds(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> tuple[int, str] | None:
    """A seed whose world breaks on this mutant and not without it: the pinned one, or the first."""
    world_type = world_of(mutant)
    pinned = pinned_seeds().get(mutant.name, 1)
    for seed in (pinned, *range(1, seeds_max + 1)):
        found = breaks(world_type, seed)
        if found and not breaks(mutant.kind.load(), seed):
            return seed, found
    return None


def breaks(world_type: type[SimWorld], seed: int) -> str:
    """What went wrong there; empty if nothing did."""
    try:
        world_type(seed).run()
    except Exception as error:
        # A mutant's world has its own Broken: its class is of fresh modules.
        return getattr(error, "what", "") or what_of(error)
    return ""


def search_for_mutants(names: list[str], *, pin: bool = False) -> int:
    """Prints one line for each. Returns how many were not found."""
    missed = 0
    seeds = {}
    print(f"{'mutant':<34} {'kind':<9} {'seed':>5}  found as")
    for mutant in _wanted(names):
        found = first_seed_that_finds(mutant)
        missed += found is None
        seed, what = found or ("-", f"NOT FOUND within {SEEDS_MAX} seeds")
        print(f"{mutant.name:<34} {mutant.kind.name:<9} {seed:>5}  {what[:110]}", flush=True)
        if found is not None:
            seeds[mutant.name] = found[0]
    if pin:
        pin_seeds(seeds)
    return missed


def search_in_parallel(names: list[str], processes: int) -> int:
    """The same in several processes, which take turns. Returns how many of them missed something."""
    wanted = [mutant.name for mutant in _wanted(names)]
    command = [sys.executable, "-m", "tests.sim", "--mutants"]
    children = [subprocess.Popen([*command, *wanted[at::processes]]) for at in range(min(processes, len(wanted)))]
    return sum(child.wait() != 0 for child in children)


def _wanted(names: list[str]) -> list[Mutant]:
    """Mutants of these names, or of these kinds of worlds; without any, all."""
    return [mutant for mutant in MUTANTS if not names or mutant.name in names or mutant.kind.name in names]


def sums_of(shares: list[Share]) -> dict[str, Sums]:
    """By the kind of world."""
    sums: dict[str, Sums] = {}
    for share in shares:
        for kind, one in share.sums.items():
            sums.setdefault(kind, Sums()).add(one)
    return sums


def report_failures(sums: dict[str, Sums], jobs: int | None) -> None:
    for kind, one in sums.items():
        for number, seed in enumerate(sorted(one.failed)):
            print(f"\n{kind}, seed {seed}: {one.failed[seed].what}")
            if number < _TOLD_MAX:
                print("\n".join(tell(kind, seed, jobs)))
            else:
                print(f"again: {replay_command(kind, seed, jobs)}")
