"""Nothing is lost, in worlds that nobody has seen before; and the bugs of before are found again.

Fresh seeds for each state of the source, the same wherever that is tested: a failure prints its seed, how to see it
again, and its story. A seed that ever failed goes into `failed_seeds.txt`, with what it found. `make sim MINUTES=10`
and `make sim-mutants` are the long forms of this file.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.kinds import KINDS, kind_of
from tests.sim.mutants import MUTANTS, SEEDS_MAX, Mutant, source_of, world_of
from tests.sim.search import first_seed_that_finds, tell
from tests.sim.world import World

pytestmark = pytest.mark.timeout(600)
"""On a busy machine the worlds and the search for a planted bug take minutes; neither waits for anything."""

ROOT = Path(__file__).parents[2]
FRESH_SEEDS = 200


def fresh_seed() -> int:
    """Another one whenever the machines or their worlds change, so that what passes here passes in CI."""
    digest = hashlib.sha256()
    for folder in (ROOT / "src" / "wakugumi" / "core", ROOT / "tests" / "sim"):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    return 10**6 + int.from_bytes(digest.digest()[:8], "big") % 10**9


def failed_seeds() -> list[tuple[str, int]]:
    """Kinds and seeds."""
    lines = (Path(__file__).parent / "failed_seeds.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("#")[0].split() for line in lines]
    return [(row[0], int(row[1])) for row in rows if row]


@pytest.mark.spec("L3", "L4", "L6", "L7", "F9", "W4", "W7", "K5", "K6", "G2", "G3", "G5")
def test_nothing_is_lost_or_doubled_in_worlds_that_nobody_has_seen() -> None:
    first = fresh_seed()
    command = [sys.executable, "-m", "tests.sim", "--from", str(first), "--seeds", str(FRESH_SEEDS), "--processes", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, (
        f"a world broke; its seed and its story:\n{done.stdout[-20_000:]}{done.stderr[-5_000:]}"
    )


@pytest.mark.parametrize(("kind", "seed"), failed_seeds())
def test_a_seed_that_once_failed_is_a_good_world_now(kind: str, seed: int) -> None:
    story = tell(kind, seed)
    assert not story, "\n".join(story)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_is_the_same_world_in_every_process(kind: str) -> None:
    seed = "7"
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seed", seed, "--story", "--lines", "100000", "--kind", kind],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
        ).stdout.split("\nworlds of ")[0]
        for hash_seed in ("1", "2")
    ]
    assert len(told[0].splitlines()) > 100
    assert told[0] == told[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    assert source_of(mutant).count(mutant.old) == 1, "its text must stand in the source exactly once"
    assert first_seed_that_finds(mutant) is not None, f"{mutant.breaks}: no seed up to {SEEDS_MAX} finds it"


def test_a_mutant_leaves_the_real_core_alone() -> None:
    mutated = world_of(MUTANTS[0])
    assert mutated is not World
    assert sys.modules["tests.sim.world"].World is World


def test_every_kind_of_world_has_planted_bugs() -> None:
    assert {mutant.kind.name for mutant in MUTANTS} == set(KINDS)


def test_a_file_of_the_core_belongs_to_the_kind_that_knows_it_best() -> None:
    assert kind_of("leader/jobs/lifecycle").name == "leaders"
    assert kind_of("gateway/flights").name == "gateways"
    assert kind_of("leader/callers/session").name == "callers"
