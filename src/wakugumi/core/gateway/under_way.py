"""Which jobs are under way at a gateway, and which are in line?"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from wakugumi.core.flows import Flow, Promise
from wakugumi.core.gateway.bodies import Body
from wakugumi.core.gateway.forward import Parcel
from wakugumi.core.gateway.outcomes import GONE, Outcome, outcome_of
from wakugumi.core.gateway.rows import GatewayJob
from wakugumi.core.gateway.state import GatewayState
from wakugumi.core.ids import JobId


class Flight:
    """One job that this gateway forwards."""

    def __init__(self, state: GatewayState, row: GatewayJob, parcel: Parcel, body: Body | None) -> None:
        self._state = state
        self.row = row
        self.parcel = parcel
        self.body = body
        """The body being received; None if the body is in the row."""
        self.outcome: Promise[Outcome] = Promise(state.flows)
        self.flow: Flow[None] | None = None
        self.streamed = 0
        """The try whose large answer is read while it is received; 0 for none."""
        self.is_ending = False
        """The outcome is being written to the store."""

    @property
    def request(self) -> str:
        """The digest of the request; empty until the body is whole."""
        return "" if self.body is None else self.body.digest

    @property
    def known_row(self) -> GatewayJob:
        """The row with the digest of the request, also before it is stored."""
        return replace(self.row, request=self.row.request or self.request)

    def is_of(self, row: GatewayJob | None) -> bool:
        """Is it still the row of this job? Another client may have taken the id of a row that was dropped."""
        return row is not None and row.client == self.row.client

    def outcome_in(self, row: GatewayJob | None) -> Outcome:
        return outcome_of(row) if row is not None and self.is_of(row) else GONE

    def take_back(self) -> None:
        """The outcome will not be whole. A request that has begun to read it is cut off; later requests wait."""
        if self.outcome.is_kept:
            self.outcome = Promise(self._state.flows)


class JobQueue:
    """Jobs in line, each once, with a fast test of membership."""

    def __init__(self) -> None:
        self._line: deque[JobId] = deque()
        self._members: set[JobId] = set()

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, job: JobId) -> bool:
        return job in self._members

    def append(self, job: JobId) -> None:
        if job not in self._members:
            self._members.add(job)
            self._line.append(job)

    def popleft(self) -> JobId:
        job = self._line.popleft()
        self._members.remove(job)
        return job
