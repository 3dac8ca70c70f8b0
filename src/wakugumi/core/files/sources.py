"""Which worker fetches which blob from which source?

    leader ──► A, B            the first copies come from the leader's place: at most two of a blob at once
    A ──► C    B ──► D         from then on workers serve each other, one upload each at a time: the number of
    A ──► E … D ──► H          holders doubles with the time of each copy

A worker that wants a blob waits in line until a source is free, and gets at most as many sources as it fetches at once.
A source that failed is replaced: a dead or slow one rests, one with wrong content does not serve this blob again, and
after three such reports no worker fetches from it for an hour. The leader serves again only if no worker can. Where the
leader's place is a separate store (`place_bounded=False`), the place is always free. A worker's report about a blob,
its size or its absence from the place, concerns that worker's own wants alone. `source_choice` picks a source for one
want; this file has the lines of wants, and starts and ends fetches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import partial
from itertools import islice
from typing import Final

from wakugumi.core.files.blob_records import BlobRecord, BlobRequest, FetchingWorker
from wakugumi.core.files.events import FilesStepBuilder, SendNoSource, SendSource, Stocked, WorkerCame
from wakugumi.core.files.source_choice import NoWorker, SourceChoice
from wakugumi.core.files.timers import Timers
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.leader.answer_records import BlobCounters
from wakugumi.core.leader.events import Complain
from wakugumi.limits.files import (
    FETCH_TRIES_MAX,
    FETCHES_MAX,
    LEADER_TRANSFERS_MAX,
    STOCK_BLOBS_MAX,
    STOCKED_BLOBS_MAX,
    STOCKED_MAX,
    TRANSFER_FLOOR_BYTES_PER_S,
    TRANSFER_GRACE_S,
    UPLOADS_PER_WORKER_MAX,
    WANTS_MAX,
    WANTS_PER_WORKER_MAX,
)

TOO_MANY_WANTS: Final = f"a worker may want {WANTS_PER_WORKER_MAX} blobs at once, and all together {WANTS_MAX}"
_BUSY_S: Final = 1.0
"""Pause before a busy source is asked again."""
_BACKOFF_FIRST_S: Final = 0.2
_BACKOFF_MAX_S: Final = 10.0
_SWEEP_S: Final = 1.0
_SWEPT_MAX: Final = 1_000
"""Blobs that one sweep looks at; the next sweep goes on from there."""
_STIRRED_MAX: Final = 64
"""Blobs that are looked at when a source is free again; the sweep finds the others."""
_IN_LINE_MAX: Final = 256
"""Wants of one blob that one step looks at."""


class Sources:
    """All wants and all holders of one leader."""

    def __init__(
        self,
        alarms: Timers,
        *,
        place_bounded: bool = True,
        uploads_max: int = UPLOADS_PER_WORKER_MAX,
        blobs_max: int = STOCKED_BLOBS_MAX,
    ) -> None:
        self._alarms = alarms
        self._choice = SourceChoice(place_bounded=place_bounded, uploads_max=uploads_max)
        self._peers: dict[ConnId, FetchingWorker] = {}
        self._blobs: dict[str, BlobRecord] = {}
        self._hungry: dict[str, BlobRecord] = {}
        """Blobs with a want in line."""
        self._stirred: dict[str, None] = {}
        """Blobs with a change in this step."""
        self._idle: dict[ConnId, None] = {}
        """Workers that fetched as much as they can at once, until this step."""
        self._fetching = 0
        self._sweeping = False
        self.blobs_max = blobs_max
        """Bound of the remembered blobs; lower where memory is limited."""
        self._stocked = 0
        """Pairs of a worker and a blob that it holds."""
        self._wants = 0
        self._counts: Counter[str] = Counter()
        """Fields of BlobCounters about fetches that ended."""

    # Lookups.

    def holders(self, sha256: str) -> Collection[WorkerId]:
        """Connected workers that have the blob, whether they serve it or not."""
        blob = self._blobs.get(sha256)
        return blob.holders.keys() if blob is not None else ()

    def may_want(self, conn: ConnId, want_id: bytes, beside: int = 0) -> bool:
        """Is it a known want of this worker, or may the worker have one more, beside `beside` others that were not
        handled yet?"""
        peer = self._peers.get(conn)
        wants: Collection[bytes] = () if peer is None else peer.wants
        return want_id in wants or (len(wants) + beside < WANTS_PER_WORKER_MAX and self._wants < WANTS_MAX)

    def is_fetching(self, conn: ConnId) -> bool:
        """Does this worker want or fetch a blob?"""
        peer = self._peers.get(conn)
        return peer is not None and bool(peer.wants)

    def counters(self) -> BlobCounters:
        waiting = sum(len(blob.waiting) for blob in self._hungry.values())
        waiting += sum(len(peer.parked) for peer in self._peers.values())
        return BlobCounters(len(self._blobs), waiting, self._fetching, **self._counts)

    # Events.

    def came(self, event: WorkerCame) -> None:
        self._peers[event.conn] = FetchingWorker(event)

    def went(self, conn: ConnId) -> None:
        """A worker disconnected. Its fetches free their sources. Workers that fetch from it will report it as dead."""
        peer = self._peers.pop(conn, None)
        if peer is None:
            return
        for want in list(peer.wants.values()):
            self._end(want)
        for sha256 in list(peer.blobs):
            self._lose(peer, sha256)

    def stocked(self, event: Stocked, out: FilesStepBuilder) -> None:
        peer = self._peers.get(event.conn)
        if peer is None:
            return
        if event.whole or event.url:
            peer.url, peer.key, peer.near_only = event.url, event.key, event.near_only
            self._choice.any_near_only |= event.near_only
        if event.whole:
            still = set(event.blobs)
            for sha256 in [sha256 for sha256 in peer.blobs if sha256 not in still]:
                self._lose(peer, sha256)
        for sha256 in event.gone:
            self._lose(peer, sha256)
        ignored = 0
        for sha256 in event.blobs:
            if sha256 in peer.blobs:
                continue
            self._got(peer, sha256, out)
            is_new = sha256 not in self._blobs
            if (
                len(peer.blobs) >= STOCK_BLOBS_MAX
                or self._stocked >= STOCKED_MAX
                or (is_new and len(self._blobs) >= self.blobs_max)
            ):
                ignored += 1
            else:
                self._hold(peer, sha256)
        if ignored:
            text = f"{ignored} of the blobs that it holds are not remembered, for there are too many"
            out.do.append(Complain(event.conn, text))

    def wanted(
        self,
        conn: ConnId,
        want_id: bytes,
        sha256: str,
        size: int,
        now: float,
        out: FilesStepBuilder,
        *,
        here: bool,
        is_sure: bool,
    ) -> None:
        """A new want. A repeated want, while in line or fetching, changes nothing."""
        peer = self._peers.get(conn)
        if peer is None or want_id in peer.wants:
            return
        if not self.may_want(conn, want_id):
            out.do.append(SendNoSource(conn, want_id, "full", TOO_MANY_WANTS))
            return
        blob = self._blob(sha256)
        self._stirred[sha256] = None
        if is_sure:
            blob.size = size
        elif blob.size not in (None, size):
            out.do.append(SendNoSource(conn, want_id, "no-blob", f"the blob {sha256} has {blob.size} bytes"))
            return
        self._lose(peer, sha256)  # The worker does not have the blob now, whatever it reported before.
        want = BlobRequest(peer, want_id, blob, size, here)
        peer.add(want)
        blob.wants += 1
        self._wants += 1
        self._line_up(want, now)

    def given_up(self, conn: ConnId, want_id: bytes) -> None:
        """The worker gave up the want for a reason of its own: no source is blamed, and its source is free."""
        want = self._want(conn, want_id)
        if want is not None:
            self._end(want)

    def failed(self, conn: ConnId, want_id: bytes, why: str, here: bool, now: float, out: FilesStepBuilder) -> bool:
        """The source of this want failed. False if the want is unknown: the caller takes it as a new one."""
        want = self._want(conn, want_id)
        if want is None:
            return False
        if not want.fetching:
            return True
        source = want.source
        self._release(want)
        want.here = here
        if why == "busy":
            want.not_before = now + _BUSY_S
        else:
            self._counts["failed"] += 1
            self._counts["lied"] += why == "lied"
            self._choice.blame(want, source, why, now, out)
            if source is not None and why != "lied":
                self._alarms.set(source.rests_until, partial(self._stir_for, source))
            want.tries += 1
            pause_s = min(_BACKOFF_FIRST_S * 2 ** (want.tries - 2), _BACKOFF_MAX_S) if want.tries > 1 else 0.0
            want.not_before = now + pause_s
        self._line_up(want, now)
        if want.tries >= FETCH_TRIES_MAX:
            self._no_source(want, f"{want.tries} sources failed, the last one was {why}", out)
        return True

    def assign(self, now: float, out: FilesStepBuilder) -> None:
        """Gives sources to wants in line, where something has changed. Called at the end of each step."""
        while self._stirred or self._idle:
            if not self._stirred:
                conn, _ = self._idle.popitem()
                self._feed(conn, now, out)
                continue
            sha256, _ = self._stirred.popitem()
            blob = self._blobs.get(sha256)
            if blob is None:
                continue
            if blob.waiting:
                self._assign(blob, list(islice(blob.waiting.values(), _IN_LINE_MAX)), now, out)
            self._forget(blob)
        if self._hungry and not self._sweeping:
            self._sweeping = True
            self._alarms.set(now + _SWEEP_S, self._sweep)

    def check(self) -> None:
        """Asserts the invariants, after each step."""
        uploads: dict[int, int] = {}
        copies: dict[str, int] = {}
        fetching = 0
        wants: dict[str, int] = {}
        for peer in self._peers.values():
            for want in peer.wants.values():
                sha256 = want.blob.sha256
                wants[sha256] = wants.get(sha256, 0) + 1
                assert want.blob is self._blobs[sha256]
                is_waiting = (peer.conn, want.want) in want.blob.waiting
                assert want.fetching + is_waiting + (want.want in peer.parked) == 1
                assert peer.worker not in want.blob.holders, "a worker wants what it has"
                assert peer.wants_of[sha256][want.want] is want
                fetching += want.fetching
                if want.fetching and want.source is None:
                    copies[sha256] = copies.get(sha256, 0) + 1
                elif want.source is not None:
                    assert want.fetching
                    assert want.source.worker != peer.worker, "a worker fetches from itself"
                    uploads[id(want.source)] = uploads.get(id(want.source), 0) + 1
        for peer in self._peers.values():
            assert peer.uploads == uploads.get(id(peer), 0)
            assert peer.fetching == sum(want.fetching for want in peer.wants.values()) <= FETCHES_MAX
            assert not peer.parked or peer.fetching == FETCHES_MAX, "it could fetch, and stands in no line"
            assert sum(map(len, peer.wants_of.values())) == len(peer.wants)
            assert all(self._blobs[sha256].holders[peer.worker] is peer for sha256 in peer.blobs)
        for sha256, blob in self._blobs.items():
            assert blob.holders or blob.wants, "a blob of nobody is remembered"
            assert blob.wants == wants.get(sha256, 0)
            assert blob.copies == copies.get(sha256, 0)
            assert bool(blob.waiting) == (sha256 in self._hungry)
            assert all(self._peers.get(peer.conn) is peer for peer in blob.holders.values())
        self._choice.check(uploads, copies)
        assert self._fetching == fetching
        assert self._stocked == sum(len(peer.blobs) for peer in self._peers.values()) <= STOCKED_MAX
        assert self._wants == sum(len(peer.wants) for peer in self._peers.values()) <= WANTS_MAX
        assert not self._stirred
        assert not self._idle
        assert self._sweeping or not self._hungry, "somebody waits, and nobody will look"

    # Holders.

    def _blob(self, sha256: str) -> BlobRecord:
        blob = self._blobs.get(sha256)
        if blob is None:
            blob = self._blobs[sha256] = BlobRecord(sha256)
        return blob

    def _forget(self, blob: BlobRecord) -> None:
        if not blob.waiting:
            blob.free.clear()
        if not blob.holders and not blob.wants:
            self._blobs.pop(blob.sha256, None)

    def _hold(self, peer: FetchingWorker, sha256: str) -> None:
        blob = self._blob(sha256)
        self._stocked += 1
        peer.blobs[sha256] = None
        blob.holders[peer.worker] = peer
        if blob.waiting:
            blob.free[peer] = None
        self._stirred[sha256] = None

    def _got(self, peer: FetchingWorker, sha256: str, out: FilesStepBuilder) -> None:
        """The worker's wants of this blob are fulfilled. A want in line is answered: the worker may want the blob as a
        file of a cache too, and learns from the answer that it is the same."""
        for want in list(peer.wants_of.get(sha256, {}).values()):
            self._count(want)
            if not want.fetching:
                out.do.append(SendSource(peer.conn, want.want, sha256, want.size, "", ""))
            self._end(want)

    def _lose(self, peer: FetchingWorker, sha256: str) -> None:
        if sha256 not in peer.blobs:
            return
        blob = self._blobs[sha256]
        self._stocked -= 1
        del peer.blobs[sha256]
        del blob.holders[peer.worker]
        blob.busy_until = float("-inf")
        self._stirred[sha256] = None

    def _count(self, want: BlobRequest) -> None:
        if want.fetching:
            origin = "from_leader" if want.source is None else "from_workers"
            self._counts[origin] += 1
            self._counts[f"{origin}_bytes"] += want.size

    # Wants.

    def _want(self, conn: ConnId, want_id: bytes) -> BlobRequest | None:
        peer = self._peers.get(conn)
        return peer.wants.get(want_id) if peer is not None else None

    def _line_up(self, want: BlobRequest, now: float) -> None:
        blob = want.blob
        blob.waiting[want.peer.conn, want.want] = want
        self._hungry[blob.sha256] = blob
        if want.not_before > now:
            self._alarms.set(want.not_before, partial(self._stir, blob.sha256))
        else:
            self._stirred[blob.sha256] = None

    def _leave_line(self, want: BlobRequest) -> None:
        blob = want.blob
        if want.peer.parked.pop(want.want, None) is not None:
            return
        del blob.waiting[want.peer.conn, want.want]
        if not blob.waiting:
            del self._hungry[blob.sha256]

    def _end(self, want: BlobRequest) -> None:
        """The blob is fetched, or not wanted any more."""
        if want.fetching:
            self._release(want)
        else:
            self._leave_line(want)
        want.peer.remove(want)
        want.blob.wants -= 1
        self._wants -= 1
        self._stirred[want.blob.sha256] = None

    def _release(self, want: BlobRequest) -> None:
        """The source of this want is free for others."""
        source, want.source, want.fetching = want.source, None, False
        if want.alarm:
            self._alarms.take_back(want.alarm)
        self._fetching -= 1
        if want.peer.fetching == FETCHES_MAX:
            self._idle[want.peer.conn] = None
        want.peer.fetching -= 1
        self._choice.give_back(want.blob, source)
        if source is not None:
            self._stir_for(source)
            return
        self._stirred[want.blob.sha256] = None
        if self._choice.copies == LEADER_TRANSFERS_MAX - 1:
            self._stirred.update(dict.fromkeys(islice(self._hungry, _STIRRED_MAX)))

    def _stir_for(self, source: FetchingWorker, *_: object) -> None:
        """A worker may serve again: wanted blobs that it holds are looked at."""
        for sha256, blob in islice(self._hungry.items(), _STIRRED_MAX):
            if sha256 in source.blobs:
                blob.free[source] = None
                self._stirred[sha256] = None

    def _stir(self, sha256: str, _now: float, _out: FilesStepBuilder) -> None:
        self._stirred[sha256] = None

    def _too_long(self, conn: ConnId, want_id: bytes, now: float, _out: FilesStepBuilder) -> None:
        """The deadline of a fetch: the want ends. A worker that still fetches will report the end as a new want."""
        want = self._want(conn, want_id)
        if want is not None and want.fetching and want.deadline <= now:
            want.alarm = 0
            self._end(want)

    def _sweep(self, _now: float, _out: FilesStepBuilder) -> None:
        self._sweeping = False
        for sha256 in list(islice(self._hungry, _SWEPT_MAX)):
            self._stirred[sha256] = None
            self._hungry[sha256] = self._hungry.pop(sha256)

    def _no_source(self, want: BlobRequest, text: str, out: FilesStepBuilder) -> None:
        self._end(want)
        out.do.append(SendNoSource(want.peer.conn, want.want, "no-blob", text))

    # Sources.

    def _feed(self, conn: ConnId, now: float, out: FilesStepBuilder) -> None:
        """The worker may fetch again. Wants before it in a line were looked at when a source came free."""
        peer = self._peers.get(conn)
        while peer is not None and peer.parked and peer.fetching < FETCHES_MAX:
            want = peer.parked.pop(next(iter(peer.parked)))
            self._line_up(want, now)
            self._assign(want.blob, [want], now, out)

    def _assign(self, blob: BlobRecord, wants: list[BlobRequest], now: float, out: FilesStepBuilder) -> None:
        """Finds sources for these wants of the blob."""
        for want in wants:
            if want.peer.fetching >= FETCHES_MAX:
                self._leave_line(want)
                want.peer.parked[want.want] = want
                continue
            if want.not_before > now:
                continue
            found = self._choice.pick(want, now)
            if found is NoWorker.NEVER:
                self._no_source(want, f"neither the leader nor a worker has the blob {blob.sha256}", out)
            elif found is not NoWorker.BUSY:
                self._fetch(want, None if found is NoWorker.LEADER else found, now, out)
            elif self._choice.others_wait_too(want):
                break

    def _fetch(self, want: BlobRequest, source: FetchingWorker | None, now: float, out: FilesStepBuilder) -> None:
        blob = want.blob
        self._leave_line(want)
        want.fetching, want.source = True, source
        want.deadline = now + want.size / TRANSFER_FLOOR_BYTES_PER_S + TRANSFER_GRACE_S
        want.alarm = self._alarms.set(want.deadline, partial(self._too_long, want.peer.conn, want.want))
        self._fetching += 1
        want.peer.fetching += 1
        self._choice.take(blob, source)
        place = ("", "") if source is None else (source.url, source.key)
        out.do.append(SendSource(want.peer.conn, want.want, blob.sha256, want.size, *place))
