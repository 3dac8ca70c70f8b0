"""How is a blob moved once for all that wait for it, and how often is that tried?

    join(key, waiter, work, then) ─► a flow: work ─► Arrived ───────────────────────► then(outcome) of each waiter
                                        ▲     └─ TryAgain ─► pause ─┐ too often, too broken, too long still ─► GivenUp
                                        └───────────────────────────┘

A kind of transfer (uploads, deliveries, fetching, downloads) is a machine with a `Flows`, one `Transfers` and one
`RetryRule`. The key names the content and its place: `(url, sha256)`. `work` is one try. It awaits acts, takes turns
(`Turns`), and sorts the failures: TryAgain for a failure of the line or of others, Refused if no try can succeed.

    async def work(transfer: Transfer[Key, None]) -> None:
        async with turns:                                 at most so many at once; the turn ends with the block
            ended = await PutBlob(url, sha256)
        if ended.error is not None:
            raise TryAgain(ended.error, moved_s=ended.moved_s)

    transfer = transfers.join((url, sha256), waiter=job, work=work, then=lambda outcome: ...)
    transfers.leave(transfer, job)                        without a waiter the transfer stops: its act is abandoned

Size classes have `Turns` each, and a large transfer takes two turns: `async with large, all_sizes`. Work that must be
finished although no waiter is left sets `transfer.goes_on`. Work may choose another source in each try, which
`transfer.tries` counts. `then` may join and leave transfers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from wakugumi.core.backoff import with_jitter
from wakugumi.core.flows import Act, Flow, Flows, Promise
from wakugumi.errors import Lost, Refused, WakugumiError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class RetryRule(NamedTuple):
    """How often and when one kind of transfer is tried again."""

    first_s: float
    """Pause before the second try. The pause doubles with each further try, up to `longest_s`."""
    longest_s: float
    at_once: int = 0
    """Tries after the first that follow without a pause."""
    tries_max: int = 0
    """Tries in all; 0 for no bound."""
    broken_max: int = 0
    """Tries that end with wrong content; 0 for no bound. Once may be the fault of the line."""
    still_s: float = float("inf")
    """Time in which no byte has moved."""

    def pause_s(self, tries: int) -> float:
        """Pause after this many tries."""
        if tries <= self.at_once:
            return 0.0
        return min(self.first_s * 2.0 ** min(tries - self.at_once - 1, 64), self.longest_s)


class TryAgain(Exception):
    """Raised by a try that failed, if another one may succeed."""

    def __init__(self, error: WakugumiError, *, is_broken: bool = False, moved_s: float | None = None) -> None:
        """`moved_s`: seconds since the last byte of this try moved, infinite if none did; None for a failure that is
        no lack of progress."""
        super().__init__(str(error))
        self.error = error
        self.is_broken = is_broken
        self.moved_s = moved_s


class Arrived(NamedTuple, Generic[T]):
    """Outcome: the content is where it should be."""

    value: T


class GivenUp(NamedTuple):
    """Outcome: the content is not moved."""

    error: WakugumiError
    """The last failure."""
    still_s: float = 0.0
    """For this long no byte has moved, and this is the reason; 0 if there is another."""
    unforeseen: Exception | None = None
    """An exception that the work did not sort: our own bug."""


Outcome: TypeAlias = Arrived[T] | GivenUp


class PutBlob(Act["PutEnd"], frozen=True):
    """Put the blob into the place."""

    url: str
    sha256: str
    blob: object
    """The source, for the role."""


class PutEnd(msgspec.Struct, frozen=True):
    """The end of a try to put a blob."""

    error: Lost | Refused | None = None
    moved_s: float = float("inf")
    """Seconds since the last byte was sent."""


class Turns:
    """A number of turns; flows without one wait in line. A turn is taken by `async with`."""

    def __init__(self, flows: Flows, count: int) -> None:
        self._flows = flows
        self._count = count
        self.free = count
        self._line: OrderedDict[Promise[None], None] = OrderedDict()

    @property
    def taken(self) -> int:
        return self._count - self.free

    @property
    def waiting(self) -> int:
        return len(self._line)

    async def __aenter__(self) -> None:
        if self.free:
            self.free -= 1
            return
        turn: Promise[None] = Promise(self._flows)
        self._line[turn] = None
        try:
            await turn
        except BaseException:
            if turn.is_kept:  # The turn came in the moment of the interruption.
                self._give_back()
            else:
                del self._line[turn]
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _give_back(self) -> None:
        if self._line:
            self._line.popitem(last=False)[0].keep(None)
        else:
            self.free += 1

    def check(self) -> None:
        assert 0 <= self.free <= self._count
        assert not (self.free and self._line)


class Transfer(Generic[K, T]):
    """One transfer, until it ends or is not wanted."""

    __slots__ = ("broken", "flow", "goes_on", "key", "moved_at", "ticket", "tries", "waiting")

    def __init__(self, key: K, now: float) -> None:
        self.key = key
        self.moved_at = now
        """When the last byte moved, as far as known; the beginning, before any did."""
        self.tries = 0
        self.broken = 0
        """Tries that ended with wrong content."""
        self.waiting: dict[Hashable, Callable[[Outcome[T]], None]] = {}
        self.goes_on = False
        """Go on without a waiter."""
        self.flow: Flow[None]
        self.ticket: object = None
        """For use by the kind of transfer."""


Work: TypeAlias = Callable[[Transfer[K, T]], Coroutine[Any, Any, T]]
"""One try. Raises TryAgain, or Refused."""


class Transfers(Generic[K, T]):
    """All transfers of one kind, by their keys."""

    def __init__(self, flows: Flows, rule: RetryRule, chance: Callable[[], float]) -> None:
        self._flows = flows
        self._rule = rule
        self._chance = chance
        self.by_key: dict[K, Transfer[K, T]] = {}
        self.on_retry: Callable[[Transfer[K, T], TryAgain, float], None] | None = None
        """Called before each pause, with its seconds."""

    def join(self, key: K, waiter: Hashable, work: Work[K, T], then: Callable[[Outcome[T]], None]) -> Transfer[K, T]:
        """`then` is called once, later, unless the waiter leaves before. The first waiter's work is done for all."""
        transfer = self.by_key.get(key)
        if transfer is None:
            transfer = self.by_key[key] = Transfer(key, self._flows.now)
            transfer.flow = self._flows.start(partial(self._run, transfer, work), f"transfer of {key}")
        transfer.waiting[waiter] = then
        return transfer

    def leave(self, transfer: Transfer[K, T], waiter: Hashable) -> None:
        """The waiter is not told of the outcome. The transfer stops if no waiter is left."""
        is_left = transfer.waiting.pop(waiter, None) is not None and not transfer.waiting
        if is_left and not transfer.goes_on and not self._has_ended(transfer):
            del self.by_key[transfer.key]
            transfer.flow.cancel()

    def _has_ended(self, transfer: Transfer[K, T]) -> bool:
        return self.by_key.get(transfer.key) is not transfer

    def check(self) -> None:
        for transfer in self.by_key.values():
            assert transfer.waiting or transfer.goes_on
            assert not transfer.flow.ended.is_kept

    async def persist(self, transfer: Transfer[K, T], work: Work[K, T]) -> Outcome[T]:
        """Tries until the rule says that it is enough. For work without a key too."""
        while True:
            transfer.tries += 1
            try:
                return Arrived(await work(transfer))
            except TryAgain as again:
                if (end := self._judge(transfer, again)) is not None:
                    return end
                pause_s = with_jitter(self._rule.pause_s(transfer.tries), self._chance())
                if self.on_retry is not None:
                    self.on_retry(transfer, again, pause_s)
                await self._flows.pause(pause_s)
            except WakugumiError as error:
                return GivenUp(error)
            except Exception as error:
                return GivenUp(Refused("worker-error", repr(error)[:300]), unforeseen=error)

    async def _run(self, transfer: Transfer[K, T], work: Work[K, T]) -> None:
        outcome = await self.persist(transfer, work)
        if self._has_ended(transfer):
            return  # The last waiter left before the first try.
        del self.by_key[transfer.key]
        for waiter in list(transfer.waiting):
            if (then := transfer.waiting.pop(waiter, None)) is not None:  # Unless another one's `then` let it leave.
                then(outcome)

    def _judge(self, transfer: Transfer[K, T], again: TryAgain) -> GivenUp | None:
        rule = self._rule
        transfer.broken += again.is_broken
        now = self._flows.now
        if again.moved_s is not None:
            transfer.moved_at = max(transfer.moved_at, now - again.moved_s)
        if rule.tries_max and transfer.tries >= rule.tries_max:
            return GivenUp(again.error)
        if rule.broken_max and transfer.broken >= rule.broken_max:
            return GivenUp(again.error)
        if again.moved_s is not None and now - transfer.moved_at > rule.still_s:
            return GivenUp(again.error, now - transfer.moved_at)
        return None
