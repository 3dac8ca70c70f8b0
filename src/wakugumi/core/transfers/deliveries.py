"""How do the large parts of a result reach the leader? (SPEC C5)

    leader ── Missing: these blobs ──► each goes to the leader's place ──► the same AckJob again

A result names its large parts by hash; the files are in the job's directory. A part is sent only when the leader asks
for it, and once for all results that have it. A transfer outlives the connection. A failed one is repeated while that
leader is connected; after a reconnect the leader asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

import msgspec

from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, Flow, Flows, Perform, Promise
from wakugumi.core.ids import JobId
from wakugumi.core.step import Step
from wakugumi.core.transfers.transfers import (
    GivenUp,
    Outcome,
    PutBlob,
    PutEnd,
    RetryRule,
    Transfer,
    Transfers,
    TryAgain,
    Turns,
)
from wakugumi.errors import Lost, Refused
from wakugumi.limits.files import LARGE_TRANSFERS_MAX, UPLOAD_BROKEN_MAX
from wakugumi.limits.runner import LARGE_WORK_BYTES

AT_ONCE: Final = 4
"""Parts of results sent at once: enough to fill a connection, few enough that each makes progress."""
PAUSE_FIRST_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0


class ResultPart(Protocol):
    """A file of a result. The machine looks at its size alone."""

    @property
    def size(self) -> int: ...


class PlaceKnown(msgspec.Struct, frozen=True):
    """Event: a leader is connected that accepts blobs at `url`."""

    url: str


class PlaceLost(msgspec.Struct, frozen=True):
    """Event: no leader is connected, or it accepts no blobs."""


class PartsAsked(msgspec.Struct, frozen=True):
    """Event: the leader accepts a job's result once it has these blobs."""

    job: JobId
    blobs: Collection[str]


class ResultsSettled(msgspec.Struct, frozen=True):
    """Event: the leader has these results, or does not want them."""

    jobs: Collection[JobId]


class ResendResult(msgspec.Struct, frozen=True):
    """Effect: all parts that were asked for have arrived; send the result again."""

    job: JobId
    payload: bytes
    request: bytes


class DeliveryFailed(msgspec.Struct, frozen=True):
    """Effect: the result cannot be delivered."""

    job: JobId
    no: Refused
    unforeseen: Exception | None = None


class DeliveryWaits(msgspec.Struct, frozen=True):
    """Effect: log that a result waits for another try."""

    job: JobId
    error: Exception
    pause_s: float


class LoadParts(Act["LoadedResult | None"], frozen=True):
    """The result of a job from the disk; None if it is not there. Raises Lost if no thread can be started."""

    job: JobId


class LoadedResult(msgspec.Struct, frozen=True):
    """A finished job's encoded result, the digest of its request, and its large parts by SHA-256."""

    payload: bytes
    request: bytes
    parts: Mapping[str, ResultPart]


DeliveriesEvent: TypeAlias = PlaceKnown | PlaceLost | PartsAsked | ResultsSettled | Answered | ActFailed
DeliveriesDo: TypeAlias = ResendResult | DeliveryFailed | DeliveryWaits | Perform | Abandon
PartKey: TypeAlias = tuple[str, str]
"""URL of the place, and SHA-256."""


class _Delivery:
    """One result on its way to one place."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.left: dict[str, None] = {}
        """Blobs that the leader asks for, in this order."""
        self.flow: Flow[None]


class DeliveriesMachine:
    """All results of one worker on their way. See `core/step.py` for the four doors."""

    def __init__(self, now: float, chance: Callable[[], float]) -> None:
        self.url = ""
        """Place of the connected leader; empty if there is none."""
        self.under_way: dict[JobId, _Delivery] = {}
        self._flows = flows = Flows(now)
        self.turns = Turns(flows, AT_ONCE)
        self.large_turns = Turns(flows, LARGE_TRANSFERS_MAX)
        """Large transfers take hours: smaller ones overtake them."""
        rule = RetryRule(PAUSE_FIRST_S, PAUSE_MAX_S, broken_max=UPLOAD_BROKEN_MAX)
        self.transfers: Transfers[PartKey, None] = Transfers(flows, rule, chance)
        self.transfers.on_retry = self._tell_retry
        self._loads: Transfers[JobId, LoadedResult | None] = Transfers(flows, rule, chance)
        self._loads.on_retry = lambda load, again, pause_s: flows.emit(DeliveryWaits(load.key, again.error, pause_s))

    def handle(self, events: Sequence[DeliveriesEvent], now: float) -> Step[None, DeliveriesDo]:
        self._flows.now = now
        for event in events:
            match event:
                case Answered() | ActFailed():
                    self._flows.hear(event)
                case PlaceKnown():
                    self.url = event.url
                case PlaceLost():
                    self.url = ""
                case PartsAsked():
                    self._asked(event.job, event.blobs)
                case ResultsSettled():
                    for job in event.jobs:
                        self._stop(job)
        return Step(do=self._flows.run(now))

    def tick(self, now: float) -> Step[None, DeliveriesDo]:
        return Step(do=self._flows.run(now))

    def wake_at(self) -> float | None:
        return self._flows.wake_at()

    def check(self) -> None:
        self._flows.check()
        self.turns.check()
        self.large_turns.check()
        self.transfers.check()
        for delivery in self.under_way.values():
            assert not delivery.flow.ended.is_kept
        for transfer in self.transfers.by_key.values():
            for job in transfer.waiting:
                assert self.under_way[job].url == transfer.key[0]  # type: ignore[index]

    def close(self) -> None:
        """Ends all flows where they rest."""
        self._flows.close()

    @property
    def flows_open(self) -> int:
        return self._flows.count

    def _asked(self, job: JobId, blobs: Collection[str]) -> None:
        delivery = self.under_way.get(job)
        if not self.url:
            return
        if delivery is None or delivery.url != self.url:
            self._stop(job)
            delivery = self.under_way[job] = _Delivery(self.url)
            delivery.flow = self._flows.start(partial(self._deliver, job, delivery), "delivery")
        delivery.left |= dict.fromkeys(blobs)

    def _stop(self, job: JobId) -> None:
        if (delivery := self.under_way.pop(job, None)) is not None:
            delivery.flow.cancel()

    async def _deliver(self, job: JobId, delivery: _Delivery) -> None:
        end = await self._bring(job, delivery.url, delivery.left)
        if self.under_way.get(job) is not delivery:
            return  # It was stopped before it began.
        del self.under_way[job]
        if isinstance(end, LoadedResult):
            if self.url == delivery.url:
                self._flows.emit(ResendResult(job, end.payload, end.request))
        elif isinstance(end.error, Refused):
            self._flows.emit(DeliveryFailed(job, end.error, end.unforeseen))

    async def _bring(self, job: JobId, url: str, left: dict[str, None]) -> LoadedResult | GivenUp:
        """Put all parts until none is left. Given up with Lost if there is no such leader now: the next one will
        ask."""

        async def load(_: Transfer[JobId, LoadedResult | None]) -> LoadedResult | None:
            try:
                return await LoadParts(job)
            except Lost as error:
                raise self._again(url, error) from None

        outcome = await self._loads.persist(Transfer(job, self._flows.now), load)
        if isinstance(outcome, GivenUp):
            return outcome
        loaded = outcome.value
        while loaded is not None and all(sha256 in loaded.parts for sha256 in left):
            if not left:
                return loaded
            sha256 = next(iter(left))
            end = await self._put(job, url, sha256, loaded.parts[sha256])
            if isinstance(end, GivenUp):
                return end
            del left[sha256]
        return GivenUp(Refused("worker-error", "the files of the job's result are no longer on the worker's disk"))

    async def _put(self, job: JobId, url: str, sha256: str, part: ResultPart) -> Outcome[None]:
        """A failure with another result's file is none of this one's: its own file is tried then."""

        async def put(_: Transfer[PartKey, None]) -> None:
            act = PutBlob(url, sha256, part)
            if part.size > LARGE_WORK_BYTES:
                async with self.large_turns, self.turns:
                    end = await act
            else:
                async with self.turns:
                    end = await act
            self._sort(url, end)

        while True:
            ended: Promise[Outcome[None]] = Promise(self._flows)
            transfer = self.transfers.join((url, sha256), job, put, ended.keep)
            if transfer.ticket is None:
                transfer.ticket = part
            try:
                outcome = await ended
            finally:
                self.transfers.leave(transfer, job)
            if not isinstance(outcome, GivenUp) or transfer.ticket == part or isinstance(outcome.error, Lost):
                return outcome

    def _sort(self, url: str, end: PutEnd) -> None:
        """Raises what follows from the end of a try."""
        error = end.error
        if isinstance(error, Lost):
            raise self._again(url, error)
        if error is not None and error.retry:
            raise self._again(url, error, is_broken=error.code == "blob-broken")
        if error is not None:
            raise error

    def _again(self, url: str, error: Lost | Refused, *, is_broken: bool = False) -> Exception:
        """Another try, if the leader is connected."""
        return TryAgain(error, is_broken=is_broken) if self.url == url else Lost("the leader is not connected")

    def _tell_retry(self, transfer: Transfer[PartKey, None], again: TryAgain, pause_s: float) -> None:
        job: JobId = next(iter(transfer.waiting))  # type: ignore[assignment]
        self._flows.emit(DeliveryWaits(job, again.error, pause_s))
