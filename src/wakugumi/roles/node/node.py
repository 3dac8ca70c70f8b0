"""How is a machine's station reached without a leader? (SPEC N1–N5) By HTTP and by lines, over one set of slots.

    request head ─► admit ─► receive, in a receive slot ─► station.run, in a run slot ─► the answer

A job that is done already, or for which there is no slot, is answered before its input is read. A caller that leaves
does not end its job: the same id sent again gets the result. This file has the part common to both protocols;
`roles/node/pages.py` is HTTP and `roles/node/lines.py` is lines.
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

from wakugumi.adapters.files import READ_FOLDER, Closing
from wakugumi.adapters.http.page import HttpRefusal
from wakugumi.adapters.http.upload import Received
from wakugumi.adapters.spool import Spools
from wakugumi.core.access.identity import Sight
from wakugumi.core.connections.receive_slots import ReceiveSlots
from wakugumi.core.ids import JobId
from wakugumi.core.node.answer_drain import AnswerDrain
from wakugumi.core.node.entrance import KnownJob, SlotsNow, check_owner, check_request, check_room, looks_for_result
from wakugumi.errors import ConfigError, PeerError, Refused
from wakugumi.limits.node import RECEIVE_BYTES_PER_S_MIN
from wakugumi.roles.node.settings import NODE, NodeSettings
from wakugumi.roles.runner.station import Finished, Station
from wakugumi.wire.messages.job import OK, JobRequest, JobResult, read_ack, read_result

log = logging.getLogger("wakugumi.node")

RECEIVING: Final = ".receiving"
"""Folder inside the jobs' folder for inputs being received, which are moved from there by a link."""
_COME_AGAIN: Final = frozenset({"busy", "stopping"})


class Sender:
    """A context while one input is received. Raises Refused (`too-slow`) if the sender loses its slot."""

    __slots__ = ("_slots", "_timeout")

    def __init__(self, slots: ReceiveSlots[Sender], size: int | None) -> None:
        """Raises Refused: busy."""
        self._slots = slots
        self._timeout = asyncio.timeout(None)
        now = asyncio.get_running_loop().time()
        loser = slots.take(self, size, now)
        if loser is not None:
            loser._timeout.reschedule(now)

    def came(self, size: int) -> None:
        self._slots.came(self, size)

    async def __aenter__(self) -> Sender:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.free(self)
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
        self.receive_slots: ReceiveSlots[Sender] = ReceiveSlots(settings.receive)
        self.retry_after_s = settings.retry_after
        self.input_bytes_max = settings.input_bytes
        self.drain = AnswerDrain()
        self._drained = asyncio.Event()
        self.spools = Spools(emptied(Path(station.folder) / RECEIVING))
        self._clients: dict[JobId, str] = {}
        """Clients of jobs that callers wait for."""

    async def admit(
        self, job: JobId, size: int | None, sight: Sight | None = None, request: bytes = b""
    ) -> Finished | None:
        """Called before any input is read: returns the result, if it is known without the input. `size` is that of the
        input, if declared; `request` the digest, if the sender gives it. Raises Refused: busy, stopping, denied,
        conflict."""
        await self.check_owner(job, sight)
        try:
            if looks_for_result(self._now(job, size), size):
                finished = await self.station.finished(job)
                if finished is not None:
                    if read_ack(finished.payload).status == OK:
                        return _checked(finished, request)
                    finished.close()
                check_room(self._now(job, size))
        except Refused as error:
            self.station.counts.busy += error.code == "busy"
            raise self.come_again(error) from None
        return None

    async def check_owner(self, job: JobId, sight: Sight | None) -> None:
        """Raises Refused (`denied`) if the job is another client's."""
        if sight is not None:
            check_owner(sight, await self.known(job))

    async def known(self, job: JobId) -> KnownJob | None:
        """The job that runs here or is kept."""
        if self.station.is_running(job) or job in self._clients:
            return KnownJob(self._clients.get(job) or self.station.client_of(job) or "")
        finished = await self.station.finished(job)
        if finished is None:
            return None
        with finished:
            try:
                result = self.result_of(job, finished)
            except Refused:
                return KnownJob("", has_failed=True)
            return KnownJob(result.client_id, result.status != OK)

    def _now(self, job: JobId, size: int | None) -> SlotsNow:
        station = self.station
        can_receive = self.receive_slots.has_room(size, asyncio.get_running_loop().time())
        return SlotsNow(station.stopping, station.is_running(job), station.free, station.limit, can_receive)

    @property
    def receiving(self) -> int:
        """Inputs that are being received."""
        return len(self.receive_slots)

    def receive_slot(self, size: int | None) -> Sender:
        """A slot for an input of this size, if declared. Raises Refused: busy."""
        try:
            return Sender(self.receive_slots, size)
        except Refused as error:
            raise self.come_again(error) from None

    async def run(self, job: JobId, wanted: JobRequest, received: Received, request: bytes = b"") -> Finished:
        """The result of the job. The received file is the station's from now on. If the sender gives the digest of its
        `request`, the result must be of that request. Raises Refused."""
        bring = None if received.path is None else {received.file_name: received.path}
        running = self.station.run(job, wanted, bring, slots=1)
        self._clients.setdefault(job, wanted.client_id)
        del wanted, received  # They would be held for as long as the job runs.
        try:
            return _checked(await running, request)
        except Refused as error:
            raise self.come_again(error) from None
        finally:
            self._clients.pop(job, None)

    def result_of(self, job: JobId, finished: Finished, sight: Sight | None = None) -> JobResult:
        """The result as written by the worker. Raises Refused, and closes it, if it cannot be read, or if it is another
        client's: the leader of this machine may have assigned that job while the sender waited."""
        try:
            result = read_result(job, finished.payload)
            if sight is not None:
                check_owner(sight, KnownJob(result.client_id))
        except Refused:
            finished.close()
            raise
        except PeerError as error:
            finished.close()
            raise Refused("bad-result", str(error)) from None
        return result

    def come_again(self, error: Refused) -> Refused:
        """The refusal with `Retry-After`, if a retry may help."""
        if error.code not in _COME_AGAIN:
            return error
        return HttpRefusal(503, error.code, error.message, {"Retry-After": str(self.retry_after_s)}, error.hint)

    # Callers that wait for an answer, so that none is cut off by the end.

    @property
    def answering(self) -> int:
        return self.drain.answering

    def end_answer(self) -> None:
        self.drain.end()
        self._look_at_drain()

    def hurry(self) -> None:
        """No further answer is waited for."""
        self.drain.hurry()
        self._look_at_drain()

    async def all_answered(self) -> None:
        """Call it when the node takes no more requests."""
        loop = asyncio.get_running_loop()
        self.drain.stop(loop.time())
        assert self.drain.due_at is not None
        timer = loop.call_at(self.drain.due_at, self._drained.set)
        self._look_at_drain()
        await self._drained.wait()
        timer.cancel()

    def _look_at_drain(self) -> None:
        if self.drain.is_over(asyncio.get_running_loop().time()):
            self._drained.set()


def _checked(finished: Finished, request: bytes) -> Finished:
    """Raises Refused, and closes the result, if it is of another request (SPEC L6)."""
    since = "" if finished.kept_at is None else show_time(finished.kept_at)
    try:
        check_request(request, finished.request, since)
    except Refused:
        finished.close()
        raise
    return finished


def show_time(at: float) -> str:
    """In UTC, as ISO 8601 has it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def emptied(folder: Path) -> Path:
    """The folder for inputs, without files of an earlier life. Raises ConfigError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with Closing(os.open(folder, READ_FOLDER)) as opened:  # No link to elsewhere.
            for name in os.listdir(opened):
                os.unlink(name, dir_fd=opened)
    except OSError as error:
        raise ConfigError(
            f"inputs cannot be received in {folder}: {error.strerror}", "choose another folder with --jobs"
        ) from None
    return folder
