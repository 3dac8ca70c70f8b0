"""What do all parts of the gateway's machine share? Flows, groups, bounds, and the way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from wakugumi.core.flows import Flow, Flows
from wakugumi.core.gateway.events import DropFiles, FlushRows
from wakugumi.core.gateway.groups import Groups
from wakugumi.core.step import ERROR, WARNING, LogLine
from wakugumi.errors import Refused
from wakugumi.limits.gateway import (
    GATEWAY_KEPT_BYTES,
    GATEWAY_KEPT_MAX,
    GATEWAY_KEPT_S,
    GATEWAY_LEASE_S,
    GATEWAY_LOOK_S,
    GATEWAY_SILENCE_S,
    GATEWAY_STRANDED_S,
    GATEWAY_SUBMITS_MAX,
    GATEWAY_SWEEP_S,
    GATEWAY_TIDY_S,
    GATEWAY_TRY_S,
    GROUP_ANSWER_S,
    GROUP_POLL_S,
)
from wakugumi.limits.wire import HEARTBEAT_S

_AGAIN_S: Final = 1.0
"""Pause before a retry after a failure, unless the work is done more often anyway."""


class GatewayBounds(NamedTuple):
    """Times and numbers of one gateway; the limits have their reasons."""

    poll_s: float = GROUP_POLL_S
    answer_s: float = GROUP_ANSWER_S
    try_s: float = GATEWAY_TRY_S
    silence_s: float = GATEWAY_SILENCE_S
    look_s: float = GATEWAY_LOOK_S
    lease_s: float = GATEWAY_LEASE_S
    kept_s: float = GATEWAY_KEPT_S
    kept_bytes: int = GATEWAY_KEPT_BYTES
    kept_max: int = GATEWAY_KEPT_MAX
    stranded_s: float = GATEWAY_STRANDED_S
    tidy_s: float = GATEWAY_TIDY_S
    sweep_s: float = GATEWAY_SWEEP_S
    heartbeat_s: float = HEARTBEAT_S
    submits_max: int = GATEWAY_SUBMITS_MAX


class GatewayState:
    """Shared by the parts of one gateway."""

    def __init__(
        self,
        owner: str,
        groups: Groups,
        bounds: GatewayBounds,
        job_s_of: Callable[[str], float],
        chance: Callable[[], float],
        now: float,
    ) -> None:
        self.owner = owner
        self.groups = groups
        self.bounds = bounds
        self.job_s_of = job_s_of
        """The time that a job with this query may run, with all its retries."""
        self.chance = chance
        self.flows = Flows(now)
        self.is_stopping = False

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Flow[None]:
        """Starts a flow. An unforeseen error ends the flow and nothing else: it is logged."""
        return self.flows.start(partial(self._guarded, work, name), name)

    def start_often(self, work: Callable[[], Awaitable[None]], every_s: float, failed: str) -> None:
        """Starts work that is done again and again, whatever fails."""

        async def often() -> None:
            while True:
                pause_s = every_s
                try:
                    await work()
                except Refused as error:
                    self.log(WARNING, f"{failed}: {error}")
                    pause_s = min(every_s, _AGAIN_S)
                except Exception as error:
                    self.log(ERROR, failed, error)
                    pause_s = min(every_s, _AGAIN_S)
                await self.flows.pause(pause_s)

        self.flows.start(often, failed)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        try:
            await work()
        except Exception as error:
            self.log(ERROR, f"flow failed flow={name!r}", error)

    def log(self, level: int, text: str, error: Exception | None = None) -> None:
        self.flows.emit(LogLine(level, text, error))

    def drop_files(self, names: set[str]) -> None:
        if names:
            self.flows.emit(DropFiles(tuple(sorted(names))))

    def drop_files_later(self, names: set[str]) -> None:
        """Removes files once their end is on the disk: otherwise power loss would leave a job without its body."""

        async def drop() -> None:
            try:
                await FlushRows()
                self.drop_files(names)
            except Refused as error:
                self.log(WARNING, f"files not removed: {error}")

        if names:
            self.start(drop, "drop files")
