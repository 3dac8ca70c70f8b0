"""Run many worlds: in one process or several, by number or by minutes, with the real core or a mutant.

Processes share the seeds by turns (the first takes every second one from the first, and so on), each reports one line
of JSON, and the sums are printed as one table. A seed that fails is run again here, with its story.
"""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from collections import Counter
from typing import Final

import msgspec
from tests.sim.checker import Broken, Counts
from tests.sim.gateways.world import GatewayWorld
from tests.sim.mutants import MUTANTS, SEEDS_MAX, Mutant, pin_seeds, pinned_seeds, world_of
from tests.sim.story import Story, show
from tests.sim.world import World

STORY_LINES: Final = 60
_TOLD_MAX: Final = 3


class Share(msgspec.Struct):
    """The worlds of one process, and what came of them."""

    first: int
    every: int
    seeds: int
    minutes: float = 0.0
    jobs: int | None = None
    counts: Counts = msgspec.field(default_factory=Counts)
    cpu_s: float = 0.0
    failed: dict[int, str] = {}
    gateway_counts: dict[str, int] = {}
    gateways_failed: dict[int, str] = {}


def live_through(share: Share) -> Share:
    """Every seed of the share, or as many as there is time for."""
    began_s = time.process_time()
    stop_at = time.monotonic() + 60 * share.minutes if share.minutes else float("inf")
    seed = share.first
    while seed < share.first + share.seeds * share.every and time.monotonic() < stop_at:
        world = World(seed, jobs=share.jobs)
        try:
            share.counts.add(world.run())
        except Exception as error:
            share.failed[seed] = what_of(error)
            if len(share.failed) >= 100:
                break
        try:
            for what, count in GatewayWorld(seed).run().items():
                share.gateway_counts[what] = share.gateway_counts.get(what, 0) + count
        except Exception as error:
            share.gateways_failed[seed] = what_of(error)
        seed += share.every
    share.cpu_s = time.process_time() - began_s
    return share


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


def tell(
    seed: int, jobs: int | None = None, lines: int = STORY_LINES, *, always: bool = False, gateways: bool = False
) -> list[str]:
    """The story of a seed that fails; of one that does not, too, if it is wanted."""
    world = GatewayWorld(seed, story=Story()) if gateways else World(seed, story=Story(), jobs=jobs)
    assert world.story is not None
    try:
        world.run()
    except Exception as error:
        job = error.job if isinstance(error, Broken) else None
        told = world.story.of(job, lines)
        if not isinstance(error, Broken):
            told += "".join(traceback.format_exception(error)).splitlines()
        about = "" if job is None else f" ({show(job)})"
        again = f"python -m tests.sim --gateways --seed {seed}" if gateways else replay_command(seed, jobs)
        return [*told, f"BROKEN: {what_of(error)}{about}", f"again: {again}"]
    return world.story.of(None, lines) if always else []


def replay_command(seed: int, jobs: int | None = None) -> str:
    return f"make sim SEED={seed}" if jobs is None else f"python -m tests.sim --seed {seed} --jobs-per-world {jobs}"


def first_seed_that_finds(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> tuple[int, str] | None:
    """A seed whose world breaks on this mutant and not without it: the pinned one, or the first."""
    world_type = world_of(mutant)
    pinned = pinned_seeds().get(mutant.name, 1)
    for seed in (pinned, *range(1, seeds_max + 1)):
        found = breaks(world_type, seed)
        if found and not breaks(mutant.world, seed):
            return seed, found
    return None


def breaks(world_type: type[World | GatewayWorld], seed: int) -> str:
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
    print(f"{'mutant':<34} {'seed':>5}  found as")
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue
        found = first_seed_that_finds(mutant)
        missed += found is None
        seed, what = found or ("-", f"NOT FOUND within {SEEDS_MAX} seeds")
        print(f"{mutant.name:<34} {seed:>5}  {what[:110]}", flush=True)
        if found is not None:
            seeds[mutant.name] = found[0]
    if pin:
        pin_seeds(seeds)
    return missed


def search_in_parallel(names: list[str], processes: int) -> int:
    """The same in several processes, which take turns. Returns how many of them missed something."""
    wanted = [mutant.name for mutant in MUTANTS if not names or mutant.name in names]
    command = [sys.executable, "-m", "tests.sim", "--mutants"]
    children = [subprocess.Popen([*command, *wanted[at::processes]]) for at in range(min(processes, len(wanted)))]
    return sum(child.wait() != 0 for child in children)


def table(shares: list[Share], wall_s: float) -> str:
    """What `python -m tests.sim` prints at the end."""
    counts = Counts()
    for share in shares:
        counts.add(share.counts)
    cpu_s = sum(share.cpu_s for share in shares) or 1e-9
    met = sum(counts.met.values())
    gateways_s = sum(share.gateway_counts.get("virtual seconds", 0) for share in shares)
    rows = [
        ("worlds", f"{counts.worlds:,}"),
        ("virtual hours", f"{counts.virtual_s / 3600:,.1f}"),
        ("× real time per core", f"{(counts.virtual_s + gateways_s) / cpu_s:,.0f}"),
        ("real seconds", f"{wall_s:.1f} on {len(shares)} process{'es' if len(shares) > 1 else ''}"),
        ("jobs", f"{counts.jobs:,} ({counts.jobs / cpu_s:,.0f}/s per core)"),
        ("submits attempted, accepted", f"{counts.attempted:,}, {counts.accepted:,}"),
        ("results delivered", f"{counts.finished:,}, of them after a death {counts.recovered:,}"),
        ("jobs cancelled", f"{counts.cancelled:,}"),
        ("not started by sick machines", f"{counts.turned_down:,}"),
        ("executions", f"{counts.executions:,}, of them again {sum(counts.again.values()):,}"),
        *((f"  because {why}", f"{count:,}") for why, count in _most(counts.again)),
        ("jobs adopted by another leader", f"{counts.adopted:,}"),
        ("results that came from two leaders", f"{counts.from_two_leaders:,}"),
        ("losers told to cancel", f"{counts.losers_told:,}"),
        ("endless programs left to a person", f"{counts.left_behind:,}"),
        ("other requests under a used id, refused, run", f"{counts.conflicts:,}, {counts.reused:,}"),
        ("old failures told to a new submit", f"{counts.stale:,}"),
        ("faults, of them met work in flight", f"{sum(counts.faults.values()):,}, {met:,}"),
        *((f"  {kind}", f"{count:,}, {counts.met.get(kind, 0):,}") for kind, count in _most(counts.faults)),
        *((f"  complaint: {text}", f"{count:,}") for text, count in _most(counts.complaints)),
        *_gateway_rows(shares),
        ("LOST", str(counts.lost)),
        ("DUPLICATED", str(counts.duplicated)),
        ("FAILED SEEDS", str(sum(len(share.failed) + len(share.gateways_failed) for share in shares))),
    ]
    return "\n".join(f"{name:<50} {value}" for name, value in rows)


def _gateway_rows(shares: list[Share]) -> list[tuple[str, str]]:
    counts: Counter[str] = Counter()
    for share in shares:
        counts.update(share.gateway_counts)
    return [
        ("worlds of gateways, virtual hours", f"{counts['worlds']:,}, {counts['virtual seconds'] / 3600:,.1f}"),
        *((f"  {what}", f"{count:,}") for what, count in _most(counts) if what not in {"worlds", "virtual seconds"}),
    ]


def report_failures(shares: list[Share], jobs: int | None) -> None:
    failed = {seed: what for share in shares for seed, what in share.failed.items()}
    for number, seed in enumerate(sorted(failed)):
        print(f"\nseed {seed}: {failed[seed]}")
        if number < _TOLD_MAX:
            print("\n".join(tell(seed, jobs)))
        else:
            print(f"again: {replay_command(seed, jobs)}")
    for share in shares:
        for seed, what in share.gateways_failed.items():
            print(f"\ngateways, seed {seed}: {what}")
            print("\n".join(tell(seed, gateways=True)))


def _most(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda row: -row[1])
