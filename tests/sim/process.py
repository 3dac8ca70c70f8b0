"""How does a state machine live in a simulated process? By `drive`'s rule, and it may die at every boundary.

Events that arrive during a turn are handed over as one bounded batch, before any tick, and the effects of a step are
performed in order.
A process may be paused (it hears later what came meanwhile, and its connections stay open) or slow, it may end, and it
may be doomed: to end in the middle of its next step, after the machine has decided and before, between or after its
effects. A life is one run of the process; whatever belongs to an earlier life says nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from wakugumi.core.step import Machine, Step
from wakugumi.limits.wire import READ_EVENTS_MAX

if TYPE_CHECKING:
    from tests.sim.world import World

_NEVER: Final = float("inf")

DOOMS: Final = ("handled", "committed", "between", "performed")
"""Where a doomed process ends: before anything is kept, before anything is done, in the middle of it, after it."""


class Process:
    """One process of the world, over all its lives."""

    kind = "process"

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.clock = world.clock
        self.random = world.random
        self.name = name
        self.alive = False
        self.paused = False
        self.resumed_at = self.born_at = -1.0
        self.life = 0
        self.doom: str | None = None
        self.slow_s = 0.0
        """How late it may begin a turn."""
        self.skew_s = 0.0
        """How far its wall clock is from the others'; monotonic time knows nothing of it."""
        self.machine: Machine[Any, Any, Any]
        self._inbox: list[object] = []
        self._waits: list[Callable[[], None]] = []
        self._turn_set = False
        self._timer_at = _NEVER

    @property
    def wall(self) -> float:
        return self.clock.now + self.skew_s

    # Its life.

    def start(self) -> None:
        """Begin a life."""
        assert not self.alive
        self.alive = True
        self.born_at = self.clock.now
        self.paused = False
        self.life += 1
        self.doom = None
        self._inbox = []
        self._waits = []
        self._turn_set = False
        self._timer_at = _NEVER
        self.world.tell(self.name, "starts", None)
        self.born()
        self._set_timer()

    def die(self, *, power: bool, why: str = "killed") -> None:
        """It ends now. By power loss nobody is told, else the kernel closes its connections."""
        if not self.alive:
            return
        self.world.tell(self.name, f"ends: {why}", None)
        self.alive = False
        self.doom = None
        self.world.checker.process_died(self)
        self.died(power)
        self.world.process_died(self)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self.resumed_at = self.clock.now
            if self.alive:
                waits, self._waits = self._waits, []
                for call in waits:
                    call()
                self._set_turn()
                if self._timer_at < _NEVER:
                    self._timer_at = _NEVER
                    self._set_timer()

    def when_resumed(self, call: Callable[[], None]) -> None:
        """The process itself has to do this, and it is paused."""
        self._waits.append(call)

    def born(self) -> None:
        """Make the machine."""
        raise NotImplementedError

    def died(self, power: bool) -> None:
        """Close what was open."""
        raise NotImplementedError

    def has_work(self) -> bool:
        """Would its end meet work in flight?"""
        raise NotImplementedError

    # Its turns.

    def post(self, event: object) -> None:
        self._inbox.append(event)
        if not self._turn_set and not self.paused:
            self._set_turn()

    def _set_turn(self) -> None:
        if self._inbox and not self._turn_set:
            self._turn_set = True
            life = self.life
            late_s = (self.world.turn_s + self.slow_s) * self.random.random()
            self.clock.after(late_s, lambda: self._turn(life))

    def _turn(self, life: int) -> None:
        if life != self.life or not self.alive:
            return
        self._turn_set = False
        if self.paused or not self._inbox:
            return
        self._take_batch()
        if self.alive:
            self._set_turn()

    @property
    def has_heard_all(self) -> bool:
        return not self._inbox and not self.paused

    @property
    def batches_waiting(self) -> int:
        """Whole ones, which are handled before what is posted now."""
        return len(self._inbox) // READ_EVENTS_MAX

    def _take_batch(self) -> None:
        events, self._inbox = self._inbox[:READ_EVENTS_MAX], self._inbox[READ_EVENTS_MAX:]
        if self.world.story is not None:
            for event in events:
                self.world.tell(self.name, "<", event)
        self._take(self.machine.handle(events, self.clock.now))

    def _tick(self, life: int, at: float) -> None:
        if life != self.life or not self.alive or self.paused or at != self._timer_at:
            return
        self._timer_at = _NEVER
        for _ in range(-(-len(self._inbox) // READ_EVENTS_MAX)):
            self._take_batch()
            if not self.alive:
                return
        self._take(self.machine.tick(self.clock.now))
        wake_at = self.machine.wake_at()
        assert wake_at is None or wake_at > self.clock.now, "after a tick it must sleep"

    def _take(self, step: Step[Any, Any]) -> None:
        if self.world.looks_closely():
            self.machine.check()
        self._set_timer()
        self.stepped(step)

    def stepped(self, step: Step[Any, Any]) -> None:
        """What a step wants. Nothing is kept by most."""
        if self.doom in {"handled", "committed"} and step.do:
            self.die(power=False, why="killed before its step was performed")
            return
        self.perform(step.do)

    def perform(self, effects: Sequence[Any]) -> None:
        """One after the other; a doomed one may not come to the end."""
        if not effects:
            return
        stop_at = -1
        if self.doom is not None:
            stop_at = len(effects) if self.doom == "performed" else self.random.randrange(len(effects) + 1)
        tell = self.world.story is not None
        for number, effect in enumerate(effects):
            if number == stop_at:
                break
            if tell:
                self.world.tell(self.name, ">", effect)
            self.do(effect)
        if stop_at >= 0:
            self.die(power=False, why=f"killed after {stop_at} of {len(effects)} effects")

    def do(self, effect: Any) -> None:
        raise NotImplementedError

    def _set_timer(self) -> None:
        wake_at = self.machine.wake_at()
        if wake_at is not None and wake_at < self._timer_at:
            self._timer_at = wake_at
            life = self.life
            self.clock.at(max(wake_at, self.clock.now), lambda: self._tick(life, wake_at))
