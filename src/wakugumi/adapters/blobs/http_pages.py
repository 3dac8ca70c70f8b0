"""How do blobs travel over HTTP? `/blobs/{sha256}`: HEAD, GET with ranges, and PUT, which can resume an earlier one.

Disk access, hashing and compression run in threads, one piece at a time, while at most one further piece is read from
the socket or the disk. A transfer therefore holds some 3 MiB, however large the blob and however slow the peer.
docs/reference/blobs.md lists all answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from wakugumi.adapters.blobs.store import CHUNK_BYTES, BlobStore, Incoming, is_sha256
from wakugumi.adapters.blobs.tokens import BlobReaders, check_token
from wakugumi.adapters.blobs.zstd_stream import ZstdPacker, ZstdUnpacker, shrinks
from wakugumi.adapters.http.page import HttpRefusal, HttpRequest, PageRoute, Reply, Stream
from wakugumi.adapters.loop.threads import ended
from wakugumi.adapters.net.address import is_loopback
from wakugumi.core.access.decide import Right, may
from wakugumi.errors import Lost, Refused, bad_request
from wakugumi.limits.files import BLOB_RECEIVED_MIN_BYTES, BLOB_RECEIVED_MIN_S, UPLOAD_WAIT_S
from wakugumi.wire.messages.references import BlobRef

_PATH: Final = "/blobs/"
_THREADS: Final = 8
"""Enough to keep a disk and a few CPUs busy; further work waits."""
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_ZSTD: Final = "zstd"


class Upload(NamedTuple):
    """An upload as announced by the headers of a PUT."""

    ref: BlobRef
    start: int | None
    """Offset at which it resumes; None: from the beginning, replacing earlier bytes."""
    packed: bool


class _Content:
    """A blob being sent. A job with a link may write to it meanwhile."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._changed_ns = os.fstat(file).st_mtime_ns

    def read(self, count: int, at: int) -> bytes:
        """Empty if the file cannot be read or was modified: wrong bytes would make the receiver distrust this
        source."""
        try:
            piece = os.pread(self._file, count, at)
            return piece if os.fstat(self._file).st_mtime_ns == self._changed_ns else b""
        except OSError:
            return b""


class _Sending:
    """The pieces of a blob on their way out. A reader that is slow with one is cut off."""

    def __init__(self, pages: BlobPages, visit: HttpRequest, file: int, size: int) -> None:
        self._pages = pages
        self._visit = visit
        self._file = file
        self._content = _Content(file)
        self.at, self.end = 0, size
        self.packer: ZstdPacker | None = None
        self._reading: asyncio.Future[bytes] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def shrinks(self) -> bool:
        return shrinks(self._content.read(CHUNK_BYTES, 0))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Raises Lost if the file has changed: only an answer without an end tells the truth."""
        self._settle()
        while self.at < self.end:
            piece = await (self._reading or self._read())
            if not piece:
                raise Lost("the blob was changed")
            self.at += len(piece)
            self._reading = self._read() if self.at < self.end else None
            if self.packer is not None:
                piece = await self._pages.in_thread(self.packer.pack, piece)
                piece += self.packer.end() if self.at >= self.end else b""
            if piece:
                self._pages.count_sent(len(piece))
                self._deadline = asyncio.get_running_loop().call_later(BLOB_RECEIVED_MIN_S, self._visit.cut_off)
                return piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._settle()
        if self._reading is not None:
            await asyncio.wait([self._reading])
        os.close(self._file)
        self._pages.end_sending()

    def _read(self) -> asyncio.Future[bytes]:
        return self._pages.in_thread(self._content.read, min(CHUNK_BYTES, self.end - self.at), self.at)

    def _settle(self) -> None:
        """The piece before was read."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class BlobPages:
    """HTTP handlers for the blobs of a store."""

    def __init__(
        self,
        store: BlobStore,
        key: str | None,
        readers: BlobReaders,
        *,
        serving_max: int,
        uploads_max: int,
        bytes_max: int,
    ) -> None:
        self._store = store
        self._key = key
        self._readers = readers
        self._bytes_max = bytes_max
        self._serving = 0
        self._serving_max = serving_max
        self._receiving = asyncio.Semaphore(uploads_max)
        self._pool = ThreadPoolExecutor(_THREADS, "blobs")

    def routes(self, *, writable: bool) -> Sequence[PageRoute]:
        need = Right.CONTENT if self._key is None else Right.OPEN  # A token is a proof of its own.
        pages = [("HEAD", self._head), ("GET", self._get), *([("PUT", self._put)] if writable else [])]
        return [PageRoute(method, _PATH, page, quiet=True, need=need) for method, page in pages]

    async def _head(self, visit: HttpRequest) -> Reply:
        sha256 = self._allowed(visit)
        size = await self._size_for(visit, sha256, tells_folder=self._key is None and is_loopback(visit.peer))
        return Reply(200, Stream(size, _nothing()), headers=_headers(sha256))

    async def _size_for(self, visit: HttpRequest, sha256: str, *, tells_folder: bool = False) -> int:
        """Raises HttpRefusal if the content is not there, or not for the sender: these two look the same. A worker of
        this machine gets the folder, too."""
        is_reader = self._readers.may_read(visit.identity, sha256)
        size: int | None = await self.in_thread(self._store.size, sha256) if is_reader else None
        if size is not None:
            return size
        received = await self.in_thread(self._store.received, sha256) if is_reader else 0
        headers = {"Waku-Received": str(received)} if received else {}
        if tells_folder and may(visit.identity, Right.WORK):
            headers["Waku-Incoming"] = quote(os.fspath(self._store.incoming))
        raise HttpRefusal(404, "no-blob", f"there is no blob {sha256}", headers)

    # Sending.

    async def _get(self, visit: HttpRequest) -> Reply:
        sha256 = self._allowed(visit)
        if self._serving >= self._serving_max:
            raise HttpRefusal(503, "full", f"{self._serving} blobs are being sent already", {"Retry-After": "1"}, "")
        self._serving += 1
        sending: _Sending | None = None
        try:
            size = await self._size_for(visit, sha256)
            sending = _Sending(self, visit, await self.in_thread(self._store.open, sha256), size)
            return await self._sent(visit, sha256, sending)
        except BaseException:
            if sending is None:
                self._serving -= 1
            else:
                await sending.aclose()
            raise

    async def _sent(self, visit: HttpRequest, sha256: str, sending: _Sending) -> Reply:
        headers, size = _headers(sha256), sending.end
        if part := _wanted_part(visit.header("Range") or "", size):
            sending.at, sending.end = part
            headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{size}"
        elif _accepts_zstd(visit) and await self.in_thread(sending.shrinks):
            sending.packer = ZstdPacker()
            headers |= {"Content-Encoding": _ZSTD, "Waku-Size": str(size)}
            return Reply(200, Stream(None, sending), headers=headers)
        return Reply(206 if part else 200, Stream(sending.end - sending.at, sending), headers=headers)

    def count_sent(self, size: int) -> None:
        self._store.sent_bytes += size

    def end_sending(self) -> None:
        self._serving -= 1

    # Receiving.

    async def _put(self, visit: HttpRequest) -> Reply:
        sha256 = self._allowed(visit)
        upload = self._announced(visit, sha256)
        is_reader = self._readers.may_read(visit.identity, sha256)
        self._readers.brings(visit.identity, sha256)
        if await self.in_thread(self._store.has, upload.ref):
            if is_reader:
                return Reply(200, headers=_headers(sha256))
            await self._compare(visit, upload)
            return Reply(201, headers=_headers(sha256))
        async with self._turn():
            incoming = await self._begin(upload)
            try:
                write = ZstdUnpacker(incoming.write).write if upload.packed else incoming.write
                await self._receive(visit, write)
                await ended(self.in_thread(incoming.finish))
            finally:
                await ended(self.in_thread(incoming.close))
        return Reply(201, headers=_headers(sha256))

    async def _compare(self, visit: HttpRequest, upload: Upload) -> None:
        """Receive content that is here already from a sender that must not learn that, and drop it. Raises Refused if
        it is not that content."""
        if upload.start is not None:
            text = "nothing was received so far: the upload cannot resume"
            raise HttpRefusal(409, "conflict", text, {"Waku-Received": "0"}, "resume at Waku-Received")
        digest, left = hashlib.sha256(), upload.ref.size

        def take(piece: bytes) -> None:
            nonlocal left
            left -= len(piece)
            if left < 0:
                raise Refused("blob-broken", f"more than the {upload.ref.size} bytes that were announced")
            digest.update(piece)

        async with self._turn():
            await self._receive(visit, ZstdUnpacker(take).write if upload.packed else take)
        if digest.hexdigest() != upload.ref.sha256:
            raise Refused("blob-broken", "the content is not what its SHA-256 says")

    def _announced(self, visit: HttpRequest, sha256: str) -> Upload:
        """The upload announced by the headers. Raises Refused."""
        encoding = (visit.header("Content-Encoding") or "identity").lower()
        if encoding not in {_ZSTD, "identity"}:
            raise HttpRefusal(
                415, "bad-request", f"content encoding {encoding[:40]!r} is not supported", hint="send zstd"
            )
        start: int | None = None
        length = visit.content_length
        size = _number(visit.header("Waku-Size"), length if encoding != _ZSTD else None)
        if (content_range := visit.header("Content-Range")) is not None:
            found = _CONTENT_RANGE.fullmatch(content_range)
            if found is None:
                raise bad_request("Content-Range must be bytes first-last/size")
            start, last, size = map(int, found.groups())
            if last != size - 1 or (length not in {None, size - start} and encoding != _ZSTD):
                raise bad_request("a resumed upload must continue to the end of the blob")
        elif length is not None and encoding != _ZSTD and size != length:
            raise HttpRefusal(422, "blob-broken", f"Content-Length is {length}, but Waku-Size is {size}")
        if size is None:
            raise bad_request("the size is missing", "send Content-Length or Waku-Size")
        if size > self._bytes_max:
            text = f"{size} bytes are more than the {self._bytes_max} that a blob may have here"
            raise HttpRefusal(413, "too-big", text, hint="split it")
        return Upload(BlobRef(sha256, size), start, encoding == _ZSTD)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Limit uploads at once. Others wait unread, and get a 503 if that takes too long."""
        try:
            async with asyncio.timeout(UPLOAD_WAIT_S):
                await self._receiving.acquire()
        except TimeoutError:
            raise HttpRefusal(503, "full", "too many uploads are waiting", {"Retry-After": "1"}, "") from None
        try:
            yield
        finally:
            self._receiving.release()

    async def _begin(self, upload: Upload) -> Incoming:
        incoming: Incoming = await self.in_thread(self._store.begin, upload.ref)
        if upload.start is None and incoming.at:
            await self.in_thread(incoming.restart)
        if upload.start is not None and upload.start != incoming.at:
            incoming.close()
            text = f"{incoming.at} bytes were received so far: the upload cannot resume at {upload.start}"
            raise HttpRefusal(409, "conflict", text, {"Waku-Received": str(incoming.at)}, "resume at Waku-Received")
        return incoming

    async def _receive(self, visit: HttpRequest, write: Callable[[bytes], None]) -> None:
        def write_all(pieces: list[bytes]) -> None:
            for piece in pieces:
                write(piece)

        writing: asyncio.Future[None] | None = None
        try:
            while pieces := await _gather(visit):
                if writing is not None:
                    await ended(writing)
                writing = self.in_thread(write_all, pieces)
        finally:
            if writing is not None:
                await ended(writing)

    def _allowed(self, visit: HttpRequest) -> str:
        """The blob named by a path. Raises Refused if the name is invalid, or without a valid token."""
        name = visit.rest
        if not is_sha256(name):
            raise Refused("bad-name", "a blob's name is its SHA-256, in 64 lower-case hexadecimal digits", hint="")
        if self._key is not None:
            scheme, _, token = (visit.header("Authorization") or "").partition(" ")
            if scheme.lower() != "bearer" or not check_token(self._key, name, token, time.time()):
                raise HttpRefusal(401, "denied", "this needs a token of the leader", {"WWW-Authenticate": "Bearer"})
        return name

    def in_thread(self, work: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *args)


def _headers(sha256: str) -> dict[str, str]:
    return {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes"}


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


def _number(text: str | None, otherwise: int | None) -> int | None:
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise bad_request("Waku-Size must be a number of bytes")
    return int(text)


def _wanted_part(text: str, size: int) -> tuple[int, int] | None:
    """Start and end of the one requested range; None for the whole blob. Several or invalid ranges count as none."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        return None
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if first and last and int(last) < int(first):
        return None
    if start >= size or (not first and int(last) == 0):
        raise HttpRefusal(416, "bad-request", f"the blob has {size} bytes", {"Content-Range": f"bytes */{size}"}, "")
    return start, end


def _accepts_zstd(visit: HttpRequest) -> bool:
    """Whether zstd is accepted with a weight above 0."""
    for part in (visit.header("Accept-Encoding") or "").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == _ZSTD:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


async def _gather(visit: HttpRequest) -> list[bytes]:
    """The next pieces of the body, a thread's worth together. Raises Lost for a slow sender or one that is gone."""
    pieces: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(BLOB_RECEIVED_MIN_S):
            while total < CHUNK_BYTES and (piece := await visit.read()):
                pieces.append(piece)
                total += len(piece)
    except TimeoutError:
        if total < BLOB_RECEIVED_MIN_BYTES:
            visit.cut_off()
            raise Lost("the sender is too slow", "slow") from None
    except (Lost, Refused):
        if not pieces:  # what came before is kept, and the next call finds the same end
            raise
    return pieces
