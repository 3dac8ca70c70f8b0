"""How do blobs travel over HTTP? `/blobs/{sha256}`: HEAD, GET with ranges, and PUT, which can resume an earlier one.

Disk access, hashing and compression run in threads, one piece at a time, while at most one further piece is read from
the socket or the disk. A transfer therefore holds some 3 MiB, however large the blob and however slow the peer.
docs/reference/blobs.md lists all answers.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Lock
from typing import Any, Final, NamedTuple

from aiohttp import ClientError, web

from wakugumi.adapters.blobs.store import CHUNK_BYTES, BlobStore, Incoming, is_sha256
from wakugumi.adapters.blobs.tokens import check_token
from wakugumi.adapters.blobs.zstd_stream import ZstdPacker, ZstdUnpacker, shrinks
from wakugumi.adapters.http.page import HttpRefusal
from wakugumi.adapters.http.routes import Route
from wakugumi.adapters.http.server import SAFE_HEADERS, let_go_on
from wakugumi.errors import Refused
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


class _Sink:
    """An upload used by two threads: one may still write while another closes it after a cancellation."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._lock = Lock()

    def write(self, data: bytes) -> None:
        with self._lock:
            self._incoming.write(data)

    def finish(self) -> None:
        with self._lock:
            self._incoming.finish()

    def close(self) -> None:
        with self._lock:
            self._incoming.close()


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


class BlobPages:
    """HTTP handlers for the blobs of a store."""

    def __init__(
        self, store: BlobStore, *, key: str | None, serving_max: int, uploads_max: int, bytes_max: int
    ) -> None:
        self._store = store
        self._key = key
        self._bytes_max = bytes_max
        self._serving = 0
        self._serving_max = serving_max
        self._receiving = asyncio.Semaphore(uploads_max)
        self._pool = ThreadPoolExecutor(_THREADS, "blobs")

    def routes(self, *, writable: bool) -> Sequence[Route]:
        reading = [Route("HEAD", _PATH, self._head, quiet=True), Route("GET", _PATH, self._get, quiet=True)]
        return [*reading, Route("PUT", _PATH, self._put, waits=True, quiet=True)] if writable else reading

    async def _head(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        sha256 = self._allowed(request, name)
        size = await self._in_thread(self._store.size, sha256)
        if size is None:
            raise await self._not_found(sha256)
        response = web.StreamResponse(headers=_headers(sha256))
        response.content_length = size
        return response

    async def _not_found(self, sha256: str) -> HttpRefusal:
        received = await self._in_thread(self._store.received, sha256)
        headers = {"Waku-Received": str(received)} if received else {}
        return HttpRefusal(404, "no-blob", f"there is no blob {sha256}", headers)

    # Sending.

    async def _get(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        sha256 = self._allowed(request, name)
        if self._serving >= self._serving_max:
            raise HttpRefusal(503, "full", f"{self._serving} blobs are being sent already", {"Retry-After": "1"}, "")
        self._serving += 1
        try:
            size = await self._in_thread(self._store.size, sha256)
            if size is None:
                raise await self._not_found(sha256)
            file = await self._in_thread(self._store.open, sha256)
            try:
                return await self._send(request, sha256, file, size)
            finally:
                os.close(file)
        finally:
            self._serving -= 1

    async def _send(self, request: web.BaseRequest, sha256: str, file: int, size: int) -> web.StreamResponse:
        content = _Content(file)
        part = _wanted_part(request.headers.get("Range", ""), size)
        start, end = part or (0, size)
        response = web.StreamResponse(status=206 if part else 200, headers=_headers(sha256))
        if part:
            response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        elif _accepts_zstd(request) and await self._in_thread(lambda: shrinks(content.read(CHUNK_BYTES, 0))):
            response.headers["Content-Encoding"] = _ZSTD
            response.headers["Waku-Size"] = str(size)
            response.enable_chunked_encoding()
            await response.prepare(request)
            await self._send_packed(request, response, content, size)
            return response
        response.content_length = end - start
        await response.prepare(request)
        reading = self._read_soon(content, start, end)
        while start < end:
            piece = await reading
            if not piece:  # Modified or unreadable: only an incomplete answer shows that.
                _cut_off(request)
                break
            start += len(piece)
            reading = self._read_soon(content, start, end)
            await _write(request, response, piece)
            self._store.sent_bytes += len(piece)
        return response

    async def _send_packed(
        self, request: web.BaseRequest, response: web.StreamResponse, content: _Content, size: int
    ) -> None:
        packer = ZstdPacker()
        at = 0
        while at < size:
            piece = await self._in_thread(content.read, CHUNK_BYTES, at)
            if not piece:
                _cut_off(request)
                return
            at += len(piece)
            packed = await self._in_thread(packer.pack, piece) + (packer.end() if at >= size else b"")
            if packed:
                await _write(request, response, packed)
                self._store.sent_bytes += len(packed)

    def _read_soon(self, content: _Content, start: int, end: int) -> asyncio.Future[bytes]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._pool, content.read, min(CHUNK_BYTES, end - start), start)

    # Receiving.

    async def _put(self, request: web.BaseRequest, name: str) -> web.StreamResponse:
        sha256 = self._allowed(request, name)
        upload = self._announced(request, sha256)
        if await self._in_thread(self._store.has, upload.ref):
            return web.Response(status=200, headers=_headers(sha256))
        async with self._turn():
            sink = _Sink(await self._begin(upload))
            try:
                let_go_on(request)
                await self._receive(request, sink, packed=upload.packed)
                await self._in_thread(sink.finish)
            finally:
                await self._in_thread(sink.close)
        return web.Response(status=201, headers=_headers(sha256))

    def _announced(self, request: web.BaseRequest, sha256: str) -> Upload:
        """The upload announced by the headers. Raises Refused."""
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if encoding not in {_ZSTD, "identity"}:
            raise HttpRefusal(
                415, "bad-request", f"content encoding {encoding[:40]!r} is not supported", hint="send zstd"
            )
        start: int | None = None
        length = request.content_length
        size = _number(request.headers.get("Waku-Size"), length if encoding != _ZSTD else None)
        if (content_range := request.headers.get("Content-Range")) is not None:
            found = _CONTENT_RANGE.fullmatch(content_range)
            if found is None:
                raise Refused("bad-request", "Content-Range must be bytes first-last/size", hint="")
            start, last, size = map(int, found.groups())
            if last != size - 1 or (length not in {None, size - start} and encoding != _ZSTD):
                raise Refused("bad-request", "a resumed upload must continue to the end of the blob", hint="")
        elif length is not None and encoding != _ZSTD and size != length:
            raise HttpRefusal(422, "blob-broken", f"Content-Length is {length}, but Waku-Size is {size}")
        if size is None:
            raise Refused("bad-request", "the size is missing", hint="send Content-Length or Waku-Size")
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
        incoming: Incoming = await self._in_thread(self._store.begin, upload.ref)
        if upload.start is None and incoming.at:
            await self._in_thread(incoming.restart)
        if upload.start is not None and upload.start != incoming.at:
            incoming.close()
            text = f"{incoming.at} bytes were received so far: the upload cannot resume at {upload.start}"
            raise HttpRefusal(409, "conflict", text, {"Waku-Received": str(incoming.at)}, "resume at Waku-Received")
        return incoming

    async def _receive(self, request: web.BaseRequest, sink: _Sink, *, packed: bool) -> None:
        write = ZstdUnpacker(sink.write).write if packed else sink.write
        writing: asyncio.Future[None] | None = None
        try:
            while pieces := await _gather(request):
                if writing is not None:
                    await writing
                writing = asyncio.get_running_loop().run_in_executor(self._pool, _write_all, write, pieces)
        finally:
            if writing is not None:
                await writing

    def _allowed(self, request: web.BaseRequest, name: str) -> str:
        """The blob named by a path. Raises Refused if the name is invalid, or without a valid token."""
        if not is_sha256(name):
            raise Refused("bad-name", "a blob's name is its SHA-256, in 64 lower-case hexadecimal digits", hint="")
        if self._key is not None:
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not check_token(self._key, name, token, time.time()):
                raise HttpRefusal(401, "denied", "this needs a token of the leader", {"WWW-Authenticate": "Bearer"})
        return name

    async def _in_thread(self, work: Callable[..., Any], *args: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)


def _headers(sha256: str) -> dict[str, str]:
    content = {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
    return content | SAFE_HEADERS


def _number(text: str | None, otherwise: int | None) -> int | None:
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Refused("bad-request", "Waku-Size must be a number of bytes", hint="")
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


def _accepts_zstd(request: web.BaseRequest) -> bool:
    """Whether zstd is accepted with a weight above 0."""
    for part in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == _ZSTD:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


async def _gather(request: web.BaseRequest) -> list[bytes]:
    """The next pieces of the body, up to CHUNK_BYTES. Raises ConnectionError if the peer is too slow, or gone."""
    pieces: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(BLOB_RECEIVED_MIN_S):
            while total < CHUNK_BYTES and (piece := await request.content.readany()):
                pieces.append(piece)
                total += len(piece)
    except TimeoutError:
        if total < BLOB_RECEIVED_MIN_BYTES:
            _cut_off(request)
            raise ConnectionResetError("the peer sends too slowly") from None
    except (web.RequestPayloadError, ClientError, OSError, RuntimeError) as error:  # The peer is gone.
        if not pieces:  # Earlier pieces are kept; the next call raises.
            raise ConnectionResetError(str(error)) from None
    return pieces


def _write_all(write: Callable[[bytes], None], pieces: list[bytes]) -> None:
    for piece in pieces:
        write(piece)


async def _write(request: web.BaseRequest, response: web.StreamResponse, piece: bytes) -> None:
    """Write, and wait until most of it is sent. Raises ConnectionError if the peer does not read."""
    try:
        async with asyncio.timeout(BLOB_RECEIVED_MIN_S):
            await response.write(piece)
    except TimeoutError:
        _cut_off(request)
        raise ConnectionResetError("the peer reads too slowly") from None


def _cut_off(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
