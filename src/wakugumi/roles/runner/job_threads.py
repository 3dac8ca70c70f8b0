"""Where is work done that would keep the loop from its connections? In threads that are there from the start."""

from __future__ import annotations

import asyncio
from typing import Final

from wakugumi.adapters.loop.threads import started_pool
from wakugumi.errors import ConfigError

THREADS: Final = 2
"""For inputs and results that take longer than a millisecond, and as many for those that take longer than seconds:
packing leaves the interpreter's lock alone, so two keep two CPUs busy."""


class JobThreads:
    """Two pools: what takes hours waits for its like, and nobody else waits for it."""

    def __init__(self) -> None:
        """Raises ConfigError. All threads are started now: the end of a job must not need a new one."""
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
        """What has begun is brought to its end."""
        for pool in (self.small, self.large):
            try:
                await asyncio.to_thread(pool.shutdown)
            except RuntimeError:  # No thread can be started: then the loop waits for them.
                pool.shutdown()
