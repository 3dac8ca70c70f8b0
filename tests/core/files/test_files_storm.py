"""Does the files machine weather everything, and would we notice if it did not? Planted bugs, each found by a seed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from tests.kit.files_storm import Storm

import wakugumi.core.files
from wakugumi.core.files.machine import FileDistribution

FILES = Path(wakugumi.core.files.__file__).parent
PARTS = (
    *("timers", "trust", "put_summary", "blob_records", "source_choice", "sources"),
    *("catalogue", "worker_caches", "placement", "machine"),
)
SEEDS_MAX = 60


class Mutant(NamedTuple):
    """A text of the core that stands there exactly once, and what stands there instead."""

    name: str
    file: str
    old: str
    new: str
    seed: int = 1
    """The first that is tried, because it found it when the core was as it is: the rarest of them takes many."""


MUTANTS = (
    Mutant("fetchers-that-leave-keep-their-source", "source_choice", "source.uploads -= 1", "del source"),
    Mutant("liars-are-asked-again", "trust", " and all(about != sha256 for about, _ in lies)", ""),
    Mutant(
        "lies-are-not-counted",
        "trust",
        "            lies.setdefault((sha256, accuser), now)",
        "            lies.setdefault((sha256[:0], accuser), now)",
    ),
    Mutant(
        "who-gives-up-keeps-its-source",
        "sources",
        "        if want is not None:\n            self._end(want)\n",
        "        del want\n",
        seed=40,
    ),
    Mutant(
        "one-worker-is-given-everything",
        "sources",
        "            if want.peer.fetching >= FETCHES_MAX:\n",
        "            if want.peer.fetching >= 99:\n",
    ),
    Mutant("one-accuser-is-enough", "trust", " and len({accuser for _, accuser in lies}) >= ACCUSERS_MIN", "", seed=14),
    Mutant("uploads-without-bound", "source_choice", "uploads < self._uploads_max", "uploads < 9"),
    Mutant(
        "the-leader-gives-any-number",
        "source_choice",
        "not usable and want.blob.copies < LEADER_COPIES_MAX",
        "not usable and want.blob.copies < 99",
    ),
    Mutant(
        "who-rests-rests-for-ever",
        "source_choice",
        "now + SOURCE_REST_S\n",
        "now + 1e9\n            want.here = False\n",
    ),
    Mutant(
        "what-is-gone-is-still-offered",
        "sources",
        "        for sha256 in event.gone:\n            self._lose(peer, sha256)\n",
        "",
    ),
    Mutant(
        "a-busy-source-is-never-asked-again", "sources", "want.not_before = now + _BUSY_S", "want.not_before = 1e12"
    ),
    Mutant(
        "names-added-meanwhile-are-forgotten",
        "placement",
        "        self._set_has(target, event.cache_id, told.names)\n",
        "        self._set_has(target, event.cache_id, cache.names)\n",
        seed=54,
    ),
    Mutant(
        "who-joins-later-gets-nothing",
        "placement",
        "        if event.whole or not target.stocked:\n            target.stocked = True\n"
        "            self._warm(target, now, out)\n",
        "        target.stocked = True\n",
    ),
    Mutant("content-with-less", "put_summary", "ceil(event.share * sent)", "ceil(event.share * sent) // 2"),
    Mutant(
        "a-drop-is-not-kept", "catalogue", "        out.keep.append(DropCache(cache.cache_id))\n", "        del out\n"
    ),
    Mutant(
        "what-differs-is-called-the-same",
        "catalogue",
        "elif (old.sha256, old.size) != (file.sha256, file.size):",
        "elif False:",
    ),
    Mutant(
        "a-new-life-has-the-old-version",
        "catalogue",
        "CacheRecord(asked.cache_id, self._new_version(), now)",
        "CacheRecord(asked.cache_id, 'v1', now)",
    ),
)


def machine_with(mutant: Mutant) -> type[Any]:
    """The machine with this bug in it. The real modules stay as they are."""
    text = (FILES / f"{mutant.file}.py").read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.name}: the text to change stands there {text.count(mutant.old)} times"
    names = [f"wakugumi.core.files.{part}" for part in PARTS]
    kept = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        module = ModuleType(f"wakugumi.core.files.{mutant.file}")
        sys.modules[module.__name__] = module
        exec(compile(text.replace(mutant.old, mutant.new), mutant.name, "exec"), module.__dict__)
        found: type[Any] = importlib.import_module("wakugumi.core.files.machine").FileDistribution
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(kept)
        for name, real in kept.items():
            setattr(wakugumi.core.files, name.rpartition(".")[2], real)
    return found


def finds(machine: type[Any], seed: int) -> bool:
    try:
        Storm(seed, machine).run()
    except Exception:  # Whatever it breaks by: a bug that ends in a KeyError is found, too.
        return True
    return False


@pytest.mark.spec("C1", "C2", "C6", "C8")
@pytest.mark.parametrize("seed", range(1, 41))
def test_whatever_happens_all_workers_have_all_their_caches_in_the_end(seed: int) -> None:
    Storm(seed).run()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    machine = machine_with(mutant)
    assert any(finds(machine, seed) for seed in (mutant.seed, *range(1, SEEDS_MAX)))


def test_the_real_machine_is_untouched_by_planted_bugs() -> None:
    assert machine_with(MUTANTS[0]) is not FileDistribution
    assert importlib.import_module("wakugumi.core.files.machine").FileDistribution is FileDistribution
