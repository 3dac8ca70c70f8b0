"""Which workers should have which cache, which have it, and which are asked for it?

Every worker whose patterns overlap a cache's targets is asked to have the cache: when it is put, when names are added,
and when the worker joins. Each worker is asked for a few caches at a time, again if it is silent, and later if it
failed. `put_summary` counts the answers for the client of a put.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import islice

from wakugumi.core.files.catalogue import CacheCatalogue, CacheRecord, fits_inline, overlap
from wakugumi.core.files.events import (
    FAILED,
    OK,
    SKIPPED,
    FilesStepBuilder,
    PutAnswered,
    PutAsked,
    SendCacheDrop,
    SendCachePut,
    SendSummary,
    Stocked,
    WorkerCame,
)
from wakugumi.core.files.put_summary import PutProgress, RunningPuts
from wakugumi.core.files.timers import Timers
from wakugumi.core.files.worker_caches import PendingPut, PutTarget
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.subject import PatternTree
from wakugumi.errors import Refused
from wakugumi.limits.files import (
    ASKED_BYTES_MAX,
    PUT_AGAIN_S,
    PUT_ASKS_MAX,
    PUT_GONE_S,
    PUT_RETRY_FIRST_S,
    PUT_RETRY_MAX_S,
    PUTS_PER_CLIENT_MAX,
    PUTS_PER_WORKER_MAX,
    STOCK_GRACE_S,
)

_LATER_S = 0.01
_ASK_BYTES = 4_096
"""Cost of one request to a worker, however small the manifest is."""
_ENTRY_BYTES = 256
"""Approximate size of a name in a manifest."""
_MESSAGE_CHARS_MAX = 300
_NO_ID = bytes(16)


class CachePlacement:
    """All workers with their caches."""

    def __init__(
        self, shelf: CacheCatalogue, alarms: Timers, new_id: Callable[[], bytes], is_fetching: Callable[[ConnId], bool]
    ) -> None:
        self._shelf = shelf
        self._alarms = alarms
        self._new_id = new_id
        self._is_fetching = is_fetching
        self._targets: dict[ConnId, PutTarget] = {}
        self._conns: dict[WorkerId, ConnId] = {}
        self._members: dict[str, dict[ConnId, PutTarget]] = {}
        """By cache id: the connected workers that should have the cache."""
        self.running = RunningPuts(alarms)
        self._by_target: PatternTree[dict[str, None]] = PatternTree()
        """The caches of each target, so that a joining worker is not compared with all caches."""
        self._ready: dict[str, dict[WorkerId, None]] = {}
        """By cache id: the connected workers that have the whole cache."""
        self._later: dict[ConnId, None] = {}
        """Workers whose due caches are asked for in a later step: this step has sent enough."""
        self._asked_at = float("-inf")
        self._asked_bytes = 0

    # Lookups.

    def members(self, cache_id: str) -> Iterable[PutTarget]:
        return self._members.get(cache_id, {}).values()

    def ready(self, cache: CacheRecord) -> int:
        """Workers that should have the cache and have all of it."""
        members = self._members.get(cache.cache_id, {})
        return sum(self._conns[worker] in members for worker in self.holders(cache.cache_id))

    def holders(self, cache_id: str) -> Collection[WorkerId]:
        """Connected workers that have the whole cache."""
        ready = self._ready.get(cache_id)
        return () if ready is None else ready.keys()

    def has_cache(self, worker: WorkerId, cache_id: str) -> bool:
        return worker in self.holders(cache_id)

    # Workers.

    def came(self, event: WorkerCame, now: float, out: FilesStepBuilder) -> None:
        target = self._targets[event.conn] = PutTarget(event)
        self._conns[event.worker] = event.conn
        for pattern in target.patterns:
            for caches in self._by_target.overlapping(pattern):
                for cache_id in caches:
                    self._members.setdefault(cache_id, {})[event.conn] = target
        if target.stocked:
            self._warm(target, now, out)
        else:
            self._alarms.set(now + STOCK_GRACE_S, partial(self._no_stock, event.conn))

    def went(self, conn: ConnId, now: float) -> None:
        target = self._targets.pop(conn, None)
        if target is None:
            return
        if self._conns.get(target.worker) == conn:
            del self._conns[target.worker]
        for members in self._members.values():
            members.pop(conn, None)
        for cache_id in target.has:
            self._ready.get(cache_id, {}).pop(target.worker, None)
        if self.running.waits_for(target.worker):
            self._alarms.set(now + PUT_GONE_S, partial(self._gone, target.worker, target.name))

    def conn_of(self, worker: WorkerId) -> ConnId | None:
        return self._conns.get(worker)

    def stocked(self, event: Stocked, now: float, out: FilesStepBuilder) -> None:
        target = self._targets.get(event.conn)
        if target is None:
            return
        if event.whole:
            for cache_id in list(target.has):
                self._set_has(target, cache_id, 0)
        for cache_id, said in event.caches.items():
            self._said(target, cache_id, said, out)
        if event.whole or not target.stocked:
            target.stocked = True
            self._warm(target, now, out)

    def answered(self, event: PutAnswered, now: float, out: FilesStepBuilder) -> None:
        """A worker's answer. An unexpected answer is ignored: it may be the second to the same request."""
        target = self._targets.get(event.conn)
        told = target.told.get(event.cache_id) if target is not None else None
        if target is None or told is None or event.put not in (told.put, _NO_ID):
            return
        cache = self._shelf.caches[event.cache_id]
        message = event.message[:_MESSAGE_CHARS_MAX]
        if event.status not in (OK, SKIPPED):
            self._failed(target, cache, message or f"it answered {event.status[:20]!r}", now, out)
            return
        del target.told[event.cache_id]
        self._set_has(target, event.cache_id, told.names)
        target.failed.pop(event.cache_id, None)
        target.evicted.discard(event.cache_id)
        self._settle(target, cache, event.status, out)
        self._consider(target, cache, now, out)
        if target.pins[event.cache_id] != cache.pinned and target.blobs:
            target.due[event.cache_id] = None
        self._send_due(target, now, out)

    # Clients.

    def asked(self, event: PutAsked, now: float, out: FilesStepBuilder) -> None:
        if (event.conn, event.ask) in self.running:
            return
        try:
            if self.running.count(event.conn) >= PUTS_PER_CLIENT_MAX:
                raise Refused("full", f"a client may have {PUTS_PER_CLIENT_MAX} puts under way", hint="")
            going = self._shelf.put(event, now, self.running.is_busy, out)
        except Refused as no:
            out.do.append(SendSummary(event.conn, event.ask, event.cache_id, FAILED, no.message, code=no.code))
            return
        for old in going:
            self._forget(old, out)
        cache = self._shelf.caches[event.cache_id]
        self.known(cache)
        self._find_members(cache)
        targets = [target for target in self._targets.values() if overlap(event.targets, target.patterns)]
        if targets:
            self._begin(event, cache, targets, now, out)
        else:
            text = f"no worker matches {' '.join(event.targets)}; the cache is kept, and workers that join later get it"
            out.do.append(SendSummary(event.conn, event.ask, event.cache_id, FAILED, text, code="no-worker"))
        for target in self.members(event.cache_id):
            self._consider(target, cache, now, out)
            self._send_due(target, now, out)

    def drop(self, cache: CacheRecord, out: FilesStepBuilder) -> None:
        self._shelf.drop(cache, out)
        self._forget(cache, out)

    def pinned(self, cache: CacheRecord, now: float, out: FilesStepBuilder) -> None:
        """The pin has changed: workers with the cache are told."""
        for target in self.members(cache.cache_id):
            if target.blobs and cache.cache_id in target.has and cache.cache_id not in target.told:
                target.due[cache.cache_id] = None
                self._send_due(target, now, out)

    def check(self) -> None:
        """Asserts the invariants, after each step."""
        self.running.check(self._shelf.caches)
        assert {target.worker: conn for conn, target in self._targets.items()} == self._conns
        for conn, target in self._targets.items():
            assert len(target.told) <= PUTS_PER_WORKER_MAX
            may_ask = len(target.told) < PUTS_PER_WORKER_MAX and conn not in self._later
            assert not target.due or not may_ask, "it could be asked, and is not"
            assert not (target.due.keys() & target.told.keys())
            for cache_id, cache in self._shelf.caches.items():
                is_member = conn in self._members.get(cache_id, {})
                assert is_member == cache.is_for(target.patterns)
                assert target.has.get(cache_id, 0) <= cache.names
                if is_member and target.stocked and target.has.get(cache_id) != cache.names:
                    books = (target.told, target.due, target.failed, target.evicted)
                    assert any(cache_id in book for book in books), "a worker that needs a cache is forgotten"
            for cache_id in (*target.has, *target.told, *target.due, *target.failed):
                assert cache_id in self._shelf.caches
        self._by_target.check()
        for cache_id, cache in self._shelf.caches.items():
            has_all = {target.worker for target in self._targets.values() if target.has.get(cache_id) == cache.names}
            assert self._ready.get(cache_id, {}).keys() == has_all
            assert all(cache_id in self._by_target[pattern] for pattern in cache.targets)

    # Requests to workers.

    def _warm(self, target: PutTarget, now: float, out: FilesStepBuilder) -> None:
        """The worker has reported its stock: it is asked for missing caches."""
        for cache in self._shelf.caches.values():
            if target.conn in self._members.get(cache.cache_id, {}):
                self._settle(target, cache, SKIPPED, out)
                self._consider(target, cache, now, out)
        self._send_due(target, now, out)

    def known(self, cache: CacheRecord) -> None:
        """A cache is new, was recovered, or has more names or targets than before."""
        for pattern in cache.targets:
            if pattern not in self._by_target:
                self._by_target[pattern] = {}
            self._by_target[pattern][cache.cache_id] = None
        ready = self._ready.get(cache.cache_id, {})
        for worker in [worker for worker in ready if self._target(worker).has[cache.cache_id] != cache.names]:
            del ready[worker]

    def _target(self, worker: WorkerId) -> PutTarget:
        return self._targets[self._conns[worker]]

    def _set_has(self, target: PutTarget, cache_id: str, names: int) -> None:
        """Sets the number of names that the worker has of the cache."""
        if names:
            target.has[cache_id] = names
        else:
            target.has.pop(cache_id, None)
        if names == self._shelf.caches[cache_id].names:
            self._ready.setdefault(cache_id, {})[target.worker] = None
        else:
            self._ready.get(cache_id, {}).pop(target.worker, None)

    def _find_members(self, cache: CacheRecord) -> None:
        members = self._members.setdefault(cache.cache_id, {})
        for conn, target in self._targets.items():
            if conn not in members and cache.is_for(target.patterns):
                members[conn] = target

    def _said(self, target: PutTarget, cache_id: str, said: str, out: FilesStepBuilder) -> None:
        """Takes a worker's report about a cache."""
        cache = self._shelf.caches.get(cache_id)
        if cache is None:
            return
        version, _, count = said.partition("/")
        had = target.has.get(cache_id, 0)
        is_ours = version == cache.version and count.isdecimal() and len(count) < 9
        self._set_has(target, cache_id, min(int(count), cache.names) if is_ours else 0)
        if had and target.has.get(cache_id, 0) < had:
            target.evicted.add(cache_id)
        self._settle(target, cache, SKIPPED, out)

    def _consider(self, target: PutTarget, cache: CacheRecord, now: float, out: FilesStepBuilder) -> None:
        """Decides whether the worker will be asked for this cache."""
        cache_id = cache.cache_id
        if not target.stocked or target.has.get(cache_id) == cache.names or cache_id in target.told:
            return
        if cache_id in target.failed or cache_id in target.evicted or cache_id in target.due:
            return
        if not target.blobs and not fits_inline(cache.files.values()):
            self._failed(target, cache, "it is an old worker, and the cache does not fit a frame", now, out)
            return
        target.due[cache_id] = None

    def _send_due(self, target: PutTarget, now: float, out: FilesStepBuilder) -> None:
        while target.due and len(target.told) < PUTS_PER_WORKER_MAX:
            if not self._may_ask(now):
                self._later[target.conn] = None
                return
            cache_id = next(iter(target.due))
            del target.due[cache_id]
            cache = self._shelf.caches[cache_id]
            if target.has.get(cache_id) == cache.names and target.pins.get(cache_id) == cache.pinned:
                target.failed.pop(cache_id, None)  # The worker has got the cache by itself.
            else:
                self._ask(target, cache, PendingPut(self._new_id(), cache), now, out)

    def _may_ask(self, now: float) -> bool:
        """False if this step has sent so much that others would wait; the rest is sent a moment later."""
        if now != self._asked_at:
            self._asked_at, self._asked_bytes = now, 0
        if self._asked_bytes < ASKED_BYTES_MAX:
            return True
        if not self._later:
            self._alarms.set(now + _LATER_S, self._go_on)
        return False

    def _go_on(self, now: float, out: FilesStepBuilder) -> None:
        later, self._later = self._later, {}
        for at, conn in enumerate(later):
            target = self._targets.get(conn)
            if target is not None:
                self._send_due(target, now, out)
            if self._later:
                self._later |= dict.fromkeys(islice(later, at + 1, None))
                return

    def _ask(self, target: PutTarget, cache: CacheRecord, told: PendingPut, now: float, out: FilesStepBuilder) -> None:
        target.told[cache.cache_id] = told
        target.pins[cache.cache_id] = cache.pinned
        told.asks += 1
        files = tuple(cache.files.values())
        put = SendCachePut(
            target.conn, told.put, cache.cache_id, cache.version, files, cache.pinned, inline=not target.blobs
        )
        out.do.append(put)
        self._asked_bytes += _ASK_BYTES + _ENTRY_BYTES * cache.names
        pause_s = PUT_AGAIN_S * 2 ** (told.asks - 1)
        self._alarms.set(now + pause_s, partial(self._again, target.conn, cache.cache_id, told))

    # Alarms.

    def _no_stock(self, conn: ConnId, now: float, out: FilesStepBuilder) -> None:
        target = self._targets.get(conn)
        if target is not None and not target.stocked:
            target.stocked = True
            self._warm(target, now, out)

    def _again(self, conn: ConnId, cache_id: str, told: PendingPut, now: float, out: FilesStepBuilder) -> None:
        """No answer to a request: the worker fetches, or is silent."""
        target = self._targets.get(conn)
        if target is None or target.told.get(cache_id) is not told:
            return
        cache = self._shelf.caches[cache_id]
        if self._is_fetching(conn):
            self._alarms.set(now + PUT_AGAIN_S, partial(self._again, conn, cache_id, told))
        elif told.asks < PUT_ASKS_MAX:
            if told.names != cache.names:  # An answer to the earlier request must not pass for one about all names.
                told = PendingPut(self._new_id(), cache, told.asks)
            self._ask(target, cache, told, now, out)
        else:
            self._failed(target, cache, f"it did not answer {told.asks} times", now, out, is_silent=True)

    def _retry(self, conn: ConnId, cache_id: str, now: float, out: FilesStepBuilder) -> None:
        target = self._targets.get(conn)
        cache = self._shelf.caches.get(cache_id)
        if target is None or cache is None or cache_id not in target.failed or cache_id in target.told:
            return
        if target.blobs or fits_inline(cache.files.values()):
            target.due[cache_id] = None
            self._send_due(target, now, out)

    def _gone(self, worker: WorkerId, name: str, _now: float, out: FilesStepBuilder) -> None:
        if worker not in self._conns:
            self.running.fail(worker, name, "its connection ended", out)

    # Puts.

    def _begin(
        self, event: PutAsked, cache: CacheRecord, targets: list[PutTarget], now: float, out: FilesStepBuilder
    ) -> None:
        put = PutProgress(event, cache.names, len(targets))
        cache_id = cache.cache_id
        for target in targets:
            if target.has.get(cache_id) == cache.names:
                put.skipped += 1
                continue
            put.waiting[target.worker] = None
            # A client waits for this cache now: it comes first, whatever happened before.
            target.evicted.discard(cache_id)
            if cache_id not in target.told and target.stocked:
                target.failed.pop(cache_id, None)
        self.running.begin(put)
        for target in targets:
            self._consider(target, cache, now, out)
            if cache_id in target.due:
                target.due = {cache_id: None, **target.due}
            self._send_due(target, now, out)
        self.running.start(put, event.within_s, now, out)

    def _settle(self, target: PutTarget, cache: CacheRecord, status: str, out: FilesStepBuilder) -> None:
        """Counts the worker for puts that wait for it, if it has enough names."""
        self.running.settle(target.worker, cache.cache_id, target.has.get(cache.cache_id, 0), status, out)

    def _failed(
        self,
        target: PutTarget,
        cache: CacheRecord,
        message: str,
        now: float,
        out: FilesStepBuilder,
        *,
        is_silent: bool = False,
    ) -> None:
        cache_id = cache.cache_id
        target.told.pop(cache_id, None)
        count = target.failed.get(cache_id, (0, ""))[0] + 1
        target.failed[cache_id] = count, message
        pause_s = min(PUT_RETRY_FIRST_S * 2 ** min(count - 1, 10), PUT_RETRY_MAX_S)
        self._alarms.set(now + pause_s, partial(self._retry, target.conn, cache_id))
        self.running.fail(target.worker, target.name, message, out, cache_id=cache_id, is_silent=is_silent)
        self._send_due(target, now, out)

    def _forget(self, cache: CacheRecord, out: FilesStepBuilder) -> None:
        """A cache was dropped or evicted."""
        self._members.pop(cache.cache_id, None)
        self._ready.pop(cache.cache_id, None)
        for pattern in cache.targets:
            caches = self._by_target[pattern]
            del caches[cache.cache_id]
            if not caches:
                del self._by_target[pattern]
        for target in self._targets.values():
            if target.forget(cache.cache_id) and target.blobs:
                out.do.append(SendCacheDrop(target.conn, cache.cache_id))
        self.running.dropped(cache.cache_id, out)
