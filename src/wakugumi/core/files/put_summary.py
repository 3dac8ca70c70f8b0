"""How far is a put, and what does its client receive? (SPEC C1)

Each target worker is counted once: it waits, took the cache (ok), had it (skipped), failed, or was silent. A put ends
with one summary: when all workers are counted, when enough of them have the cache, or when its time is over.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from math import ceil

from wakugumi.core.files.events import FAILED, OK, PROGRESS, SKIPPED, FilesStepBuilder, PutAsked, SendSummary
from wakugumi.core.files.timers import Timers
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.limits.files import PUT_FAILURES_MAX

_PROGRESS_S = 1.0


class PutProgress:
    """One put: the tally of the workers' answers."""

    __slots__ = (
        "alarm",
        "ask",
        "cache_id",
        "conn",
        "failed",
        "failures",
        "names",
        "needed",
        "ok",
        "progress",
        "sent",
        "silent",
        "skipped",
        "told",
        "waiting",
    )

    def __init__(self, event: PutAsked, names: int, sent: int) -> None:
        self.conn = event.conn
        self.ask = event.ask
        self.cache_id = event.cache_id
        self.names = names
        """Names of the cache at the time of the request: the number that a worker must have."""
        self.sent = sent
        self.needed = ceil(event.share * sent)
        self.progress = event.progress
        self.told: SendSummary | None = None
        self.alarm = 0
        """Alarm for the deadline; 0 once it has rung."""
        self.waiting: dict[WorkerId, None] = {}
        self.ok = self.skipped = self.failed = self.silent = 0
        self.failures: list[tuple[str, str]] = []

    @property
    def done(self) -> int:
        return self.ok + self.skipped

    def fail(self, name: str, message: str) -> None:
        self.failed += 1
        if len(self.failures) < PUT_FAILURES_MAX:
            self.failures.append((name, message))

    def summary(self, status: str) -> SendSummary:
        counts = self.sent, self.ok, self.skipped, self.failed, self.silent, len(self.waiting)
        names = ("sent", "ok", "skipped", "failed", "silent", "waiting")
        message = " ".join(f"{name}={count}" for name, count in zip(names, counts) if count or name != "waiting")
        return SendSummary(self.conn, self.ask, self.cache_id, status, message, *counts, tuple(self.failures))

    @property
    def is_over(self) -> bool:
        return not self.waiting or self.done >= self.needed

    def end(self) -> SendSummary:
        return self.summary(FAILED if self.done < self.needed else OK if self.ok else SKIPPED)


class RunningPuts:
    """All puts that have not ended."""

    def __init__(self, alarms: Timers) -> None:
        self._alarms = alarms
        self._puts: dict[tuple[ConnId, bytes], PutProgress] = {}

    def __contains__(self, key: tuple[ConnId, bytes]) -> bool:
        return key in self._puts

    def count(self, conn: ConnId) -> int:
        """Number of puts of this client."""
        return sum(conn == of for of, _ in self._puts)

    def is_busy(self, cache_id: str) -> bool:
        """Is a put of the cache under way?"""
        return any(put.cache_id == cache_id for put in self._puts.values())

    def waits_for(self, worker: WorkerId) -> bool:
        return any(worker in put.waiting for put in self._puts.values())

    def begin(self, put: PutProgress) -> None:
        """The put is counted from now on; `start` follows when its workers were asked."""
        self._puts[put.conn, put.ask] = put

    def start(self, put: PutProgress, within_s: float, now: float, out: FilesStepBuilder) -> None:
        if self._is_open(put):
            put.alarm = self._alarms.set(now + within_s, partial(self._deadline, put))
            if put.progress:
                self._alarms.set(now + _PROGRESS_S, partial(self._report, put))
            self._look(put, out)

    def settle(self, worker: WorkerId, cache_id: str, names: int, status: str, out: FilesStepBuilder) -> None:
        """The worker has so many names of the cache: puts that ask for no more count it."""
        for put in self._waiting(worker, cache_id):
            if names >= put.names:
                del put.waiting[worker]
                put.ok += status == OK
                put.skipped += status != OK
                self._look(put, out)

    def fail(
        self,
        worker: WorkerId,
        name: str,
        message: str,
        out: FilesStepBuilder,
        *,
        cache_id: str | None = None,
        is_silent: bool = False,
    ) -> None:
        """The worker failed for puts of this cache, or of any."""
        for put in self._waiting(worker, cache_id):
            del put.waiting[worker]
            if is_silent:
                put.silent += 1
            else:
                put.fail(name, message)
            self._look(put, out)

    def client_went(self, conn: ConnId) -> None:
        """The puts of this client end without a summary; the workers get the caches nevertheless."""
        for put in [put for put in self._puts.values() if put.conn == conn]:
            self._close(put)

    def dropped(self, cache_id: str, out: FilesStepBuilder) -> None:
        """The puts of this cache fail."""
        for put in [put for put in self._puts.values() if put.cache_id == cache_id]:
            self._close(put)
            text = "the cache was dropped"
            out.do.append(SendSummary(put.conn, put.ask, cache_id, FAILED, text, code="no-cache"))

    def check(self, caches: Collection[str]) -> None:
        """Asserts the invariants, after each step."""
        for key, put in self._puts.items():
            assert key == (put.conn, put.ask)
            assert put.sent == put.done + put.failed + put.silent + len(put.waiting)
            assert not put.is_over, "a put that is over is under way"
            assert put.cache_id in caches

    def _waiting(self, worker: WorkerId, cache_id: str | None) -> list[PutProgress]:
        """Puts that wait for the worker."""
        return [put for put in self._puts.values() if worker in put.waiting and cache_id in {None, put.cache_id}]

    def _is_open(self, put: PutProgress) -> bool:
        return self._puts.get((put.conn, put.ask)) is put

    def _deadline(self, put: PutProgress, _now: float, out: FilesStepBuilder) -> None:
        if self._is_open(put):
            put.alarm = 0
            put.silent += len(put.waiting)
            put.waiting.clear()
            self._look(put, out)

    def _report(self, put: PutProgress, now: float, out: FilesStepBuilder) -> None:
        if not self._is_open(put):
            return
        summary = put.summary(PROGRESS)
        if summary != put.told:
            out.do.append(summary)
            put.told = summary
        self._alarms.set(now + _PROGRESS_S, partial(self._report, put))

    def _look(self, put: PutProgress, out: FilesStepBuilder) -> None:
        """Ends the put and sends its summary, once, if it is over."""
        if put.is_over:
            self._close(put)
            out.do.append(put.end())

    def _close(self, put: PutProgress) -> None:
        del self._puts[put.conn, put.ask]
        if put.alarm:
            self._alarms.take_back(put.alarm)
