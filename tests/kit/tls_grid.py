"""A grid's authority with its servers, keys and access files; and a scripted leader behind TLS."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import closing, suppress
from pathlib import Path

from tests.kit.scripted_leader import Peer, ScriptedLeader

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.certificates import CertifiedKey, ca_digest, make_ca, make_server_certificate
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.adapters.access.state_folder import new_key
from wakugumi.adapters.net.address import Address
from wakugumi.wire.access_line import Key

DAY_S = 86_400.0


class TlsGrid:
    """`folder` is for its files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca: CertifiedKey = make_ca()
        self.digest = ca_digest(self.ca.certificate)
        self._files = 0

    def key(self, name: str = "desk-1") -> Key:
        return new_key(name, self.digest)

    def server(self, role: str = "leader", *, now: float | None = None, days: float = 90.0) -> ssl.SSLContext:
        """The context of a server with a new certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        self.certify(context, role, now=now, days=days)
        return context

    def certify(
        self, context: ssl.SSLContext, role: str = "leader", *, now: float | None = None, days: float = 90.0
    ) -> None:
        """Give the context a new certificate."""
        made = make_server_certificate(self.ca, role, ["localhost"], ["127.0.0.1"], days, now)
        self._files += 1
        file = self.folder / f"server-{self._files}.pem"
        file.write_bytes(made.certificate + made.key)
        context.load_cert_chain(file)

    def entry(self, port: int, key: Key | None, role: str = "leader") -> AccessEntry:
        return AccessEntry((Address("127.0.0.1", port),), self.ca.certificate.decode(), key, role=role)

    def write_access(self, path: Path, *entries: AccessEntry) -> Path:
        for entry in entries:
            AccessFile(path).add(entry)
        return path

    def line(self, port: int, key: Key) -> str:
        return f"waku://{key.text}@127.0.0.1:{port}"


class TlsLeader(ScriptedLeader):
    """Speaks TLS, and answers with the authority's certificate over HTTP. It keeps all decrypted bytes."""

    def __init__(self, tls: ssl.SSLContext, ca: bytes, *, own: bool = True) -> None:
        super().__init__(own=own)
        self.tls = tls
        self.ca = ca
        self.received = bytearray()
        """The first bytes of each connection."""
        self.connections = 0
        self.asked_for_ca = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        self.connections += 1
        with closing(writer.transport), suppress(OSError, asyncio.CancelledError):
            first = await reader.read(65536)
            self.received += first
            if first.startswith(b"GET /access/ca"):
                self.asked_for_ca += 1
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.ca)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + self.ca)
                await writer.drain()
            elif first:
                peer = Peer(reader, writer, first)
                self._peers.put_nowait(peer)
                await self._serve(peer)
