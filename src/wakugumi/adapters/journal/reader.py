"""How are the payloads that are not in memory brought back? One thread, with a connection of its own.

A payload that is missing in the answer is gone for good, and its job with it. So only what was read, and is damaged or
not there, is missing. What could not be read is tried again for a while, and then the process ends: nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeAlias

from wakugumi.adapters.journal.file import Damaged, open_beside, payloads_of, read_leaf
from wakugumi.adapters.journal.writer import RETRY_FIRST_S, RETRY_MAX_S, failure, surprise
from wakugumi.core.ids import JobId
from wakugumi.errors import JournalError
from wakugumi.limits.units import MIB

log = logging.getLogger("wakugumi.journal")

LOADED_LEAVES: Final = 4
LOADED_BYTES_MAX: Final = 32 * MIB
"""Leaves that the reader keeps decoded: the jobs of one are asked for in small bites, one after the other."""
PATIENCE_S: Final = 10.0
"""How long to try: too many open files, or too little memory, pass; a disk that is gone does not."""

Loaded: TypeAlias = Callable[[dict[JobId, bytes]], None]


class LeafReader(threading.Thread):
    """Answers what is asked of single leaves."""

    def __init__(
        self,
        path: Path,
        factory: type[sqlite3.Connection],
        loop: asyncio.AbstractEventLoop,
        on_loaded: Callable[[int, Loaded, dict[JobId, bytes]], None],
        on_failure: Callable[[JournalError], None],
    ) -> None:
        """Opens the file, while there are few who could have taken the means for it. Raises ConfigError."""
        super().__init__(name="journal reader", daemon=True)
        self.queue: SimpleQueue[tuple[int, Sequence[JobId], Loaded] | None] = SimpleQueue()
        self.closing = threading.Event()
        self._path = path
        self._factory = factory
        self._loop = loop
        self._on_loaded = on_loaded
        self._on_failure = on_failure
        self._leaves: OrderedDict[int, dict[JobId, bytes]] = OrderedDict()
        self._bytes: dict[int, int] = {}
        self._base: sqlite3.Connection | None = open_beside(path, factory)

    def run(self) -> None:
        try:
            while (asked := self.queue.get()) is not None:
                leaf, jobs, done = asked
                payloads = self._insist(leaf)
                if payloads is None:
                    return
                self._tell(self._on_loaded, leaf, done, {job: payloads[job] for job in jobs if job in payloads})
        except Exception as error:
            log.critical("the journal %s cannot be read: %s", self._path, error, exc_info=surprise(error))
            self._tell(self._on_failure, failure(self._path, "read", error))
        finally:
            self._let_go()

    def _insist(self, leaf: int) -> dict[JobId, bytes] | None:
        """What is in this leaf. None if it was closed before it could be read. Raises what is in the way for long."""
        until = time.monotonic() + PATIENCE_S
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return self._payloads(leaf)
            except Damaged as damaged:
                log.error("leaf %d cannot be read: %s", leaf, damaged)
                return {}
            except Exception as error:  # whatever it is, it says nothing about the jobs
                if time.monotonic() + pause_s > until:
                    raise
                if pause_s == RETRY_FIRST_S:
                    log.warning("leaf %d cannot be read for now, and is tried again: %s", leaf, error)
            self._let_go()
            if self.closing.wait(pause_s):
                return None
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    def _payloads(self, number: int) -> dict[JobId, bytes]:
        known = self._leaves.get(number)
        if known is not None:
            self._leaves.move_to_end(number)
            return known
        if self._base is None:
            self._base = open_beside(self._path, self._factory)
        found = payloads_of(read_leaf(self._base, self._path, number).records)
        self._leaves[number] = found
        self._bytes[number] = sum(map(len, found.values()))
        while len(self._leaves) > 1 and (
            len(self._leaves) > LOADED_LEAVES or sum(self._bytes.values()) > LOADED_BYTES_MAX
        ):
            oldest, _ = self._leaves.popitem(last=False)
            del self._bytes[oldest]
        return found

    def _let_go(self) -> None:
        base, self._base = self._base, None
        if base is not None:
            with suppress(sqlite3.Error):
                base.close()

    def _tell(self, function: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            self._loop.call_soon_threadsafe(function, *args)
