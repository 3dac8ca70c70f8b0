"""Which connections to leaders does a client have, and what does each received frame mean?

leader ── frames ──► LeaderLine ── events ──► failover
                         └── opened, lost, welcomed ──► LeaderConnections
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from wakugumi.adapters.net.link import Link
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ClientEvent
from wakugumi.core.ids import ConnId, JobId
from wakugumi.limits.client import LEADERS_PER_CLIENT_MAX
from wakugumi.limits.wire import CLOSE_DEADLINE_S
from wakugumi.roles.client.ask import PendingQuestions
from wakugumi.roles.client.files.uploads import Uploads
from wakugumi.roles.client.session.leader_status import LeaderStatuses
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.cache import PROGRESS, read_cache_result
from wakugumi.wire.messages.hello import BLOBS, CAPS, ENV, FINDS, ZSTD, Welcome, read_welcome
from wakugumi.wire.messages.job import read_missing, read_refusal, unpack_ids

log = logging.getLogger("wakugumi.client")

CONNECTIONS_KEPT: Final = 2 * LEADERS_PER_CLIENT_MAX
"""Live connections, and the last ended ones: their results may still be delivered."""


class ConnectionRow(msgspec.Struct, eq=False):
    name: str
    """Name of the leader."""
    link: Link | None
    """None once the connection has ended."""
    url: str
    """URL of the leader itself."""
    place: str = ""
    """URL at which the leader keeps content that does not fit a frame."""


class LeaderConnections:
    def __init__(self) -> None:
        self._rows: dict[ConnId, ConnectionRow] = {}
        self._open = 0
        self._none_open = asyncio.Event()
        self._none_open.set()

    def __len__(self) -> int:
        return len(self._rows)

    def opened(self, conn: ConnId, link: Link, name: str, url: str) -> None:
        self._rows[conn] = ConnectionRow(name, link, url)
        self._open += 1
        self._none_open.clear()
        if len(self._rows) > CONNECTIONS_KEPT:
            ended = next((each for each, row in self._rows.items() if row.link is None), None)
            if ended is not None:
                del self._rows[ended]

    def welcomed(self, conn: ConnId, welcome: Welcome) -> str | None:
        """URL of the leader's place for content, if it takes any."""
        if BLOBS not in welcome.wants:
            return None
        row = self._rows[conn]
        row.place = welcome.blobs or row.url
        return row.place

    def lost(self, conn: ConnId) -> None:
        self._rows[conn].link = None
        self._open -= 1
        if not self._open:
            self._none_open.set()

    def origin(self, conn: ConnId) -> tuple[str, str]:
        """Name and place of the leader; empty if no longer known."""
        row = self._rows.get(conn)
        return ("", "") if row is None else (row.name, row.place)

    def send(self, conn: ConnId, data: bytes) -> None:
        row = self._rows.get(conn)
        if row is not None and row.link is not None:
            row.link.send(data)

    def when_written(self, conn: ConnId, call: Callable[[], None]) -> None:
        row = self._rows.get(conn)
        if row is not None and row.link is not None:
            row.link.when_written(call)

    def hang_up(self, conn: ConnId, why: str) -> None:
        row = self._rows.get(conn)
        if row is not None and row.link is not None:
            log.warning("leaving %s: %s", row.name, why)
            row.link.abort()

    def part(self, conn: ConnId) -> None:
        """Close the connection once all queued data is sent."""
        row = self._rows.get(conn)
        if row is not None and row.link is not None:
            row.link.close()

    async def close(self) -> None:
        for conn in list(self._rows):
            self.part(conn)
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._none_open.wait()
        except TimeoutError:
            for row in list(self._rows.values()):
                if row.link is not None:
                    row.link.abort()


class LeaderLine:
    """One connection of a client: frames in, events out."""

    def __init__(self, conn: ConnId, name: str, hello: bytes, listeners: LineListeners, secured: str = "") -> None:
        """`secured`: URL of a leader that proves who it is."""
        self._conn = conn
        self._secured = secured
        self._name = name
        self._hello = hello
        self._listeners = listeners
        self._post = listeners.post
        self._ignored_one = False

    def on_open(self, link: Link) -> None:
        link.greet(self._hello)
        listeners = self._listeners
        listeners.connections.opened(self._conn, link, self._name, self._secured or f"http://{self._name}")
        listeners.uploads.connected(self._conn)
        listeners.statuses.opened(self._name)
        self._post(ev.Connected(self._conn, bool(self._secured)))

    def on_frame(self, link: Link, frame: Frame) -> None:
        kind = frame.type
        if kind == fr.RESULT:
            # Not JobId(…): on the busiest path, a call costs as much as the event.
            self._post(ev.ResultReceived(self._conn, frame.corr_id, frame.payload))  # type: ignore[arg-type]
        elif kind == fr.RECEIPT:
            self._post(ev.Receipts(self._conn, unpack_ids(frame.payload)))
        elif kind == fr.HEARTBEAT:
            self._post(ev.HeartbeatReceived(self._conn))
        elif kind == fr.REFUSAL:
            self._refused(link, frame)
        elif kind == fr.ASK:
            self._post(ev.QuestionAnswered(self._conn, frame.corr_id, frame.subject == "refused", frame.payload))
        elif kind == fr.FOUND and frame.subject in {"unknown", "failed", "known"}:
            self._post(ev.JobsFound(self._conn, frame.subject, unpack_ids(frame.payload)))  # type: ignore[arg-type]
        elif kind == fr.WELCOME:
            self._welcomed(link, read_welcome(frame.payload))
        elif kind == fr.MISSING:
            missing = read_missing(frame.payload)
            self._post(ev.FilesWanted(self._conn, JobId(frame.corr_id)))
            self._listeners.uploads.missing(self._conn, frame.corr_id, missing)
        elif kind == fr.CACHE_ACK:
            self._put_answered(frame)
        elif not self._ignored_one:
            self._ignored_one = True
            log.warning("%s sent a frame of type %d, which is ignored", link.peer, kind)

    def on_alive(self, _link: Link) -> None:
        self._post(ev.HeartbeatReceived(self._conn))

    def on_blocked(self, _link: Link, blocked: bool) -> None:
        self._post(ev.LeaderBlocked(self._conn, blocked))

    def on_lost(self, link: Link) -> None:
        self._listeners.uploads.lost(self._conn)
        self._listeners.connections.lost(self._conn)
        self._post(ev.Disconnected(self._conn, link.why_closed or "the connection ended"))

    def _welcomed(self, link: Link, welcome: Welcome) -> None:
        wants = welcome.wants
        link.packs = ZSTD in wants
        place = self._listeners.connections.welcomed(self._conn, welcome)
        env = ENV in wants
        self._listeners.uploads.welcomed(self._conn, place, env=env)
        self._post(ev.Welcomed(self._conn, CAPS in wants, place is not None, FINDS in wants, env))

    def _put_answered(self, frame: Frame) -> None:
        """Progress or outcome of a put."""
        result = read_cache_result(frame.payload)
        if result.status != PROGRESS:
            self._post(ev.QuestionAnswered(self._conn, frame.corr_id, False, frame.payload))
            return
        self._post(ev.HeartbeatReceived(self._conn))
        self._listeners.questions.progress(frame.corr_id, result)

    def _refused(self, link: Link, frame: Frame) -> None:
        if frame.corr_id in self._listeners.questions:
            self._post(ev.QuestionAnswered(self._conn, frame.corr_id, True, frame.payload))
            return
        refusal = read_refusal(frame.payload)
        if frame.corr_id == fr.NO_ID:
            self._post(ev.HelloRefused(self._conn, refusal.code, refusal.message))
            link.close()
            return
        self._post(ev.JobRefused(self._conn, JobId(frame.corr_id), refusal.code, refusal.message))


class LineListeners(msgspec.Struct, frozen=True):
    """The parts of a session that receive events of a connection."""

    connections: LeaderConnections
    statuses: LeaderStatuses
    uploads: Uploads
    questions: PendingQuestions
    post: Callable[[ClientEvent], None]
