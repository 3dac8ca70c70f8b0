"""What is wrong with machines and programs? Drawn from a generator of its own, so that all else in a world stays as it
was: workers that fall sick for a while, programs that break their machine or can be started nowhere, and a program that
only some workers have. Some worlds know nothing of all this."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

RARE: Final = "rare"
"""The program that not every worker has."""
POISON_S: Final = 3.0
"""For so long a machine is sick after a program broke it."""


class Spell(NamedTuple):
    """A time in which a machine is sick."""

    worker: int
    at_s: float
    lasts_s: float


class Health:
    """Of all machines and programs of one world."""

    def __init__(self, seed: int, workers: int, lasts_s: float) -> None:
        self._seed = seed
        random = Random(f"{seed}-sick")
        knows = random.random() < 0.4
        most = random.choice([1, 2, 6]) if knows else 0
        self.spells = [
            Spell(number, random.random() * lasts_s, random.choice([0.5, 5.0, 40.0]) * random.random())
            for number in range(workers)
            for _ in range(random.randrange(most + 1))
        ]
        self._poison_share = random.choice([0.0, 0.05]) if knows else 0.0
        self._too_large_share = random.choice([0.0, 0.05]) if knows else 0.0
        self._rare_share = random.choice([0.0, 0.3]) if knows else 0.0
        self._has_rare = [random.random() < 0.5 for _ in range(workers)]

    def has(self, worker: int, program: str) -> bool:
        return program != RARE or self._has_rare[worker]

    def program(self, number: int, usual: str) -> str:
        """Of the job of this number."""
        return RARE if self._draw(number, "program") < self._rare_share else usual

    def is_poison(self, number: int) -> bool:
        """It begins, and breaks its machine."""
        return self._draw(number, "poison") < self._poison_share

    def is_too_large(self, number: int) -> bool:
        """It can be started nowhere: its inputs do not fit."""
        return self._draw(number, "too large") < self._too_large_share

    def _draw(self, number: int, what: str) -> float:
        return Random(f"{self._seed}-{what}-{number}").random()
