"""A leader that says to its workers what a test tells it, byte by byte.

The old leader knows the nine types of the contract and nothing else: its bytes are made and read by the few lines
below, so a mistake in our own `wire` cannot hide in its tests. The own leader adds the types from 16 on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import struct
import uuid
from typing import Any, NamedTuple

from wakugumi.adapters.net.address import Address

ASSIGN, ACK, CREDIT, CACHE_PUT, CACHE_ACK, HELLO_WORKER = 2, 3, 4, 6, 7, 10
WELCOME, REFUSAL, CONFIRM, HEARTBEAT, HOLDING, CANCEL, LEAVING, FETCH = 16, 18, 19, 20, 21, 22, 23, 26
DEADLINE_S = 20.0
NO_ID = uuid.UUID(int=0)


class Message(NamedTuple):
    type: int
    msg_id: uuid.UUID
    corr_id: uuid.UUID
    subject: str
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def credit(self) -> int:
        assert self.type == CREDIT
        (amount,) = struct.unpack("<i", self.payload)
        return int(amount)


class Connection:
    """A leader's end of a worker's connection, byte by byte as the contract has it (F1, F2)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.heard: list[Message] = []

    def send(
        self,
        kind: int,
        payload: bytes = b"",
        msg_id: uuid.UUID = NO_ID,
        corr_id: uuid.UUID = NO_ID,
        subject: str = "",
    ) -> None:
        text = subject.encode()
        body = struct.pack("<B16s16sH", kind, msg_id.bytes_le, corr_id.bytes_le, len(text))
        body += text + struct.pack("<I", len(payload)) + payload
        self.send_raw(struct.pack("<I", len(body)) + body)

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self) -> Message:
        """The next frame. Raises IncompleteReadError at the end of the connection."""
        async with asyncio.timeout(DEADLINE_S):
            (length,) = struct.unpack("<I", await self._reader.readexactly(4))
            body = await self._reader.readexactly(length)
        kind, msg_id, corr_id, size = struct.unpack_from("<B16s16sH", body)
        (payload_size,) = struct.unpack_from("<I", body, 35 + size)
        assert 39 + size + payload_size == length
        message = Message(
            kind,
            uuid.UUID(bytes_le=msg_id),
            uuid.UUID(bytes_le=corr_id),
            body[35 : 35 + size].decode(),
            body[39 + size :],
        )
        self.heard.append(message)
        return message

    async def expect(self, kind: int) -> Message:
        """The next frame, which must be of this type; heartbeats come whenever they like."""
        message = await self.read()
        while message.type == HEARTBEAT != kind:
            message = await self.read()
        assert message.type == kind, message
        return message

    async def ended(self) -> list[Message]:
        """Wait for the other side to close; what it still said."""
        last: list[Message] = []
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                last.append(await self.read())
        return last

    def close(self) -> None:
        self._writer.close()

    async def closed(self) -> None:
        self.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    # What both kinds of leaders do.

    def assign(self, job: uuid.UUID, program: str, *args: str, **fields: object) -> None:
        request = {"JobId": str(job), "ClientId": "desk-1", "ExecName": program, "Args": args, **fields}
        self.send(ASSIGN, json.dumps(request).encode(), msg_id=job, subject=f"job.assign.{program}")

    async def ack_of(self, job: uuid.UUID) -> Any:
        ack = await self.expect(ACK)
        assert ack.corr_id == job
        return ack.json

    # What only our own do.

    async def welcome(self) -> Any:
        """Greet, and return what the worker holds."""
        await self.expect(HELLO_WORKER)
        self.send(WELCOME, b'{"Version":"1","New":1}')
        return (await self.expect(HOLDING)).json

    def confirm(self, *jobs: uuid.UUID) -> None:
        self.send(CONFIRM, b"".join(job.bytes_le for job in jobs))

    def fetch(self, *jobs: uuid.UUID) -> None:
        self.send(FETCH, b"".join(job.bytes_le for job in jobs))


class WorkersLeader:
    """Takes connections one after the other."""

    def __init__(self) -> None:
        self._connections: asyncio.Queue[Connection] = asyncio.Queue()
        self._all: list[Connection] = []
        self._server: asyncio.Server
        self.address: Address

    async def open(self, tls: ssl.SSLContext | None = None) -> None:
        async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._all.append(Connection(reader, writer))
            self._connections.put_nowait(self._all[-1])

        self._server = await asyncio.start_server(came, "127.0.0.1", 0, ssl=tls)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def connection(self) -> Connection:
        async with asyncio.timeout(DEADLINE_S):
            return await self._connections.get()

    async def close(self) -> None:
        self._server.close()
        for connection in self._all:
            await connection.closed()


def new_id() -> uuid.UUID:
    return uuid.uuid4()
