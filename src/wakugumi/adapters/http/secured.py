"""How are blobs sent to and fetched from a server that must prove who it is? Over TLS of the grid's authority, in the
calling thread.

An answer that comes before all is sent is noticed by its bytes. Under TLS only reading tells them from records without
content, such as tickets: bytes that were read then stand before the rest of the answer.
"""

from __future__ import annotations

import http.client
import io
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from wakugumi.adapters.access.dialled import entry_of
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.connect import NO_TLS, NOT_BELIEVED

if TYPE_CHECKING:
    from wakugumi.adapters.access.entry import AccessEntry


def access_at(url: str, token: str, beside: str) -> AccessEntry | None:
    """How the place at this URL is dialled; None: as its scheme says. A worker, which gets a token, is signed by the
    authority of the leader's place `beside`, and gets no key. Raises ConfigError."""
    parts = urlsplit(beside if token else url)
    if parts.scheme != "https" or not parts.username or not parts.hostname or urlsplit(url).scheme != "https":
        return None
    entry = entry_of(parts.username, Address(parts.hostname, parts.port or 443))
    return entry._replace(key=None, role="worker") if token and entry is not None else entry


class SecuredConnection(http.client.HTTPConnection):
    """A connection to a server of the entry's role."""

    default_port = 443

    def __init__(self, host: str, port: int | None, timeout: float, access: AccessEntry) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context = access.context()
        self._server_name = access.server_hostname

    def connect(self) -> None:
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._server_name)


def early_bytes(sock: ssl.SSLSocket) -> bytes:
    """Bytes of an answer that can be read now, of a socket that does not block; empty if there are none yet. Raises
    OSError if the connection has ended."""
    try:
        data = sock.recv(io.DEFAULT_BUFFER_SIZE)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return b""
    if not data:
        raise ConnectionResetError("it ended the connection")
    return data


class _Behind(io.RawIOBase):
    """These bytes, and then those of the connection."""

    def __init__(self, first: bytes, raw: io.RawIOBase) -> None:
        self._first = memoryview(first)
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int | None:
        if not self._first:
            return self._raw.readinto(room)
        count = min(len(room), len(self._first))
        room[:count], self._first = self._first[:count], self._first[count:]
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def answer_behind(first: bytes) -> type[http.client.HTTPResponse]:
    """The class of an answer that begins with bytes that were read already."""

    class Begun(http.client.HTTPResponse):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.fp = io.BufferedReader(_Behind(first, self.fp.detach()))

    return Begun


def tls_trouble(error: OSError) -> str:
    """Why no connection could be made; empty for other errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server {NOT_BELIEVED}: {error.verify_message}"
    return f"the server {NO_TLS}: {error.reason or error}" if isinstance(error, ssl.SSLError) else ""
