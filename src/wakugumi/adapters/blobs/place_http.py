"""How does a blob get to a leader, and from a leader or worker? Over HTTP, in the calling thread.

The content passes between file and socket without touching the loop. The error tells a worker what to do next:

    Lost, `why` is "dead"           not reachable, or ended early: use another source, or resume later
    Lost, `why` is "slow"           no byte for 10 s, or next to none for 30 s
    Refused("blob-broken")          the content does not have its hash
    Refused("full", "blob-busy")    the source is busy: retry later
    Refused("no-blob")              the source does not have the blob
    Refused("bad-request")          the file to be sent has changed, or cannot be read
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from wakugumi.adapters.blobs.store import CHUNK_BYTES, LINKED_MIN_BYTES, Incoming, link_into, ref_of_file
from wakugumi.adapters.files import READ
from wakugumi.adapters.http.paced_answer import PacedAnswer, TooSlow
from wakugumi.adapters.http.secured import SecuredConnection, access_at, answer_behind, early_bytes, tls_trouble
from wakugumi.adapters.net.address import is_loopback
from wakugumi.adapters.net.socket_options import tune
from wakugumi.errors import CODES, ConfigError, Lost, Refused
from wakugumi.limits.client import CONNECT_DEADLINE_S
from wakugumi.limits.files import BLOB_STALL_S, UPLOAD_PATIENCE_S
from wakugumi.limits.units import KIB
from wakugumi.wire.messages.references import BlobRef
from wakugumi.wire.problem import read_problem
from wakugumi.wire.web_origin import NO_BROWSER

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes

_SENDFILE_BYTES: Final = 8 * CHUNK_BYTES
"""Bytes that the kernel sends in one call."""
_DECISION_S: Final = 300.0
"""How long a leader may take to accept a blob: it reads the earlier bytes again, and syncs all of it to disk. The
kernel reports a vanished leader within half a minute."""
_RETRY_MAX_S: Final = 30.0
_HEAD_BYTES: Final = 1024
_READ_BYTES: Final = 256 * KIB
"""Bytes read, hashed and written at a time: few enough to stay in the CPU's cache."""
_CONTINUE: Final = b"HTTP/1.1 100"
_STATUSES: Final = {
    400: "bad-request",
    401: "denied",
    403: "denied",
    404: "no-blob",
    409: "blob-busy",
    413: "too-big",
    422: "blob-broken",
    503: "full",
    507: "disk",
}
"""Codes of answers without a problem document of ours."""

_SOURCE_SAYS: Final = frozenset({"no-blob", "denied", "full", "blob-busy"})
"""Codes accepted from a source. Others would look like an error of this worker, such as a full disk."""


class HttpPlace:
    """The blobs of a leader, or of a worker that the token is for. One connection per call; safe in any thread."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        stall_s: float = BLOB_STALL_S,
        patience_s: float = UPLOAD_PATIENCE_S,
        packs: bool | None = None,
        beside: str = "",
    ) -> None:
        """`packs`: compress where it helps; by default unless the place is on this machine. `beside`: the leader's
        place, for that of a worker. Raises ConfigError."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"{url!r} is no place for blobs: {error}", "write http://host:port") from None
        if not host or parts.scheme not in {"http", "https"}:
            raise ConfigError(f"{url!r} is no place for blobs", "write http://host:port")
        self.url = url
        self._host = host
        self._port = port
        self._is_tls = parts.scheme == "https"
        self._path = parts.path.rstrip("/") + "/blobs/"
        self._access = access = access_at(url, token, beside) if self._is_tls else None
        shown = token or (access.key.text if access is not None and access.key is not None else "")
        self._head = NO_BROWSER | ({"Authorization": f"Bearer {shown}"} if shown else {})
        self._stall_s = stall_s
        self._patience_s = patience_s
        self._is_near = is_loopback(host)
        self._packs = not self._is_near if packs is None else packs

    def has(self, ref: BlobRef) -> bool:
        return self._ask(ref)[0]

    def link(self, ref: BlobRef, source: Path) -> None:
        there, received, folder = self._ask(ref) if self._is_near and ref.size >= LINKED_MIN_BYTES else (True, 0, "")
        path = None if there or received or not folder else link_into(folder, ref, source)
        if path and self._ask(ref)[1] != ref.size:  # The folder is another leader's, or another sender begins anew.
            with contextlib.suppress(OSError):
                if source.samefile(path):
                    os.unlink(path)

    def put(self, ref: BlobRef, source: Path, on_bytes: OnBytes = lambda _: None) -> None:
        """Put a blob; bytes that are there already count as done. Retries for some minutes while the place is busy."""
        try:
            file = os.open(source, READ)
        except OSError as error:
            raise Refused("bad-request", f"{source} cannot be read: {error.strerror}", hint="") from None
        try:
            if os.fstat(file).st_size != ref.size:
                raise _changed(source)
            counted = _Counted(on_bytes)
            self._put_patiently(ref, file, counted)
            counted.to(ref.size)
        except Refused as error:
            if error.code == "blob-broken" and _is_other(source, ref):
                raise _changed(source) from None
            raise
        finally:
            os.close(file)

    def fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes = lambda _: None) -> None:
        try:
            if into.at < ref.size or ref.size == 0:
                self._fetch(ref, into, on_bytes)
            into.finish()
        except Refused as error:
            if error.code == "blob-broken":
                into.abandon()
            raise
        finally:
            into.close()

    def remove(self, sha256: str) -> None:
        """Does nothing: a leader removes unneeded blobs itself."""

    # Sending.

    def _put_patiently(self, ref: BlobRef, file: int, counted: _Counted) -> None:
        until = time.monotonic() + self._patience_s
        while True:
            there, received, _ = self._ask(ref)
            if there:
                return
            try:
                self._put_from(ref, file, received, counted)
            except _Busy as busy:
                if time.monotonic() + busy.again_s > until:
                    raise
                time.sleep(busy.again_s)
            else:
                return

    def _put_from(self, ref: BlobRef, file: int, start: int, counted: _Counted) -> None:
        head = {"Content-Range": f"bytes {start}-{ref.size - 1}/{ref.size}"} if start else {}
        packs = self._packs and self._shrinks(file, start)
        if packs:
            head |= {"Content-Encoding": "zstd", "Transfer-Encoding": "chunked", "Waku-Size": str(ref.size)}
        else:
            head["Content-Length"] = str(ref.size - start)
        if not self._is_tls:  # With TLS an early answer could not be peeked at.
            head["Expect"] = "100-continue"
        with self._connection() as connection:
            sock = self._send_head(connection, "PUT", ref, head)
            sock.settimeout(_DECISION_S)
            if self._is_tls or _may_go_on(sock):
                counted.to(start)
                sending = _Sending(sock, self._stall_s)
                if packs:
                    _send_packed(sending, file, start, counted)
                elif self._is_tls:
                    _send_pieces(sending, file, start, counted)
                else:
                    _send_file(sending, file, start, ref.size, counted)
                sock.settimeout(_DECISION_S)
                if sending.early:
                    connection.response_class = answer_behind(sending.early)
            answer = connection.getresponse()
            _check(answer)

    def _shrinks(self, file: int, start: int) -> bool:
        from wakugumi.adapters.blobs.zstd_stream import shrinks

        return shrinks(os.pread(file, CHUNK_BYTES, start))

    # Fetching.

    def _fetch(self, ref: BlobRef, into: Incoming, on_bytes: OnBytes) -> None:
        head = {"Range": f"bytes={into.at}-"} if into.at else {"Accept-Encoding": "zstd" if self._packs else "identity"}
        with self._connection() as connection:
            connection.response_class = PacedAnswer
            self._send_head(connection, "GET", ref, head)
            answer = connection.getresponse()
            if answer.status == 416:
                raise Refused("blob-broken", f"the source's blob is shorter than {ref.size} bytes")
            _check_source(answer)
            if answer.status == 200 and into.at:  # The source does not support ranges.
                into.restart()
            write: Callable[[bytes], None] = into.write
            if answer.headers.get("Content-Encoding", "identity") == "zstd":
                from wakugumi.adapters.blobs.zstd_stream import ZstdUnpacker

                write = ZstdUnpacker(into.write).write
            while piece := answer.read1(_READ_BYTES):
                before = into.at
                write(piece)
                on_bytes(into.at - before)
            if into.at < ref.size:
                raise ConnectionResetError(errno.ECONNRESET, f"after {into.at} of {ref.size} bytes")

    # Both.

    def _ask(self, ref: BlobRef) -> tuple[bool, int, str]:
        """Whether the blob is there; if not, how many bytes of it were received, and the folder of uploads, if told."""
        with self._connection() as connection:
            self._send_head(connection, "HEAD", ref, {})
            answer = connection.getresponse()
            if answer.status == 404:
                received = answer.headers.get("Waku-Received", "0")
                received_bytes = min(int(received), ref.size) if received.isascii() and received.isdigit() else 0
                return False, received_bytes, unquote(answer.headers.get("Waku-Incoming", ""))
            _check(answer)
            return answer.headers.get("Content-Length") == str(ref.size), 0, ""

    def _send_head(
        self, connection: http.client.HTTPConnection, method: str, ref: BlobRef, head: dict[str, str]
    ) -> socket.socket:
        connection.connect()
        sock: socket.socket = connection.sock
        tune(sock)
        sock.settimeout(self._stall_s)
        connection.putrequest(method, self._path + ref.sha256, skip_accept_encoding=True)
        for name, value in (self._head | head).items():
            connection.putheader(name, value)
        connection.endheaders()
        return sock

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        connection: http.client.HTTPConnection
        if self._access is not None:
            connection = SecuredConnection(self._host, self._port, CONNECT_DEADLINE_S, self._access)
        else:
            kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
            connection = kind(self._host, self._port, timeout=CONNECT_DEADLINE_S)
        try:
            yield connection
        except TimeoutError as error:  # With an errno: the kernel reports a vanished peer.
            if error.errno is not None:
                raise Lost(f"{self.url} does not answer any more", "dead") from None
            what = str(error) if isinstance(error, TooSlow) else f"sent or accepted nothing for {self._stall_s:g} s"
            raise Lost(f"{self.url} {what}", "slow") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Lost(f"the transfer with {self.url} failed: {_words(error)}", "dead") from None
        finally:
            connection.close()


class _Busy(Refused):
    """Retry after `again_s`."""

    def __init__(self, code: str, message: str, again_s: float) -> None:
        super().__init__(code, message)
        self.again_s = again_s


class _Counted:
    """Reports progress only forwards: bytes sent again after a loss were counted already."""

    def __init__(self, on_bytes: OnBytes) -> None:
        self._on_bytes = on_bytes
        self._at = 0

    def to(self, at: int) -> None:
        if at > self._at:
            self._on_bytes(at - self._at)
            self._at = at


class _Sending:
    """A socket that sends a body until it is complete or the peer answers early."""

    def __init__(self, sock: socket.socket, stall_s: float) -> None:
        self.sock = sock
        self.early = b""
        """Bytes of an early answer under TLS."""
        self._stall_s = stall_s
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN | select.POLLOUT)
        sock.setblocking(False)

    def may_go_on(self) -> bool:
        """Wait until the socket accepts more. False if there is an answer."""
        ready = self._poll.poll(self._stall_s * 1000)
        if not ready:
            raise TimeoutError
        if ready[0][1] & (select.POLLHUP | select.POLLERR):
            return False
        if ready[0][1] & select.POLLIN and isinstance(self.sock, ssl.SSLSocket):
            self.early = early_bytes(self.sock)
            return not self.early
        return not ready[0][1] & select.POLLIN

    def send(self, data: bytes | memoryview) -> bool:
        view = memoryview(data)
        while view:
            if not self.may_go_on():
                return False
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                view = view[self.sock.send(view) :]
        return True


def _send_file(sending: _Sending, file: int, at: int, end: int, counted: _Counted) -> None:
    while at < end and sending.may_go_on():
        with contextlib.suppress(BlockingIOError):
            sent = os.sendfile(sending.sock.fileno(), file, at, min(_SENDFILE_BYTES, end - at))
            if not sent:
                raise Refused("blob-broken", "the file was shortened")
            at += sent
            counted.to(at)


def _send_pieces(sending: _Sending, file: int, at: int, counted: _Counted) -> None:
    while (piece := os.pread(file, CHUNK_BYTES, at)) and sending.send(piece):
        at += len(piece)
        counted.to(at)


def _send_packed(sending: _Sending, file: int, at: int, counted: _Counted) -> None:
    from wakugumi.adapters.blobs.zstd_stream import ZstdPacker

    packer = ZstdPacker()
    while piece := os.pread(file, CHUNK_BYTES, at):
        at += len(piece)
        packed = packer.pack(piece)
        if packed and not sending.send(b"%x\r\n%b\r\n" % (len(packed), packed)):
            return
        counted.to(at)
    packed = packer.end()
    sending.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed))


def _may_go_on(sock: socket.socket) -> bool:
    """Whether the peer asks for the content. If not, its answer is still unread."""
    seen = 0
    while True:
        head = sock.recv(_HEAD_BYTES, socket.MSG_PEEK)
        if head and len(head) == seen:  # A broken server sent half a line: wait for the rest without a busy loop.
            time.sleep(0.01)
        seen = len(head)
        if not head or not _CONTINUE.startswith(head[: len(_CONTINUE)]):
            return False
        if b"\r\n\r\n" in head:
            sock.recv(head.index(b"\r\n\r\n") + 4)
            return True
        if seen == _HEAD_BYTES:
            return False


def _check(answer: http.client.HTTPResponse) -> None:
    """Raises Refused or Lost unless the answer is a success."""
    if 200 <= answer.status < 300:
        return
    code, text = _STATUSES.get(answer.status, ""), f"{answer.status} {answer.reason}"
    with contextlib.suppress(OSError, http.client.HTTPException):
        problem = read_problem(answer.read(_HEAD_BYTES * 8))
        text = problem.detail or text
        code = problem.code if problem.code in CODES else code
    if answer.status in {409, 503}:
        after = answer.headers.get("Retry-After", "")
        moved = "Waku-Received" in answer.headers  # Another sender has sent more of it meanwhile.
        raise _Busy("blob-busy" if moved else code, text, 0.1 if moved else _seconds(after))
    if not code:
        raise Lost(f"the other side failed: {text}", "dead")
    raise Refused(code, text)


def _check_source(answer: http.client.HTTPResponse) -> None:
    try:
        _check(answer)
    except Refused as error:
        if error.code in _SOURCE_SAYS:
            raise
        raise Lost(f"the other side failed: {answer.status} {error.message}", "dead") from None


def _seconds(text: str) -> float:
    return min(float(text), _RETRY_MAX_S) if text.isascii() and text.isdigit() else 1.0


def _changed(source: Path) -> Refused:
    return Refused("bad-request", f"{source} was changed while it was sent", hint="leave it alone, or send a copy")


def _is_other(source: Path, ref: BlobRef) -> bool:
    try:
        return ref_of_file(source) != ref
    except OSError:
        return True


def _words(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, OSError):
        return tls_trouble(error) or error.strerror or str(error)
    return str(error) or type(error).__name__
