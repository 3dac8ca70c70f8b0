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
from tests.sim.mutants import MUTANTS, SEEDS_MAX, Mutant, source_of, world_of
from tests.sim.search import first_seed_that_finds, tell
from tests.sim.world import World

pytestmark = pytest.mark.timeout(600)
"""On a busy machine the worlds and the search for a planted bug take minutes; neither waits for anything."""

ROOT = Path(__file__).parents[2]
FRESH_SEEDS = 200
GATEWAY_SEEDS = (9, 33, 114, 148, 232, 318, 420, 584, 953)
"""A body that was never dropped, an answer that was read before its row was stored, a job that no flow handled after
its client had left, a conflict that was not told, and what the world itself had wrong."""


def fresh_seed() -> int:
    """Another one whenever the machines or their worlds change, so that what passes here passes in CI."""
    digest = hashlib.sha256()
    for folder in (ROOT / "src" / "wakugumi" / "core", ROOT / "tests" / "sim"):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    return 10**6 + int.from_bytes(digest.digest()[:8], "big") % 10**9


def failed_seeds() -> list[int]:
    lines = (Path(__file__).parent / "failed_seeds.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


@pytest.mark.spec("L3", "L4", "L6", "L7", "F9", "W4", "W7", "K5", "K6")
def test_nothing_is_lost_or_doubled_in_worlds_that_nobody_has_seen() -> None:
    first = fresh_seed()
    command = [sys.executable, "-m", "tests.sim", "--from", str(first), "--seeds", str(FRESH_SEEDS), "--processes", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, (
        f"a world broke; its seed and its story:\n{done.stdout[-20_000:]}{done.stderr[-5_000:]}"
    )


@pytest.mark.parametrize("seed", failed_seeds())
def test_a_seed_that_once_failed_is_a_good_world_now(seed: int) -> None:
    story = tell(seed)
    assert not story, "\n".join(story)


@pytest.mark.spec("G2", "G3", "G5", "L6")
@pytest.mark.parametrize("seed", GATEWAY_SEEDS)
def test_a_world_of_gateways_that_once_failed_is_a_good_world_now(seed: int) -> None:
    story = tell(seed, gateways=True)
    assert not story, "\n".join(story)


@pytest.mark.parametrize("kind", [(), ("--gateways",)], ids=["leaders", "gateways"])
def test_the_same_seed_is_the_same_world_in_every_process(kind: tuple[str, ...]) -> None:
    seed = "7"
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seed", seed, "--story", "--lines", "100000", *kind],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
        ).stdout.split("\nworlds ")[0]
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
