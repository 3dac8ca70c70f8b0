"""Is a node well, and how many jobs may it get? (SPEC G1, G4)

free slots      become credit of the leader, after each answered poll and each ended job
no answer       the node rests until the next poll, with a backoff
declined        the node reported a free slot and had none: it rests, with a backoff
node's fault    after an answer that no healthy node gives, the node rests with a backoff, then gets one job at a
                time for a while
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wakugumi.core.backoff import backoff_s
from wakugumi.core.leader.events import Credited, Described, PeerHeard, Rested
from wakugumi.core.leader.nodes.events import NodeReport
from wakugumi.core.leader.nodes.state import NodeState
from wakugumi.core.step import INFO, WARNING
from wakugumi.core.visible_text import readable
from wakugumi.limits.http import CALLS_MAX
from wakugumi.limits.node import NODE_POLL_S
from wakugumi.limits.scheduling import CREDIT_MAX

_TRIAL_S: Final = 10.0
"""After a rest for its own fault, a node gets one job at a time for so long, or until one ends without its fault. Most
faults show at once, and a node with long jobs must not run only one of them for hours."""
_NOT_YET: Final = "it has not answered yet"


class NodeHealth:
    """The health of one node, and the credit that follows from it."""

    def __init__(self, state: NodeState, wake: Callable[[], None]) -> None:
        """`wake` is called when the next poll may be due earlier."""
        self._state = state
        self._flows = state.flows
        self._wake = wake
        self.offered = 0
        """Credit that the leader has not used yet."""
        self.report = NodeReport(0, 0)
        """The last report of the node, less the jobs that have ended since."""
        self._others = 0
        """Jobs in the last report that this leader did not send, as far as it can tell."""
        self.rests = _NOT_YET
        self.alive_at = self._flows.now
        self._failures = 0
        """Consecutive failures to reach the node."""
        self._away_until = 0.0
        """Time of the next poll while `_failures` is above 0."""
        self._declines = 0
        """Jobs that the node declined as busy since its last finished job, although it had reported free slots."""
        self._faults = 0
        """Jobs that failed by the node's fault since its last good answer. A poll does not reset this."""
        self._rest_until = 0.0
        """The node gets no job before this time, because of `_declines` or `_faults`."""

    def joined(self) -> None:
        """The leader knows no credit of this connection. The node rests until its first answer."""
        self._rest(self.rests or _NOT_YET)

    # Answers of the node.

    def reported(self, report: NodeReport, own: int) -> None:
        """The answer of a poll. `own`: jobs sent before the poll began; later ones may not be counted."""
        known, conn = self.report, self._state.conn
        if (report.as_root, report.env) != (known.as_root, known.env):
            # Posted before any credit: the node may have another version now.
            self._state.emit(Described(conn, report.as_root, report.env))
        self.report = report
        self._others = max(0, report.running - own)
        self._mark_alive()
        self._state.emit(PeerHeard(conn, 0.0))

    def heard(self) -> None:
        """Bytes of an answer were received: a sign of life also of a node that misses polls."""
        self.alive_at = self._flows.now

    def refused_envelope(self) -> None:
        """The node knows no envelopes, whatever it reported: it may have an earlier version now."""
        self.report = self.report._replace(takes_envelopes=False)

    def ended(self) -> None:
        """A job is no longer at the node."""
        self.report = self.report._replace(running=max(0, self.report.running - 1))

    def answered(self, fault: str) -> None:
        """The node ended a job. `fault` is why the node is to blame for its failure, if it is."""
        self._mark_alive()
        self._declines = 0
        if fault:
            self.faulty(fault)
        else:
            self._faults = 0

    def busy(self, why: str) -> None:
        """The node declined a job although it had reported a free slot."""
        now = self._flows.now
        if self._rest_until <= now:  # Several declined at once count as one.
            self._declines += 1
            self._rest_until = now + backoff_s(self._declines, self._state.chance())
        self._rest(why)

    def faulty(self, why: str) -> None:
        """The node answers, but its disk or its programs fail."""
        now = self._flows.now
        if self._rest_until <= now:
            self._faults += 1
            self._rest_until = now + backoff_s(self._faults, self._state.chance())
            self._state.log(WARNING, f"node rests node={self._state.url}: {readable(why)}")
        self._rest(why)

    def failed(self, why: str) -> None:
        """The node cannot be reached."""
        now = self._flows.now
        if self._away_until <= now or not self._failures:
            if not self._failures:
                self._state.log(WARNING, f"node is out of order node={self._state.url}: {readable(why)}")
            self._failures += 1
            self._away_until = now + backoff_s(self._failures, self._state.chance())
        self._rest(why)

    # Consequences.

    def poll_s(self) -> float:
        """Seconds until the next poll."""
        now = self._flows.now
        if self._failures:
            return max(0.0, self._away_until - now)
        return min(NODE_POLL_S, self._rest_until - now) if self._rest_until > now else NODE_POLL_S

    def offer(self, running: int, known: int) -> None:
        """Post free slots as credit, unless the node rests. Jobs of other leaders use slots, too. `known`: jobs that
        the node may have, running or not."""
        now = self._flows.now
        if self._failures or self._rest_until > now:
            return
        if self.rests:
            if self.rests == _NOT_YET:
                self._state.log(INFO, f"node joined node={self._state.url} slots={self.report.limit}")
            self.rests = ""
            self._state.emit(Rested(self._state.conn, ""))
        limit = min(self.report.limit, CREDIT_MAX, CALLS_MAX)  # Each job needs a connection.
        amount = limit - max(self.report.running, self._others + running) - self.offered
        if self._faults and now < self._rest_until + _TRIAL_S:
            amount = min(amount, 1 - running - self.offered)
        if amount > 0:
            self.offered += amount
            self._state.emit(Credited(self._state.conn, amount, self.offered + known))

    def assigned(self) -> None:
        """The leader used some credit, if it was not void."""
        self.offered = max(0, self.offered - 1)

    def check(self) -> None:
        assert self.offered >= 0
        assert not (self.rests and self.offered), "credit of a node that rests"
        assert not (self._failures and not self.rests)

    def _mark_alive(self) -> None:
        self.alive_at = self._flows.now
        if self._failures:
            self._failures = self._faults = 0  # The node may have been restarted.
            self._state.log(INFO, f"node is back node={self._state.url}")

    def _rest(self, why: str) -> None:
        self._wake()
        self.rests = readable(why)
        self.offered = 0
        self._state.emit(Rested(self._state.conn, self.rests))
