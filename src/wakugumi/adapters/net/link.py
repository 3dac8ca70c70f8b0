"""How do frames cross a socket? One protocol class for all sides; `connect` makes the connections.

Writes of one turn of the loop leave as one write. A peer that does not read is *blocked*: its owner gets a call and
holds back. A blocked peer that sends requests without reading the answers is cut off, as is the peer with most unread
answers when all of them together have too many. Bytes written in the turn in which a peer became blocked do not count:
its owner could not know yet. A peer that breaks the protocol costs one log line and one connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol, cast

from wakugumi.adapters.net.compression import ask_for_packing, pack_frames, unpack_frame
from wakugumi.adapters.net.gate import Gate, gate, name_of
from wakugumi.adapters.net.socket_options import tune
from wakugumi.errors import PeerError
from wakugumi.limits.wire import (
    ALIVE_TOLD_S,
    FLUSH_BYTES,
    READ_BYTES_TURN_MAX,
    READ_EVENTS_MAX,
    WRITE_BACKLOG_BYTES_MAX,
    WRITE_BUFFER_BYTES_MAX,
)
from wakugumi.wire.frame import Decoder, Frame

log = logging.getLogger("wakugumi.net")


class LinkOwner(Protocol):
    """The user of a connection. All calls come from the loop; `on_frame` may raise PeerError."""

    def on_open(self, link: Link) -> None: ...
    def on_frame(self, link: Link, frame: Frame) -> None: ...
    def on_alive(self, link: Link) -> None:
        """Bytes of an incomplete frame were received; called every ALIVE_TOLD_S at most."""

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
        """The owner was called in an earlier turn of the loop: bytes queued now answer later requests of the peer."""
        self._backlog = 0
        """Bytes queued while `_told_blocked`."""
        self._when_written: list[Callable[[], None]] = []
        self._alive_at = 0.0
        self._paused_by_owner = False
        self._waits_for_memory = False
        self._gate: Gate | None = None if trusted else gate()
        """Watches connections made by others; None for our own."""
        self._is_half = False
        """The bytes received end inside a frame, and the gate knows."""
        self._half_no = -1
        self._rest: Iterator[Frame] | None = None
        """Frames that were read and wait for the next turn of the loop. Reading is paused meanwhile."""
        self._rest_bytes = 0
        self.on_read: Callable[[int], None] | None = None
        """Called with the number of bytes read, once they are handled."""
        self._ended_by_us = False
        self._deadline: asyncio.TimerHandle | None = None
        self.peer = "?"
        """The peer's name for people."""
        self.host = ""
        """The peer's IP address; empty for a process of this machine on a socket pair."""
        self.is_local = False
        """The other end is on this machine."""
        self.packs = False
        """Frames are sent packed: both ends asked for that."""
        self._unpacks = False
        self.why_closed = ""
        """Why this side closed the connection."""

    # Calls of the owner.

    def send(self, data: bytes) -> None:
        """Queues encoded frames. They leave together, at the end of this turn of the loop or when they are many."""
        if self.packs:
            data = pack_frames(data)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= FLUSH_BYTES:
            self._flush()

    def greet(self, hello: bytes) -> None:
        """Sends a hello. A hello to another machine asks for packing; on this machine packing would only cost time."""
        if not self.is_local:
            self._unpacks = True
            hello = ask_for_packing(hello)
        self.send(hello)

    @property
    def transport(self) -> asyncio.Transport:
        """Only while the link is open."""
        assert self._transport is not None
        return self._transport

    @property
    def buffered_bytes(self) -> int:
        """Bytes sent that the system has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_blocked(self) -> bool:
        """The peer does not read fast enough."""
        return self._blocked

    def when_written(self, tell: Callable[[], None]) -> None:
        """Calls `tell` once all sent so far has left, except for what a buffer may hold: now, or when the peer has read
        enough. Never, if the connection ends before."""
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
        """Closes the link in so many seconds, for this reason, unless called again. None removes the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = self._loop.call_later(seconds, self.close, why)

    def pause(self, paused: bool) -> None:
        """Stops or resumes reading. Frames that were read already wait as well."""
        if self._paused_by_owner and not paused and self._rest is not None:
            self._loop.call_soon(self._next_turn)
        self._paused_by_owner = paused
        self._set_reading()

    def close(self, why: str = "", kind: str = "broken") -> None:
        """Sends queued frames and closes; a peer that does not read is cut off. Of each kind of reason, only some lines
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
        """Ends the connection now; queued frames are lost."""
        self._ended_by_us = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_paused(self) -> bool:
        """The owner has paused reading."""
        return self._paused_by_owner

    def wait_for_memory(self, waits: bool) -> None:
        """Half frames of others use all memory for half frames: stops reading, or resumes."""
        self._waits_for_memory = waits
        self._set_reading()

    def is_there(self) -> None:
        """This side does not read, so the peer's silence does not mean that it is dead: the owner is called."""
        if self.is_open and (now := self._loop.time()) - self._alive_at >= ALIVE_TOLD_S:
            self._alive_at = now
            self._owner.on_alive(self)

    def make_room(self) -> bool:
        """There are too many connections: the oldest other one without a hello is closed, if there is one."""
        return self._gate is not None and self._transport is not None and self._gate.make_room(self._transport)

    def release(self) -> None:
        """Gives the connection up without ending it: it speaks another protocol. For its owner it is lost."""
        self.expect_within(None, "")
        self._transport = None
        self._owner.on_lost(self)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # Calls of the loop.

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
        if self._rest is not None:  # Read before reading was paused: earlier frames come first.
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
        except Exception:  # In `data_received` the loop would end the connection; here no other code does.
            log.exception("closing %s: a frame could not be handled", self.peer)
            self.abort()
            return
        if is_all:
            self._set_reading()
        elif self.is_open:
            self._loop.call_soon(self._next_turn)

    def _handle(self, frames: Iterator[Frame], left: int) -> bool:
        """Handles at most `left` frames, or all if negative: other connections need their turn. True if it was all."""
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
        """`size` bytes are handled, to the last whole frame."""
        held = self._decoder.held_bytes
        if (held or self._is_half) and self._gate is not None:
            self._note_half(self._gate, held)
        if self.on_read is not None:
            self.on_read(size)

    def _note_half(self, gate: Gate, held: int) -> None:
        """Called after each read that begins or ends inside a frame."""
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
        # Reading goes on: two peers that each wait for the other to read would wait for ever.
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
                except Exception:  # `on_lost` must be called nevertheless.
                    log.exception("%s is gone, and its last frames could not be handled", self.peer)
            self._rest = None
        self._when_written.clear()
        if self._decoder.held_bytes and not self._ended_by_us:
            self._warn("broken", f"{self.peer} ended in the middle of a frame, after {self._decoder.held_bytes} bytes")
        self._decoder.forget()  # Frees memory now: link and owner refer to each other until the next collection.
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
        """The peer has read all answers."""
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


def _is_local(transport: asyncio.BaseTransport) -> bool:
    here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return not (isinstance(here, tuple) and isinstance(there, tuple)) or here[0] == there[0]
