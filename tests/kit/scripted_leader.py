"""A leader that says to its clients what a test tells it, over real sockets; also one with a folder for large files."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.core.ids import JobId
from wakugumi.limits.wire import FRAME_BYTES_MAX
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.hello import BLOBS, CAPS, Welcome
from wakugumi.wire.messages.job import JobResult, Missing, Refusal, unpack_ids
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

DEADLINE_S = 20.0
"""For things that happen at once, on a machine that may be busy."""


class Peer:
    """A client's connection, as its leader sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b"") -> None:
        """`first`: bytes that were read already."""
        self.seen: list[Frame] = []
        self._first = first
        self._reader = reader
        self._writer = writer
        self._decoder = fr.Decoder(FRAME_BYTES_MAX)
        self.frames: asyncio.Queue[Frame | None] = asyncio.Queue()

    async def read(self) -> None:
        try:
            while data := self._first or await self._reader.read(65536):
                self._first = b""
                for frame in self._decoder.feed(data):
                    self.seen.append(frame)
                    self.frames.put_nowait(frame)
        finally:
            self.frames.put_nowait(None)

    async def next(self, kind: int) -> Frame:
        """The next frame, which must be of this type; heartbeats may come at any time."""
        while True:
            async with asyncio.timeout(DEADLINE_S):
                frame = await self.frames.get()
            assert frame is not None, "the client hung up"
            if frame.type == kind or frame.type != fr.HEARTBEAT:
                assert frame.type == kind, f"{fr.NAMES[frame.type]} instead of {fr.NAMES[kind]}"
                return frame

    async def next_but(self, *kinds: int) -> Frame:
        """The next frame that is not of these kinds, nor a heartbeat."""
        while True:
            async with asyncio.timeout(DEADLINE_S):
                frame = await self.frames.get()
            assert frame is not None, "the client hung up"
            if frame.type not in {fr.HEARTBEAT, *kinds}:
                return frame

    async def submits(self, count: int) -> list[JobId]:
        return [JobId((await self.next(fr.SUBMIT_JOB)).msg_id) for _ in range(count)]

    async def end(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while await self.frames.get() is not None:
                pass

    def send(self, kind: int, corr_id: bytes = fr.NO_ID, payload: bytes = b"", subject: str = "") -> None:
        self._writer.write(fr.encode(kind, corr_id=corr_id, subject=subject, payload=payload))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    def welcome(self) -> None:
        self.send(fr.WELCOME, payload=encode(Welcome("test")))

    def result(self, job: JobId, **fields: object) -> None:
        self.send(fr.RESULT, job, encode(JobResult(str(uuid.UUID(bytes_le=job)), **fields)))  # type: ignore[arg-type]

    def refuse_hello(self, text: str) -> None:
        self.send(fr.REFUSAL, payload=encode(Refusal("denied", text)))

    def refuse(self, job: JobId, code: str) -> None:
        self.send(fr.REFUSAL, job, encode(Refusal(code, f"because of {code}")))

    async def knows_nothing(self) -> None:
        """A leader without memory: it is asked for what was sent to the one before, and has it sent again."""
        for job in unpack_ids((await self.next(fr.CLAIM)).payload):
            self.refuse(job, "unknown-job")

    def hang_up(self) -> None:
        self._writer.transport.abort()


class ScriptedLeader:
    """Listens, and leaves every answer to the test."""

    def __init__(self, *, own: bool) -> None:
        self.own = own
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._handlers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        self._server.close()

    async def close(self) -> None:
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def peer(self) -> Peer:
        """The next client, after its hello (and our welcome, unless this leader is an old one)."""
        async with asyncio.timeout(DEADLINE_S):
            peer = await self._peers.get()
        await peer.next(fr.HELLO_CLIENT)
        if self.own:
            peer.welcome()
        return peer

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        peer = Peer(reader, writer)
        self._peers.put_nowait(peer)
        with closing(writer.transport), suppress(OSError, asyncio.CancelledError):
            await self._serve(peer)

    async def _serve(self, peer: Peer) -> None:
        await peer.read()


@asynccontextmanager
async def scripted(leader: ScriptedLeader | None = None) -> AsyncIterator[ScriptedLeader]:
    leader = leader or ScriptedLeader(own=True)
    await leader.start()
    try:
        yield leader
    finally:
        await leader.close()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class WithPlace(ScriptedLeader):
    """A leader that takes blobs, in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(own=False)
        self.store = BlobStore(folder)
        self.url = folder.as_uri()

    async def peer(self) -> Peer:
        peer = await super().peer()
        peer.send(fr.WELCOME, payload=encode(Welcome("test", [BLOBS, CAPS], self.url)))
        return peer

    def has(self, content: bytes) -> bool:
        return self.store.has(BlobRef(sha(content), len(content)))


def misses(peer: Peer, about: bytes, *contents: bytes) -> None:
    peer.send(fr.MISSING, about, encode(Missing([sha(content) for content in contents])))


@asynccontextmanager
async def grid_with_place(folder: Path, **options: object) -> AsyncIterator[tuple[Grid, Peer, WithPlace]]:
    async with scripted(WithPlace(folder)) as leader, asyncio.TaskGroup() as group:
        assert isinstance(leader, WithPlace)
        coming = group.create_task(leader.peer())
        async with connect(f"127.0.0.1:{leader.port}", client_id="me", **options) as grid:  # type: ignore[arg-type]
            yield grid, await coming, leader
