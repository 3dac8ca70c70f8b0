"""How does the content of a job reach its leader? When the leader asks for it, and not before.

    SubmitJob ─► leader: Missing ─► the blobs it names go to its place, in threads ─► the same SubmitJob again

For `failover` the job is under way all the while. A line that breaks is mended here, as long as the connection to that
leader lives; after it, the job is sent anew to whoever has it next, and what came through counts. The same blob goes to
the same place once, however many jobs wait for it. A cache that is put takes the same way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from wakugumi.adapters.tasks import Tasks
from wakugumi.adapters.threads import beside
from wakugumi.core.job import ConnId
from wakugumi.core.policy import with_jitter
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits import RECONNECT_FIRST_S, RECONNECT_MAX_S, UPLOADS_AT_ONCE_MAX
from wakugumi.roles.contents import Brings, Brought
from wakugumi.wire import frame as fr

log = logging.getLogger("wakugumi.client")

_BROKEN_MAX: Final = 3
"""Content that arrives broken so often, and has not changed here, never arrives whole."""
_ROUNDS_MAX: Final = 10
"""A leader that asks so often for what it was given would ask for ever."""
_TYPE_AT: Final = 4
_ID_AT: Final = slice(5, 21)
"""Where a frame has its type and its msgId."""


class Transfer(msgspec.Struct, frozen=True):
    """A file on its way to a leader, or being read for its SHA-256."""

    name: str
    done_bytes: int
    total_bytes: int
    what: str
    """`reading` or `sending`"""


class _Held(msgspec.Struct, eq=False):
    """A job or a put that names blobs, until its end."""

    frame: bytes
    brings: Brings
    cancelled: bool = False
    asked_by: ConnId = ConnId(0)
    rounds: int = 0
    """How often that connection has asked for blobs."""
    conn: ConnId = ConnId(0)
    """Who asks for blobs; 0 if nobody does."""
    left: set[str] = set()
    """Blobs that are still on their way there."""
    sending: asyncio.TimerHandle | None = None


class _Put:
    """One blob on its way to one place."""

    def __init__(self, url: str, brought: Brought) -> None:
        self.url = url
        self.brought = brought
        self.waiting: dict[bytes, _Held] = {}
        """Who waits for it. If nobody does, it stops."""
        self.done_bytes = 0
        self.has_begun = False
        self.is_stopped = False

    def run(self) -> None:
        """In a thread, to the end. Raises Refused, Lost, or _Stopped."""
        from wakugumi.adapters.places import open_place

        self.done_bytes, self.has_begun = 0, True
        source = self.brought.source
        try:
            place = open_place(self.url)
        except ConfigError as error:
            raise Refused("not-supported", f"the leader's place for files cannot be used: {error}") from None
        if not isinstance(source, bytes):
            source.check(self.brought.ref)
            place.put(self.brought.ref, Path(source.path), self._on_bytes)
            return
        import tempfile

        try:
            file, path = tempfile.mkstemp(prefix="waku-")
        except OSError as error:
            raise Refused("disk", f"there is no room to send {self.brought.name!r} from: {error.strerror}") from None
        try:
            with open(file, "wb") as spool:
                spool.write(source)
            place.put(self.brought.ref, Path(path), self._on_bytes)
        except OSError as error:
            raise Refused("disk", f"there is no room to send {self.brought.name!r} from: {error.strerror}") from None
        finally:
            os.unlink(path)

    def may_try_again(self, no: Refused, broken: int) -> bool:
        """In a thread. Does it come from the line, or from others, and not from what is sent? Raises Refused."""
        if no.code == "blob-broken" and not isinstance(self.brought.source, bytes):
            self.brought.source.check(self.brought.ref)
        return no.code == "blob-busy" or (no.code == "blob-broken" and broken < _BROKEN_MAX)

    def _on_bytes(self, count: int) -> None:
        self.done_bytes += count
        if self.is_stopped:
            raise _Stopped


class _Stopped(Exception):
    """Nobody wants it there any more."""


class Uploads:
    """What the unfinished jobs and puts of one client bring along. `send` writes to a connection; `refuse` tells that
    something cannot get to a leader, about whatever has this id."""

    def __init__(
        self, tasks: Tasks, send: Callable[[ConnId, bytes], None], refuse: Callable[[ConnId, bytes, Refused], None]
    ) -> None:
        self.held_bytes = 0
        """Of content that is in memory here, each counted once."""
        self._tasks = tasks
        self._send = send
        self._refuse = refuse
        self._places: dict[ConnId, str] = {}
        """Of those leaders that take blobs."""
        self._held: dict[bytes, _Held] = {}
        self._in_memory: dict[str, int] = {}
        """How many hold each blob that is in memory."""
        self._puts: dict[tuple[str, str], _Put] = {}
        self._turns = asyncio.Semaphore(UPLOADS_AT_ONCE_MAX)

    # What a session tells.

    def hold(self, about: bytes, frame: bytes, brings: Brings) -> None:
        """From now on its leader may ask for these."""
        self._held[about] = _Held(frame, brings)
        for sha256, brought in brings.items():
            if isinstance(brought.source, bytes):
                count = self._in_memory.get(sha256, 0)
                self._in_memory[sha256] = count + 1
                self.held_bytes += 0 if count else brought.ref.size

    def release(self, about: bytes) -> None:
        """It has ended."""
        held = self._held.pop(about, None)
        if held is None:
            return
        self._leave(about, held)
        for sha256, brought in held.brings.items():
            if isinstance(brought.source, bytes):
                self._in_memory[sha256] -= 1
                if not self._in_memory[sha256]:
                    del self._in_memory[sha256]
                    self.held_bytes -= brought.ref.size

    def cancel(self, about: bytes) -> None:
        """Nobody wants it. A leader that waits for its files knows nothing of it, and will not say so."""
        held = self._held.get(about)
        if held is not None:
            held.cancelled = True
            if conn := held.conn:
                self._leave(about, held)
                self._refuse(conn, about, _cancelled())

    def opened(self, conn: ConnId, url: str) -> None:
        """This leader takes blobs, there."""
        self._places[conn] = url

    def lost(self, conn: ConnId) -> None:
        for about, held in self._held.items():
            if held.conn == conn:
                self._leave(about, held)
        self._places.pop(conn, None)

    def sendable(self, conn: ConnId, frames: Sequence[bytes]) -> Sequence[bytes]:
        """Those of these frames that this leader can understand; the others are refused here."""
        if not self._held or conn in self._places:
            return frames
        good: list[bytes] = []
        for frame in frames:
            about = frame[_ID_AT]
            if frame[_TYPE_AT] == fr.SUBMIT_JOB and about in self._held:
                self._refuse(conn, about, _too_big_for_old())
            else:
                good.append(frame)
        return good

    def missing(self, conn: ConnId, about: bytes, blobs: Sequence[str]) -> None:
        """A leader asks for these."""
        held = self._held.get(about)
        url = self._places.get(conn)
        if held is None or url is None:
            return
        if held.cancelled:
            self._refuse(conn, about, _cancelled())
            return
        if any(sha256 not in held.brings for sha256 in blobs):
            self._refuse(conn, about, Refused("no-blob", "the leader asks for content that nobody brought along"))
            return
        if held.conn and held.conn != conn:
            self._leave(about, held)
        if held.asked_by != conn:
            held.asked_by, held.rounds = conn, 0
        held.conn = conn
        held.rounds += 1
        if held.rounds > _ROUNDS_MAX:
            self._leave(about, held)
            self._refuse(conn, about, Refused("no-blob", "the leader asks again and again for what it was given"))
            return
        held.left |= set(blobs)
        for sha256 in held.left:
            put = self._puts.get((url, sha256))
            if put is None:
                put = self._puts[url, sha256] = _Put(url, held.brings[sha256])
                self._tasks.start(self._carry(put), name=f"send {put.brought.name}")
            put.waiting[about] = held
        if not held.left:
            self._send_again(held)

    def close(self) -> None:
        """Nothing is sent any more, and nothing held."""
        for put in self._puts.values():
            put.is_stopped = True
        for about in list(self._held):
            self.release(about)

    def transfers(self) -> list[Transfer]:
        """Those that have begun: few at a time."""
        rows: list[Transfer] = []
        for put in self._puts.values():
            if put.has_begun:
                size = put.brought.ref.size
                rows.append(Transfer(put.brought.name, min(put.done_bytes, size), size, "sending"))
        return rows

    # A blob on its way.

    async def _carry(self, put: _Put) -> None:
        delay_s = RECONNECT_FIRST_S
        broken = 0
        while put.waiting:
            try:
                async with self._turns:
                    if put.waiting:
                        await beside(put.run, "wakugumi upload")
                        self._arrived(put)
                return
            except _Stopped:
                return
            except Lost as error:
                log.info("sending %s to %s: %s; trying again", put.brought.name, put.url, error)
            except Refused as no:
                broken += no.code == "blob-broken"
                try:
                    again = await beside(lambda no=no, broken=broken: put.may_try_again(no, broken), "wakugumi upload")  # type: ignore[misc]
                except Refused as changed:
                    self._failed(put, changed)
                    return
                if not again:
                    self._failed(put, no)
                    return
            except Exception as error:
                self._failed(put, Refused("worker-error", f"{put.brought.name!r} cannot be sent: {error!r}"[:300]))
                raise
            await asyncio.sleep(with_jitter(delay_s, random.random()))
            delay_s = min(2 * delay_s, RECONNECT_MAX_S)

    def _arrived(self, put: _Put) -> None:
        self._forget(put)
        for held in put.waiting.values():
            held.left.discard(put.brought.ref.sha256)
            if not held.left:
                self._send_again(held)

    def _failed(self, put: _Put, no: Refused) -> None:
        self._forget(put)
        for about, held in list(put.waiting.items()):
            conn = held.conn
            self._leave(about, held)
            self._refuse(conn, about, no)

    def _forget(self, put: _Put) -> None:
        key = put.url, put.brought.ref.sha256
        if self._puts.get(key) is put:
            del self._puts[key]

    def _send_again(self, held: _Held) -> None:
        """The same frame over the same connection. At once the first time; a leader that still misses something is
        given longer and longer to find it."""
        conn = held.conn

        def send() -> None:
            held.conn, held.sending = ConnId(0), None
            self._send(conn, held.frame)

        if held.rounds == 1:
            send()
        elif held.sending is None:
            delay_s = with_jitter(RECONNECT_FIRST_S * 2 ** (held.rounds - 2) / 4, random.random())
            held.sending = asyncio.get_running_loop().call_later(min(delay_s, RECONNECT_MAX_S), send)

    def _leave(self, about: bytes, held: _Held) -> None:
        """Nothing of it is on its way any more."""
        if held.sending is not None:
            held.sending.cancel()
        url = self._places.get(held.conn, "")
        for put in [put for sha256 in held.left if (put := self._puts.get((url, sha256))) is not None]:
            put.waiting.pop(about, None)
            if not put.waiting:
                put.is_stopped = True
                self._forget(put)
        held.conn, held.left, held.sending = ConnId(0), set(), None


def _cancelled() -> Refused:
    return Refused("cancelled", "it was cancelled before its files were there")


def _too_big_for_old() -> Refused:
    return Refused(
        "too-big",
        "the job's files do not all fit its frame, and the leader is an old one that takes only what does",
    )
