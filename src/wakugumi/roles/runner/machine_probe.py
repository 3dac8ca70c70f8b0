"""Can a program be started on this machine, and is there room for what it makes? (SPEC W9)"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.machine.start_probe import a_program, check_machine, check_room
from wakugumi.adapters.programs.processes import Processes, RunningProgram
from wakugumi.errors import Refused, Sick

log = logging.getLogger("wakugumi.runner")

_DISK_LOOK_S: Final = 1.0
"""How often free room is asked for: a thousand jobs a second share one answer."""
PROBE: Final = "probe"
"""No job is called so."""
_PROBE_S: Final = 10.0
"""A program that does nothing and takes longer cannot be said to run."""


class MachineProbe:
    """Tries the machine as a job would use it. All calls are made in the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        folder: JobsFolder,
        processes: Processes,
        threads: Executor,
        free_min_bytes: int,
    ) -> None:
        """The end of a program that is called PROBE is to be told to `ended`."""
        self._loop = loop
        self._folder = folder
        self._processes = processes
        self._threads = threads
        self.free_min_bytes = free_min_bytes
        self._disk_looked_at = -math.inf
        self._disk_is_low: Sick | None = None
        self._probing: Callable[[str], None] | None = None
        """Who waits to hear whether a program can be started."""
        self._closed = False

    def close(self) -> None:
        """Nobody hears of a probe any more."""
        self._closed = True

    def check_disk(self) -> None:
        """Raises Sick if there is too little room for a job."""
        now = self._loop.time()
        if now - self._disk_looked_at >= _DISK_LOOK_S:
            self._disk_looked_at = now
            self._disk_is_low = None
            try:
                check_room(self._folder.path, self.free_min_bytes)
            except Sick as low:
                self._disk_is_low = low
        if self._disk_is_low is not None:
            raise Sick(self._disk_is_low.code, self._disk_is_low.message)

    def probe(self, told: Callable[[str], None]) -> None:
        """Try whether a program can be started here. `told` is called later, with why not, or nothing if one was."""
        if self._probing is not None or self._closed:
            return
        self._probing = told
        self._disk_looked_at = -math.inf
        done = self._loop.run_in_executor(self._threads, check_machine, self._folder.path, self.free_min_bytes)
        done.add_done_callback(self._start_probe)

    def _start_probe(self, checked: asyncio.Future[None]) -> None:
        if self._closed:
            checked.exception()
            return
        try:
            checked.result()
            if (command := a_program()) is None:
                self._probed("")
                return
            capture = self._folder.captures.take()
            try:
                self._processes.start(PROBE, command, self._folder.path, capture, timeout_s=_PROBE_S)
            except BaseException:
                self._folder.captures.give_back(capture, abandoned=True)
                raise
        except Refused as no:
            self._probed(no.message)
        except Exception as error:
            log.exception("the machine could not be tried")
            self._probed(repr(error))

    def ended(self, child: RunningProgram) -> None:
        why = child.why or f"a program that does nothing ended with exit code {child.exit_code}"
        try:
            self._folder.captures.give_back(child.capture, abandoned=child.abandoned)
        finally:
            self._probed(why if child.reason or child.exit_code else "")

    def _probed(self, why: str) -> None:
        told, self._probing = self._probing, None
        if told is not None and not self._closed:
            told(why)
