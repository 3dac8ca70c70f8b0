"""How is a machine's station reached without a leader? (SPEC N1–N5) By HTTP and by lines, over one set of slots.

    request head ─► admit ─► receive, in a receive slot ─► station.run, in a run slot ─► the answer

A job that is done already, or for which there is no slot, is answered before its input is read. A caller that leaves
does not end its job: the same id sent again gets the result. This file has the part common to both protocols;
`roles/node/pages.py` is HTTP and `roles/node/lines.py` is lines.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

from wakugumi.adapters.http.page import HttpRefusal
from wakugumi.adapters.http.upload import Received
from wakugumi.core.ids import JobId
from wakugumi.errors import ConfigError, PeerError, Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.node import RECEIVE_BYTES_PER_S_MIN, RECEIVE_GRACE_S
from wakugumi.roles.node.settings import NODE, NodeSettings
from wakugumi.roles.runner.station import Finished, Station
from wakugumi.wire.messages.job import OK, JobResult, read_ack, read_result

log = logging.getLogger("wakugumi.node")

RECEIVING: Final = ".receiving"
"""Folder inside the jobs' folder for inputs being received, which are moved from there by a link."""
_COME_AGAIN: Final = frozenset({"busy", "stopping"})


class Sender:
    """A context while one input is received. Raises Refused (`too-slow`) if the sender loses its slot."""

    __slots__ = ("_began_at", "_came", "_clock", "_others", "_timeout")

    def __init__(self, others: dict[Sender, None]) -> None:
        self._others = others
        self._timeout = asyncio.timeout(None)
        self._clock = asyncio.get_running_loop().time
        self._began_at = self._clock()
        self._came = 0
        others[self] = None

    def came(self, size: int) -> None:
        self._came += size

    def rate(self) -> float:
        """Bytes per second so far. A sender that has just begun counts as fast."""
        age_s = self._clock() - self._began_at
        return self._came / age_s if age_s > RECEIVE_GRACE_S else math.inf

    def send_away(self) -> None:
        self._others.pop(self, None)
        self._timeout.reschedule(self._clock())

    async def __aenter__(self) -> Sender:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._others.pop(self, None)
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            text = f"others wait to send, and this sender is slower than {RECEIVE_BYTES_PER_S_MIN} bytes a second"
            raise HttpRefusal(408, "too-slow", text, {"Connection": "close"}) from None


class Node:
    """A station, and the rules of access to it."""

    def __init__(self, station: Station, settings: NodeSettings = NODE) -> None:
        """Raises ConfigError if the folder for inputs cannot be made."""
        self.station = station
        self.receive_slots = settings.receive
        self.retry_after_s = settings.retry_after
        self.input_bytes_max = settings.input_bytes
        self._large: dict[Sender, None] = {}
        self._small: dict[Sender, None] = {}
        """Inputs being received. Small ones have slots of their own: they take no time."""
        self.receive_busy = 0
        """Callers that were refused because too many inputs were being received."""
        self.answering = 0
        """Callers that wait for a job, or for the end of its answer."""
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.folder = emptied(Path(station.folder) / RECEIVING)

    async def admit(self, job: JobId, size: int | None, request: bytes = b"") -> Finished | None:
        """Called before any input is read: returns the result, if it is known without the input. `size` is that of the
        input, if declared; `request` the digest, if the sender gives it. Raises Refused: busy, stopping, conflict."""
        station = self.station
        if station.stopping:
            raise self.come_again(Refused("stopping", "this node takes no more jobs"))
        if station.is_running(job):
            return None
        is_full = station.free <= 0
        # For a small input `run` finds out by itself; a request without input asks only for a known job (`node_job`).
        if is_full or not size or size > INLINE_FILE_BYTES_MAX:
            finished = await station.finished(job)
            if finished is not None:
                if read_ack(finished.payload).status == OK:
                    return _checked(finished, request)
                finished.close()
        if is_full and not station.is_running(job):
            station.counts.busy += 1
            raise self.come_again(Refused("busy", f"all {station.limit} slots are taken"))
        return None

    @property
    def receiving(self) -> int:
        """Inputs that are being received."""
        return len(self._large) + len(self._small)

    def receive_slot(self, size: int | None) -> Sender:
        """A slot for an input of this size, if declared. If all slots are taken, the slowest sender below the least
        rate loses its slot. Raises Refused: busy."""
        is_small = size is not None and size <= INLINE_FILE_BYTES_MAX
        senders = self._small if is_small else self._large
        if len(senders) >= self.receive_slots:
            slowest = min(senders, key=Sender.rate)
            if slowest.rate() >= RECEIVE_BYTES_PER_S_MIN:
                self.receive_busy += 1
                raise self.come_again(Refused("busy", f"{len(senders)} inputs are on their way already"))
            slowest.send_away()
        return Sender(senders)

    async def run(self, job: JobId, payload: bytes, received: Received, request: bytes = b"") -> Finished:
        """The result of the job. The received file is the station's from now on. If the sender gives the digest of its
        `request`, the result must be of that request. Raises Refused."""
        bring = None if received.path is None else {received.file_name: received.path}
        running = self.station.run(job, payload, bring, slots=1)
        del payload, received  # They would be held for as long as the job runs.
        try:
            return _checked(await running, request)
        except Refused as error:
            raise self.come_again(error) from None

    def result_of(self, job: JobId, finished: Finished) -> JobResult:
        """The result as written by the worker. Raises Refused, and closes it, if it cannot be read."""
        try:
            return read_result(job, finished.payload)
        except PeerError as error:
            finished.close()
            raise Refused("bad-result", str(error)) from None

    def come_again(self, error: Refused) -> Refused:
        """The refusal with `Retry-After`, if a retry may help."""
        if error.code not in _COME_AGAIN:
            return error
        return HttpRefusal(503, error.code, error.message, {"Retry-After": str(self.retry_after_s)}, error.hint)

    # Callers that wait for an answer, so that none is cut off by the end.

    def begin_answer(self) -> None:
        self.answering += 1
        self._quiet.clear()

    def end_answer(self) -> None:
        self.answering -= 1
        if not self.answering:
            self._quiet.set()

    async def all_answered(self) -> None:
        await self._quiet.wait()


def _checked(finished: Finished, request: bytes) -> Finished:
    """Raises Refused, and closes the result, if it is of another request (SPEC L6)."""
    if request and finished.request and request != finished.request:
        finished.close()
        since = "" if finished.kept_at is None else f" since {show_time(finished.kept_at)}"
        raise Refused("conflict", f"this node has the result of another request under this id{since}")
    return finished


def show_time(at: float) -> str:
    """In UTC, as ISO 8601 has it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def emptied(folder: Path) -> Path:
    """The folder for inputs, without files of an earlier life. Raises ConfigError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)  # no link to elsewhere
        try:
            for name in os.listdir(opened):
                os.unlink(name, dir_fd=opened)
        finally:
            os.close(opened)
    except OSError as error:
        raise ConfigError(
            f"inputs cannot be received in {folder}: {error.strerror}", "choose another folder with --jobs"
        ) from None
    return folder
