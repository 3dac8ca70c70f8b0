"""Which connections are closed because of a missing hello, a slow frame, or unread answers? (SPEC O6)

`core/connections` decides; this module has the clock and the connections of one loop. All ports of a process share a
gate.

A transport is a stranger from `came` until `known`. An HTTP connection is one again while a later head arrives.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from wakugumi.adapters.machine.open_files import connections_max
from wakugumi.core.connections.half_frames import LOOK_S, HalfFrames
from wakugumi.core.connections.strangers import Strangers
from wakugumi.core.connections.unread_answers import UnreadAnswers
from wakugumi.limits.wire import STRANGERS_MAX, STRANGERS_SHARE, STRANGERS_TOLD_MAX, STRANGERS_TOLD_S

if TYPE_CHECKING:
    from wakugumi.core.memory_budget import Budget

log = logging.getLogger("wakugumi.net")

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, Gate] = WeakKeyDictionary()
_NEVER: Final = float("inf")
_ASKED_AGAIN_S: Final = 0.02
"""A timer this much later than needed is early enough."""


class WatchedLink(Hashable, Protocol):
    """A connection of frames, as seen by the gate."""

    peer: str

    @property
    def is_paused(self) -> bool: ...
    @property
    def buffered_bytes(self) -> int: ...
    def wait_for_memory(self, waits: bool) -> None: ...
    def is_there(self) -> None: ...
    def close(self, why: str = "") -> None: ...
    def abort(self) -> None: ...


def gate() -> Gate:
    """The gate of the running loop."""
    loop = asyncio.get_running_loop()
    found = _gates.get(loop)
    if found is None:
        found = _gates[loop] = Gate()
    return found


class Gate:
    """Watches the connections of one loop. It has no reference to the loop, because the loop refers to it."""

    def __init__(self) -> None:
        count_max = min(STRANGERS_MAX, int(connections_max() * STRANGERS_SHARE))
        self.strangers: Strangers[asyncio.Transport] = Strangers(count_max)
        self._beneath: dict[asyncio.Transport, asyncio.Transport] = {}
        """For strangers over TLS: the transport below, by which the gate knew them before the handshake."""
        self.halves: HalfFrames[WatchedLink] = HalfFrames()
        self.unread: UnreadAnswers[WatchedLink] = UnreadAnswers()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        """Due time of the timer: a due handle of uvloop does not know its time."""
        self._looks = False
        self._lines: Counter[str] = Counter()
        """Log lines about strangers in the current interval, by kind."""

    def bound_by(self, budget: Budget) -> None:
        """Apply the limits of a memory budget."""
        self.strangers.bytes_max = budget.stranger_bytes
        self.halves.bytes_max = budget.half_frame_bytes
        self.unread.bytes_max = budget.unread_bytes

    # Strangers.

    def came(self, transport: asyncio.Transport) -> None:
        """A new connection, not identified yet."""
        loop = asyncio.get_running_loop()
        self.strangers.came(self._beneath.get(transport, transport), loop.time())
        self._cut(loop)

    def went_over(self, transport: asyncio.Transport, over: asyncio.Transport) -> None:
        """A stranger has completed its handshake, and continues as another transport."""
        if transport in self.strangers:
            self.strangers.brought(transport, 0)
            self._beneath[over] = transport

    def brought(self, transport: asyncio.Transport, held_bytes: int) -> None:
        """A stranger holds so many bytes that do not identify it yet."""
        loop = asyncio.get_running_loop()
        beneath = self._beneath.get(transport, transport)
        if not transport.is_closing() and not beneath.is_closing():
            self.strangers.came(beneath, loop.time())
            self.strangers.brought(beneath, held_bytes)
            self._cut(loop)

    def known(self, transport: asyncio.Transport) -> bool:
        """The connection is identified, or gone. False if it was no stranger, or was closed as one."""
        return self.strangers.gone(self._beneath.pop(transport, transport))

    def make_room(self, newcomer: asyncio.Transport) -> bool:
        """Close the oldest stranger, as there are too many connections. False if there is none but the newcomer."""
        oldest = self.strangers.oldest(self._beneath.get(newcomer, newcomer))
        if oldest is None:
            return False
        self.strangers.gone(oldest)
        self.say("room", f"closing {name_of(oldest)}: no hello, and others need its place")
        oldest.abort()
        return True

    def say(self, kind: str, text: str) -> None:
        """Log a line about a stranger, within limits."""
        if self.may_say(kind):
            log.warning("%s", text)

    def may_say(self, kind: str) -> bool:
        """Whether a line of this kind may be logged: a few are logged, the others counted, as they must not fill the
        disk."""
        if not self._lines:
            asyncio.get_running_loop().call_later(STRANGERS_TOLD_S, self._log_rest)
        self._lines[kind] += 1
        return self._lines[kind] <= STRANGERS_TOLD_MAX

    def _log_rest(self) -> None:
        unlogged = sum(max(0, count - STRANGERS_TOLD_MAX) for count in self._lines.values())
        if unlogged:
            log.warning("more lines like these about strangers count=%d seconds=%.0f", unlogged, STRANGERS_TOLD_S)
        self._lines.clear()

    def _cut(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close surplus and late strangers, and set the timer for the next one."""
        strangers, now = self.strangers, loop.time()
        for transport, why in strangers.surplus(now):
            self.say(why, f"closing {name_of(transport)}: {self._reason(why)}")
            transport.abort()
        wake_at = strangers.wake_at()
        if wake_at is None:
            return
        if self._timer_at > wake_at + _ASKED_AGAIN_S:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = wake_at
            self._timer = loop.call_at(wake_at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, _NEVER
        self._cut(asyncio.get_running_loop())

    def _reason(self, why: str) -> str:
        if why == "late":
            return f"no hello within {self.strangers.deadline_s:g} s"
        if why == "bytes":
            return f"half hellos hold more than {self.strangers.bytes_max} bytes, and it began first"
        return f"more than {self.strangers.count_max} connections without a hello, and it is the oldest"

    # Half frames.

    def half(self, link: WatchedLink, held: int, needed: int, *, anew: bool) -> None:
        """Bytes of this link end within a frame."""
        loop = asyncio.get_running_loop()
        if self.halves.grew(link, held, needed, loop.time(), anew=anew):
            self._decide(loop)
        if not self._looks:
            self._looks = True
            loop.call_later(LOOK_S, self._look)

    def whole(self, link: WatchedLink) -> None:
        """Bytes of this link end with a frame, or it is gone."""
        if self.halves.ended(link):
            self._decide(asyncio.get_running_loop())

    def _decide(self, loop: asyncio.AbstractEventLoop) -> None:
        close, hold, release = self.halves.decide(loop.time(), _is_read)
        for link, why in close:
            link.close(why)
            link.abort()
        for link in hold:
            link.wait_for_memory(True)
        for link in release:
            link.wait_for_memory(False)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for link, why in self.halves.look(loop.time(), _is_read):
            link.close(why)
            link.abort()
        self._decide(loop)
        for link in self.halves.waiting:
            link.is_there()
        self._looks = bool(self.halves)
        if self._looks:
            loop.call_later(LOOK_S, self._look)

    # Answers that are not read.

    def owes(self, link: WatchedLink, size: int) -> None:
        """So many more bytes are sent to a peer that does not read."""
        now = asyncio.get_running_loop().time()
        if not self.unread.grew(link, size, link.buffered_bytes, now):
            return
        for other in self.unread.surplus(now, lambda one: one.buffered_bytes + (size if one is link else 0)):
            why = f"unread answers hold more than {self.unread.bytes_max} bytes"
            log.warning("cutting off %s: it does not read what it asks for, and %s", other.peer, why)
            other.abort()

    def reads(self, link: WatchedLink) -> None:
        """The peer has read its answers, or is gone."""
        self.unread.ended(link)


def _is_read(link: WatchedLink) -> bool:
    """Whether the owner wants to read from it."""
    return not link.is_paused


def name_of(transport: asyncio.BaseTransport) -> str:
    """The peer's address for log lines."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple) or len(name) < 2:
        return "a local process"
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
