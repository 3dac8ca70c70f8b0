"""Which connection is closed before its hello came, which sends a frame too slowly, and which does not read? (SPEC O6)

`core/connections` decides; here are the clock and the connections of one loop. All ports of a process share one gate.

A transport is a stranger from `came` until `known`. A connection of HTTP is one again while a later head comes in.
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
"""A timer that is due within so long is soon enough."""


class WatchedLink(Hashable, Protocol):
    """A connection of frames, as far as the gate watches it."""

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
    """The one of the running loop."""
    loop = asyncio.get_running_loop()
    found = _gates.get(loop)
    if found is None:
        found = _gates[loop] = Gate()
    return found


class Gate:
    """Of one loop. It holds no loop itself, for its loop holds it."""

    def __init__(self) -> None:
        count_max = min(STRANGERS_MAX, int(connections_max() * STRANGERS_SHARE))
        self.strangers: Strangers[asyncio.Transport] = Strangers(count_max)
        self._beneath: dict[asyncio.Transport, asyncio.Transport] = {}
        """Of strangers over TLS, the connection that came before the handshake: the gate knows them by that."""
        self.halves: HalfFrames[WatchedLink] = HalfFrames()
        self.unread: UnreadAnswers[WatchedLink] = UnreadAnswers()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        """Not asked of the handle: that of uvloop for a time that has come does not know it."""
        self._looks = False
        self._told: Counter[str] = Counter()
        """Lines about strangers in this while, by what they are about."""

    def bound_by(self, budget: Budget) -> None:
        """Memory is limited."""
        self.strangers.bytes_max = budget.stranger_bytes
        self.halves.bytes_max = budget.half_frame_bytes
        self.unread.bytes_max = budget.unread_bytes

    # Strangers.

    def came(self, transport: asyncio.Transport) -> None:
        """Nobody knows who it is."""
        loop = asyncio.get_running_loop()
        self.strangers.came(self._beneath.get(transport, transport), loop.time())
        self._cut(loop)

    def went_over(self, transport: asyncio.Transport, over: asyncio.Transport) -> None:
        """This stranger has ended its handshake, and goes on as another transport."""
        if transport in self.strangers:
            self.strangers.brought(transport, 0)
            self._beneath[over] = transport

    def brought(self, transport: asyncio.Transport, held_bytes: int) -> None:
        """So many bytes have come that do not say yet who it is."""
        loop = asyncio.get_running_loop()
        beneath = self._beneath.get(transport, transport)
        if not transport.is_closing() and not beneath.is_closing():
            self.strangers.came(beneath, loop.time())
            self.strangers.brought(beneath, held_bytes)
            self._cut(loop)

    def known(self, transport: asyncio.Transport) -> bool:
        """It has said who it is, or is gone. False if it was no stranger, or was closed for being one."""
        return self.strangers.gone(self._beneath.pop(transport, transport))

    def make_room(self, newcomer: asyncio.Transport) -> bool:
        """There are too many connections. The oldest stranger goes; False if there is none but the newcomer."""
        oldest = self.strangers.oldest(self._beneath.get(newcomer, newcomer))
        if oldest is None:
            return False
        self.strangers.gone(oldest)
        self.say("room", f"closing {name_of(oldest)}: no hello, and others need its place")
        oldest.abort()
        return True

    def say(self, kind: str, text: str) -> None:
        """A line about a stranger."""
        if self.may_say(kind):
            log.warning("%s", text)

    def may_say(self, kind: str) -> bool:
        """Strangers must not fill the disk with lines: of each kind, a few are told and the others counted."""
        if not self._told:
            asyncio.get_running_loop().call_later(STRANGERS_TOLD_S, self._tell)
        self._told[kind] += 1
        return self._told[kind] <= STRANGERS_TOLD_MAX

    def _tell(self) -> None:
        untold = sum(max(0, count - STRANGERS_TOLD_MAX) for count in self._told.values())
        if untold:
            log.warning("%d more lines like these about strangers in %.0f s", untold, STRANGERS_TOLD_S)
        self._told.clear()

    def _cut(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close those that must go, and look again when the next one must."""
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
        """What came from it ends in the midst of a frame."""
        loop = asyncio.get_running_loop()
        if self.halves.grew(link, held, needed, loop.time(), anew=anew):
            self._decide(loop)
        if not self._looks:
            self._looks = True
            loop.call_later(LOOK_S, self._look)

    def whole(self, link: WatchedLink) -> None:
        """It ends with a frame, or is gone."""
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
        """So many bytes more are sent to a peer that does not read."""
        now = asyncio.get_running_loop().time()
        if not self.unread.grew(link, size, link.buffered_bytes, now):
            return
        for other in self.unread.surplus(now, lambda one: one.buffered_bytes + (size if one is link else 0)):
            why = f"unread answers hold more than {self.unread.bytes_max} bytes"
            log.warning("cutting off %s: it does not read what it asks for, and %s", other.peer, why)
            other.abort()

    def reads(self, link: WatchedLink) -> None:
        """It has read what it was sent, or is gone."""
        self.unread.ended(link)


def _is_read(link: WatchedLink) -> bool:
    """Its owner wants to read it."""
    return not link.is_paused


def name_of(transport: asyncio.BaseTransport) -> str:
    """Who it is, for people."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple) or len(name) < 2:
        return "a local process"
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
