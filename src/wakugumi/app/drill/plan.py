"""Which process is struck when? All faults of a drill, from one seed.

The faults are spread over the jobs, not over the time: each is due when so many jobs are finished, and until then only
some further jobs may be submitted. So they meet work to the end, on a slow machine as on a fast one.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from wakugumi.app.drill.fleet import LEADER, WORKER

_AHEAD_PER_SLOT: Final = 4
_AHEAD_SHARE: Final = 0.1
_AHEAD_SHARE_MAX: Final = 0.3
"""How far the jobs may be ahead of the next fault: enough to keep the slots and the queue full."""
_AT_ONCE: Final = 0.2
"""So many follow the one before at once: a leader is then killed while it recovers from its last death."""
_ALIVE_S: Final = 0.5
"""So old at most is the youngest that is killed: now and then one dies while it starts."""
_STOPPED_ALIVE_S: Final = 3.0
"""A stop tests a short silence: one that has just come back would only stay away for longer."""
_GUARDIANS: Final = 0.25
"""Of the killed workers, so many die because their guardian is killed."""


class Fault(msgspec.Struct, frozen=True):
    """Something bad that will happen."""

    after: int
    """When so many jobs are finished."""
    kind: str
    kill: bool
    """Otherwise it is stopped for a while."""
    guardian: bool
    away_s: float
    alive_s: float
    """Its target has lived at least this long."""
    freeze: bool = False
    """A long stop, as of a machine that is cut off. No other fault happens meanwhile, so that the work of the others
    can be measured."""


class DrillOptions(msgspec.Struct, frozen=True):
    """The options of the command."""

    jobs: int
    leaders: int
    workers: int
    slots: int
    kinds: tuple[str, ...]
    times: int
    stops: int
    freeze_s: float
    """How long one leader is stopped in the middle of the drill; 0: none is."""
    away_s: float
    job_ms: float
    seed: int
    patience_s: float
    keep: bool
    memory: bool
    output: str
    groups: int = 0
    """Groups behind a gateway; 0: a grid without one."""
    nodes: int = 0


def plan(wanted: DrillOptions, chance: random.Random) -> list[Fault]:
    """The same seed gives the same faults, in the order in which they come."""
    spread = wanted.jobs - ahead(wanted)
    kills = [True] * wanted.times + [False] * wanted.stops
    chance.shuffle(kills)
    faults: list[Fault] = []
    for at, kill in enumerate(kills):
        after = int(spread * (at + chance.random()) / len(kills))
        if faults and chance.random() < _AT_ONCE:
            after = faults[-1].after
        kind = chance.choice(wanted.kinds)
        guardian = kind == WORKER and kill and chance.random() < _GUARDIANS
        alive_s = chance.uniform(0, _ALIVE_S) if kill else _STOPPED_ALIVE_S
        faults.append(Fault(after, kind, kill, guardian, chance.uniform(0, wanted.away_s), alive_s))
    if wanted.freeze_s:
        freeze = Fault(spread // 2, LEADER, False, False, wanted.freeze_s, _STOPPED_ALIVE_S, freeze=True)
        faults.append(freeze)
        faults.sort(key=lambda fault: fault.after)
    return faults


def ahead(wanted: DrillOptions) -> int:
    """How many jobs may be handed in beyond those that must be finished before the next fault."""
    enough = max(_AHEAD_PER_SLOT * wanted.slots * wanted.workers, wanted.jobs * _AHEAD_SHARE)
    return int(min(enough, wanted.jobs * _AHEAD_SHARE_MAX))
