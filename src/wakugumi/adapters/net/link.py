"""How do frames cross a socket? One protocol class for all sides, and the two ways to get one: `listen` and `dial`.

Writes of one turn of the loop leave as one write. A peer that does not read is *blocked*: its owner is told and holds
back, and a peer that goes on asking without reading the answers is cut off; so is one when all such peers together are
owed too much. What was written in the turn in which it became blocked does not count: nobody could know. A peer that
breaks the protocol costs one log line and one connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from wakugumi.adapters.net.compression import ask_for_packing, pack_frames, unpack_frame
from wakugumi.adapters.net.gate import Gate, gate, name_of
from wakugumi.errors import ConfigError, Lost, PeerError
from wakugumi.limits.client import CONNECT_DEADLINE_S
from wakugumi.limits.wire import (
    ALIVE_TOLD_S,
    FLUSH_BYTES,
    READ_BYTES_TURN_MAX,
    READ_EVENTS_MAX,
    SILENCE_MAX_S,
    WRITE_BACKLOG_BYTES_MAX,
    WRITE_BUFFER_BYTES_MAX,
)
from wakugumi.wire.frame import Decoder, Frame

log = logging.getLogger("wakugumi.net")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class LinkOwner(Protocol):
    """Whoever a connection belongs to. All calls come from the loop; `on_frame` may raise PeerError."""

    def on_open(self, link: Link) -> None: ...
    def on_frame(self, link: Link, frame: Frame) -> None: ...
    def on_alive(self, link: Link) -> None:
        """Bytes of a frame that is not complete yet; every ALIVE_TOLD_S at most."""

    def on_blocked(self, link: Link, blocked: bool) -> None: ...
    def on_lost(self, link: Link) -> None: ...


class Link(asyncio.Protocol):
    """One connection that speaks frames."""

    def __init__(self, owner: LinkOwner, *, trusted: bool = False) -> None:
        self._owner = owner
        self._decoder = Decoder()
        self._is_trusted = trusted
        if trusted:
            self._decoder.trust()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._blocked = False
        self._told_blocked = False
        """The owner was told so in an earlier turn of the loop: what is queued now, the peer has asked for since."""
        self._backlog = 0
        """Bytes queued since then."""
        self._when_written: list[Callable[[], None]] = []
        self._alive_at = 0.0
        self._paused_by_owner = False
        self._waits_for_memory = False
        self._gate: Gate | None = None if trusted else gate()
        """What watches connections that others make."""
        self._is_half = False
        """It ends in the midst of a frame, as the gate knows."""
        self._half_no = -1
        self._rest: Iterator[Frame] | None = None
        """Frames that were read and wait for the next turn of the loop. Meanwhile nothing is read."""
        self._rest_bytes = 0
        self.on_read: Callable[[int], None] | None = None
        """Told how many bytes were read, once they are handled."""
        self._ended_by_us = False
        self._deadline: asyncio.TimerHandle | None = None
        self.peer = "?"
        self.host = ""
        """The peer's IP address; empty for a process of this machine that came by no address."""
        """Who it is, for people."""
        self.is_local = False
        """The other end is on this machine."""
        self.packs = False
        """What is sent is packed: both ends said that they want that."""
        self._unpacks = False
        self.why_closed = ""
        """What the peer did that it was cut off for."""

    # What the owner calls.

    def send(self, data: bytes) -> None:
        """Queue encoded frames; they leave together, at the end of this turn of the loop or when they are many."""
        if self.packs:
            data = pack_frames(data)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= FLUSH_BYTES:
            self._flush()

    def greet(self, hello: bytes) -> None:
        """Send a hello. To another machine it asks for packing: on this one that costs time and saves nothing."""
        if not self.is_local:
            self._unpacks = True
            hello = ask_for_packing(hello)
        self.send(hello)

    @property
    def buffered_bytes(self) -> int:
        """What was sent, and the system has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_blocked(self) -> bool:
        """The peer has still to read what it was sent."""
        return self._blocked

    def when_written(self, tell: Callable[[], None]) -> None:
        """Call this once what was sent so far has left, but for what a buffer may hold: now, or when the peer has read
        enough of it. Never, if the connection ends before."""
        self._flush()
        if self._blocked:
            self._when_written.append(tell)
        elif self.is_open:
            tell()

    def trust(self) -> None:
        """The hello was good: frames may have their full size, and the deadline is off."""
        self._decoder.trust()
        self._is_trusted = True
        if self._gate is not None and self._transport is not None:
            self._gate.known(self._transport)
        self.expect_within(None, "")

    def expect_within(self, seconds: float | None, why: str) -> None:
        """Close in so many seconds, for this reason, unless called again. None takes the deadline off."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = self._loop.call_later(seconds, self.close, why)

    def pause(self, paused: bool) -> None:
        """Stop or go on reading. What was read already waits as well."""
        if self._paused_by_owner and not paused and self._rest is not None:
            self._loop.call_soon(self._next_turn)
        self._paused_by_owner = paused
        self._set_reading()

    def close(self, why: str = "", kind: str = "broken") -> None:
        """Send what is queued and close; a peer that does not read is cut off. Of each kind of reason, only some lines
        about strangers are logged."""
        if self._transport is None or self._transport.is_closing():
            return
        if why:
            self.why_closed = why
            self._warn(kind, f"closing {self.peer}: {why}")
        self._ended_by_us = True
        self._flush()
        if self._blocked:
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Cut it now, with what was queued."""
        self._ended_by_us = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_paused(self) -> bool:
        """Its owner does not want to read it."""
        return self._paused_by_owner

    def wait_for_memory(self, waits: bool) -> None:
        """Half frames of others take all memory that there is for them: read no more for now, or again."""
        self._waits_for_memory = waits
        self._set_reading()

    def is_there(self) -> None:
        """It is we who do not read: its silence says nothing."""
        if self.is_open and (now := self._loop.time()) - self._alive_at >= ALIVE_TOLD_S:
            self._alive_at = now
            self._owner.on_alive(self)

    def make_room(self) -> bool:
        """There are too many connections: the oldest one that has not said hello goes, if there is one beside this."""
        return self._gate is not None and self._transport is not None and self._gate.make_room(self._transport)

    def release(self) -> None:
        """Give the connection up without ending it: it speaks something else. To its owner it is lost."""
        self.expect_within(None, "")
        self._transport = None
        self._owner.on_lost(self)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
            tune(sock, may_wait=self._gate is None)
        self.peer = name_of(transport)
        there = transport.get_extra_info("peername")
        self.host = there[0] if isinstance(there, tuple) else ""
        self.is_local = _is_local(transport)
        if self._gate is not None:
            self._gate.came(self._transport)
        self._owner.on_open(self)

    def data_received(self, data: bytes) -> None:
        size = len(data)
        frames = self._decoder.feed(data)
        if self._rest is not None:  # Read before reading was paused: its turn comes after what waits already.
            self._rest = chain(self._rest, frames)
            self._rest_bytes += size
            return
        if self._handle(frames, READ_EVENTS_MAX) and size < READ_BYTES_TURN_MAX:
            self._is_handled(size)
        elif self.is_open:
            self._rest_bytes = size
            self._rest = frames
            self._set_reading()
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._rest is None or self._paused_by_owner or not self.is_open:
            return
        try:
            is_all = self._handle(self._rest, READ_EVENTS_MAX)
            if is_all:
                size, self._rest, self._rest_bytes = self._rest_bytes, None, 0
                self._is_handled(size)
        except Exception:  # In `data_received` the loop would end the connection; here nobody else does.
            log.exception("closing %s: a frame could not be handled", self.peer)
            self.abort()
            return
        if is_all:
            self._set_reading()
        elif self.is_open:
            self._loop.call_soon(self._next_turn)

    def _handle(self, frames: Iterator[Frame], left: int) -> bool:
        """So many of them: then other connections have their turn. True if those were all."""
        on_frame = self._on_packed if self._unpacks else self._owner.on_frame
        frame = None
        try:
            for frame in frames:
                on_frame(self, frame)
                left -= 1
                if not left:
                    return False
            if frame is None and (now := self._loop.time()) - self._alive_at >= ALIVE_TOLD_S:
                self._alive_at = now
                self._owner.on_alive(self)
        except PeerError as error:
            self.close(str(error))
            self.abort()
        return True

    def _is_handled(self, size: int) -> None:
        """So many bytes, to the last whole frame."""
        held = self._decoder.held_bytes
        if (held or self._is_half) and self._gate is not None:
            self._note_half(self._gate, held)
        if self.on_read is not None:
            self.on_read(size)

    def _note_half(self, gate: Gate, held: int) -> None:
        """After each read that ends, or began, in the midst of a frame."""
        decoder = self._decoder
        if not self._is_trusted:
            if self._transport is not None:
                gate.brought(self._transport, held)
        elif held and self.is_open:
            is_anew = self._half_no != decoder.unfinished_no
            self._half_no = decoder.unfinished_no
            self._is_half = True
            gate.half(self, held, decoder.needed_bytes, anew=is_anew)
        else:
            self._is_half = False
            gate.whole(self)

    def _warn(self, kind: str, text: str) -> None:
        if self._is_trusted or self._gate is None:
            log.warning("%s", text)
        else:
            self._gate.say(kind, text)

    def _on_packed(self, link: Link, frame: Frame) -> None:
        self._owner.on_frame(link, unpack_frame(frame))

    def pause_writing(self) -> None:
        # It is still read from: two peers that each wait for the other to read would wait for ever.
        self._blocked = True
        self._loop.call_soon(self._count)
        self._owner.on_blocked(self, True)

    def resume_writing(self) -> None:
        self._blocked = self._told_blocked = False
        self._let_off()
        self._owner.on_blocked(self, False)
        tell_all, self._when_written = self._when_written, []
        for tell in tell_all:
            tell()

    def connection_lost(self, _error: Exception | None) -> None:
        self.expect_within(None, "")
        self._let_off()
        if self._gate is not None:
            if self._transport is not None and not self._gate.known(self._transport) and not self._is_trusted:
                self._ended_by_us = True  # The gate has closed it.
            if self._is_half:
                self._is_half = False
                self._gate.whole(self)
        self._out.clear()
        if self._rest is not None:
            if not self._ended_by_us:
                try:
                    self._handle(self._rest, -1)
                except Exception:  # The owner has to hear of the end all the same.
                    log.exception("%s is gone, and its last frames could not be handled", self.peer)
            self._rest = None
        self._when_written.clear()
        if self._decoder.held_bytes and not self._ended_by_us:
            self._warn("broken", f"{self.peer} ended in the middle of a frame, after {self._decoder.held_bytes} bytes")
        self._decoder.forget()  # A link and its owner know each other, so they go later, with the next garbage.
        self._owner.on_lost(self)

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            if self._transport.is_closing():
                return
            if self._told_blocked:
                self._backlog += len(data)
                if self._backlog > WRITE_BACKLOG_BYTES_MAX:
                    log.warning("cutting off %s: it does not read what it asks for", self.peer)
                    self.abort()
                    return
                if self._gate is not None:
                    self._gate.owes(self, len(data))
                    if self._transport.is_closing():
                        return
            self._transport.write(data)

    def _let_off(self) -> None:
        """It owes nothing any more."""
        if self._backlog:
            self._backlog = 0
            if self._gate is not None:
                self._gate.reads(self)

    def _count(self) -> None:
        """The turn in which the peer became blocked is over."""
        self._told_blocked = self._blocked

    def _set_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._paused_by_owner or self._waits_for_memory or self._rest is not None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def as_it_is(link: Link) -> asyncio.BaseProtocol:
    """A connection that speaks frames and nothing else."""
    return link


async def listen(
    host: str,
    port: int,
    new_owner: Callable[[], LinkOwner],
    wrap: Callable[[Link], asyncio.BaseProtocol] = as_it_is,
) -> asyncio.Server:
    """Accept connections, each with an owner of its own. `wrap` looks first whether they speak frames. Raises
    ConfigError if the port cannot be had."""
    return await accept(host, port, lambda: wrap(Link(new_owner())))


async def accept(host: str, port: int, new_protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Accept connections of any kind. Raises ConfigError if the port cannot be had."""
    loop = asyncio.get_running_loop()
    if not 0 <= port <= 0xFFFF:  # uvloop would take it modulo 65 536
        raise ConfigError(f"{port} is no port", "choose one from 1 to 65535, or 0 for any free one")
    try:
        server = await loop.create_server(new_protocol, host, port, backlog=1024)
    except ValueError as error:  # a name that no encoding of host names can hold
        raise ConfigError(f"cannot listen on {Address(host, port)}: {error}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is taken by another process", "choose another port, or 0 for any free one"
            ) from None
        raise ConfigError(f"cannot listen on {Address(host, port)}: {error.strerror or error}") from None
    from wakugumi.adapters.net.descriptor_shortage import watch_descriptors

    watch_descriptors(server)
    return server


async def dial(address: Address, owner: LinkOwner) -> Link:
    """Connect. Raises Lost, with a sentence that says why it could not."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            _, link = await loop.create_connection(lambda: Link(owner, trusted=True), address.host, address.port)
    except TimeoutError:
        raise Lost(f"{address} did not answer within {CONNECT_DEADLINE_S:.0f} s") from None
    except (OSError, ValueError) as error:
        raise Lost(f"cannot connect to {address}: {why_not(error)}") from None
    return link


async def adopt(sock: socket.socket, owner: LinkOwner, *, trusted: bool) -> Link:
    """A link over a socket that is already connected: an embedded grid's two ends."""
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: Link(owner, trusted=trusted), sock=sock)
    return link


def bound_port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def parse_address(text: str, default_port: int | None = None) -> Address:
    """`host:port`, `[v6]:port`, optionally with `waku://` before it. Raises ConfigError."""
    hint = "write host:port, such as localhost:5000"
    try:
        parts = urlsplit(text if "://" in text else f"waku://{text}")
        port = parts.port if parts.port is not None else default_port
    except ValueError as error:
        raise ConfigError(f"{text!r} is not an address: {error}", hint) from None
    host = parts.hostname
    more = parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in {"waku", "tcp"} or not host or not host.isprintable() or " " in host or port is None or more:
        raise ConfigError(f"{text!r} is not a leader's address", hint)
    return Address(host, port)


def parse_addresses(text: str, default_port: int | None = None) -> list[Address]:
    """Several addresses with commas between them, optionally with `waku://` before the first or before each. Raises
    ConfigError, also if one of them is named twice."""
    addresses: list[Address] = []
    for part in text.split(","):
        if not part.strip():
            raise ConfigError(f"{text!r} names no leader beside a comma", "write host:port,host:port")
        address = parse_address(part.strip(), default_port)
        if address in addresses:
            raise ConfigError(f"the leader {address} is named twice", "name each leader once")
        addresses.append(address)
    return addresses


def check_binding(host: str, *, allow_open: bool) -> None:
    """Safe by default (SPEC O1): wider than loopback needs a word. Raises ConfigError."""
    if allow_open or is_loopback(host):
        return
    raise ConfigError(
        f"listening on {host} would let anyone who reaches this machine run programs on the workers",
        "listen on 127.0.0.1, or say --allow-open if the network is closed to strangers",
    )


def is_loopback(host: str) -> bool:
    """Can only this machine reach it?"""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def tune(sock: socket.socket, *, may_wait: bool = False) -> None:
    """Find out about a peer that vanished, also if it never asked for heartbeats. A leader that is full, or short of
    memory, `may_wait` with reading for longer than SILENCE_MAX_S: Linux would cut it off as if it had vanished. Its
    heartbeats show that it is there."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        if hasattr(socket, "TCP_USER_TIMEOUT") and not may_wait:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE_MAX_S * 1000))


def _is_local(transport: asyncio.BaseTransport) -> bool:
    here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return not (isinstance(here, tuple) and isinstance(there, tuple)) or here[0] == there[0]


def why_not(error: OSError | ValueError) -> str:
    """Why a connection could not be made, in words."""
    # A name with several addresses fails with one error that quotes those of all of them.
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "nobody listens there"
    if isinstance(error, socket.gaierror | ValueError):
        return "the name is unknown"
    return error.strerror or str(error)
