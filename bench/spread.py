"""What does it cost the leader to bring the same gigabyte to a thousand workers, and how long does it take?

    .venv/bin/python bench/spread.py                   1 GiB to 1 000 workers, links of 10 Gbit/s each way
    .venv/bin/python bench/spread.py --workers 100

The real `core/files/machine.py` under virtual time. Simulated are the links (each transfer gets an equal share of its
source's uplink; its fetcher fetches nothing else), 50 ms to put a blob in its place once it has come, for its hash is
made on the way, and deaths: a dead worker's uploads end half-way, its fetchers notice after a second, and resume
elsewhere where they were. There is no contention inside the network. Everything is compared with one copy alone.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Callable
from typing import NamedTuple

from wakugumi.core.files import events as se
from wakugumi.core.files.machine import FileDistribution
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.step import Step
from wakugumi.core.subject import Pattern

GIB = 1 << 30
LINK_BYTES_PER_S = 10e9 / 8
PLACE_S = 0.05
NOTICE_S = 1.0
LATENCY_S = 0.001
SHA = "ab" * 32
LEADER = -1


class Outcome(NamedTuple):
    workers: int
    dead: int
    seconds: float
    """Until the last one that lives has it."""
    one_copy_s: float
    leader_bytes: int
    all_bytes: int

    @property
    def leader_share(self) -> float:
        return self.leader_bytes / self.all_bytes

    @property
    def times(self) -> float:
        return self.seconds / self.one_copy_s


class _Transfer:
    __slots__ = ("fetcher", "rate", "source", "stamp", "updated_at")

    def __init__(self, fetcher: int, source: int, now: float) -> None:
        self.fetcher = fetcher
        self.source = source
        self.updated_at = now
        self.rate = 0.0
        self.stamp = 0


class World:
    """One put of one file. `uploads_max` as in `limits/files.py`, or another one to try."""

    def __init__(self, workers: int, *, size: int, dying: int, seed: int, uploads_max: int = 1) -> None:
        self.random = random.Random(seed)
        self.size = size
        self.now = 0.0
        self.machine = FileDistribution(lambda: self.random.randbytes(16), now=0.0, uploads_max=uploads_max)
        self.bytes_of = [0.0] * workers
        """How much each worker has; it goes on from there when a source dies."""
        self.has = [False] * workers
        self.alive = [True] * workers
        self.lacking = workers
        """Who lives and does not have it."""
        self.transfers: dict[int, _Transfer] = {}
        self.uploads: dict[int, set[int]] = {}
        """By source: the fetchers."""
        self.leader_bytes = 0.0
        self.all_bytes = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.summary: se.SendSummary | None = None
        self._dying = self.random.sample(range(workers), dying)

    def run(self) -> Outcome:
        workers = len(self.has)
        self._tell(
            *(
                se.WorkerCame(ConnId(at), WorkerId(at.to_bytes(16, "big")), f"w{at}", (Pattern("job.assign.>"),), True)
                for at in range(workers)
            ),
            *(se.Stocked(ConnId(at), True, f"http://w{at}", "key", (), (), {}) for at in range(workers)),
        )
        file = se.CacheFile("data.bin", SHA, self.size)
        targets = (Pattern("job.assign.>"),)
        self._tell(se.PutAsked(ConnId(workers + 1), b"p" * 16, "data", (file,), targets, 3_600.0, 1.0, False, False))
        one_copy_s = self.size / LINK_BYTES_PER_S + PLACE_S
        for at in self._dying:
            self._at(self.random.uniform(0.0, 11 * one_copy_s), lambda at=at: self._die(at))  # type: ignore[misc]
        while self.lacking:
            self._advance()
        dead = len(self.alive) - sum(self.alive)
        return Outcome(workers, dead, self.now, one_copy_s, int(self.leader_bytes), int(self.all_bytes))

    # Time.

    def _at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def _advance(self) -> None:
        wake_at = self.machine.wake_at()
        assert self._events or wake_at is not None, "nothing more will happen, and somebody has nothing"
        if not self._events or (wake_at is not None and wake_at < self._events[0][0]):
            assert wake_at is not None
            self.now = max(self.now, wake_at)
            self._perform(self.machine.tick(self.now))
            return
        self.now, _, what = heapq.heappop(self._events)
        what()

    def _tell(self, *events: se.SpreadEvent) -> None:
        self._perform(self.machine.handle(events, self.now))

    def _perform(self, step: Step[se.SpreadKeep, se.SpreadDo]) -> None:
        for effect in step.do:
            if isinstance(effect, se.SendCachePut):
                self._later(effect.conn, self._want)
            elif isinstance(effect, se.SendSource):
                source = LEADER if not effect.url else int(effect.url.removeprefix("http://w"))
                self._later(effect.conn, lambda at, source=source: self._begin(at, source))  # type: ignore[misc]
            elif isinstance(effect, se.SendSummary):
                self.summary = effect

    def _later(self, conn: ConnId, what: Callable[[int], None]) -> None:
        self._at(self.now + LATENCY_S, lambda: what(int(conn)) if self.alive[conn] else None)

    # Workers.

    def _want(self, at: int, why: str = "") -> None:
        if not self.has[at]:
            self._tell(se.BlobWanted(ConnId(at), at.to_bytes(16, "big"), SHA, self.size, "", "", why, True))

    def _begin(self, at: int, source: int) -> None:
        if source != LEADER and not self.alive[source]:
            self._at(self.now + NOTICE_S, lambda: self._want(at, "dead") if self.alive[at] else None)
            return
        self.transfers[at] = _Transfer(at, source, self.now)
        self.uploads.setdefault(source, set()).add(at)
        self._share(source)

    def _share(self, source: int) -> None:
        """Who fetches from this source: what they have by now, and how fast it goes from here on."""
        fetchers = self.uploads.get(source, set())
        for at in fetchers:
            transfer = self.transfers[at]
            self._settle(transfer)
            transfer.rate = LINK_BYTES_PER_S / len(fetchers)
            transfer.stamp += 1
            ends_at = self.now + (self.size - self.bytes_of[at]) / transfer.rate
            self._at(ends_at, lambda transfer=transfer, stamp=transfer.stamp: self._end(transfer, stamp))  # type: ignore[misc]

    def _settle(self, transfer: _Transfer) -> None:
        moved = transfer.rate * (self.now - transfer.updated_at)
        moved = min(moved, self.size - self.bytes_of[transfer.fetcher])
        self.bytes_of[transfer.fetcher] += moved
        self.all_bytes += moved
        self.leader_bytes += moved if transfer.source == LEADER else 0.0
        transfer.updated_at = self.now

    def _end(self, transfer: _Transfer, stamp: int) -> None:
        if self.transfers.get(transfer.fetcher) is not transfer or transfer.stamp != stamp:
            return
        self._stop(transfer)
        self._at(self.now + PLACE_S, lambda: self._verified(transfer.fetcher))

    def _verified(self, at: int) -> None:
        if self.alive[at]:
            self.has[at] = True
            self.lacking -= 1
            self._tell(
                se.Stocked(ConnId(at), False, "", "", (SHA,), (), {}),
                se.PutAnswered(ConnId(at), bytes(16), "data", se.OK, "added=1"),
            )

    def _stop(self, transfer: _Transfer) -> None:
        self._settle(transfer)
        del self.transfers[transfer.fetcher]
        self.uploads[transfer.source].discard(transfer.fetcher)
        self._share(transfer.source)

    def _die(self, at: int) -> None:
        self.alive[at] = False
        self.lacking -= not self.has[at]
        own = self.transfers.get(at)
        if own is not None:
            self._stop(own)
        for fetcher in list(self.uploads.get(at, ())):
            self._stop(self.transfers[fetcher])
            self._at(self.now + NOTICE_S, lambda at=fetcher: self._want(at, "dead") if self.alive[at] else None)  # type: ignore[misc]
        self._tell(se.WorkerWent(ConnId(at)))


def simulate(
    workers: int, *, size: int = GIB, dying_share: float = 0.0, seed: int = 1, uploads_max: int = 1
) -> Outcome:
    world = World(workers, size=size, dying=round(workers * dying_share), seed=seed, uploads_max=uploads_max)
    outcome = world.run()
    world.machine.check()
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description="One file to many workers, by the leader's own decisions, simulated.")
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--mib", type=int, default=1_024, help="size of the file")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print("| workers | uploads each | dying | time | times one copy | from the leader | leader's share |")
    print("|---|---|---|---|---|---|---|")
    for uploads_max in (1, 2):
        for share in (0.0, 0.05):
            it = simulate(
                asked.workers, size=asked.mib << 20, dying_share=share, seed=asked.seed, uploads_max=uploads_max
            )
            print(
                f"| {it.workers} | {uploads_max} | {it.dead} | {it.seconds:.1f} s | {it.times:.1f} "
                f"| {it.leader_bytes / GIB:.2f} GiB | {it.leader_share:.2%} |"
            )


if __name__ == "__main__":
    main()
