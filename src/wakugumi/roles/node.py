"""How is a machine's station reached without a leader? (SPEC N1–N5) By HTTP and by lines, over one set of slots.

    nothing read yet ─► admit ─► receive, in a receive slot ─► station.run, in a run slot ─► the answer

A job that is done already, or for which there is no slot, is answered before its input is read. Whoever waits for a job
and goes away does not end it: the same id sent again gets its result. What is common to both languages stands here;
`node_pages` speaks HTTP and `node_lines` lines.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wakugumi.adapters.receive import Received
from wakugumi.adapters.visit import Refusal
from wakugumi.core.job import JobId
from wakugumi.errors import ConfigError, PeerError, Refused
from wakugumi.limits import INLINE_FILE_BYTES_MAX, NODE_INPUT_BYTES_MAX, RECEIVE_SLOTS, RUN_RETRY_AFTER_S
from wakugumi.roles.station import Finished, Station
from wakugumi.wire import message as ms

log = logging.getLogger("wakugumi.node")

RECEIVING: Final = ".receiving"
"""In the jobs' folder: inputs on their way, which are moved from there by a link."""
_COME_AGAIN: Final = frozenset({"busy", "stopping"})


class Node:
    """A station, and who may use it when."""

    def __init__(
        self,
        station: Station,
        *,
        receive_slots: int = RECEIVE_SLOTS,
        retry_after_s: int = RUN_RETRY_AFTER_S,
        input_bytes_max: int = NODE_INPUT_BYTES_MAX,
    ) -> None:
        """Raises ConfigError if there is no place for what is received."""
        self.station = station
        self.receive_slots = receive_slots
        self.retry_after_s = retry_after_s
        self.input_bytes_max = input_bytes_max
        self.receiving = 0
        """Inputs that are on their way."""
        self.receive_busy = 0
        """Callers that were sent away because too many were sending."""
        self.answering = 0
        """Callers that wait for a job, or for the end of its answer."""
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.folder = _empty(Path(station.folder) / RECEIVING)

    async def admit(self, job: JobId, size: int | None) -> Finished | None:
        """Before anything of its input is read: its result, if that is known without it. The size is that of what would
        come, as far as it was said. Raises Refused: busy, stopping."""
        station = self.station
        if station.stopping:
            raise self.come_again(Refused("stopping", "this node takes no more jobs"))
        if station.is_running(job):
            return None
        is_full = station.free <= 0
        # For a small one `run` finds out by itself; and who sends nothing asks only for what is here (`errand`).
        if is_full or not size or size > INLINE_FILE_BYTES_MAX:
            finished = await station.finished(job)
            if finished is not None:
                if ms.read_ack(finished.payload).status == ms.OK:
                    return finished
                finished.close()
        if is_full and not station.is_running(job):
            station.counts.busy += 1
            raise self.come_again(Refused("busy", f"all {station.limit} slots are taken"))
        return None

    @contextmanager
    def receive_slot(self) -> Iterator[None]:
        """While an input is on its way. Raises Refused: busy."""
        if self.receiving >= self.receive_slots:
            self.receive_busy += 1
            raise self.come_again(Refused("busy", f"{self.receiving} inputs are on their way already"))
        self.receiving += 1
        try:
            yield
        finally:
            self.receiving -= 1

    async def run(self, job: JobId, payload: bytes, received: Received) -> Finished:
        """Its result, once there is one. What was received is the station's from now on. Raises Refused."""
        bring = None if received.path is None else {received.file_name: received.path}
        running = self.station.run(job, payload, bring, slots=1)
        del payload, received  # They would be held for as long as it runs.
        try:
            return await running
        except Refused as error:
            raise self.come_again(error) from None

    def result_of(self, job: JobId, finished: Finished) -> ms.JobResult:
        """What it says. Raises Refused, and closes it, if it says nothing that can be read."""
        try:
            return ms.read_result(job, finished.payload)
        except PeerError as error:
            finished.close()
            raise Refused("bad-result", str(error)) from None

    def come_again(self, error: Refused) -> Refused:
        """The same, and when to come again if that may help."""
        if error.code not in _COME_AGAIN:
            return error
        return Refusal(503, error.code, error.message, {"Retry-After": str(self.retry_after_s)}, error.hint)

    # Those who wait for an answer, so that none is cut off by the end.

    def begin_answer(self) -> None:
        self.answering += 1
        self._quiet.clear()

    def end_answer(self) -> None:
        self.answering -= 1
        if not self.answering:
            self._quiet.set()

    async def all_answered(self) -> None:
        await self._quiet.wait()


def _empty(folder: Path) -> Path:
    """The folder for what is received, without what an earlier life left there. Raises ConfigError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with os.scandir(folder) as entries:
            for entry in entries:
                os.unlink(entry.path)
    except OSError as error:
        raise ConfigError(
            f"inputs cannot be received in {folder}: {error.strerror}", "choose another folder with --jobs"
        ) from None
    return folder
