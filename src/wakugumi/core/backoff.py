"""Which worker first, and how long until the next try?

A ranking turns the facts about a worker into one integer, the smallest first, so that a heap of plain integers finds
the best of any number of workers. The worker's number is the lowest bits: a rank names its worker.

A policy is what people choose, by its name: a ranking, and whether keys have a home (`sticky_keys`). A leader has one
for all subjects, and may have others for those that a pattern matches (`Policies`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from wakugumi.core.subject import Pattern, Subject, SubjectError, matches, worker_patterns
from wakugumi.errors import ConfigError
from wakugumi.limits.client import RECONNECT_MAX_S, WORKER_PATIENCE_S, WORKER_RECONNECT_SOON_S
from wakugumi.limits.leader import BACKOFF_FIRST_S, BACKOFF_MAX_S
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import JITTER_SHARE

NUMBER_BITS: Final = 30
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
_RUNNING_BITS: Final = 17
_RUNNING_MAX: Final = (1 << _RUNNING_BITS) - 1
# With the 13 bits of CREDIT_MAX these are 60: integers of two digits, which Python handles fastest after integers of
# one digit.

TURN_STRIDE: Final = 1 << 16
"""Distance by which a job moves the next turn of a worker of weight 1; a weight of w divides the distance by w. While
there are fewer workers than this, workers of one weight stay in the order of their last jobs."""

Ranking: TypeAlias = Callable[[int, int, int, int, int], int]
"""(credit, running, turn, number, load) -> rank. `turn` is the time of the worker's next turn, `load` the CPU use that
the worker reported, in percent."""


def most_credit(credit: int, running: int, _turn: int, number: int, _load: int = 0) -> int:
    """Most free credit, then least running (SPEC L2, the default)."""
    if running > _RUNNING_MAX:  # min() would cost more than all the rest
        running = _RUNNING_MAX
    return ((CREDIT_MAX - credit) << _RUNNING_BITS | running) << NUMBER_BITS | number


def round_robin(_credit: int, _running: int, turn: int, number: int, _load: int = 0) -> int:
    """The next turn first: of workers with the same weight, the worker that waited longest since its last
    assignment."""
    return turn << NUMBER_BITS | number


def score(credit: int, running: int, _turn: int, number: int, load: int = 0) -> int:
    """The busy share of the slots plus the busy share of the CPU, the smallest sum first; then most credit.

    The job itself counts: of two idle workers the larger one is less busy with it.
    """
    busy = 100 * (running + 1) // (credit + running)
    return ((busy + load) * (CREDIT_MAX + 1) + CREDIT_MAX - credit) << NUMBER_BITS | number


class Policy(NamedTuple):
    """How the worker for a job is chosen."""

    name: str
    ranking: Ranking
    sticky: bool = False
    """Jobs with a key go to the key's home. The ranking is for jobs without a key, and for jobs that waited long
    enough."""


POLICIES: Final = {
    policy.name: policy
    for policy in (
        Policy("most-credit", most_credit),
        Policy("round-robin", round_robin),
        Policy("sticky", most_credit, sticky=True),
        Policy("score", score),
    )
}
DEFAULT: Final = POLICIES["most-credit"]


class Policies:
    """The policy of each subject."""

    def __init__(self, default: Policy = DEFAULT, by_pattern: dict[Pattern, Policy] | None = None) -> None:
        self._default = default
        self._by_pattern = dict(sorted((by_pattern or {}).items(), key=lambda pair: _specificity(pair[0])))
        """The most specific pattern first."""
        self.rankings = tuple(dict.fromkeys([default.ranking, *(one.ranking for one in self._by_pattern.values())]))
        """Rankings in use, the default's first."""

    def of(self, subject: Subject) -> Policy:
        for pattern, policy in self._by_pattern.items():
            if matches(pattern, subject):
                return policy
        return self._default

    def __str__(self) -> str:
        return ", ".join([self._default.name, *(f"{it}={policy.name}" for it, policy in self._by_pattern.items())])


EVERYWHERE: Final = Policies()
"""Most credit, for all subjects."""


def parse_policies(text: str) -> Policies:
    """Reads `NAME`, and `PATTERN=NAME` for the subjects of a pattern, with commas between. Raises ConfigError.

    A pattern is read like a worker's: `calcA` means `job.assign.calcA` and all below it.
    """
    default: Policy | None = None
    by_pattern: dict[Pattern, Policy] = {}
    for word in (word.strip() for word in text.split(",")):
        pattern, equals, name = word.rpartition("=")
        if not word:
            continue
        policy = POLICIES.get(name.strip())
        if policy is None:
            raise ConfigError(f"there is no policy {name.strip()[:80]!r}", f"policies are {', '.join(POLICIES)}")
        if not equals:
            if default not in {None, policy}:
                raise ConfigError("two policies are named for all subjects", "give one of them a pattern: PATTERN=NAME")
            default = policy
            continue
        try:
            patterns = worker_patterns(pattern) if pattern.strip() else ()
        except SubjectError as error:
            raise ConfigError(str(error), "a policy for some subjects is PATTERN=NAME") from None
        if not patterns:
            raise ConfigError(f"{word!r} names no pattern", "a policy for some subjects is PATTERN=NAME")
        for one in patterns:
            if by_pattern.setdefault(one, policy) is not policy:
                raise ConfigError(f"two policies are named for {one}", "leave one of them out")
    return Policies(default or DEFAULT, by_pattern)


def _specificity(pattern: Pattern) -> list[int]:
    """Token by token a word goes before `*`, and `*` before `>`: the most specific matching pattern comes first."""
    return [{"*": 1, ">": 2}.get(token, 0) for token in pattern.split(".")]


def backoff_s(failures: int, chance: float) -> float:
    """1 s after the first failure, doubling to 60 s, ± 20 % by `chance` in [0, 1) (SPEC L3)."""
    assert failures >= 1
    # The exponent is bounded before the power: 2 ** 10 000 is a number of 3 000 digits.
    plain = min(BACKOFF_FIRST_S * 2 ** min(failures - 1, 16), BACKOFF_MAX_S)
    return with_jitter(plain, chance)


def next_redial_s(pause_s: float, away_s: float) -> float:
    """A worker's next pause, after a pause of `pause_s` and `away_s` without a leader."""
    return min(2 * pause_s, WORKER_RECONNECT_SOON_S if away_s < WORKER_PATIENCE_S else RECONNECT_MAX_S)


def with_jitter(seconds: float, chance: float) -> float:
    return seconds * (1 + JITTER_SHARE * (2 * chance - 1))
