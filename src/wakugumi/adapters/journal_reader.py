"""How are the payloads that are not in memory brought back? One thread, with a connection of its own."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeAlias

from wakugumi.adapters.journal_file import open_to_read, payloads_of, read_leaf
from wakugumi.core.job import JobId
from wakugumi.limits import MIB

log = logging.getLogger("wakugumi.journal")

LOADED_LEAVES: Final = 4
LOADED_BYTES_MAX: Final = 32 * MIB
"""Leaves that the reader keeps decoded: the jobs of one are asked for in small bites, one after the other."""

Loaded: TypeAlias = Callable[[dict[JobId, bytes]], None]


class Reader(threading.Thread):
    """Answers what is asked of single leaves."""

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        on_loaded: Callable[[int, Loaded, dict[JobId, bytes]], None],
    ) -> None:
        super().__init__(name="journal reader", daemon=True)
        self.queue: SimpleQueue[tuple[int, Sequence[JobId], Loaded] | None] = SimpleQueue()
        self._path = path
        self._loop = loop
        self._on_loaded = on_loaded
        self._leaves: OrderedDict[int, dict[JobId, bytes]] = OrderedDict()
        self._bytes: dict[int, int] = {}

    def run(self) -> None:
        with ExitStack() as to_close:
            base: sqlite3.Connection | None = None
            while (asked := self.queue.get()) is not None:
                leaf, jobs, done = asked
                found: dict[JobId, bytes] = {}
                try:
                    if base is None:
                        base = to_close.enter_context(closing(open_to_read(self._path)))
                    payloads = self._payloads(base, leaf)
                    found = {job: payloads[job] for job in jobs if job in payloads}
                except Exception as error:  # whatever it is, whoever asked must hear
                    log.error("leaf %d cannot be read: %s", leaf, error)
                with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                    self._loop.call_soon_threadsafe(self._on_loaded, leaf, done, found)

    def _payloads(self, base: sqlite3.Connection, number: int) -> dict[JobId, bytes]:
        known = self._leaves.get(number)
        if known is not None:
            self._leaves.move_to_end(number)
            return known
        found = payloads_of(read_leaf(base, self._path, number).records)
        self._leaves[number] = found
        self._bytes[number] = sum(map(len, found.values()))
        while len(self._leaves) > 1 and (
            len(self._leaves) > LOADED_LEAVES or sum(self._bytes.values()) > LOADED_BYTES_MAX
        ):
            oldest, _ = self._leaves.popitem(last=False)
            del self._bytes[oldest]
        return found
