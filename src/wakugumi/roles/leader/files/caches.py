"""How do the caches of a leader reach its peers? Frames become events of `core/files/machine.py`, its effects frames.

    client ── CachePut ──►                  ── CachePut, Source, CacheDrop ──► worker
                      LeaderCaches ◄─► FileDistribution
    client ◄── CacheAck ──                  ◄── CacheAck, Stock, Want ──

The content in an old client's frame becomes blobs first, and an old worker gets content read back into one frame; both
in threads. A cache is announced only when all of its content is in the leader's place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from wakugumi.adapters.blobs.place import Place
from wakugumi.adapters.blobs.store import is_sha256, ref_of_bytes
from wakugumi.adapters.blobs.tokens import make_token
from wakugumi.adapters.journal.cache_manifests import Manifests
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.worker_address import is_loopback, workers_url
from wakugumi.core.files import events as se
from wakugumi.core.files.events import SpreadDo, SpreadEvent, SpreadKeep
from wakugumi.core.files.machine import FileDistribution
from wakugumi.core.files.sources import TOO_MANY_WANTS
from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.leader.answer_records import CachesAnswer
from wakugumi.core.leader.events import SendAnswer
from wakugumi.core.names import check_cache_id, check_file_names
from wakugumi.core.subject import Pattern, SubjectError, worker_patterns
from wakugumi.errors import Lost, PeerError, Refused
from wakugumi.limits.files import PUT_DEADLINE_MAX_S, PUT_DEADLINE_S
from wakugumi.limits.wire import FILES_PER_CACHE_MAX
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.hub import Hub, Peer
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.cache import (
    CacheEntry,
    CachePutHead,
    CachePutRequest,
    CachePutResult,
    FailedWorker,
    Source,
    read_cache_ack,
    read_cache_put,
    read_put,
    read_stock,
    read_want,
)
from wakugumi.wire.messages.job import FAILED, Missing
from wakugumi.wire.messages.payload import TEXT_CHARS_MAX, encode
from wakugumi.wire.messages.references import BlobRef, check_ref

log = logging.getLogger("wakugumi.caches")

_INLINE_PUTS_MAX: Final = 8
"""Puts with inline content that one connection may have in progress."""
_ENCODED_MAX: Final = 4
"""Remembered manifest payloads, up to 4 MiB each: a thousand workers get the same one."""
_URL_CHARS_MAX: Final = 1_024


class LeaderCaches:
    """The caches of one leader, and which worker fetches which blob from which source."""

    def __init__(
        self,
        hub: Hub,
        perform: Mapping[type[object], Callable[[Peer, Any], None]],
        blobs: LeaderBlobs,
        manifests: Manifests | None,
        *,
        is_needed: Callable[[str], bool],
        blobs_max: int,
    ) -> None:
        """`perform`: effects that send answers to questions. `is_needed`: whether a job needs this cache. `blobs_max`:
        number of blobs whose holders are known."""
        loop = asyncio.get_running_loop()
        self._peers = hub.peers
        self._blobs = blobs
        self._manifests = manifests
        self._tasks = Tasks()
        self._inline: dict[ConnId, int] = {}
        self._looking: dict[ConnId, dict[bytes, None]] = {}
        """Wants whose blobs are being looked for in the place."""
        self._encoded: dict[tuple[str, str, int, bool], bytes] = {}
        self.machine = FileDistribution(
            lambda: os.urandom(16),
            now=loop.time(),
            place_bounded=not blobs.url,
            is_needed=is_needed,
            blobs_max=blobs_max,
        )
        if manifests is not None:
            self.machine.recover(manifests.load(), loop.time())
            manifests.begin(loop)
        self.drive: Drive[SpreadEvent, SpreadKeep, SpreadDo] = Drive(
            self.machine, self._perform, name="caches", keeper=manifests
        )
        self.effects: dict[type[object], Callable[[Peer, Any], None]] = {
            **perform,
            SendAnswer: partial(self._send_answer, perform[SendAnswer]),
            se.SendSource: _send_source,
            se.SendNoSource: _send_no_source,
            se.SendCachePut: self._send_cache_put,
            se.SendCacheDrop: _send_cache_drop,
            se.SendSummary: _send_summary,
        }

    async def close(self) -> None:
        await self._tasks.close()
        self.drive.close()
        if self._manifests is not None:
            await self._manifests.close()

    def _send_answer(self, send: Callable[[Peer, Any], None], peer: Peer, effect: SendAnswer) -> None:
        """Add the figures of the store to an answer."""
        answer, store = effect.answer, self._blobs.store
        if isinstance(answer, CachesAnswer) and store is not None:
            counted = msgspec.structs.replace(
                answer.blobs,
                leader_sent_bytes=store.sent_bytes,
                store_bytes=store.swept_bytes,
                store_budget_bytes=store.budget_bytes,
            )
            effect = SendAnswer(effect.conn, effect.ask_id, msgspec.structs.replace(answer, blobs=counted))
        send(peer, effect)

    # Readings of the machine.

    def holders(self, file: str) -> Collection[WorkerId]:
        """Connected workers that have this blob or, as `cache:<id>`, this whole cache."""
        if not file.startswith("cache:"):
            return self.machine.holders(file)
        return self.machine.puts.holders(file.removeprefix("cache:"))

    def pins(self, sha256: str) -> bool:
        return self.machine.pins(sha256)

    def note_use(self, cache_id: str) -> None:
        """A job names this cache."""
        self.drive.post(se.CacheNamed(cache_id))

    # Peers.

    def add_worker(self, peer: Peer, worker: WorkerId, name: str, patterns: tuple[Pattern, ...]) -> None:
        self.drive.post(se.WorkerCame(peer.conn, worker, name, patterns, peer.blobs, is_loopback(peer.link.host)))

    def disconnect(self, peer: Peer) -> None:
        self._inline.pop(peer.conn, None)
        self._looking.pop(peer.conn, None)
        self.drive.post(se.ClientWent(peer.conn) if peer.is_client else se.WorkerWent(peer.conn))

    # Frames of a client.

    def put(self, peer: Peer, frame: Frame) -> None:
        try:
            request = read_put(frame.payload)
            asked = _read_request(peer.conn, frame, request)
            peer.access.check_put(asked.cache_id, asked.targets)
        except Refused as no:
            refuse_put(peer, frame, no.code, no.message)
            return
        inline = [entry for entry in request.entries if entry.content is not None]
        if not inline:
            self._look(peer, frame, asked)
        elif self._inline.get(peer.conn, 0) >= _INLINE_PUTS_MAX:
            refuse_put(peer, frame, "full", f"a client may have {_INLINE_PUTS_MAX} puts on their way to the disk")
        else:
            self._inline[peer.conn] = self._inline.get(peer.conn, 0) + 1
            contents = {file.sha256: entry.content for file, entry in zip(asked.files, request.entries)}
            name = f"cache {asked.cache_id}"
            self._tasks.start(peer.do(name, partial(self._store, peer, frame, asked, contents)), name=name)

    # Frames of a worker.

    def ack(self, peer: Peer, frame: Frame) -> None:
        head = read_cache_ack(frame)
        self.drive.post(se.PutAnswered(peer.conn, frame.corr_id, head.cache_id, head.status, head.message))

    def stock(self, peer: Peer, frame: Frame) -> None:
        stock = read_stock(frame.payload)
        if not all(map(is_sha256, stock.blobs)) or not all(map(is_sha256, stock.gone)):
            raise PeerError("the payload of Stock has an invalid hash")
        if len(stock.url) > _URL_CHARS_MAX or not stock.url.isprintable() or len(stock.key) > _URL_CHARS_MAX:
            raise PeerError("the payload of Stock has an invalid URL or key")
        own = self._own_url(peer, stock.url) if stock.url else ""
        url = own if stock.key else ""
        near_only = bool(url) and is_loopback(urlsplit(url).hostname or "")
        self.drive.post(
            se.Stocked(peer.conn, stock.whole, url, stock.key, stock.blobs, stock.gone, stock.caches, near_only),
        )

    def _own_url(self, peer: Peer, url: str) -> str:
        """URL at which others fetch from this worker; empty if the worker may not name it."""
        try:
            own = workers_url(url, peer.link.host, self._blobs.workers_at)
        except ValueError:
            raise PeerError("the URL in the payload of Stock is not http://host:port") from None
        if own is None:
            where = peer.link.host or "this machine"
            peer.complain(
                f"others do not fetch from this worker at {url}: its connection comes from {where}. "
                "hint: if that is right, start the leader with --workers-at HOST"
            )
        return own or ""

    def want(self, peer: Peer, frame: Frame) -> None:
        want = read_want(frame.payload)
        why = "" if want.failed is None else want.failed.why
        sha256, size = want.sha256, want.size
        if why == se.GIVEN_UP:
            self.drive.post(se.BlobWanted(peer.conn, frame.msg_id, "", 0, "", "", why, here=False))
            return
        if want.cache_id:
            file = self.machine.find(want.cache_id, want.name)
            sha256, size = ("", 0) if file is None else (file.sha256, file.size)
        else:
            try:
                check_ref(BlobRef(sha256, size))
            except Refused as no:
                raise PeerError(f"the payload of Want names no blob: {no.message}") from None

        def found(here: bool, is_sure: bool) -> None:
            event = se.BlobWanted(
                peer.conn, frame.msg_id, sha256, size, want.cache_id, want.name, why[:20], here=here, is_sure=is_sure
            )
            self.drive.post(event)

        if sha256:
            self._look_for(peer, frame.msg_id, BlobRef(sha256, size), found)
        else:
            found(here=False, is_sure=False)

    def _look_for(self, peer: Peer, want: bytes, ref: BlobRef, then: Callable[[bool, bool], None]) -> None:
        """Call `then` with whether the place may have the blob and whether that is sure. Refuse more wants than a
        worker may have."""
        looking = self._looking.setdefault(peer.conn, {})
        if want in looking:
            return
        if not self.machine.sources.may_want(peer.conn, want, beside=len(looking)):
            _send_no_source(peer, se.SendNoSource(peer.conn, want, "full", TOO_MANY_WANTS))
            return
        looking[want] = None

        def found(here: bool, is_sure: bool) -> None:
            looking.pop(want, None)
            if self._peers.get(peer.conn) is peer:
                then(here, is_sure)

        def looked(absent: list[str], unknown: list[str]) -> None:
            # A place that did not answer may have the blob: the worker tries, and wants it again if that fails. A plain
            # "no source" would fail its job for good.
            found(not absent, not absent and not unknown)

        self._blobs.look_for([ref], looked)

    # A put in progress.

    async def _store(self, peer: Peer, frame: Frame, asked: se.PutAsked, contents: Mapping[str, bytes | None]) -> None:
        """Make blobs of the inline content."""
        try:
            await asyncio.to_thread(_put_all, self._blobs.place, contents)
        except (Refused, Lost) as error:
            code = error.code if isinstance(error, Refused) else ""
            refuse_put(peer, frame, "disk-full" if code == "disk" else code, f"its content cannot be kept: {error}")
            return
        finally:
            if peer.conn in self._inline:
                self._inline[peer.conn] -= 1
        self._look(peer, frame, asked)

    def _look(self, peer: Peer, frame: Frame, asked: se.PutAsked) -> None:
        """Post the put if all of its content is in the place; else ask its client for the missing blobs."""
        refs, expected = [BlobRef(file.sha256, file.size) for file in asked.files], self._blobs.expected
        expected.name(refs)

        def found(missing: list[str]) -> None:
            if self._peers.get(peer.conn) is not peer:
                return
            if not missing:
                expected.settle(peer.conn, frame.msg_id)
                self.drive.post(asked)
            elif peer.blobs:
                expected.ask(peer.conn, frame.msg_id, refs)
                payload = encode(Missing(missing))
                peer.link.send(fr.encode(fr.MISSING, corr_id=frame.msg_id, payload=payload))
            else:
                refuse_put(peer, frame, "no-blob", f"its content is not here: {missing[0]}")

        # An old client sent the content in its frame.
        self._blobs.missing(refs, found, asker=peer.access.identity if peer.blobs else None)

    # Effects of the cache machine.

    def _perform(self, effects: Sequence[SpreadDo]) -> None:
        peers, table = self._peers, self.effects
        for effect in effects:
            peer = peers.get(effect.conn)
            if peer is not None:
                try:
                    table[type(effect)](peer, effect)
                except Exception as error:
                    peer.fail(effect, error)

    def _send_cache_put(self, peer: Peer, effect: se.SendCachePut) -> None:
        key = effect.cache_id, effect.version, len(effect.files), effect.pinned
        if effect.inline:
            name = f"cache {effect.cache_id} to an old worker"
            self._tasks.start(peer.do(name, partial(self._send_inline, peer, effect)), name=name)
            return
        payload = self._encoded.get(key)
        if payload is None:
            entries = [CacheEntry(file.name, sha256=file.sha256, size=file.size) for file in effect.files]
            put = CachePutRequest(effect.cache_id, entries, pinned=effect.pinned, version=effect.version)
            while len(self._encoded) >= _ENCODED_MAX:
                del self._encoded[next(iter(self._encoded))]
            payload = self._encoded[key] = encode(put)
        peer.link.send(fr.encode(fr.CACHE_PUT, effect.put, subject="cache.put", payload=payload))

    async def _send_inline(self, peer: Peer, effect: se.SendCachePut) -> None:
        """Read all content into one frame for an old worker."""
        refs = [BlobRef(file.sha256, file.size) for file in effect.files]
        try:
            contents = await asyncio.to_thread(self._blobs.read, refs)
        except Refused as error:
            text = f"the leader cannot read it: {error}"
            self.drive.post(se.PutAnswered(peer.conn, effect.put, effect.cache_id, se.FAILED, text))
            return
        if self._peers.get(peer.conn) is not peer:
            return
        entries = [CacheEntry(file.name, content=contents[file.sha256]) for file in effect.files]
        cache = self.machine.shelf.caches.get(effect.cache_id)
        put = CachePutRequest(effect.cache_id, entries, " ".join(cache.targets) if cache is not None else "")
        peer.link.send(fr.encode(fr.CACHE_PUT, effect.put, subject="cache.put", payload=encode(put)))


def _read_request(conn: ConnId, frame: Frame, request: CachePutRequest) -> se.PutAsked:
    """Raises Refused."""
    check_cache_id(request.cache_id)
    if len(request.entries) > FILES_PER_CACHE_MAX:
        raise Refused("too-big", f"a cache has at most {FILES_PER_CACHE_MAX} files: put an archive instead", hint="")
    check_file_names(entry.name for entry in request.entries)
    within_s = PUT_DEADLINE_S if request.within_s is None else request.within_s
    if not 0 < within_s <= PUT_DEADLINE_MAX_S:
        raise Refused("bad-request", f"WithinS is above 0 and at most {PUT_DEADLINE_MAX_S:.0f} seconds")
    share = 1.0 if request.share is None else request.share
    if not 0 < share <= 1:
        raise Refused("bad-request", "Share is above 0 and at most 1")
    try:
        targets = worker_patterns(request.target_pattern or frame.subject.removeprefix("cache.put").removeprefix("."))
    except SubjectError as error:
        raise Refused("bad-subject", str(error)) from None
    files = tuple(map(_read_entry, request.entries))
    return se.PutAsked(
        conn, frame.msg_id, request.cache_id, files, targets, within_s, share, request.pinned, request.progress
    )


def _read_entry(entry: CacheEntry) -> se.CacheFile:
    if entry.content is not None:
        ref = ref_of_bytes(entry.content)
        if entry.sha256 not in (None, ref.sha256):
            raise Refused("blob-broken", f"the content of {entry.name[:80]!r} is not what its SHA-256 says")
        return se.CacheFile(entry.name, ref.sha256, ref.size)
    if entry.sha256 is None or not is_sha256(entry.sha256) or entry.size is None:
        raise Refused("bad-request", f"{entry.name[:80]!r} has neither content nor a hash and a size")
    check_ref(BlobRef(entry.sha256, entry.size))
    return se.CacheFile(entry.name, entry.sha256, entry.size)


# In threads.


def _put_all(place: Place, contents: Mapping[str, bytes | None]) -> None:
    """Raises Refused or Lost."""
    import tempfile  # Only old clients need it: loaded on demand.

    with tempfile.TemporaryDirectory(prefix="wakugumi-") as folder:
        path = Path(folder) / "content"
        for content in contents.values():
            if content is not None:
                path.write_bytes(content)
                place.put(ref_of_bytes(content), path)


# Effects as frames.


def _send_source(peer: Peer, effect: se.SendSource) -> None:
    token = make_token(effect.key, effect.sha256, time.time()) if effect.url else ""
    _send(peer, fr.SOURCE, effect.want, Source(effect.sha256, effect.size, effect.url, token))


def _send_no_source(peer: Peer, effect: se.SendNoSource) -> None:
    _send(peer, fr.SOURCE, effect.want, Source(code=effect.code, message=effect.text))


def _send_cache_drop(peer: Peer, effect: se.SendCacheDrop) -> None:
    _send(peer, fr.CACHE_DROP, fr.NO_ID, CachePutHead(effect.cache_id))


def _send_summary(peer: Peer, effect: se.SendSummary) -> None:
    """An old client gets one answer with three fields; the counts are in its text."""
    result = CachePutResult(effect.cache_id, effect.status, effect.message)
    if peer.blobs:
        failures = [FailedWorker(worker, message) for worker, message in effect.failures]
        counts = effect.sent, effect.ok, effect.skipped, effect.failed, effect.silent, effect.waiting
        result = CachePutResult(effect.cache_id, effect.status, effect.message, *counts, failures, effect.code)
    elif effect.failures:
        worker, message = effect.failures[0]
        result = CachePutResult(effect.cache_id, effect.status, f"{effect.message}; {worker}: {message}")
    _send_ack(peer, effect.ask, result)


def refuse_put(peer: Peer, frame: Frame, code: str, text: str) -> None:
    result = CachePutResult(read_cache_put(frame.payload), FAILED, text[:TEXT_CHARS_MAX])
    _send_ack(peer, frame.msg_id, msgspec.structs.replace(result, code=code if peer.blobs else ""))


def _send_ack(peer: Peer, put: bytes, result: CachePutResult) -> None:
    subject = f"cache.ack.{result.cache_id}"
    peer.link.send(fr.encode(fr.CACHE_ACK, corr_id=put, subject=subject, payload=encode(result)))


def _send(peer: Peer, kind: int, corr_id: bytes, record: object) -> None:
    peer.link.send(fr.encode(kind, corr_id=corr_id, payload=encode(record)))
