"""How are payloads loaded that are not in memory? By one thread with its own connection.

A payload missing in the answer is lost for good, and its job with it. Only a payload that was read and is damaged or
absent is therefore missing. Other errors are retried for a while, and then the process ends, so that no job is lost.
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
"""Decoded leaves that the reader keeps: the jobs of one leaf are loaded in several small requests."""
PATIENCE_S: Final = 10.0
"""How long to retry: a shortage of open files or memory passes, a lost disk does not."""

Loaded: TypeAlias = Callable[[dict[JobId, bytes]], None]


class LeafReader(threading.Thread):
    """Loads payloads from single leaves."""

    def __init__(
        self,
        path: Path,
        factory: type[sqlite3.Connection],
        loop: asyncio.AbstractEventLoop,
        on_loaded: Callable[[int, Loaded, dict[JobId, bytes]], None],
        on_failure: Callable[[JournalError], None],
    ) -> None:
        """Opens the file at once, while few others use descriptors and memory. Raises ConfigError."""
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
            while (request := self.queue.get()) is not None:
                leaf, jobs, done = request
                payloads = self._load_patiently(leaf)
                if payloads is None:
                    return
                self._call_in_loop(self._on_loaded, leaf, done, {job: payloads[job] for job in jobs if job in payloads})
        except Exception as error:
            log.critical("journal not readable path=%s: %s", self._path, error, exc_info=surprise(error))
            self._call_in_loop(self._on_failure, failure(self._path, "read", error))
        finally:
            self._close_base()

    def _load_patiently(self, leaf: int) -> dict[JobId, bytes] | None:
        """Payloads of this leaf. None if closed before they could be read. Raises a lasting error."""
        until = time.monotonic() + PATIENCE_S
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return self._payloads(leaf)
            except Damaged as damaged:
                log.error("leaf damaged leaf=%d: %s", leaf, damaged)
                return {}
            except Exception as error:  # No error here says anything about the jobs.
                if time.monotonic() + pause_s > until:
                    raise
                if pause_s == RETRY_FIRST_S:
                    log.warning("leaf not readable, is tried again leaf=%d: %s", leaf, error)
            self._close_base()
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

    def _close_base(self) -> None:
        base, self._base = self._base, None
        if base is not None:
            with suppress(sqlite3.Error):
                base.close()

    def _call_in_loop(self, function: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(function, *args)
