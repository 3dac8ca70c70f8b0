"""Which worker is the home of a key? Consistent hashing with bounded load. (SPEC L2: same key, same worker)

Key and worker together hash to a number, the same in every process: so each key has its own order of all workers. The
home is the first worker with room, and is remembered. No worker has more keys than 1.25 times the mean, or than the
mean rounded up, if that is more.

A lost worker moves its own keys only; a new worker moves only keys above the new bound. A key moves when its home is
requested, so unused keys cost nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from wakugumi.core.ids import WorkerId
from wakugumi.limits.scheduling import HOMES_MAX

_WORD: Final = (1 << 64) - 1


class StickyKeys:
    def __init__(self, keys_max: int = HOMES_MAX) -> None:
        self._keys_max = keys_max
        self._home: OrderedDict[str, WorkerId | None] = OrderedDict()
        """Home of each key, the last requested key last. None: the worker was lost, and no request came since."""
        self._counts: dict[WorkerId, int] = {}
        self._seeds: dict[WorkerId, int] = {}
        self._bound = 0
        """Number of keys that a worker may have."""

    def __len__(self) -> int:
        return len(self._home)

    @property
    def workers(self) -> list[WorkerId]:
        return list(self._counts)

    def settle(self, workers: Iterable[WorkerId]) -> None:
        """Set the workers."""
        present = dict.fromkeys(workers)
        gone = [worker for worker in self._counts if worker not in present]
        for worker in gone:
            del self._counts[worker]
            del self._seeds[worker]
        if gone:
            for key, home in self._home.items():
                if home is not None and home not in self._counts:
                    self._home[key] = None
        for worker in present:
            if worker not in self._counts:
                self._counts[worker] = 0
                self._seeds[worker] = _hash(worker)
        self._set_bound()

    def known(self, key: str) -> WorkerId | None:
        """The remembered home of the key. Changes nothing."""
        return self._home.get(key)

    def home_of(self, key: str) -> WorkerId | None:
        """The home of the key, chosen if needed; None without workers."""
        if not self._counts:
            return None
        home = self._home.get(key)
        if home is not None:
            self._home.move_to_end(key)
            if self._counts[home] <= self._bound:
                return home
            self._counts[home] -= 1
        elif key not in self._home:
            if len(self._home) >= self._keys_max:
                _, oldest = self._home.popitem(last=False)
                if oldest is not None:
                    self._counts[oldest] -= 1
            self._home[key] = None
            self._set_bound()
        home = self._home[key] = self._choose(key)
        self._counts[home] += 1
        return home

    def check(self) -> None:
        counts = dict.fromkeys(self._counts, 0)
        for home in self._home.values():
            if home is not None:
                counts[home] += 1
        assert counts == self._counts
        assert self._seeds.keys() == self._counts.keys()
        assert len(self._home) <= self._keys_max

    def _set_bound(self) -> None:
        keys, workers = len(self._home), len(self._counts) or 1
        self._bound = max(5 * keys // (4 * workers), -(-keys // workers))

    def _choose(self, key: str) -> WorkerId:
        """The first worker in the key's order that is below the bound. One exists, as the bound is at least the
        mean."""
        bound, word, counts = self._bound, _hash(key.encode()), self._counts
        return max((_mix(word ^ seed), worker) for worker, seed in self._seeds.items() if counts[worker] < bound)[1]


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _mix(word: int) -> int:
    """Every bit of the word changes every bit of the result."""
    word = (word ^ word >> 32) * 0x9E3779B97F4A7C15 & _WORD
    word = (word ^ word >> 29) * 0xD6E8FEB86659FD93 & _WORD
    return word ^ word >> 32
