"""A leader, a node and a gateway behind one guard, and peers with every kind of proof that ask them in every language:
is the peer answered, or how is it refused?"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tests.kit.a_node import a_node

from wakugumi.adapters.access.certificates import make_csr
from wakugumi.adapters.access.state_folder import AccessFolder
from wakugumi.adapters.net.tls import grid_client_context
from wakugumi.core.access.identity import Role
from wakugumi.core.access.key_questions import AskKey, AskMakeKey, AskRevokeKey, KeyRow, MadeKey
from wakugumi.core.access.local_rule import LocalRule
from wakugumi.core.gateway.groups import GroupAt
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.access.keys import GridKeys, KeyPlace
from wakugumi.roles.gateway.server import GatewayServer
from wakugumi.roles.gateway.settings import GatewaySettings
from wakugumi.roles.leader.leader import Leader
from wakugumi.wire import frame as fr
from wakugumi.wire.access_line import Key, parse_key
from wakugumi.wire.frame import Decoder, Frame
from wakugumi.wire.messages.hello import WANTS_CLIENT, WANTS_WORKER, HelloClient, HelloWorker
from wakugumi.wire.messages.job import read_refusal
from wakugumi.wire.messages.payload import encode

HOST = "127.0.0.1"
DEADLINE_S = 20.0
YES, CLOSED = "yes", "closed"
NO_USER = LocalRule("none", 0)
"""No user of this machine is known: all peers are strangers."""
_SHORT_S = 1e-6
"""Life of a key that has expired by the time its file is written."""
_CUT_OFF = (ssl.SSLError, ConnectionResetError, BrokenPipeError, asyncio.IncompleteReadError)
_jobs = count(1)


class Proof(NamedTuple):
    """All that a peer shows."""

    key: Key | None = None
    tls: ssl.SSLContext | None = None
    """None: it speaks plain."""
    lines: tuple[str, ...] = ()
    """Further lines of its HTTP requests."""

    @property
    def name(self) -> str:
        return "me" if self.key is None else self.key.name

    @property
    def text(self) -> str:
        return "" if self.key is None else self.key.text


class Said(NamedTuple):
    """An answer: `yes`, an HTTP status, the code of a refusal or `closed`; and its words."""

    cell: str
    words: str = ""


class AccessWorld(NamedTuple):
    leader: int
    node: int
    node_lines: int
    gateway: int

    @property
    def http(self) -> dict[str, int]:
        return {"leader": self.leader, "node": self.node, "gateway": self.gateway}

    async def be_a_client(self, proof: Proof) -> Said:
        return await _frames(self.leader, proof, _hello(proof), fr.WELCOME)

    async def be_a_worker(self, proof: Proof) -> Said:
        payload = encode(HelloWorker("w", list(WANTS_WORKER), key=proof.text))
        hello = fr.encode(fr.HELLO_WORKER, uuid4().bytes_le, payload=payload)
        return await _frames(self.leader, proof, hello, fr.WELCOME)

    async def list_keys(self, proof: Proof) -> Said:
        question = fr.encode(fr.ASK, uuid4().bytes_le, payload=b'{"ask":"keys"}')
        return await _frames(self.leader, proof, _hello(proof) + question, fr.ASK)

    async def look(self, proof: Proof, *lines: str) -> dict[str, Said]:
        """Over HTTP, at each role, with the key as Bearer."""
        shown = (f"Authorization: Bearer {proof.text}",) if proof.key else ()
        return {
            role: await _http(port, proof, "GET /capacity", 200, *shown, *lines) for role, port in self.http.items()
        }

    async def run(self, proof: Proof) -> dict[str, Said]:
        """The same, with the key as Basic. An unknown job is told only to a peer that may run jobs."""
        shown = (f"Authorization: Basic {b64encode(proof.text.encode()).decode()}",) if proof.key else ()
        return {role: await _http(port, proof, "DELETE /jobs/none", 404, *shown) for role, port in self.http.items()}

    async def run_by_line(self, proof: Proof) -> Said:
        auth = f"AUTH {proof.text}\n" if proof.key else ""
        try:
            async with _connected(self.node_lines, proof) as (reader, writer):
                writer.write(f"{auth}JOB line-{next(_jobs)} in 1\nx".encode())
                line = (await reader.readuntil(b"\n")).decode().rstrip()
        except _CUT_OFF:
            return Said(CLOSED)
        word, _, rest = line.partition(" ")
        code, _, words = rest.partition(": ")
        return Said(YES) if word == "OK" else Said(code, words)


@asynccontextmanager
async def an_access_world(folder: Path, guard: AccessGuard) -> AsyncIterator[AccessWorld]:
    (folder / "node").mkdir(parents=True)
    leader = Leader(guard=guard)
    try:
        port = await leader.listen(HOST, 0)
        settings = GatewaySettings(groups=(GroupAt("none", f"http://{HOST}:9"),), state=folder / "gateway")
        async with a_node(folder / "node", guard=guard) as node, GatewayServer(settings, guard) as gateway:
            yield AccessWorld(port, node.http, node.lines, await gateway.listen(HOST, 0))
    finally:
        await leader.close()  # It closes the guard, too.


class KeyMaker:
    """The keys of a grid, in their folder, and proofs for its ports. Create it inside a running loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place = self._make()
        self.keys = GridKeys(self._make, self.place)

    def guard(self, local: LocalRule | None) -> AccessGuard:
        """`local`: by default this user is an administrator."""
        return AccessGuard(local, keys=self.keys)

    def guard_before_keys(self, local: LocalRule | None) -> AccessGuard:
        """The same, before the first key is made."""
        return AccessGuard(local, keys=GridKeys(self._make, None))

    def tls(self, certificate: Path | None = None) -> ssl.SSLContext:
        return grid_client_context(self.place.folder.ca_pem.decode(), certificate)

    async def key(self, name: str, role: Role, expires_s: float = 0.0) -> Key:
        made = await self.keys.ask(AskMakeKey(name, role, expires_s=expires_s))
        assert isinstance(made, MadeKey)
        return parse_key(made.key)

    async def expired(self, name: str) -> Key:
        key = await self.key(name, Role.ADMIN, _SHORT_S)
        await self._has(AskKey(name), "expired")
        return key

    async def revoke(self, name: str) -> None:
        await self._has(AskRevokeKey(name), "revoked")

    async def certificate(self, key: Key) -> Path:
        """A file with a certificate of the grid for this key."""
        made = make_csr()
        pem = await self.keys.certify(self.keys.identify(key), made.certificate)
        file = self._folder / f"{key.name}.pem"
        file.write_bytes(pem + made.key)
        return file

    def _make(self) -> KeyPlace:
        opened = AccessFolder.open(self._folder / "access", "leader", [HOST])
        return KeyPlace(opened, opened.keys(f"{HOST}:5000"), opened.context(), [HOST])

    async def _has(self, question: AskKey | AskRevokeKey, state: str) -> None:
        row = await self.keys.ask(question)
        assert isinstance(row, KeyRow)
        assert row.state == state


def _hello(proof: Proof) -> bytes:
    return fr.encode(fr.HELLO_CLIENT, payload=encode(HelloClient(proof.name, 4, list(WANTS_CLIENT), proof.text)))


async def _frames(port: int, proof: Proof, data: bytes, awaited: int) -> Said:
    """The first answer of this type, or the refusal of the hello."""
    decoder = Decoder()
    try:
        async with _connected(port, proof) as (reader, writer):
            writer.write(data)
            while got := await reader.read(65_536):
                for each in decoder.feed(got):
                    if each.type in (awaited, fr.REFUSAL):
                        return _meant(each)
    except _CUT_OFF:
        pass
    return Said(CLOSED)


def _meant(frame: Frame) -> Said:
    if frame.type == fr.REFUSAL or frame.subject == "refused":
        no = read_refusal(frame.payload)
        return Said(no.code, no.message.partition(";")[0])
    return Said(YES)


async def _http(port: int, proof: Proof, request: str, good: int, *lines: str) -> Said:
    host = () if any(line.startswith("Host:") for line in lines) else (f"Host: {HOST}",)
    head = [f"{request} HTTP/1.1", "Connection: close", "Content-Length: 0", *host, *lines, *proof.lines]
    got = await _all(port, proof, "".join(f"{line}\r\n" for line in head).encode() + b"\r\n")
    if got is None:
        return Said(CLOSED)
    top, _, body = got.partition(b"\r\n\r\n")
    status = int(top.split()[1])
    if status == good:
        return Said(YES)
    problem = json.loads(body)
    assert (problem["code"], problem["hint"] != "") == ("denied", True) or status not in (401, 403), problem
    assert (b"www-authenticate:" in top.lower()) == (status == 401), top
    return Said(str(status), problem["detail"])


async def _all(port: int, proof: Proof, data: bytes) -> bytes | None:
    """All that comes back until the server ends; None if that is nothing."""
    try:
        async with _connected(port, proof) as (reader, writer):
            writer.write(data)
            return await reader.read(-1) or None
    except _CUT_OFF:
        return None


@asynccontextmanager
async def _connected(port: int, proof: Proof) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(DEADLINE_S):
        name = None if proof.tls is None else HOST
        reader, writer = await asyncio.open_connection(HOST, port, ssl=proof.tls, server_hostname=name)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
