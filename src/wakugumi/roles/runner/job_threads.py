"""Where is work done that would block the loop? In threads that exist from the start."""

from __future__ import annotations

import asyncio
from typing import Final

from wakugumi.adapters.loop.threads import started_pool
from wakugumi.errors import ConfigError

THREADS: Final = 2
"""Threads per pool. Packing releases the interpreter's lock, so two threads keep two CPUs busy."""


class JobThreads:
    """Two pools: work of hours waits in `large` and never delays the short work in `small`."""

    def __init__(self) -> None:
        """Start all threads: the end of a job must not need a new one. Raises ConfigError."""
        try:
            self.small = started_pool(THREADS, "waku-jobdir")
            try:
                self.large = started_pool(THREADS, "waku-large")
            except RuntimeError:
                self.small.shutdown()
                raise
        except RuntimeError as error:
            raise ConfigError(
                f"the worker cannot start its {2 * THREADS} threads: {error}",
                "look at `ulimit -u`, `ulimit -v` and the control group's pids.max and memory.max",
            ) from None

    async def close(self) -> None:
        """Wait for work that has begun."""
        for pool in (self.small, self.large):
            try:
                await asyncio.to_thread(pool.shutdown)
            except RuntimeError:  # No thread for the wait can be started: wait in the loop.
                pool.shutdown()
