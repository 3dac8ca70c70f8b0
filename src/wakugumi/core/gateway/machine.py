"""What does a gateway do next? The state machine of one gateway, with the four doors of `core/step.py`.

    requests ──► flights ──► forward ──► tries at groups        each job is one flow from group to group
        └──────► rows of the store ◄── housekeeping             what all gateways of a store share

Nothing outlives the process but the rows. Another gateway on the store goes on with jobs that were accepted for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wakugumi.core.flows import ActFailed, Answered
from wakugumi.core.gateway.events import (
    CallerLeft,
    GatewayDo,
    GatewayEvent,
    GatewayLeft,
    GatewayStarts,
    GatewayStops,
    HeadCame,
    JobAsked,
    JobSubmitted,
)
from wakugumi.core.gateway.flights import Flights
from wakugumi.core.gateway.groups import Groups
from wakugumi.core.gateway.housekeeping import Housekeeper
from wakugumi.core.gateway.requests import GatewayRequests
from wakugumi.core.gateway.state import GatewayBounds, GatewayState
from wakugumi.core.gateway.tries import Tries
from wakugumi.core.step import Step


class GatewayMachine:
    """One gateway. See `core/step.py` for the four doors."""

    def __init__(
        self,
        owner: str,
        groups: Groups,
        bounds: GatewayBounds,
        *,
        job_s_of: Callable[[str], float],
        chance: Callable[[], float],
        now: float,
    ) -> None:
        """`job_s_of` returns the time that a job with this query may run."""
        self.state = GatewayState(owner, groups, bounds, job_s_of, chance, now)
        self._flows = self.state.flows
        self.tries = Tries(self.state)
        self.flights = Flights(self.state, self.tries)
        self.requests = GatewayRequests(self.state, self.flights)
        self.keeper = Housekeeper(self.state, self.flights)
        self._leaves = False

    def handle(self, events: Sequence[GatewayEvent], now: float) -> Step[None, GatewayDo]:
        self._flows.now = now
        for event in events:
            match event:
                case Answered() | ActFailed():
                    self._flows.hear(event)
                case JobSubmitted():
                    self.requests.submit(event)
                case JobAsked():
                    self.requests.ask(event)
                case HeadCame():
                    self.tries.head_came(event.number)
                case CallerLeft():
                    self.requests.left(event.request)
                case GatewayStarts():
                    self._start()
                case GatewayStops():
                    self._stop(leaves=event.leaves)
        return self._step(now)

    def tick(self, now: float) -> Step[None, GatewayDo]:
        return self._step(now)

    def wake_at(self) -> float | None:
        return self._flows.wake_at()

    def check(self) -> None:
        self._flows.check()
        self.tries.check()
        self.flights.check()
        self.requests.check()

    def close(self) -> None:
        """Ends all flows where they rest."""
        self._flows.close()

    def _start(self) -> None:
        look_s = self.state.bounds.look_s
        self.tries.start()
        self.keeper.start()
        self.state.start_often(self.flights.look, look_s, "look for jobs that ended elsewhere failed")
        self.state.start_often(self.requests.look, look_s, "look for clients that left failed")

    def _stop(self, *, leaves: bool) -> None:
        self.state.is_stopping = True
        if leaves:
            self._leaves = True
            self.requests.stop()
            for flight in self.flights.by_job.values():
                if flight.flow is not None:
                    flight.flow.cancel()

    def _step(self, now: float) -> Step[None, GatewayDo]:
        do = self._flows.run(now)
        if self._leaves and not self.flights.by_job:
            self._leaves = False
            do.append(GatewayLeft())
        return Step(do=do)
