"""How does a state machine of the core talk to the world? Read this first.

Every state machine (the leader's machine, `slots`, `failover`) is a plain class with the same four doors:

    handle(events, now) -> Step    these things happened: a batch, in order
    tick(now)           -> Step    the time it asked for has come
    wake_at()           -> float | None     after tick(now), always later than now
    check()                        asserts all that must always hold

It never touches the world: a Step names what must be on disk first (`keep`) and what is to be done then (`do`, in this
order). `adapters/loop/drive.py` is the only caller. The words of each machine stand in the `events.py` of its room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40

Event = TypeVar("Event", contravariant=True)
Keep = TypeVar("Keep", covariant=True)
Do = TypeVar("Do", covariant=True)


class Step(msgspec.Struct, Generic[Keep, Do]):
    """Output of a state machine for a batch of events: `keep` is written to the disk, then `do` is performed, in order.

    Effects in `at_once` depend on no record, such as a heartbeat, and do not wait for the disk: a slow disk must not
    delay heartbeats, or healthy peers would time out. The `do` of a `patient` step may wait for the next step, so that
    both share one flush of the disk.
    """

    keep: Sequence[Keep] = ()
    do: Sequence[Do] = ()
    at_once: Sequence[Do] = ()
    patient: bool = False


class LogLine(msgspec.Struct, frozen=True):
    """Effect of any machine: a line for the log, with a level of `logging`."""

    level: int
    text: str
    error: Exception | None = None


class Machine(Protocol[Event, Keep, Do]):
    """The four doors."""

    def handle(self, events: Sequence[Event], now: float) -> Step[Keep, Do]: ...
    def tick(self, now: float) -> Step[Keep, Do]: ...
    def wake_at(self) -> float | None: ...
    def check(self) -> None: ...
