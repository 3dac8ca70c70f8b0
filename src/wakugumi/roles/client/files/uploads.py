"""How does a client send the content of its jobs? As `core/transfers/uploads.py` decides: threads put blobs into places
and read files.

The machine is called at once, and not with the next turn of the loop: a frame must not overtake the content that it
names.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from wakugumi.adapters.loop.acts import ActPerformer
from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.threads import beside
from wakugumi.core.flows import Abandon, Act, Perform
from wakugumi.core.ids import ConnId
from wakugumi.core.transfers import upload_events as ev
from wakugumi.core.transfers.transfers import PutBlob, PutEnd
from wakugumi.core.transfers.uploads import Key, UploadsMachine
from wakugumi.errors import Refused
from wakugumi.roles.client.files.blob_upload import BlobUpload
from wakugumi.roles.client.files.inline import inlined
from wakugumi.roles.client.files.inputs import Attached
from wakugumi.wire import frame as fr

log = logging.getLogger("wakugumi.client")

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


class Uploads:
    """Content of one client's unfinished jobs and puts. `send` writes to a connection; `refuse` reports that content
    for this id cannot be sent to a leader, and `misfit` that the leader does not take it."""

    def __init__(
        self,
        send: Callable[[ConnId, bytes], None],
        refuse: Callable[[ConnId, bytes, Refused], None],
        misfit: Callable[[ConnId, bytes, Refused], None],
    ) -> None:
        self._send = send
        self._refuse = refuse
        self._misfit = misfit
        self.machine = UploadsMachine(asyncio.get_running_loop().time(), random.random)
        self._drive: Drive[ev.UploadsEvent, None, ev.UploadsDo] = Drive(self.machine, self._do, name="uploads")
        self._acts = ActPerformer(self._perform, self._drive.post)
        self._puts: dict[Key, BlobUpload] = {}
        """Uploads that have begun."""
        self._going: tuple[ConnId, list[bytes]] | None = None
        """Frames of the batch that is about to be written."""

    @property
    def held_bytes(self) -> int:
        """Bytes of content in memory here, each blob counted once."""
        return self.machine.held_bytes

    @property
    def failed(self) -> asyncio.Future[None]:
        return self._drive.failed

    def hold(self, about: bytes, frame: bytes, attached: Attached, *, env: bool = False) -> None:
        self.machine.hold(ev.JobHeld(about, frame, attached, env))

    def release(self, about: bytes) -> None:
        job = self.machine.jobs.get(about)
        if job is not None and job.conn:
            self._tell(ev.HeldEnded(about))
        elif job is not None:
            self.machine.release(about)

    def cancel(self, about: bytes) -> None:
        if about in self.machine.jobs:
            self._tell(ev.HeldCancelled(about))

    def refusal(self, about: bytes) -> Refused | None:
        """The last refusal made here, with its hint."""
        held = self.machine.jobs.get(about)
        return held.refusal if held is not None else None

    def connected(self, conn: ConnId) -> None:
        self._tell(ev.LeaderOpened(conn))

    def welcomed(self, conn: ConnId, url: str | None, *, env: bool = False) -> None:
        self._tell(ev.LeaderTakes(conn, url, env))

    def lost(self, conn: ConnId) -> None:
        self._tell(ev.LeaderGone(conn))

    def missing(self, conn: ConnId, about: bytes, blobs: Sequence[str]) -> None:
        self._tell(ev.BlobsAsked(conn, about, blobs))

    def sendable(self, conn: ConnId, frames: Sequence[bytes]) -> Sequence[bytes]:
        """Frames that this leader can understand; the others are handled here."""
        if not self.machine.jobs:
            return frames
        good: list[bytes] = []
        self._going = conn, good
        for frame in frames:
            if frame[_TYPE_AT] != fr.SUBMIT_JOB or self.machine.passes(conn, about := frame[_ID_AT]):
                good.append(frame)
            else:
                self._tell(ev.SubmitDue(conn, about))
        self._going = None
        return good

    def transfers(self) -> list[FileTransfer]:
        """Uploads that have begun: few at a time."""
        return [
            FileTransfer(put.blob.name, min(put.done_bytes, put.blob.size), put.blob.size, "sending")
            for key, put in self._puts.items()
            if key in self.machine.transfers.by_key
        ]

    def release_all(self) -> None:
        """Stop all uploads and release all content."""
        for about in list(self.machine.jobs):
            self.release(about)

    async def close(self) -> None:
        self._drive.close()
        self.machine.close()
        await self._acts.close()

    def _tell(self, event: ev.UploadsEvent) -> None:
        self._drive.post(event)
        self._drive.flush()

    def _do(self, effects: Sequence[ev.UploadsDo]) -> None:
        for effect in effects:
            match effect:
                case Perform() | Abandon():
                    self._acts.do(effect)
                case ev.SendJob(conn, frame):
                    if self._going is not None and self._going[0] == conn:
                        self._going[1].append(frame)
                    else:
                        self._send(conn, frame)
                case ev.RefuseJob(conn, about, no):
                    self._refuse(conn, about, no)
                case ev.JobUnfit(conn, about, no):
                    self._misfit(conn, about, no)
                case ev.UploadWaits(url, name, error, tries):
                    level = logging.INFO if tries == 1 else logging.WARNING
                    log.log(level, "sending %s to %s: %s; trying again", name, url, error)
        for key in self._puts.keys() - self.machine.transfers.by_key.keys():
            del self._puts[key]

    async def _perform(self, act: Act[Any]) -> Any:
        if isinstance(act, PutBlob):
            return await self._put(act)
        assert isinstance(act, ev.InlineBlobs)
        return await beside(lambda: inlined(act.frame, act.blobs), "wakugumi upload")  # type: ignore[arg-type]

    async def _put(self, act: PutBlob) -> PutEnd:
        key = act.url, act.sha256
        put = self._puts.get(key)
        if put is None or put.is_running:  # One that runs is about to stop.
            put = self._puts[key] = BlobUpload(act.url, act.blob)  # type: ignore[arg-type]
        return await put.end(beside(put.run, "wakugumi upload"))
