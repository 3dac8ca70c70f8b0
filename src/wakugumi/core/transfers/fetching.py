"""How does a worker get content that it does not have? (SPEC C3–C5, C8)

    need ─► Want ─► Source ─► fetched and verified ─► all waiters of the need
              ▲                    └─ failed: dead, slow, lied, busy
              └────────────────────┘

The leader chooses the source; received bytes are never fetched twice. Two needs of the same content share one transfer.
A worker that gives up a source reports it, because the leader counts the source as busy until then. After a reconnect,
open wants go to the new leader.

Large transfers take hours: only a few are wanted and fetched at once, and smaller ones overtake them. The size of a
cache's file is known only from its Source; if it is one too many, the source is freed and wanted again later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from wakugumi.core.files.events import GIVEN_UP
from wakugumi.core.flows import ActFailed, Answered, Flow, FlowCancelled, Flows, Promise
from wakugumi.core.step import Step
from wakugumi.core.transfers.fetch_events import (
    BlobsOffered,
    ContentNeeded,
    FetchBlob,
    FetchDo,
    FetchEvent,
    InVain,
    IsBlobHere,
    Need,
    NeedDropped,
    NeedEnded,
    NoBlobsOffered,
    OfferLost,
    SendWant,
    SourceFailed,
    SourceNamed,
)
from wakugumi.core.transfers.transfers import Arrived, GivenUp, Outcome, RetryRule, Transfer, Transfers, TryAgain, Turns
from wakugumi.errors import Refused, WakugumiError
from wakugumi.limits.files import (
    FETCH_AGAIN_FIRST_S,
    FETCH_AGAIN_MAX_S,
    FETCH_TRIES_MAX,
    FETCHES_MAX,
    LARGE_TRANSFERS_MAX,
    WANTS_OF_CACHES_MAX,
    WANTS_OPEN_MAX,
)
from wakugumi.limits.runner import LARGE_WORK_BYTES


class Size(Enum):
    """Class of a transfer by its size, in the order in which wants are sent."""

    LARGE = "large"
    UNKNOWN = "unknown"
    """Size of a cache's file before its Source is known."""
    SMALL = "small"


class FetchBounds(NamedTuple):
    """How much is wanted and fetched at once, and how often."""

    asked: int = WANTS_OPEN_MAX
    asked_large: int = LARGE_TRANSFERS_MAX
    asked_unknown: int = WANTS_OF_CACHES_MAX
    moving: int = FETCHES_MAX
    large_bytes: int = LARGE_WORK_BYTES
    retry: RetryRule = RetryRule(FETCH_AGAIN_FIRST_S, FETCH_AGAIN_MAX_S, at_once=1, tries_max=FETCH_TRIES_MAX)


USUAL_BOUNDS: Final = FetchBounds()

Ref: TypeAlias = tuple[str, int]
"""SHA-256 and size."""


class Fetch:
    """One need, until it ends."""

    __slots__ = (
        *("flow", "is_asked", "is_moving", "need", "ref", "size", "soon", "source", "told_failure", "transfer"),
        *("using", "waiting", "want"),
    )

    def __init__(self, need: Need, want: int, size: Size, now: float, *, soon: bool) -> None:
        self.need = need
        self.want = want
        self.size = size
        self.soon = soon
        self.transfer: Transfer[Need, Ref] = Transfer(need, now)
        self.flow: Flow[None]
        self.ref: Ref | None = (need.sha256, need.size) if need.sha256 else None
        self.waiting: dict[Hashable, Promise[Outcome[Ref]] | None] = {}
        """Waiters, and other fetches that wait for the same content."""
        self.is_asked = False
        """The want has a turn, and its transfer has not ended."""
        self.source: Promise[SourceNamed | None] | None = None
        """The leader's answer, while it is awaited; kept with None if the leader is lost."""
        self.using: str | None = None
        """URL of the source that the leader counts as busy with this worker; None if there is none to report."""
        self.is_moving = False
        self.told_failure: tuple[str, str] | None = None
        """URL of the source that failed last, and why, for the next Want."""


class WantLine:
    """Turns for wants: so many in all and of each size, large ones first. None while there is no leader."""

    def __init__(self, flows: Flows, bounds: FetchBounds) -> None:
        self._flows = flows
        self._bounds = bounds
        self._most: Final = {
            Size.LARGE: bounds.asked_large,
            Size.UNKNOWN: bounds.asked_unknown,
            Size.SMALL: bounds.asked,
        }
        self.is_open = False
        self.taken = dict.fromkeys(Size, 0)
        self.waiting: dict[Size, deque[Promise[None]]] = {size: deque() for size in Size}

    async def enter(self, fetch: Fetch) -> None:
        turn: Promise[None] = Promise(self._flows)
        line = self.waiting[fetch.size]
        if fetch.soon:
            line.appendleft(turn)
        else:
            line.append(turn)
        self.go_on()
        try:
            await turn
        except BaseException:
            if turn.is_kept:
                self._give_back(fetch.size)
            else:
                line.remove(turn)
            raise
        fetch.is_asked = True

    def leave(self, fetch: Fetch) -> None:
        if fetch.is_asked:
            fetch.is_asked = False
            self._give_back(fetch.size)

    def change_size(self, fetch: Fetch, size: Size) -> bool:
        """False if that is one too many of this size."""
        self.taken[fetch.size] -= 1
        self.taken[size] += 1
        fetch.size = size
        self.go_on()
        return self.taken[size] <= self._most[size]

    def go_on(self) -> None:
        while self.is_open and sum(self.taken.values()) < self._bounds.asked:
            sizes = (size for size in Size if self.waiting[size] and self.taken[size] < self._most[size])
            size = next(sizes, None)
            if size is None:
                return
            self.taken[size] += 1
            self.waiting[size].popleft().keep(None)

    def _give_back(self, size: Size) -> None:
        self.taken[size] -= 1
        self.go_on()


class FetchMachine:
    """All fetches of one worker. See `core/step.py` for the four doors."""

    def __init__(self, now: float, chance: Callable[[], float], bounds: FetchBounds | None = None) -> None:
        bounds = self._bounds = bounds or USUAL_BOUNDS
        self._flows = Flows(now)
        self._transfers: Transfers[Need, Ref] = Transfers(self._flows, bounds.retry, chance)
        self.line = WantLine(self._flows, bounds)
        self.turns = Turns(self._flows, bounds.moving)
        self.by_want: dict[int, Fetch] = {}
        self._by_need: dict[Need, Fetch] = {}
        self._moving: dict[str, Fetch] = {}
        """Fetch in progress of each content; other fetches that turn out to need the same content wait for it."""
        self._wants = 0
        self._has_none = False
        """The connected leader has no blobs."""

    def handle(self, events: Sequence[FetchEvent], now: float) -> Step[None, FetchDo]:
        self._flows.now = now
        for event in events:
            match event:
                case Answered() | ActFailed():
                    self._flows.hear(event)
                case ContentNeeded():
                    self._need(event)
                case NeedDropped():
                    self._drop(event)
                case BlobsOffered():
                    self._offered()
                case NoBlobsOffered():
                    self._refuse()
                case OfferLost():
                    self._lost()
                case SourceNamed():
                    self._named(event)
        return Step(do=self._flows.run(now))

    def tick(self, now: float) -> Step[None, FetchDo]:
        return Step(do=self._flows.run(now))

    def wake_at(self) -> float | None:
        return self._flows.wake_at()

    def check(self) -> None:
        self._flows.check()
        self.turns.check()
        fetches = self.by_want.values()
        assert {fetch.need: fetch for fetch in fetches} == self._by_need
        assert self._flows.count == len(fetches)
        for size in Size:
            assert self.line.taken[size] == sum(fetch.is_asked and fetch.size is size for fetch in fetches)
        assert self.turns.taken == sum(fetch.is_moving for fetch in fetches) <= self._bounds.moving
        assert self._moving == {fetch.ref[0]: fetch for fetch in fetches if fetch.is_moving and fetch.ref}
        for fetch in fetches:
            assert fetch.waiting or fetch.is_asked
            assert not fetch.flow.ended.is_kept

    def close(self) -> None:
        """Ends all flows where they rest."""
        self._flows.close()

    # Needs.

    def _need(self, event: ContentNeeded) -> None:
        fetch = self._by_need.get(event.need)
        if fetch is None:
            self._wants += 1
            need = event.need
            size = self._size_of(need.size) if need.sha256 else Size.UNKNOWN
            fetch = self._by_need[need] = Fetch(need, self._wants, size, self._flows.now, soon=event.soon)
            self.by_want[fetch.want] = fetch
            fetch.flow = self._flows.start(partial(self._run, fetch), f"fetch {need}")
        fetch.waiting[event.waiter] = None

    def _drop(self, event: NeedDropped) -> None:
        fetch = self._by_need.get(event.need)
        if fetch is not None and event.waiter in fetch.waiting:
            self._leave(fetch, event.waiter)

    def _leave(self, fetch: Fetch, waiter: Hashable) -> None:
        del fetch.waiting[waiter]
        if not fetch.waiting and not fetch.is_asked:
            self._forget(fetch)
            fetch.flow.cancel()

    async def _run(self, fetch: Fetch) -> None:
        if self._is_over(fetch):
            return
        outcome = await self._transfers.persist(fetch.transfer, partial(self._try, fetch))
        if not self._is_over(fetch):
            self._end(fetch, outcome)

    def _is_over(self, fetch: Fetch) -> bool:
        return fetch.want not in self.by_want

    def _end(self, fetch: Fetch, outcome: Outcome[Ref]) -> None:
        self._forget(fetch)
        for waiter, promise in fetch.waiting.items():
            if promise is not None:
                promise.keep(outcome)
            elif isinstance(outcome, Arrived):
                self._flows.emit(NeedEnded(waiter, fetch.need, *outcome.value))
            else:
                self._flows.emit(NeedEnded(waiter, fetch.need, error=_why(fetch.need, outcome.error)))

    def _stop_unless_awaited(self, fetch: Fetch) -> None:
        """For the flow of the fetch itself, between two turns."""
        if not fetch.waiting:
            self._forget(fetch)
            raise FlowCancelled

    def _forget(self, fetch: Fetch) -> None:
        self._free_source(fetch)
        del self.by_want[fetch.want]
        del self._by_need[fetch.need]

    # The leader.

    def _offered(self) -> None:
        for fetch in self.by_want.values():
            fetch.told_failure = None
        self._has_none = False
        self.line.is_open = True
        self.line.go_on()

    def _refuse(self) -> None:
        """Ends all needs that are not being fetched; the others, if their sources fail."""
        self._has_none = True
        for fetch in list(self.by_want.values()):
            if not fetch.is_moving:
                self._end(fetch, GivenUp(_no_blobs(fetch.need)))
                fetch.flow.cancel()

    def _lost(self) -> None:
        self._has_none = self.line.is_open = False
        for fetch in self.by_want.values():
            fetch.using = None
            if fetch.source is not None:
                fetch.source.keep(None)

    def _named(self, event: SourceNamed) -> None:
        fetch = self.by_want.get(event.want)
        if fetch is not None and fetch.source is not None and not fetch.source.is_kept:
            fetch.source.keep(event)
            fetch.using = None if event.code else event.url

    def _send_want(self, fetch: Fetch, failure: tuple[str, str] | None) -> None:
        url, why = failure or (None, "")
        self._flows.emit(SendWant(fetch.want, fetch.need, url, why))

    def _free_source(self, fetch: Fetch) -> None:
        """Report that the source is not used (any more), and that no other is wanted."""
        if fetch.using is not None and self.line.is_open:
            self._send_want(fetch, (fetch.using, GIVEN_UP))
        fetch.using = None

    # One try.

    async def _try(self, fetch: Fetch, _transfer: Transfer[Need, Ref]) -> Ref:
        while True:
            self._stop_unless_awaited(fetch)
            if self._has_none:
                raise _no_blobs(fetch.need)
            await self.line.enter(fetch)
            try:
                source = await self._ask(fetch)
                if source is None:
                    continue
                ref = fetch.ref = fetch.ref or (source.sha256, source.size)
                is_one_too_many = not self.line.change_size(fetch, self._size_of(ref[1]))
                if await IsBlobHere(*ref):
                    fetch.using = None  # Stock reports it to the leader.
                    return ref
                if ref[0] not in self._moving:
                    if is_one_too_many and fetch.size is Size.LARGE:
                        self._free_source(fetch)
                        continue
                    if await self._move(fetch, source, ref):
                        return ref
            finally:
                self.line.leave(fetch)
            self._free_source(fetch)
            self._stop_unless_awaited(fetch)
            return await self._join(self._moving[ref[0]])

    async def _ask(self, fetch: Fetch) -> SourceNamed | None:
        """The source that the leader names; None if the leader is lost."""
        if not self.line.is_open:
            return None
        failure, fetch.told_failure, fetch.using = fetch.told_failure, None, None
        fetch.source = Promise(self._flows)
        self._send_want(fetch, failure)
        try:
            source = await fetch.source
        finally:
            fetch.source = None
        if source is not None and source.code:
            raise Refused(source.code, f"{fetch.need}: {source.message or source.code}")
        return source

    async def _move(self, fetch: Fetch, source: SourceNamed, ref: Ref) -> bool:
        """False if another fetch of the same content was faster."""
        async with self.turns:
            if ref[0] in self._moving:
                return False
            self._moving[ref[0]], fetch.is_moving = fetch, True
            try:
                await FetchBlob(*ref, source.url, source.token)
            except InVain as vain:
                self._flows.emit(SourceFailed(fetch.need, source.url, vain.why, vain.text))
                self._stop_unless_awaited(fetch)
                fetch.told_failure = (source.url, vain.why)
                code = "blob-broken" if vain.why == "lied" else "worker-error"
                raise TryAgain(Refused(code, f"{fetch.need} could not be fetched: {vain.text}")) from None
            finally:
                del self._moving[ref[0]]
                fetch.is_moving = False
        fetch.using = None  # Stock reports it to the leader.
        return True

    async def _join(self, other: Fetch) -> Ref:
        """The outcome of another fetch of the same content."""
        end: Promise[Outcome[Ref]] = Promise(self._flows)
        other.waiting[end] = end
        try:
            outcome = await end
        except BaseException:
            if not self._is_over(other):
                self._leave(other, end)
            raise
        if isinstance(outcome, GivenUp):
            raise outcome.error
        return outcome.value

    def _size_of(self, size: int) -> Size:
        return Size.LARGE if size > self._bounds.large_bytes else Size.SMALL


def _no_blobs(need: Need) -> Refused:
    return Refused("no-blob" if need.sha256 else "no-cache", f"{need} is not here, and the leader has none")


def _why(need: Need, error: WakugumiError) -> Refused:
    return error if isinstance(error, Refused) else Refused("worker-error", f"{need} could not be fetched: {error}")
