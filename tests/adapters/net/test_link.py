"""Links over real sockets, on both loops: writes that leave together, peers that do not read, and every way to end."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.kit.link_owner import Owner

from wakugumi.adapters.net import link as net
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.connect import bound_port, dial, listen
from wakugumi.adapters.net.link import Link
from wakugumi.limits.units import MIB
from wakugumi.limits.wire import FIRST_FRAME_BYTES_MAX, READ_EVENTS_MAX, WRITE_BACKLOG_BYTES_MAX, WRITE_BUFFER_BYTES_MAX
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame, encode

pytestmark = pytest.mark.anyio

DEADLINE_S = 20.0


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Peer:
    """The other end, as plain streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readexactly(size)

    async def ended(self) -> bool:
        """Nothing more comes: the link was closed, in good order or not."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Owner, Peer]]:
    """A listening side with its owner, and a plain peer that dialled it."""
    owner = Owner()
    server = await listen("127.0.0.1", 0, lambda: owner)
    # A small limit makes a peer that does not read stop taking bytes from its socket.
    reader, writer = await asyncio.open_connection("127.0.0.1", bound_port(server), limit=4096)
    await owner.until(lambda: owner.opened)
    try:
        yield owner, Peer(reader, writer)
    finally:
        owner.link.abort()
        writer.transport.abort()
        await owner.until(lambda: owner.lost)
        server.close()
        await server.wait_closed()


class Wire(asyncio.Transport):
    """A transport that only counts writes, and knows whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_read = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


async def test_what_is_sent_in_one_turn_leaves_as_one_write() -> None:
    wire, link = Wire(), Link(Owner())
    link.connection_made(wire)
    for data in (b"one", b"two", b"three"):
        link.send(data)
    assert wire.writes == []
    await asyncio.sleep(0)
    link.send(b"four")
    await asyncio.sleep(0)
    assert wire.writes == [b"onetwothree", b"four"]
    assert wire.high == WRITE_BUFFER_BYTES_MAX


async def test_frames_pass_both_ways_in_order() -> None:
    async with pair() as (owner, peer):
        await peer.send(encode(fr.CREDIT) + encode(fr.ACK_JOB, payload=b"x" * 1000)[:500])
        await peer.send(encode(fr.ACK_JOB, payload=b"x" * 1000)[500:])
        await owner.until(lambda: owner.types == [fr.CREDIT, fr.ACK_JOB])
        answer = encode(fr.ASSIGN_JOB, subject="a"), encode(fr.RESULT)
        for data in answer:
            owner.link.send(data)
        assert await peer.read(len(b"".join(answer))) == b"".join(answer)
        assert owner.link.is_open
        assert re.fullmatch(r"127\.0\.0\.1:\d+", owner.link.peer)


async def _block(owner: Owner) -> int:
    """Write until the peer's buffers and ours are full; how much that took."""
    sent = 0
    piece = bytes(64 * 1024)
    while not owner.blocked:
        owner.link.send(piece)
        sent += len(piece)
        await asyncio.sleep(0)
        assert sent < 100 * WRITE_BUFFER_BYTES_MAX
    return sent


@pytest.mark.spec("L9")
async def test_a_peer_that_does_not_read_is_blocked_until_it_reads_and_still_heard() -> None:
    async with pair() as (owner, peer):
        sent = await _block(owner)
        # Two peers that stopped reading because neither is read from would wait for each other for ever.
        await peer.send(encode(fr.CREDIT))
        await owner.until(lambda: owner.types == [fr.CREDIT])
        assert owner.blocked == [True]
        await peer.read(sent)
        await owner.until(lambda: owner.blocked == [True, False])


@pytest.mark.spec("L9")
async def test_a_peer_that_asks_on_without_reading_is_cut_off() -> None:
    async with pair() as (owner, _peer):
        await _block(owner)
        for _ in range(WRITE_BACKLOG_BYTES_MAX // MIB + 1):
            owner.link.send(bytes(MIB))
            await asyncio.sleep(0)
        await owner.until(lambda: owner.lost)


@pytest.mark.spec("L9")
async def test_a_peer_that_reads_gets_all_that_it_is_sent_in_one_turn() -> None:
    piece, count = bytes(MIB), 100
    async with pair() as (owner, peer):
        for _ in range(count):
            owner.link.send(piece)
        told: list[str] = []
        owner.link.when_written(lambda: told.append("written"))
        assert owner.link.is_blocked
        assert told == []
        for _ in range(count):
            assert await peer.read(len(piece)) == piece
        await owner.until(lambda: owner.blocked == [True, False])
        assert told == ["written"]
        assert owner.link.is_open
        owner.link.when_written(lambda: told.append("again"))
        assert told == ["written", "again"], "nothing is in the way, so it is told at once"


@pytest.mark.spec("L9")
async def test_who_is_cut_off_costs_one_line_and_nothing_that_is_sent_later(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (owner, _peer):
        await _block(owner)
        await asyncio.sleep(0)
        told: list[str] = []
        owner.link.when_written(lambda: told.append("written"))
        for _ in range(2 * WRITE_BACKLOG_BYTES_MAX // MIB):
            owner.link.send(bytes(MIB))
        await owner.until(lambda: owner.lost)
        owner.link.when_written(lambda: told.append("written"))
        assert told == [], "it never was"
        assert [record.getMessage().startswith("cutting off") for record in caplog.records] == [True]


@pytest.mark.spec("L3")
async def test_bytes_of_a_frame_that_takes_long_are_a_sign_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encode(fr.ACK_JOB, payload=bytes(1_000))
    async with pair() as (owner, peer):
        await peer.send(data[:100])
        await owner.until(lambda: owner.alive == 1)
        await peer.send(data[100:200])
        await peer.send(data[200:] + data[:100])
        await owner.until(lambda: owner.frames)
        assert owner.alive == 1, "not for every read"
        monkeypatch.setattr(net, "ALIVE_TOLD_S", 0.0)
        await peer.send(data[100:200])
        await owner.until(lambda: owner.alive == 2)


async def test_a_blocked_peer_that_is_closed_is_cut_off() -> None:
    async with pair() as (owner, _peer):
        while not owner.blocked:
            owner.link.send(bytes(1024 * 1024))
            await asyncio.sleep(0)
        owner.link.close()
        await owner.until(lambda: owner.lost)


@pytest.mark.spec("F11")
async def test_an_owner_may_stop_reading_and_go_on() -> None:
    async with pair() as (owner, peer):
        owner.link.pause(True)
        await peer.send(encode(fr.SUBMIT_JOB))
        for _ in range(20):
            await asyncio.sleep(0)
        assert owner.frames == []
        owner.link.pause(False)
        await owner.until(lambda: owner.types == [fr.SUBMIT_JOB])


async def test_a_peer_that_reads_again_is_not_read_from_while_its_owner_paused_it() -> None:
    async with pair() as (owner, peer):
        sent = 0
        while not owner.blocked:
            owner.link.send(bytes(1024 * 1024))
            sent += 1024 * 1024
            await asyncio.sleep(0)
        owner.link.pause(True)
        await peer.send(encode(fr.SUBMIT_JOB))
        await peer.read(sent)
        await owner.until(lambda: owner.blocked == [True, False])
        for _ in range(20):
            await asyncio.sleep(0)
        assert owner.frames == []
        owner.link.pause(False)
        await owner.until(lambda: owner.types == [fr.SUBMIT_JOB])


async def test_a_connection_that_never_stops_sending_leaves_the_others_their_turn() -> None:
    """The other one says its word when the first frame of the flood is handled."""
    order: list[Owner] = []

    class Noting(Owner):
        def on_frame(self, link: Link, frame: Frame) -> None:
            if not order:
                other.sendall(encode(fr.HEARTBEAT))
            order.append(self)
            super().on_frame(link, frame)

    flooded, small = Noting(), Noting()
    owners = iter([flooded, small])
    server = await listen("127.0.0.1", 0, lambda: next(owners))
    address = ("127.0.0.1", bound_port(server))
    with socket.create_connection(address) as flood, socket.create_connection(address) as other:
        await flooded.until(lambda: flooded.opened)
        await small.until(lambda: small.opened)
        for owner in (flooded, small):
            owner.link.trust()
        frame = encode(fr.HEARTBEAT)
        flooded.link.pause(True)
        flood.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                flood.send(frame * (1_000_000 // len(frame)))
        flooded.link.pause(False)
        await small.until(lambda: small.frames)
        for owner in (flooded, small):
            owner.link.abort()
            await owner.until(lambda owner=owner: owner.lost)  # type: ignore[misc]
    server.close()
    await server.wait_closed()
    assert order.index(small) <= 2 * READ_EVENTS_MAX, "whose turn is first, nobody knows"


async def test_what_was_read_already_waits_too_while_its_owner_paused_it() -> None:
    async with pair() as (owner, peer):
        sizes: list[int] = []
        owner.link.on_read = sizes.append
        frames = [encode(fr.HEARTBEAT, number.to_bytes(16, "little")) for number in range(READ_EVENTS_MAX + 10)]
        await peer.send(b"".join(frames))
        await owner.until(lambda: owner.frames)
        owner.link.pause(True)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(owner.frames) == READ_EVENTS_MAX
        assert not sizes, "it is told when all of it was handled"
        owner.link.pause(False)
        await owner.until(lambda: len(owner.frames) == len(frames))
        assert [frame.msg_id[0] for frame in owner.frames] == [number % 256 for number in range(len(frames))]
        await owner.until(lambda: sizes)
        assert sizes == [len(frames[0]) * len(frames)]


async def test_what_was_read_before_the_connection_broke_is_handled() -> None:
    """A worker that breaks has its last acks heard, also those that waited for the next turn."""
    owner, wire = Owner(), Wire()
    link = Link(owner, trusted=True)
    link.connection_made(wire)
    link.data_received(encode(fr.HEARTBEAT) * (READ_EVENTS_MAX + 10))
    assert len(owner.frames) == READ_EVENTS_MAX
    link.connection_lost(ConnectionResetError())
    assert len(owner.frames) == READ_EVENTS_MAX + 10
    assert owner.lost == 1


async def test_a_failure_that_nobody_foresaw_ends_the_connection_in_a_later_turn_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as (owner, peer):
        owner.fail_at = READ_EVENTS_MAX + 5
        await peer.send(encode(fr.HEARTBEAT) * (READ_EVENTS_MAX + 50))
        await owner.until(lambda: owner.lost)
        assert len(owner.frames) == owner.fail_at, "nothing after it is handled"
        assert await peer.ended()
    assert "nobody foresaw this" in caplog.text


async def test_an_owner_hears_of_the_end_though_the_last_frames_could_not_be_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = Owner()
    owner.fail_at = READ_EVENTS_MAX + 5
    link = Link(owner, trusted=True)
    link.connection_made(Wire())
    link.data_received(encode(fr.HEARTBEAT) * (READ_EVENTS_MAX + 10))
    link.connection_lost(ConnectionResetError())
    assert owner.lost == 1
    assert "nobody foresaw this" in caplog.text


async def test_what_comes_while_earlier_frames_wait_has_its_turn_after_them_and_reading_goes_on() -> None:
    """A transport may hand over what it had read before reading was paused."""
    owner, wire = Owner(), Wire()
    link = Link(owner, trusted=True)
    sizes: list[int] = []
    link.on_read = sizes.append
    link.connection_made(wire)
    frames = [encode(fr.HEARTBEAT, number.to_bytes(16, "little")) for number in range(READ_EVENTS_MAX + 10)]
    link.data_received(b"".join(frames[:-3]))
    assert not wire.is_read
    link.data_received(b"".join(frames[-3:]))
    assert len(owner.frames) == READ_EVENTS_MAX, "its turn is the next one"
    await owner.until(lambda: len(owner.frames) == len(frames))
    assert [frame.msg_id for frame in owner.frames] == [n.to_bytes(16, "little") for n in range(len(frames))]
    assert wire.is_read
    assert sizes == [len(frames[0]) * len(frames)]


async def test_close_sends_what_is_queued() -> None:
    async with pair() as (owner, peer):
        owner.link.send(b"last words")
        owner.link.close()
        owner.link.send(b"too late")
        assert not owner.link.is_open
        assert await peer.read(10) == b"last words"
        assert await peer.ended()


@pytest.mark.spec("F3")
async def test_who_breaks_the_protocol_costs_one_line_and_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (owner, peer):
        owner.refuse = fr.CACHE_PUT
        await peer.send(encode(fr.CREDIT) + encode(fr.CACHE_PUT) + encode(fr.RESULT) + b"more")
        assert await peer.ended()
        await owner.until(lambda: owner.lost)
        assert owner.types == [fr.CREDIT]
        assert [record.getMessage() for record in caplog.records] == [
            f"closing {owner.link.peer}: that was one too many"
        ]
    assert owner.lost == 1


@pytest.mark.spec("F3")
async def test_until_it_is_trusted_a_peer_may_send_small_frames_only(caplog: pytest.LogCaptureFixture) -> None:
    large = encode(fr.SUBMIT_JOB, payload=bytes(FIRST_FRAME_BYTES_MAX))
    async with pair() as (owner, peer):
        await peer.send(large)
        await owner.until(lambda: owner.lost)
        assert owner.frames == []
    async with pair() as (owner, peer):
        owner.link.trust()
        await peer.send(large)
        await owner.until(lambda: owner.types == [fr.SUBMIT_JOB])
    assert len(caplog.records) == 1


@pytest.mark.spec("F3")
@pytest.mark.parametrize("how", ["end", "reset"])
async def test_an_end_in_the_middle_of_a_frame_is_one_line(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (owner, peer):
        await peer.send(encode(fr.CREDIT) + encode(fr.CREDIT)[:20])
        await owner.until(lambda: owner.frames)
        if how == "end":
            peer.writer.close()
        else:
            peer.reset()
        await owner.until(lambda: owner.lost)
    assert [record.getMessage() for record in caplog.records] == [
        f"{owner.link.peer} ended in the middle of a frame, after 20 bytes"
    ]


async def test_an_end_between_frames_or_by_ourselves_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (owner, peer):
        await peer.send(encode(fr.CREDIT))
        await owner.until(lambda: owner.frames)
        peer.writer.close()
        await owner.until(lambda: owner.lost)
    async with pair() as (owner, peer):
        await peer.send(encode(fr.CREDIT) + encode(fr.CREDIT)[:20])
        await owner.until(lambda: owner.frames)
        owner.link.close()
        assert await peer.ended()
    assert caplog.records == []


async def test_a_deadline_closes_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (owner, peer):
        owner.link.expect_within(0.01, "no hello")
        assert await peer.ended()
    assert [record.getMessage() for record in caplog.records] == [f"closing {owner.link.peer}: no hello"]


@pytest.mark.parametrize("by", ["trust", "none"])
async def test_a_deadline_can_be_taken_off(by: str, caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as (owner, peer):
        loop = asyncio.get_running_loop()
        owner.link.expect_within(0.005, "no hello")
        owner.link.expect_within(0.01, "still no hello")
        if by == "trust":
            owner.link.trust()
        else:
            owner.link.expect_within(None, "")
        passed = asyncio.Event()
        loop.call_later(0.03, passed.set)
        async with asyncio.timeout(DEADLINE_S):
            await passed.wait()
        await peer.send(encode(fr.CREDIT))
        await owner.until(lambda: owner.frames)
    assert caplog.records == []


async def test_a_peer_that_vanishes_will_be_found_out() -> None:
    async with pair() as (owner, _peer):
        transport = owner.link._transport
        assert transport is not None
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_a_leader_may_wait_with_reading_and_is_dialled_so() -> None:
    server = await listen("127.0.0.1", 0, Owner)
    link = await dial(Address("127.0.0.1", bound_port(server)), Owner())
    assert link._transport is not None
    sock = link._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    link.abort()
    server.close()
