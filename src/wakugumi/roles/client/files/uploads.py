"""How does the content of a job reach its leader, and how often is an upload tried before it is given up?

    SubmitJob ─► leader: Missing ─► the blobs it names go to its place, in threads ─► the same SubmitJob again

Content is sent when the leader asks for it, and not before; for `failover` the job counts as sent all the while. Broken
uploads are resumed here (`_upload_with_retries`) while the connection to that leader lives; after it, `failover` sends
the job anew, and arrived blobs count. A blob goes to a place once, however many jobs wait for it. Cache puts are
uploaded the same way.

A leader that takes no blobs gets a job with all content in its frame, if that fits. The job waits here until the
leader's Welcome arrives or is long overdue.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import beside
from wakugumi.core.backoff import with_jitter
from wakugumi.core.ids import ConnId
from wakugumi.errors import Lost, Refused
from wakugumi.limits.client import RECONNECT_FIRST_S, RECONNECT_MAX_S
from wakugumi.limits.files import UPLOAD_ROUNDS_MAX, UPLOAD_UNREACHED_S, UPLOADS_AT_ONCE_MAX
from wakugumi.limits.wire import HELLO_DEADLINE_S
from wakugumi.roles.client.files.blob_upload import BlobUpload, UploadStopped
from wakugumi.roles.client.files.inline import could_fit, inlined
from wakugumi.roles.client.files.inputs import Attached, InputBlob
from wakugumi.wire import frame as fr

log = logging.getLogger("wakugumi.client")

NO_VARIABLES: Final = "not-supported"
"""Code of a leader that does not support variables."""
_TYPE_AT: Final = 4
_ID_AT: Final = slice(5, 21)
"""Positions of type and msgId in a frame."""


class FileTransfer(msgspec.Struct, frozen=True):
    """A file on its way to a leader, or being read for its SHA-256."""

    name: str
    done_bytes: int
    total_bytes: int
    what: str
    """`reading` or `sending`"""


class _Held(msgspec.Struct, eq=False):
    """A job or a put that names blobs, until its end."""

    frame: bytes
    attached: Attached
    env: bool = False
    """The job sets variables, which not every leader supports."""
    cancelled: bool = False
    asked_by: ConnId = ConnId(0)
    rounds: int = 0
    """Number of requests for blobs by `asked_by`."""
    conn: ConnId = ConnId(0)
    """Connection that asks for blobs; 0 if none."""
    left: set[str] = set()
    """Blobs that have not arrived there yet."""
    later: asyncio.TimerHandle | None = None
    """Timer to send the job again, or to refuse it."""
    refusals: int = 0
    """Number of times that a place had no room for it."""
    refusal: Refused | None = None
    """The last refusal."""


class _Stranger(msgspec.Struct, eq=False):
    """A leader that has not sent its Welcome yet."""

    since: float
    waiting: dict[bytes, _Held] = {}
    """Jobs that wait for the Welcome."""
    over: asyncio.TimerHandle | None = None


class _Put(BlobUpload):
    """One blob on its way to one place."""

    def __init__(self, url: str, blob: InputBlob) -> None:
        super().__init__(url, blob)
        self.waiting: dict[bytes, _Held] = {}
        """Jobs and puts that wait for the blob. Without any, the upload stops."""


class Uploads:
    """Content of one client's unfinished jobs and puts. `send` writes to a connection; `refuse` reports that content
    for this id cannot be sent to a leader, and `misfit` that the leader does not take it."""

    def __init__(
        self,
        tasks: Tasks,
        send: Callable[[ConnId, bytes], None],
        refuse: Callable[[ConnId, bytes, Refused], None],
        misfit: Callable[[ConnId, bytes, Refused], None],
    ) -> None:
        self.held_bytes = 0
        """Bytes of content in memory here, each blob counted once."""
        self._tasks = tasks
        self._send = send
        self._on_refused = refuse
        self._on_misfit = misfit
        self._places: dict[ConnId, str] = {}
        """URLs of leaders that take blobs."""
        self._take_env: set[ConnId] = set()
        """Leaders that assign jobs with variables only to workers that support them."""
        self._strangers: dict[ConnId, _Stranger] = {}
        self._held: dict[bytes, _Held] = {}
        self._in_memory: dict[str, int] = {}
        """Number of holders of each blob in memory."""
        self._puts: dict[tuple[str, str], _Put] = {}
        self._turns = asyncio.Semaphore(UPLOADS_AT_ONCE_MAX)

    # Calls of a session.

    def hold(self, about: bytes, frame: bytes, attached: Attached, *, env: bool = False) -> None:
        """From now on a leader may ask for this content. With `env`, only leaders that support variables get the
        job."""
        self._held[about] = _Held(frame, attached, env)
        for sha256, blob in attached.items():
            if isinstance(blob.source, bytes):
                count = self._in_memory.get(sha256, 0)
                self._in_memory[sha256] = count + 1
                self.held_bytes += 0 if count else blob.ref.size

    def release(self, about: bytes) -> None:
        """The job or put has ended."""
        held = self._held.pop(about, None)
        if held is None:
            return
        self._leave(about, held)
        for stranger in self._strangers.values():
            stranger.waiting.pop(about, None)
        for sha256, blob in held.attached.items():
            if isinstance(blob.source, bytes):
                self._in_memory[sha256] -= 1
                if not self._in_memory[sha256]:
                    del self._in_memory[sha256]
                    self.held_bytes -= blob.ref.size

    def cancel(self, about: bytes) -> None:
        """The job is not wanted. A leader that waits for its files does not know the job, and will not answer."""
        held = self._held.get(about)
        if held is not None:
            held.cancelled = True
            if conn := held.conn:
                self._leave(about, held)
                self._refuse(conn, about, _cancelled())

    def refusal(self, about: bytes) -> Refused | None:
        """The last refusal made here, with its hint."""
        held = self._held.get(about)
        return held.refusal if held is not None else None

    def connected(self, conn: ConnId) -> None:
        """A connection is established; the Welcome will tell what the leader takes."""
        self._strangers[conn] = _Stranger(asyncio.get_running_loop().time())

    def welcomed(self, conn: ConnId, url: str | None, *, env: bool = False) -> None:
        """The leader takes blobs at `url`, none if None, and variables if `env`. May come late, but only once."""
        if env:
            self._take_env.add(conn)
        if url is not None:
            self._places[conn] = url
        self._leader_known(conn)

    def lost(self, conn: ConnId) -> None:
        stranger = self._strangers.pop(conn, None)
        if stranger is not None and stranger.over is not None:
            stranger.over.cancel()
        for about, held in self._held.items():
            if held.conn == conn:
                self._leave(about, held)
        self._places.pop(conn, None)
        self._take_env.discard(conn)

    def sendable(self, conn: ConnId, frames: Sequence[bytes]) -> Sequence[bytes]:
        """Frames that this leader can understand; the others are handled here."""
        if not self._held or (conn in self._places and conn in self._take_env):
            return frames
        good: list[bytes] = []
        for frame in frames:
            about = frame[_ID_AT]
            held = self._held.get(about) if frame[_TYPE_AT] == fr.SUBMIT_JOB else None
            if held is None:
                good.append(frame)
            elif (stranger := self._strangers.get(conn)) is not None:
                stranger.waiting[about] = held
                if stranger.over is None:
                    until = stranger.since + HELLO_DEADLINE_S
                    stranger.over = asyncio.get_running_loop().call_at(until, self._leader_known, conn)
            elif self._takes(conn, held):
                good.append(frame)
            else:
                self._to_old(conn, about, held)
        return good

    def missing(self, conn: ConnId, about: bytes, blobs: Sequence[str]) -> None:
        """A leader asks for these blobs."""
        held = self._held.get(about)
        url = self._places.get(conn)
        if held is None or url is None:
            return
        if held.cancelled:
            self._refuse(conn, about, _cancelled())
            return
        if any(sha256 not in held.attached for sha256 in blobs):
            self._refuse(conn, about, Refused("no-blob", "the leader asks for content that nobody brought along"))
            return
        if held.conn and held.conn != conn:
            self._leave(about, held)
        if held.asked_by != conn:
            held.asked_by, held.rounds = conn, 0
        held.conn = conn
        held.rounds += 1
        if held.rounds > UPLOAD_ROUNDS_MAX:
            self._leave(about, held)
            self._refuse(
                conn, about, Refused("no-blob", "the leader asks again and again for content that it received")
            )
            return
        held.left |= set(blobs)
        for sha256 in held.left:
            put = self._puts.get((url, sha256))
            if put is None:
                put = self._puts[url, sha256] = _Put(url, held.attached[sha256])
                self._tasks.start(self._upload_with_retries(put), name=f"send {put.blob.name}")
            put.waiting[about] = held
        if not held.left:
            self._send_again(held)

    def close(self) -> None:
        """Stop all uploads and release all content."""
        for put in self._puts.values():
            put.is_stopped = True
        for about in list(self._held):
            self.release(about)

    def transfers(self) -> list[FileTransfer]:
        """Uploads that have begun: few at a time."""
        rows: list[FileTransfer] = []
        for put in self._puts.values():
            if put.has_begun:
                size = put.blob.ref.size
                rows.append(FileTransfer(put.blob.name, min(put.done_bytes, size), size, "sending"))
        return rows

    # A leader that takes no blobs, or is not known to take any.

    def _leader_known(self, conn: ConnId) -> None:
        """The Welcome has arrived, or is overdue."""
        stranger = self._strangers.pop(conn, None)
        if stranger is None:
            return
        if stranger.over is not None:
            stranger.over.cancel()
        for about, held in stranger.waiting.items():
            if self._takes(conn, held):
                self._send(conn, held.frame)
            else:
                self._to_old(conn, about, held)

    def _takes(self, conn: ConnId, held: _Held) -> bool:
        return (conn in self._places or not held.attached) and (conn in self._take_env or not held.env)

    def _to_old(self, conn: ConnId, about: bytes, held: _Held) -> None:
        if held.env and conn not in self._take_env:
            self._misfit(conn, about, held, _no_variables())
        elif could_fit(held.attached):
            self._tasks.start(self._send_inlined(conn, about, held), name="read files for an old leader")
        else:
            self._misfit(conn, about, held, _too_big_for_old())

    async def _send_inlined(self, conn: ConnId, about: bytes, held: _Held) -> None:
        try:
            frame = await beside(lambda: inlined(held.frame, held.attached), "wakugumi upload")
        except Refused as no:
            self._refuse(conn, about, no)
            return
        if self._held.get(about) is not held:
            return
        if held.cancelled:
            self._refuse(conn, about, _cancelled())
        elif frame is None:
            self._misfit(conn, about, held, _too_big_for_old())
        else:
            self._send(conn, frame)

    def _misfit(self, conn: ConnId, about: bytes, held: _Held, no: Refused) -> None:
        held.refusal = no
        self._on_misfit(conn, about, no)

    def _refuse(self, conn: ConnId, about: bytes, no: Refused) -> None:
        if (held := self._held.get(about)) is not None:
            held.refusal = no
        self._on_refused(conn, about, no)

    # A blob on its way.

    async def _upload_with_retries(self, put: _Put) -> None:
        delay_s = RECONNECT_FIRST_S
        broken = losses = 0
        began_at = time.monotonic()
        while put.waiting:
            try:
                async with self._turns:
                    if put.waiting:
                        await beside(put.run, "wakugumi upload")
                        self._arrived(put)
                return
            except UploadStopped:
                return
            except Lost as error:
                losses += 1
                write = log.info if losses == 1 else log.warning
                write("sending %s to %s: %s; trying again", put.blob.name, put.url, error)
                if (still_s := time.monotonic() - max(began_at, put.moved_at)) > UPLOAD_UNREACHED_S:
                    self._failed(put, put.unreached(error, still_s))
                    return
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
                self._failed(put, Refused("worker-error", f"{put.blob.name!r} cannot be sent: {error!r}"[:300]))
                raise
            await asyncio.sleep(with_jitter(delay_s, random.random()))
            delay_s = min(2 * delay_s, RECONNECT_MAX_S)

    def _arrived(self, put: _Put) -> None:
        self._forget(put)
        for held in put.waiting.values():
            held.left.discard(put.blob.ref.sha256)
            if not held.left:
                self._send_again(held)

    def _failed(self, put: _Put, no: Refused) -> None:
        self._forget(put)
        for about, held in list(put.waiting.items()):
            conn = held.conn
            self._leave(about, held)
            held.rounds = 0
            if no.code == "disk-full":
                self._no_room(conn, about, held, no)
            else:
                self._refuse(conn, about, no)

    def _no_room(self, conn: ConnId, about: bytes, held: _Held, no: Refused) -> None:
        """Offer the job again, to others and here: at once the first time, then after growing pauses."""
        held.refusals += 1
        if held.refusals == 1:
            self._refuse(conn, about, no)
            return

        def refuse() -> None:
            held.conn, held.later = ConnId(0), None
            self._refuse(conn, about, no)

        delay_s = min(RECONNECT_FIRST_S * 2 ** min(held.refusals - 2, 16), RECONNECT_MAX_S)
        held.conn = conn
        held.later = asyncio.get_running_loop().call_later(with_jitter(delay_s, random.random()), refuse)

    def _forget(self, put: _Put) -> None:
        key = put.url, put.blob.ref.sha256
        if self._puts.get(key) is put:
            del self._puts[key]

    def _send_again(self, held: _Held) -> None:
        """Send the same frame over the same connection: at once the first time, then after growing pauses."""
        conn = held.conn

        def send() -> None:
            held.conn, held.later = ConnId(0), None
            self._send(conn, held.frame)

        if held.rounds == 1:
            send()
        elif held.later is None:
            delay_s = with_jitter(RECONNECT_FIRST_S * 2 ** (held.rounds - 2) / 4, random.random())
            held.later = asyncio.get_running_loop().call_later(min(delay_s, RECONNECT_MAX_S), send)

    def _leave(self, about: bytes, held: _Held) -> None:
        """Stop all uploads for it that nobody else needs."""
        if held.later is not None:
            held.later.cancel()
        url = self._places.get(held.conn, "")
        for put in [put for sha256 in held.left if (put := self._puts.get((url, sha256))) is not None]:
            put.waiting.pop(about, None)
            if not put.waiting:
                put.is_stopped = True
                self._forget(put)
        held.conn, held.left, held.later = ConnId(0), set(), None


def _cancelled() -> Refused:
    return Refused("cancelled", "the job was cancelled before its files had arrived")


def _no_variables() -> Refused:
    return Refused(
        NO_VARIABLES,
        "the job sets variables, and this leader may give it to a worker that does not",
        hint="bring the leader up to date, or leave --env out",
    )


def _too_big_for_old() -> Refused:
    return Refused(
        "too-big",
        "the job's files do not all fit its frame, and the leader is an old one that takes only what does (one that "
        f"takes more says so within {HELLO_DEADLINE_S:.0f} s)",
    )
