"""How often does a client try to fetch a part of a result, and when does it give up?

A download has a caller's thread of its own and no loop: the machine is for one download, and tells its `outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wakugumi.core.flows import Act, FlowDo, FlowEvent, Flows
from wakugumi.core.step import Step
from wakugumi.core.transfers.transfers import Outcome, RetryRule, Transfer, Transfers, TryAgain
from wakugumi.errors import Lost, Refused

DOWNLOAD_RETRY: Final = RetryRule(first_s=0.5, longest_s=8.0, tries_max=6)
"""With six tries a leader has a quarter of a minute to come back."""
_BUSY: Final = frozenset({"full", "blob-busy"})


class DownloadBlob(Act[None], frozen=True):
    """Fetch the content from where the last try ended, and verify it. Raises Lost or Refused."""


class DownloadMachine:
    """One download. See `core/step.py` for the four doors."""

    def __init__(self, now: float, chance: Callable[[], float]) -> None:
        self.outcome: Outcome[None] | None = None
        self._flows = Flows(now)
        self._transfers: Transfers[None, None] = Transfers(self._flows, DOWNLOAD_RETRY, chance)
        self._flows.start(self._run, "download")

    def handle(self, events: Sequence[FlowEvent], now: float) -> Step[None, FlowDo]:
        for event in events:
            self._flows.hear(event)
        return Step(do=self._flows.run(now))

    def tick(self, now: float) -> Step[None, FlowDo]:
        return Step(do=self._flows.run(now))

    def wake_at(self) -> float | None:
        return self._flows.wake_at()

    def check(self) -> None:
        self._flows.check()
        assert (self.outcome is None) == bool(self._flows.count)

    async def _run(self) -> None:
        self.outcome = await self._transfers.persist(Transfer(None, self._flows.now), self._try)

    async def _try(self, _transfer: Transfer[None, None]) -> None:
        try:
            await DownloadBlob()
        except Lost as error:
            raise TryAgain(error) from None
        except Refused as error:
            if error.code in _BUSY:
                raise TryAgain(error) from None
            raise
