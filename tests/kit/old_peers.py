"""A client and a worker as they were before Wakugumi: written from the contract's section on frames, and nothing else.

Nothing of Wakugumi is imported here, so that no mistake of its code can hide behind itself. These peers know the nine
old types; a frame of any other type, or one whose lengths do not add up, is an AssertionError.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

SUBMIT_JOB, ASSIGN_JOB, ACK_JOB, CREDIT, RESULT, CACHE_PUT, CACHE_ACK, HELLO_CLIENT, HELLO_WORKER = (
    *range(1, 8),
    9,
    10,
)
OLD_TYPES = frozenset({*range(1, 8), 9, 10})
NO_ID = UUID(int=0)
DEADLINE_S = 20.0


@dataclass(frozen=True)
class Message:
    type: int
    msg_id: UUID = NO_ID
    corr_id: UUID = NO_ID
    subject: str = ""
    payload: bytes = b""

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.payload)
        assert isinstance(found, dict)
        return found


def pack(message: Message) -> bytes:
    subject = message.subject.encode("utf-8")
    body = struct.pack("<B16s16sH", message.type, message.msg_id.bytes_le, message.corr_id.bytes_le, len(subject))
    body += subject + struct.pack("<I", len(message.payload)) + message.payload
    return struct.pack("<I", len(body)) + body


def unpack(body: bytes) -> Message:
    """The frame of these bytes, its length apart."""
    kind, msg_id, corr_id, subject_size = struct.unpack_from("<B16s16sH", body)
    subject = body[35 : 35 + subject_size]
    (payload_size,) = struct.unpack_from("<I", body, 35 + subject_size)
    payload = body[39 + subject_size :]
    assert len(subject) == subject_size
    assert len(payload) == payload_size
    return Message(kind, UUID(bytes_le=msg_id), UUID(bytes_le=corr_id), subject.decode("utf-8"), payload)


class OldPeer:
    """One connection to a leader."""

    host = "127.0.0.1"

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=8 * 1024 * 1024)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()

    async def send(self, message: Message) -> None:
        assert message.type in OLD_TYPES
        self.writer.write(pack(message))
        async with asyncio.timeout(DEADLINE_S):
            await self.writer.drain()

    async def receive(self) -> Message:
        async with asyncio.timeout(DEADLINE_S):
            (size,) = struct.unpack("<I", await self.reader.readexactly(4))
            assert size <= 4 * 1024 * 1024
            message = unpack(await self.reader.readexactly(size))
        assert message.type in OLD_TYPES, f"an old peer was sent a frame of type {message.type}"
        return message

    async def is_cut_off(self) -> bool:
        """The leader ended the connection, and said nothing before."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def die(self) -> None:
        """As a killed process does: the connection is reset."""
        if not self.writer.is_closing():
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()


class OldClient(OldPeer):
    async def hello(self, client_id: str = "", config: dict[str, Any] | None = None) -> None:
        payload = b"" if config is None else json.dumps(config).encode()
        await self.send(Message(HELLO_CLIENT, subject=client_id, payload=payload))

    async def submit(self, subject: str = "job.submit.calcA", *, job_id: UUID | None = None, **request: Any) -> UUID:
        """Submit a job request with these fields; the id stands in both places, as old clients write it."""
        job_id = job_id or uuid4()
        fields = {"JobId": str(job_id), "ClientId": "old", "ExecName": "calcA", "Args": [], "Files": []} | request
        await self.send(Message(SUBMIT_JOB, job_id, subject=subject, payload=json.dumps(fields).encode()))
        return job_id

    async def result(self) -> tuple[UUID, dict[str, Any]]:
        """The next result: the job's id as the frame gives it, and what is in it."""
        message = await self.receive()
        assert message.type == RESULT
        return message.corr_id, message.json

    async def results(self, count: int) -> dict[UUID, dict[str, Any]]:
        found = [await self.result() for _ in range(count)]
        assert len(dict(found)) == count, "a result came twice"
        return dict(found)

    async def put_cache(self, cache_id: str, target: str) -> tuple[Message, UUID]:
        msg_id = uuid4()
        request = {"CacheId": cache_id, "Entries": [{"Name": "a", "Content": "eA=="}], "TargetPattern": target}
        await self.send(Message(CACHE_PUT, msg_id, subject=f"cache.put.{target}", payload=json.dumps(request).encode()))
        return await self.receive(), msg_id


class OldWorker(OldPeer):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.id = uuid4()

    async def hello(self, patterns: str = "", *, credit: int = 0) -> None:
        await self.send(Message(HELLO_WORKER, self.id, subject=patterns))
        if credit:
            await self.credit(credit)

    async def credit(self, amount: int) -> None:
        await self.send(Message(CREDIT, uuid4(), payload=struct.pack("<i", amount)))

    async def assigned(self) -> Message:
        message = await self.receive()
        assert message.type == ASSIGN_JOB
        return message

    async def ack(self, job: Message, **result: Any) -> None:
        """Without fields: the empty payload, which means OK."""
        payload = b""
        if result:
            request = job.json
            names = {name: request.get(name, "") for name in ("JobId", "ClientId", "ExecName")}
            fields = names | {"Status": "OK", "Stdout": "", "Stderr": "", "OutputArchive": None} | result
            payload = json.dumps(fields).encode()
        await self.send(Message(ACK_JOB, corr_id=job.msg_id, payload=payload))

    async def serve(self, program: Callable[[dict[str, Any]], str]) -> None:
        """Run every job with this program (request to stdout), one credit each, until the connection ends."""
        while True:
            try:
                job = await self.assigned()
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            await self.ack(job, Stdout=program(job.json), ExitCode=0)
            await self.credit(1)
