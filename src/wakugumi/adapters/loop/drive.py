"""When is a state machine called? By this loop alone, once per batch of events.

Events that arrive during one turn of the loop are one batch; every `keep` of the batch is committed before any of its
`do` is performed, and steps are performed in the order of the decisions. So "a receipt is sent only once the job is on
disk" is not discipline but shape. This is also the one reader of the clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from wakugumi.core.step import Machine, Step
from wakugumi.limits.wire import READ_EVENTS_MAX

E = TypeVar("E")
K = TypeVar("K")
D = TypeVar("D")
K_contra = TypeVar("K_contra", contravariant=True)

log = logging.getLogger("wakugumi.drive")


class Keeper(Protocol[K_contra]):
    """The destination of `keep`. `done` is called in the loop's thread, in the order of the commits, once the records
    and all before them are safe. Records without a `done` may wait for the next commit; `patient` ones may wait for it
    a moment. A keeper that fails never calls `done`, and reports the failure to the process."""

    def commit(
        self, records: Sequence[K_contra], done: Callable[[], None] | None, *, patient: bool = False
    ) -> None: ...

    @property
    def idle(self) -> bool:
        """Are all records safe?"""
        ...


class Drive(Generic[E, K, D]):
    """Runs one state machine on the running loop.

    `perform` does the effects and must not raise; `keeper` is None where no state outlives the process. An exception in
    the machine or in `perform` is our own bug: `failed` carries it, and no further event is handled. The process should
    end.
    """

    def __init__(
        self,
        machine: Machine[E, K, D],
        perform: Callable[[Sequence[D]], None],
        *,
        name: str,
        keeper: Keeper[K] | None = None,
        rounds: int = 1,
    ) -> None:
        """`rounds`: events that performing posts are handled in the same turn of the loop, up to so many batches. That
        saves a machine of flows the turns between an act and its answer, and costs batches of many events."""
        self._loop = asyncio.get_running_loop()
        self.machine = machine
        self._perform = perform
        self._name = name
        self._keeper = keeper
        self._events: list[E] = []
        self._waiting: deque[tuple[int, Sequence[D]]] = deque()
        """Effects that wait until their step's records, and all before, are safe; and the step that then is safe."""
        self.steps = 0
        """Steps begun: an event posted now is handled by the next one."""
        self.safe_step = 0
        """The last step whose records are safe and whose effects were performed, with all before it."""
        self.on_safe: Callable[[], None] | None = None
        """Called when `safe_step` has grown."""
        self._turning = False
        self._rounds = rounds
        self._goes_on = False
        """Another batch will be handled in this turn."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._trace = log.isEnabledFor(logging.DEBUG)
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._set_timer()

    def post(self, event: E) -> None:
        """Adds an event. It is handled later in this turn of the loop, in one batch with others."""
        events = self._events
        if not events and not self._goes_on:
            self._loop.call_soon(self._turn)
        events.append(event)
        if len(events) >= READ_EVENTS_MAX and not self._turning:
            self._turn()

    def post_now(self, event: E) -> None:
        """Adds an event and handles it now, unless the machine is at work: a turn of the loop would add to the time of
        each job."""
        if self._turning:
            self.post(event)
        else:
            self._events.append(event)
            self._turn()

    def flush(self) -> None:
        """Handles posted events now, and not in one batch with the next: one of them is large."""
        if not self._turning:
            self._turn()

    def close(self) -> None:
        """Ends the drive: no further event is handled, no effect performed."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.failed.done():
            self.failed.cancel()

    def _turn(self) -> None:
        left = self._rounds
        while left and self._events:
            left -= 1
            self._goes_on = left > 0
            events, self._events = self._events, []
            if not self.failed.done():
                self._step(events)
        self._goes_on = False

    def _tick(self) -> None:
        self._timer_at = float("inf")
        self._turn()  # Posted events are handled first: a tick must not overtake them.
        if not self.failed.done():
            self._step(None)

    def _step(self, events: list[E] | None) -> None:
        self._turning = True
        self.steps += 1
        try:
            now = self._loop.time()
            step = self.machine.tick(now) if events is None else self.machine.handle(events, now)
            if self._trace:
                self._log(events or (), step)
            if step.at_once:
                self._perform(step.at_once)
            keeper = self._keeper
            if keeper is None or (not step.keep and not self._waiting and keeper.idle):
                if step.do:
                    self._perform(step.do)
                self.safe_step = self.steps
                if self.on_safe is not None:
                    self.on_safe()
            elif step.do:
                self._waiting.append((self.steps, step.do))
                keeper.commit(step.keep, self._committed, patient=step.patient)
            else:
                if step.keep:
                    keeper.commit(step.keep, None)
                # Without effects, the step counts with the one before it.
                if self._waiting:
                    self._waiting[-1] = (self.steps, self._waiting[-1][1])
                else:
                    self.safe_step = self.steps
                    if self.on_safe is not None:
                        self.on_safe()
            self._set_timer()
        except Exception as error:
            self._fail(error)
        finally:
            self._turning = False

    def _committed(self) -> None:
        if self.failed.done():
            return
        self._turning = True
        try:
            step, effects = self._waiting.popleft()
            self._perform(effects)
            self.safe_step = step
            if self.on_safe is not None:
                self.on_safe()
        except Exception as error:
            self._fail(error)
        finally:
            self._turning = False

    def fail(self, error: Exception) -> None:
        """Ends the drive with an error: no further event is handled, no effect performed."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def _fail(self, error: Exception) -> None:
        log.critical("state machine failed by an internal error machine=%s", self._name, exc_info=error)
        self.fail(error)

    def _set_timer(self) -> None:
        """A timer that fires too early costs one empty tick; a new timer each turn would cost more."""
        wake_at = self.machine.wake_at()
        if wake_at is not None and wake_at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = wake_at
            self._timer = self._loop.call_at(wake_at, self._tick)

    def _log(self, events: Sequence[E], step: Step[K, D]) -> None:
        for event in events:
            log.debug("%s < %s", self._name, _short(event))
        for record in step.keep:
            log.debug("%s = %s", self._name, _short(record))
        for effect in step.do:
            log.debug("%s > %s", self._name, _short(effect))


def _short(value: object) -> str:
    """Long values are cut: a trace is for reading."""
    text = repr(value)
    return text if len(text) <= 240 else f"{text[:200]}… ({len(text)} characters)"
