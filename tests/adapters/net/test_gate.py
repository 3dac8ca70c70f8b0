"""What strangers and half frames may cost, over real sockets and on both loops: whatever a port speaks, all who have
not said who they are share one budget, and large frames take turns when memory is short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from tests.kit.eventually import eventually
from tests.kit.guards import OpenGuard
from tests.kit.http_peer import HttpPeer, ask
from tests.kit.link_owner import Owner
from tests.kit.some_routes import echo, some_routes

from wakugumi.adapters.lines.server import LineServer, listen_lines
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.connect import bound_port, dial, listen
from wakugumi.adapters.net.gate import gate
from wakugumi.adapters.port.port import HttpPort, listen_http
from wakugumi.core.connections import unread_answers
from wakugumi.limits.units import KIB, MIB
from wakugumi.limits.wire import FIRST_FRAME_BYTES_MAX, FRAME_BYTES_MAX, STRANGERS_TOLD_MAX
from wakugumi.wire import frame as fr

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O6")]

DEADLINE_S = 20.0
HELLO = fr.encode(fr.HELLO_CLIENT, subject="known")

STREAMS: dict[str, bytes] = {
    "nothing": b"",
    "three bytes": b"GET",
    "half a frame": fr.encode(fr.HELLO_CLIENT, payload=bytes(30 * KIB))[: 20 * KIB],
    "a frame's length alone": (FIRST_FRAME_BYTES_MAX).to_bytes(4, "little"),
    "half a request line": b"GET /" + b"x" * 4 * KIB,
    "a head without an end": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 40,
    "a long head without an end": b"GET / HTTP/1.1\r\n"
    + b"".join(b"X-%d: %s\r\n" % (n, b"y" * KIB) for n in range(40)),
    "half a line": b"JOB " + b"x" * 4 * KIB,
}
"""What never becomes a hello, a head or a line."""


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Trusting(Owner):
    """Believes the first frame."""

    def on_frame(self, link: object, frame: fr.Frame) -> None:
        self.link.trust()
        super().on_frame(self.link, frame)


class Ports:
    """Each kind of port that a role has."""

    def __init__(self) -> None:
        self.by_kind: dict[str, int] = {}
        self.owners: list[Trusting] = []

    def new_owner(self) -> Trusting:
        self.owners.append(Trusting())
        return self.owners[-1]


@asynccontextmanager
async def all_ports() -> AsyncIterator[Ports]:
    ports = Ports()
    door = HttpPort([some_routes], OpenGuard())
    leader = await listen("127.0.0.1", 0, ports.new_owner, door.at)
    node = await listen_http("127.0.0.1", 0, [some_routes], OpenGuard(), lines=LineServer(echo, OpenGuard()))
    http = await listen_http("127.0.0.1", 0, [some_routes], OpenGuard())
    lines = await listen_lines("127.0.0.1", 0, LineServer(echo, OpenGuard()))
    ports.by_kind = {"leader": bound_port(leader), "node": node.port, "http": http.port, "lines": lines.port}
    try:
        yield ports
    finally:
        leader.close()
        await door.close()
        for listener in (node, http, lines):
            await listener.close()


@pytest.mark.parametrize("kind", ["leader", "node", "http", "lines"])
@pytest.mark.parametrize("stream", STREAMS)
async def test_a_stranger_is_cut_off_in_time_whatever_it_says(stream: str, kind: str) -> None:
    strangers = gate().strangers
    strangers.deadline_s = 0.1
    async with all_ports() as ports, HttpPeer(ports.by_kind[kind]) as peer:
        await peer.say(STREAMS[stream])
        async with asyncio.timeout(DEADLINE_S):
            with suppress(ConnectionError):
                while await peer.reader.read(KIB):  # Some are told why.
                    pass
        await eventually(lambda: len(strangers) == 0)
        assert strangers.bytes == 0


@pytest.mark.parametrize(
    ("kind", "stream"),
    [
        *(("leader", stream) for stream in STREAMS),
        *(("node", stream) for stream in STREAMS if "frame" not in stream),
        *(("http", stream) for stream in STREAMS if "frame" not in stream),
        ("lines", "nothing"),
        ("lines", "half a line"),
    ],
)
async def test_what_a_stranger_has_sent_is_counted(kind: str, stream: str) -> None:
    strangers = gate().strangers
    said = STREAMS[stream]
    async with all_ports() as ports, HttpPeer(ports.by_kind[kind]) as peer:
        await peer.say(said)
        await eventually(lambda: len(strangers) == 1 and strangers.bytes >= (len(said) if len(said) > 3 else 0))


async def test_who_has_said_who_they_are_is_no_stranger() -> None:
    strangers = gate().strangers
    async with all_ports() as ports, AsyncExitStack() as stack:
        said = {
            "leader": HELLO,
            "node": b"JOB a b 5\n12",
            "http": b"POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12",
            "lines": b"JOB a b 5\n12",
        }
        for kind, data in said.items():
            peer = await stack.enter_async_context(HttpPeer(ports.by_kind[kind]))
            await peer.say(data)
        await eventually(lambda: len(ports.owners) == 1 and ports.owners[0].frames)
        await eventually(lambda: len(strangers) == 0)
        assert strangers.bytes == 0


async def test_a_head_that_follows_an_answer_counts_while_it_is_half() -> None:
    strangers = gate().strangers
    async with all_ports() as ports, HttpPeer(ports.by_kind["http"]) as peer:
        assert (await peer.ask("GET", "/hello")).status == 200
        assert len(strangers) == 0
        await peer.say(b"GET /hello HTTP/1.1\r\nX-A: " + b"y" * KIB)
        await eventually(lambda: strangers.bytes >= KIB)
        await peer.say(b"\r\nHost: localhost\r\n\r\n")
        assert (await peer.answer()).status == 200
        assert (len(strangers), strangers.bytes) == (0, 0)


async def test_of_too_many_strangers_the_oldest_goes_whatever_its_port_and_the_known_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strangers = gate().strangers
    strangers.count_max = 8
    async with all_ports() as ports, HttpPeer(ports.by_kind["leader"]) as known, AsyncExitStack() as stack:
        await known.say(HELLO)
        await eventually(lambda: ports.owners and ports.owners[0].frames)
        all_open = [
            await stack.enter_async_context(HttpPeer(ports.by_kind[kind]))
            for _ in range(10)
            for kind in ("lines", "leader", "http", "node")
        ]
        await eventually(lambda: len(strangers) == 8)
        for peer in all_open[:32]:
            assert await peer.is_cut_off()
        async with HttpPeer(ports.by_kind["leader"]) as back:
            await back.say(HELLO)
            await eventually(lambda: ports.owners[-1].frames)
        assert (await ask(ports.by_kind["http"], "GET", "/hello")).status == 200
        assert ports.owners[0].lost == 0
    lines = [record.getMessage() for record in caplog.records if "the oldest" in record.getMessage()]
    assert len(lines) == STRANGERS_TOLD_MAX, "further ones are only counted"


async def test_a_time_that_came_meanwhile_stops_nobody_from_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop's handle for a time that has come cannot be asked when it is due."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(gate().strangers, "wake_at", lambda: loop.time() - 1.0)
    for _ in range(2):
        gate().came(asyncio.Transport())
    assert len(gate().strangers) == 2


async def test_of_too_many_bytes_the_half_hello_that_began_first_goes() -> None:
    strangers = gate().strangers
    strangers.bytes_max = 64 * KIB
    half = fr.encode(fr.HELLO_CLIENT, payload=bytes(30 * KIB))[: 30 * KIB]
    async with all_ports() as ports, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(HttpPeer(ports.by_kind["leader"])) for _ in range(4)]
        for peer in reversed(peers):
            await peer.say(half)
            await eventually(lambda: strangers.bytes % (30 * KIB) == 0)
        assert await peers[3].is_cut_off()
        assert await peers[2].is_cut_off()
        assert len(strangers) == 2


async def test_large_frames_take_turns_when_memory_is_short_and_all_arrive() -> None:
    here = gate()
    here.halves.bytes_max = 8 * MIB
    frame = fr.encode(fr.HEARTBEAT, payload=bytes(FRAME_BYTES_MAX - 100))
    half, rest = frame[: 1 * MIB], frame[1 * MIB :]
    async with all_ports() as ports, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(HttpPeer(ports.by_kind["leader"])) for _ in range(12)]
        for peer in peers:
            await peer.say(HELLO)
        await eventually(lambda: sum(len(owner.frames) for owner in ports.owners) == 12)
        for peer in peers:
            peer.writer.write(half)
        await eventually(lambda: here.halves.waiting)
        small = await stack.enter_async_context(HttpPeer(ports.by_kind["leader"]))
        await small.say(HELLO + frame[:10])
        await eventually(lambda: len(ports.owners) == 13 and ports.owners[-1].frames)
        assert not ports.owners[-1].link._waits_for_memory, "a small half frame takes next to nothing"
        most = 0
        for peer in peers:
            peer.writer.write(rest)

        def are_whole() -> bool:
            nonlocal most
            most = max(most, here.halves.bytes)
            return sum(len(owner.frames) for owner in ports.owners[:12]) == 24

        await eventually(are_whole)
        assert most <= 16 * MIB
        assert not any(owner.lost for owner in ports.owners)
        assert not here.halves.waiting


@pytest.mark.parametrize("hello", [HELLO, b""], ids=["a known peer", "a stranger"])
async def test_what_a_lost_connection_has_sent_is_let_go_at_once(hello: bytes) -> None:
    async with all_ports() as ports:
        async with HttpPeer(ports.by_kind["leader"]) as peer:
            await peer.say(hello + fr.encode(fr.HELLO_CLIENT, payload=bytes(60 * KIB))[: 50 * KIB])
            await eventually(lambda: ports.owners and ports.owners[0].link._decoder.held_bytes == 50 * KIB)
        await eventually(lambda: ports.owners[0].lost)
        assert ports.owners[0].link._decoder.held_bytes == 0
        assert (gate().strangers.bytes, gate().halves.bytes) == (0, 0)


async def test_a_frame_that_drips_is_cut_off_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from wakugumi.core.connections import half_frames

    async with (
        all_ports() as ports,
        HttpPeer(ports.by_kind["leader"]) as drip,
        HttpPeer(ports.by_kind["leader"]) as good,
    ):
        frame = fr.encode(fr.HEARTBEAT, payload=bytes(KIB))
        await drip.say(HELLO + frame[:50])
        await good.say(HELLO)
        await eventually(lambda: len(gate().halves) == 1)
        monkeypatch.setattr(half_frames, "FRAME_GRACE_S", 0.1)
        assert await drip.is_cut_off()
        await good.say(frame)
        await eventually(lambda: sum(len(owner.frames) for owner in ports.owners) == 3)
    assert any("0 bytes of a frame of 1067 came in" in message for message in caplog.messages)


async def test_a_peer_that_waits_for_memory_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    from wakugumi.adapters.net import link as net

    monkeypatch.setattr(net, "ALIVE_TOLD_S", 0.0)
    here = gate()
    here.halves.bytes_max = 1 * MIB
    frame = fr.encode(fr.HEARTBEAT, payload=bytes(FRAME_BYTES_MAX - 100))
    async with all_ports() as ports, AsyncExitStack() as stack:
        for _ in range(3):
            peer = await stack.enter_async_context(HttpPeer(ports.by_kind["leader"]))
            await peer.say(HELLO)
            peer.writer.write(frame[: 600 * KIB])
        await eventually(lambda: here.halves.waiting)
        waits = here.halves.waiting[0]
        owner = next(owner for owner in ports.owners if owner.link is waits)
        before = owner.alive
        await owner.until(lambda: owner.alive > before)


@pytest.mark.parametrize("why", ["memory", "owner"])
async def test_a_peer_that_is_not_read_for_long_is_not_cut_off_by_its_own_system(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    from wakugumi.adapters.net import socket_options

    monkeypatch.setattr(socket_options, "SILENCE_MAX_S", 0.5)
    frame = fr.encode(fr.HEARTBEAT, payload=bytes(FRAME_BYTES_MAX - 100))
    async with all_ports() as ports:
        here = Owner()
        link = await dial(Address("127.0.0.1", ports.by_kind["leader"]), here)
        link.send(HELLO)
        await eventually(lambda: ports.owners and ports.owners[0].frames)
        at_leader = ports.owners[0].link
        hold = at_leader.wait_for_memory if why == "memory" else at_leader.pause
        hold(True)
        for _ in range(8):
            link.send(frame)
        await here.until(lambda: link.is_blocked)
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await eventually(
            lambda: here.lost or loop.time() > began_at + 4
        )  # Linux asks a closed window 200 ms apart, 400, 800
        hold(False)
        await eventually(lambda: here.lost or len(ports.owners[0].frames) == 9)
        assert not here.lost
        link.close()
        await ports.owners[0].until(lambda: ports.owners[0].lost)


async def test_large_results_arrive_while_clients_are_paused_in_the_midst_of_a_frame() -> None:
    """A full leader reads no clients, and needs the results of its workers to have room again."""
    here = gate()
    here.halves.bytes_max = 8 * MIB
    frame = fr.encode(fr.HEARTBEAT, payload=bytes(FRAME_BYTES_MAX - 100))
    async with all_ports() as ports, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(HttpPeer(ports.by_kind["leader"])) for _ in range(4)]
        for number, client in enumerate(clients, 1):
            await client.say(HELLO + frame[: int(2.6 * MIB)])
            await eventually(lambda n=number: len(here.halves) == n)  # type: ignore[misc]
        await eventually(lambda: here.halves.waiting)
        for owner in ports.owners:
            owner.link.pause(True)
        workers = [await stack.enter_async_context(HttpPeer(ports.by_kind["leader"])) for _ in range(3)]
        for worker in workers:
            worker.writer.write(HELLO + frame)
        await eventually(lambda: len(ports.owners) == 7 and all(len(owner.frames) == 2 for owner in ports.owners[4:]))
        for owner in ports.owners[:4]:
            owner.link.pause(False)
        for client in clients:
            client.writer.write(frame[int(2.6 * MIB) :])
        await eventually(lambda: all(len(owner.frames) == 2 for owner in ports.owners))
        assert not any(owner.lost for owner in ports.owners)


async def test_the_gate_forgets_a_half_head_when_the_idle_timer_has_cut_it_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strangers = gate().strangers
    door = HttpPort([some_routes], OpenGuard(), idle_s=0.3)
    leader = await listen("127.0.0.1", 0, Trusting, door.at)
    async with HttpPeer(bound_port(leader)) as peer:
        assert (await peer.ask("GET", "/hello")).status == 200
        await peer.say(b"GET /hello HT")
        await eventually(lambda: len(strangers) == 1 or peer.reader.at_eof())
        assert await peer.is_cut_off()
        await eventually(lambda: len(strangers) == 0)
    leader.close()
    await door.close()
    assert not [message for message in caplog.messages if "no hello" in message]


async def test_of_answers_that_nobody_reads_those_with_most_go_and_who_reads_is_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = gate()
    here.unread.bytes_max = 16 * MIB
    monkeypatch.setattr(unread_answers, "UNREAD_GRACE_S", 0.0)
    # Neither a tick of the clock nor what the kernel takes meanwhile decides: the one with most unread goes.
    monkeypatch.setattr(unread_answers, "UNREAD_BYTES_PER_S_MIN", 0)
    async with all_ports() as ports, AsyncExitStack() as stack:
        peers: list[HttpPeer] = []
        for _ in range(4):
            peers.append(await stack.enter_async_context(HttpPeer(ports.by_kind["leader"])))
            await peers[-1].say(HELLO)
            await eventually(lambda: len(ports.owners) == len(peers) and ports.owners[-1].frames)
        reads, *others = ports.owners
        for owner in others:
            while not owner.blocked:
                owner.link.send(bytes(64 * KIB))
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        for owner, mib in zip(others, (4, 7, 5), strict=True):
            for _ in range(mib):
                owner.link.send(bytes(MIB))
        assert here.unread.bytes == 16 * MIB
        others[0].link.send(bytes(MIB))
        await eventually(lambda: others[1].lost)
        assert [owner.lost for owner in ports.owners] == [0, 0, 1, 0]
        assert here.unread.bytes == 10 * MIB
        for _ in range(40):
            reads.link.send(bytes(MIB))
            assert await peers[0].reader.readexactly(MIB) == bytes(MIB)
        peers[3].writer.transport.abort()
        await eventually(lambda: others[2].lost)
        assert here.unread.bytes == 5 * MIB
        while not peers[1].reader.at_eof() and others[0].blocked[-1]:
            assert await peers[1].reader.read(MIB)
        assert here.unread.bytes == 0
        assert [owner.lost for owner in ports.owners] == [0, 0, 1, 1]
    assert len([message for message in caplog.messages if "unread answers hold more" in message]) == 1
