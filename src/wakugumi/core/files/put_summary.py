"""How far is a put, and what does its client receive? (SPEC C1)

Each target worker is counted once: it waits, took the cache (ok), had it (skipped), failed, or was silent.
"""

from __future__ import annotations

from math import ceil

from wakugumi.core.files.events import FAILED, OK, SKIPPED, PutAsked, SendSummary
from wakugumi.core.ids import WorkerId
from wakugumi.limits.files import PUT_FAILURES_MAX


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
