"""Can this machine start a program, and is there disk space for its output? (SPEC W9)"""

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

_DISK_CHECK_S: Final = 1.0
"""Seconds for which a measured free space counts: a thousand jobs a second share one measurement."""
PROBE: Final = "probe"
"""Name of the probing program's run; no job has this name."""
_PROBE_S: Final = 10.0
"""Time limit of a program that does nothing."""


class MachineProbe:
    """Tests the machine as a job would use it. All calls are made in the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        folder: JobsFolder,
        processes: Processes,
        threads: Executor,
        free_min_bytes: int,
    ) -> None:
        """`processes` must report the end of the program PROBE to `ended`."""
        self._loop = loop
        self._folder = folder
        self._processes = processes
        self._threads = threads
        self.free_min_bytes = free_min_bytes
        self._disk_checked_at = -math.inf
        self._disk_is_low: Sick | None = None
        self._report: Callable[[str], None] | None = None
        """Gets the outcome of the probe in progress."""
        self._closed = False

    def close(self) -> None:
        """Report no probe any more."""
        self._closed = True

    def check_disk(self) -> None:
        """Raises Sick if there is too little space for a job."""
        now = self._loop.time()
        if now - self._disk_checked_at >= _DISK_CHECK_S:
            self._disk_checked_at = now
            self._disk_is_low = None
            try:
                check_room(self._folder.path, self.free_min_bytes)
            except Sick as low:
                self._disk_is_low = low
        if self._disk_is_low is not None:
            raise Sick(self._disk_is_low.code, self._disk_is_low.message)

    def probe(self, report: Callable[[str], None]) -> None:
        """Try to start a program. `report` is called later with the reason of a failure; empty if it worked."""
        if self._report is not None or self._closed:
            return
        self._report = report
        self._disk_checked_at = -math.inf
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
            log.exception("probe of the machine failed")
            self._probed(repr(error))

    def ended(self, child: RunningProgram) -> None:
        why = child.why or f"a program that does nothing ended with exit code {child.exit_code}"
        try:
            self._folder.captures.give_back(child.capture, abandoned=child.abandoned)
        finally:
            self._probed(why if child.reason or child.exit_code else "")

    def _probed(self, why: str) -> None:
        report, self._report = self._report, None
        if report is not None and not self._closed:
            report(why)
