"""How do files get to the workers? A leader's second machine, beside `core/leader/machine.py`.

`catalogue` has the caches, `placement` the workers that should have them, `sources` the transfers. This file has the
four doors for events, and the answers to questions about caches. All content is in the leader's place before an event
names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from wakugumi.core.files.catalogue import CacheCatalogue, CacheRecord
from wakugumi.core.files.events import (
    GIVEN_UP,
    BlobWanted,
    CacheFile,
    CacheNamed,
    ClientWent,
    FilesStepBuilder,
    KeepCache,
    PutAnswered,
    PutAsked,
    SendNoSource,
    SpreadDo,
    SpreadEvent,
    SpreadKeep,
    Stocked,
    WorkerCame,
    WorkerWent,
)
from wakugumi.core.files.placement import CachePlacement
from wakugumi.core.files.sources import Sources
from wakugumi.core.files.timers import Timers
from wakugumi.core.files.worker_caches import PutTarget
from wakugumi.core.ids import JobId, WorkerId, show_job_id
from wakugumi.core.leader.answer_records import CacheAnswer, CacheEntryRow, CacheRow, CachesAnswer, CacheWorkerRow
from wakugumi.core.leader.events import QuestionAsked, SendAnswer, SendNo
from wakugumi.core.leader.questions import AskCache, AskCaches, AskDropCache, AskPin
from wakugumi.core.step import Step
from wakugumi.limits.files import CACHE_BYTES_MAX, CACHES_MAX, STOCKED_BLOBS_MAX, UPLOADS_PER_WORKER_MAX
from wakugumi.limits.leader import LIST_ROWS_MAX
from wakugumi.limits.wire import CACHE_ID_CHARS_MAX

_OLD_S = 3_600.0
"""Time between two searches for unused caches."""


class FileDistribution:
    """A leader's knowledge of caches and blobs. `new_id` returns 16 random bytes; `place_bounded` is False where the
    leader's place is a separate store, which may serve any number of copies at once; `is_needed` tells whether a job
    names a cache (`cache:<id>`)."""

    def __init__(
        self,
        new_id: Callable[[], bytes],
        *,
        now: float,
        place_bounded: bool = True,
        uploads_max: int = UPLOADS_PER_WORKER_MAX,
        bytes_max: int = CACHE_BYTES_MAX,
        caches_max: int = CACHES_MAX,
        blobs_max: int = STOCKED_BLOBS_MAX,
        is_needed: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._alarms = Timers()
        self.sources = Sources(self._alarms, place_bounded=place_bounded, uploads_max=uploads_max, blobs_max=blobs_max)
        self.shelf = CacheCatalogue(
            lambda: new_id().hex(), bytes_max=bytes_max, caches_max=caches_max, is_needed=is_needed
        )
        self.puts = CachePlacement(self.shelf, self._alarms, new_id, self.sources.is_fetching)
        self._alarms.set(now + _OLD_S, self._look_for_old)

    # The four doors.

    def handle(self, events: Sequence[SpreadEvent], now: float) -> Step[SpreadKeep, SpreadDo]:
        out = FilesStepBuilder()
        for event in events:
            self._hear(event, now, out)
        return self._end(now, out)

    def tick(self, now: float) -> Step[SpreadKeep, SpreadDo]:
        out = FilesStepBuilder()
        return self._end(now, out)

    def wake_at(self) -> float | None:
        return self._alarms.next_at()

    def check(self) -> None:
        self.shelf.check()
        self.puts.check()
        self.sources.check()

    # Lookups.

    def recover(self, records: Iterable[KeepCache], now: float) -> None:
        """Loads the caches of the leader's earlier life, before the first event."""
        for record in records:
            self.shelf.recover(record, now)
            self.puts.known(self.shelf.caches[record.cache_id])

    def holders(self, sha256: str) -> Collection[WorkerId]:
        """Connected workers that have this content."""
        return self.sources.holders(sha256)

    def has_cache(self, worker: WorkerId, cache_id: str) -> bool:
        """Does this worker have the whole cache?"""
        return self.puts.has_cache(worker, cache_id)

    def pins(self, sha256: str) -> bool:
        """Is the blob a file of a cache? Then it must stay in the leader's place."""
        return self.shelf.pins(sha256)

    def find(self, cache_id: str, name: str) -> CacheFile | None:
        """A file of a cache."""
        cache = self.shelf.caches.get(cache_id)
        return None if cache is None else cache.files.get(name)

    # Events.

    def _hear(self, event: SpreadEvent, now: float, out: FilesStepBuilder) -> None:
        match event:
            case BlobWanted():
                self._wanted(event, now, out)
            case Stocked():
                self.sources.stocked(event, out)
                self.puts.stocked(event, now, out)
            case PutAnswered():
                self.puts.answered(event, now, out)
            case PutAsked():
                self.puts.asked(event, now, out)
            case CacheNamed():
                cache = self.shelf.caches.get(event.cache_id)
                if cache is not None:
                    cache.use(now)
            case WorkerCame():
                self._came(event, now, out)
            case WorkerWent():
                self._went(event, now)
            case ClientWent():
                self.puts.running.client_went(event.conn)
            case QuestionAsked():
                self._answer(event, now, out)

    def _end(self, now: float, out: FilesStepBuilder) -> Step[SpreadKeep, SpreadDo]:
        self._alarms.ring(now, out)
        self.sources.assign(now, out)
        return Step(out.keep, out.do)

    def _came(self, event: WorkerCame, now: float, out: FilesStepBuilder) -> None:
        before = self.puts.conn_of(event.worker)
        if before is not None:  # Its old connection has not ended yet.
            self._went(WorkerWent(before), now)
        self.sources.came(event)
        self.puts.came(event, now, out)

    def _went(self, event: WorkerWent, now: float) -> None:
        self.sources.went(event.conn)
        self.puts.went(event.conn, now)

    def _wanted(self, event: BlobWanted, now: float, out: FilesStepBuilder) -> None:
        if event.why == GIVEN_UP:
            self.sources.given_up(event.conn, event.want)
            return
        if event.why and self.sources.failed(event.conn, event.want, event.why, event.here, now, out):
            return
        sha256, size, is_sure = event.sha256, event.size, event.is_sure
        if event.cache_id:
            cache = self.shelf.caches.get(event.cache_id)
            file = None if cache is None else cache.files.get(event.name)
            if cache is None or file is None:
                cache_id = event.cache_id[:CACHE_ID_CHARS_MAX]
                what = f"no cache {cache_id}" if cache is None else f"no {event.name[:80]!r} in {cache_id}"
                out.do.append(SendNoSource(event.conn, event.want, "no-cache", f"there is {what}"))
                return
            cache.use(now)
            sha256, size, is_sure = file.sha256, file.size, True
        self.sources.wanted(event.conn, event.want, sha256, size, now, out, here=event.here, is_sure=is_sure)

    def _look_for_old(self, now: float, out: FilesStepBuilder) -> None:
        for cache in self.shelf.expired(now, self.puts.running.is_busy):
            self.puts.drop(cache, out)
        self._alarms.set(now + _OLD_S, self._look_for_old)

    # Questions.

    def _answer(self, event: QuestionAsked, now: float, out: FilesStepBuilder) -> None:
        question = event.question
        if isinstance(question, AskCaches):
            out.do.append(SendAnswer(event.conn, event.ask_id, self._list(question, now)))
            return
        assert isinstance(question, AskCache | AskPin | AskDropCache)
        cache = self.shelf.caches.get(question.cache)
        if cache is None:
            text = f"the leader knows no cache {question.cache[:80]!r}"
            out.do.append(SendNo(event.conn, event.ask_id, "no-cache", text))
            return
        row = self._row(cache, now)
        if isinstance(question, AskCache):
            out.do.append(SendAnswer(event.conn, event.ask_id, self._show(cache, row)))
            return
        if isinstance(question, AskDropCache):
            self.puts.drop(cache, out)
        elif cache.pinned != question.pinned:
            self.shelf.pin(cache, question.pinned, now, out)
            self.puts.pinned(cache, now, out)
            row = self._row(cache, now)
        out.do.append(SendAnswer(event.conn, event.ask_id, row))

    def _list(self, question: AskCaches, now: float) -> CachesAnswer:
        caches = sorted(self.shelf.caches.values(), key=lambda cache: -cache.used_at)
        rows = [self._row(cache, now) for cache in caches[: max(0, min(question.limit, LIST_ROWS_MAX))]]
        return CachesAnswer(rows, len(caches), self.shelf.bytes, self.sources.counters())

    def _row(self, cache: CacheRecord, now: float) -> CacheRow:
        return CacheRow(
            cache.cache_id,
            cache.names,
            cache.bytes,
            " ".join(cache.targets),
            cache.pinned,
            cache.version,
            sum(1 for _ in self.puts.members(cache.cache_id)),
            self.puts.ready(cache),
            now - cache.created_at,
            now - cache.used_at,
            cache.hits,
        )

    def _show(self, cache: CacheRecord, row: CacheRow) -> CacheAnswer:
        files = list(cache.files.values())[:LIST_ROWS_MAX]
        entries = [CacheEntryRow(file.name, file.size, file.sha256) for file in files]
        targets = list(self.puts.members(cache.cache_id))[:LIST_ROWS_MAX]
        return CacheAnswer(row, entries, [_worker_row(target, cache) for target in targets])


def _worker_row(target: PutTarget, cache: CacheRecord) -> CacheWorkerRow:
    cache_id = cache.cache_id
    state, message = "waiting", ""
    if target.has.get(cache_id) == cache.names:
        state = "ready"
    elif cache_id in target.told:
        state = "asked"
    elif cache_id in target.failed:
        state, message = "failed", target.failed[cache_id][1]
    elif cache_id in target.evicted:
        state = "evicted"
    return CacheWorkerRow(show_job_id(JobId(target.worker)), target.name, state, message)
