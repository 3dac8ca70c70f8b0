"""How does a decision stand in the core that needs several answers of the world? As a flow.

A flow is an async function that awaits acts: a row to be stored, a request to be sent. Its machine names each act in a
step (`Perform`), and resumes the flow when the answer is an event (`Answered`, `ActFailed`). No event loop is involved:
time comes with the events, and the simulator answers acts late, wrongly, twice or never.

    row, is_new = await AddRow(new)         an act: the flow rests until its answer
    await flows.pause(2.0)                  time
    outcome = await promise                 another flow or event keeps the promise

An interrupted flow gets an exception where it rests, and the act that it waited for is abandoned: the world may have
done it or not. Flows that can go on do so in the order in which they became ready.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")

_CANCELLED_KEPT: Final = 64
"""Cancelled timers that may stay in the heap, however few others there are."""


class Act(msgspec.Struct, Generic[T], frozen=True):
    """A request to the world that is answered with a T, or with an exception."""

    def __await__(self) -> Generator[Act[T], T, T]:
        return (yield self)


class Perform(msgspec.Struct, frozen=True):
    """Effect: perform the act, and answer under this number."""

    number: int
    act: Act[Any]


class Abandon(msgspec.Struct, frozen=True):
    """Effect: stop the act of this number, if that is possible. No flow waits for its answer."""

    number: int


class Answered(msgspec.Struct, frozen=True):
    """Event: the answer to an act."""

    number: int
    answer: Any


class ActFailed(msgspec.Struct, frozen=True):
    """Event: the act failed."""

    number: int
    error: Exception


FlowDo: TypeAlias = Perform | Abandon
FlowEvent: TypeAlias = Answered | ActFailed


class FlowCancelled(BaseException):
    """Ends a flow. A flow may still perform acts to leave no trace."""


class Promise(Generic[T]):
    """A value that flows wait for. The first value counts."""

    __slots__ = ("_calls", "_flows", "_waiting", "is_kept", "value")

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._waiting: list[Flow[Any]] = []
        self._calls: list[Callable[[], None]] = []
        self.is_kept = False
        self.value: T

    def keep(self, value: T) -> None:
        if not self.is_kept:
            self.is_kept, self.value = True, value
            for flow in self._waiting:
                self._flows.resume(flow, value)
            self._waiting.clear()
            for call in self._calls:
                call()
            self._calls.clear()

    def when_kept(self, call: Callable[[], None]) -> None:
        """Calls back once the promise is kept; at once, if it is."""
        if self.is_kept:
            call()
        else:
            self._calls.append(call)

    def __await__(self) -> Generator[Promise[T], T, T]:
        return self.value if self.is_kept else (yield self)

    def join(self, flow: Flow[Any]) -> None:
        self._waiting.append(flow)

    def leave(self, flow: Flow[Any]) -> None:
        self._waiting.remove(flow)


class Timer:
    """A function that is called at its time, unless it is cancelled."""

    __slots__ = ("_flows", "at", "call")

    def __init__(self, flows: Flows, at: float, call: Callable[[], None]) -> None:
        self._flows = flows
        self.at = at
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        if self.call is not None:
            self.call = None
            self._flows.timer_cancelled()


class Deadline:
    """Interrupts the flow that made it with `error`, unless it is closed before its time."""

    __slots__ = ("_error", "_flow", "_flows", "_timer")

    def __init__(self, flows: Flows, seconds: float, error: Exception) -> None:
        assert flows.current is not None
        self._flows = flows
        self._flow = flows.current
        self._error = error
        self._timer = flows.call_at(flows.now + seconds, self._ring)

    def close(self) -> None:
        self._timer.cancel()

    def _ring(self) -> None:
        self._flow.interrupt(self._error)


class Flow(Generic[T]):
    """One flow. `ended` is kept with its result; None if it was cancelled."""

    __slots__ = ("_flows", "act", "coroutine", "ended", "interruption", "name", "rests_at", "work")

    def __init__(self, flows: Flows, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> None:
        self._flows = flows
        self.work = work
        self.coroutine: Coroutine[Any, Any, T] | None = None
        """None until the flow begins."""
        self.name = name
        self.ended: Promise[T | None] = Promise(flows)
        self.act = 0
        """Number of the act that the flow waits for; 0 for none."""
        self.rests_at: Promise[Any] | None = None
        self.interruption: BaseException | None = None
        """Raised instead of going on; of several, the first."""

    def interrupt(self, error: BaseException) -> None:
        """Raises `error` where the flow rests, or will rest next. The answer of a flow that was about to go on is
        lost, as if its act had been abandoned."""
        if self.ended.is_kept:
            return
        self.interruption = self.interruption or error
        if self.act:
            self._flows.abandon(self)
            self._flows.resume(self, None)
        elif self.rests_at is not None:
            self.rests_at.leave(self)
            self._flows.resume(self, None)

    def cancel(self) -> None:
        self.interrupt(FlowCancelled())

    def take_interruption(self) -> BaseException | None:
        error, self.interruption = self.interruption, None
        return error


class Flows:
    """The flows of one machine. Call `run` at the end of `handle` and `tick`."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._ready: deque[tuple[Flow[Any], Any, Exception | None]] = deque()
        self._waiting: dict[int, Flow[Any]] = {}
        """Flows by the act that they wait for."""
        self._acts = 0
        self._timers: list[tuple[float, int, Timer]] = []
        self._timers_set = 0
        self._cancelled = 0
        """Cancelled timers in the heap."""
        self._do: list[Any] = []
        self._is_closed = False
        self.current: Flow[Any] | None = None
        """The flow that runs now."""
        self._open: dict[Flow[Any], None] = {}
        """Flows that have not ended."""

    def start(self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> Flow[T]:
        """Starts a flow; it begins in `run`. Once these flows are closed, no flow begins."""
        flow = Flow(self, work, name)
        if not self._is_closed:
            self._open[flow] = None
            self._ready.append((flow, None, None))
        return flow

    @property
    def count(self) -> int:
        """Number of flows that have not ended."""
        return len(self._open)

    def call_at(self, at: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self, at, call)
        self._timers_set += 1
        heappush(self._timers, (at, self._timers_set, timer))
        return timer

    async def first_of(self, *promises: Promise[Any]) -> None:
        """Waits until one of the promises is kept."""
        either: Promise[None] = Promise(self)
        for promise in promises:
            promise.when_kept(lambda: either.keep(None))
        await either

    async def pause(self, seconds: float) -> None:
        over: Promise[None] = Promise(self)
        timer = self.call_at(self.now + seconds, lambda: over.keep(None))
        try:
            await over
        finally:
            timer.cancel()

    def hear(self, event: FlowEvent) -> None:
        """An act was answered. An answer that no flow waits for is ignored: it was abandoned, or comes twice."""
        flow = self._waiting.pop(event.number, None)
        if flow is None:
            return
        flow.act = 0
        if isinstance(event, Answered):
            self._ready.append((flow, event.answer, None))
        else:
            self._ready.append((flow, None, event.error))

    def emit(self, effect: object) -> None:
        """An effect of the machine itself, in its place among the acts."""
        self._do.append(effect)

    def run(self, now: float) -> list[Any]:
        """Lets all flows go on that can, and calls all timers that are due. Returns the effects."""
        self.now = now
        self._go_on()
        while self._timers and self._timers[0][0] <= now:
            timer = heappop(self._timers)[2]
            if timer.call is None:
                self._cancelled -= 1
            else:
                call, timer.call = timer.call, None
                call()
                self._go_on()
        do, self._do = self._do, []
        return do

    @property
    def timers(self) -> int:
        """Timers in the heap, cancelled ones included."""
        return len(self._timers)

    def wake_at(self) -> float | None:
        while self._timers and self._timers[0][2].call is None:
            heappop(self._timers)
            self._cancelled -= 1
        return self._timers[0][0] if self._timers else None

    def close(self) -> None:
        """Ends all flows where they rest, without a further act. For this, `finally` in a flow must not await."""
        self._is_closed = True
        for flow in self._open:
            if flow.coroutine is not None:
                flow.coroutine.close()
        self._open.clear()
        self._waiting.clear()
        self._ready.clear()

    def check(self) -> None:
        assert not self._ready
        assert not self._do
        assert 0 <= self._cancelled <= len(self._timers)
        for number, flow in self._waiting.items():
            assert flow.act == number
            assert flow.rests_at is None
            assert not flow.ended.is_kept

    def resume(self, flow: Flow[Any], value: Any) -> None:
        """For promises and interruptions."""
        flow.rests_at = None
        self._ready.append((flow, value, None))

    def abandon(self, flow: Flow[Any]) -> None:
        """For interruptions."""
        del self._waiting[flow.act]
        self._do.append(Abandon(flow.act))
        flow.act = 0

    def timer_cancelled(self) -> None:
        self._cancelled += 1
        if 2 * self._cancelled > len(self._timers) + _CANCELLED_KEPT:
            self._timers = [row for row in self._timers if row[2].call is not None]
            heapify(self._timers)
            self._cancelled = 0

    def _go_on(self) -> None:
        while self._ready:
            self._advance(*self._ready.popleft())

    def _advance(self, flow: Flow[Any], value: Any, error: BaseException | None) -> None:
        self.current = flow
        try:
            if (coroutine := flow.coroutine) is None:
                coroutine = flow.coroutine = flow.work()
            else:
                error = flow.take_interruption() or error
            asked = coroutine.send(value) if error is None else coroutine.throw(error)
            while (error := flow.take_interruption()) is not None:
                asked = coroutine.throw(error)
        except StopIteration as end:
            del self._open[flow]
            flow.ended.keep(end.value)
        except FlowCancelled:
            del self._open[flow]
            flow.ended.keep(None)
        else:
            if isinstance(asked, Promise):
                flow.rests_at = asked
                asked.join(flow)
            else:
                self._acts += 1
                flow.act = self._acts
                self._waiting[flow.act] = flow
                self._do.append(Perform(flow.act, asked))
        finally:
            self.current = None
