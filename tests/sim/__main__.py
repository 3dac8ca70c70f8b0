"""Worlds by the thousand, from the command line: `python -m tests.sim --help`."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec
from tests.sim.kinds import KINDS
from tests.sim.report import table
from tests.sim.search import (
    Share,
    live_through,
    live_through_in_parallel,
    report_failures,
    search_for_mutants,
    search_in_parallel,
    sums_of,
    tell,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Simulates whole worlds, one per seed.")
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds (200)")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed (1)")
    parser.add_argument("--minutes", type=float, default=0.0, help="as many worlds as there is time for")
    parser.add_argument("--processes", type=int, default=1, help="how many at once (1)")
    parser.add_argument("--jobs-per-world", type=int, default=None, help="instead of what the seed says")
    parser.add_argument("--seed", type=int, default=None, help="this one world")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="only worlds of this kind (all kinds)")
    parser.add_argument("--story", action="store_true", help="with --seed: tell it even if nothing went wrong")
    parser.add_argument("--lines", type=int, default=60, help="how long a story is at most (60)")
    parser.add_argument(
        "--mutants", nargs="*", default=None, metavar="NAME", help="search for planted bugs, or those of a kind"
    )
    parser.add_argument("--pin", action="store_true", help="with --mutants: write the seeds that find them to a file")
    parser.add_argument("--share", default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.share is not None:
        done = live_through(msgspec.json.decode(asked.share, type=Share))
        sys.stdout.write(msgspec.json.encode(done).decode())
        return 0
    if asked.mutants is not None:
        if asked.processes > 1 and not asked.pin:
            return 1 if search_in_parallel(asked.mutants, asked.processes) else 0
        return 1 if search_for_mutants(asked.mutants, pin=asked.pin) else 0
    began_s = time.monotonic()
    kinds = asked.kind or list(KINDS)
    if asked.seed is not None:
        for kind in kinds:
            told = tell(kind, asked.seed, asked.jobs_per_world, asked.lines, always=asked.story)
            print("\n".join(told))
            if told and not asked.story:
                return 1
        asked.first, asked.seeds, asked.processes = asked.seed, 1, 1
    each = 10**9 if asked.minutes else -(-asked.seeds // asked.processes)
    shares = [
        Share(asked.first + number, asked.processes, each, asked.minutes, asked.jobs_per_world, kinds)
        for number in range(asked.processes)
    ]
    sums = sums_of(live_through_in_parallel(shares) if len(shares) > 1 else [live_through(shares[0])])
    print(table(sums, time.monotonic() - began_s, len(shares)))
    report_failures(sums, asked.jobs_per_world)
    return 1 if any(one.failed for one in sums.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
