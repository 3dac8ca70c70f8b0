"""Was a caller by line cut off that did nothing wrong, or one borne with that did; was anything left at the node?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.sim.checker import BROKEN, LEAKED, LOST, TWICE, Broken
from tests.sim.lines.caller import SLOW

from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.http import BODY_RECEIVED_MIN_S
from wakugumi.limits.node import RECEIVE_BYTES_PER_S_MIN, RECEIVE_GRACE_S
from wakugumi.limits.wire import DRAIN_DEADLINE_S

if TYPE_CHECKING:
    from tests.sim.lines.caller import LineVisit
    from tests.sim.lines.node import LineAtNode, LineNode, Said
    from tests.sim.lines.world import LineWorld

SOON_S: Final = 0.5


class LineJudge:
    """Of one world."""

    def __init__(self, world: LineWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._receiving: dict[LineAtNode, bool] = {}
        """Inputs on their way, and whether each is small."""
        self._losers: set[LineVisit] = set()
        self._ran_at: dict[int, float] = {}
        self._node_ended_at = -1.0
        self.open: dict[LineVisit, None] = {}

    def broken(self, visit: LineVisit | None, what: str, sort: str = BROKEN) -> None:
        raise Broken(None, what if visit is None else f"{visit.name} {visit.manner}: {what}", sort)

    @property
    def _now(self) -> float:
        return self._world.clock.now

    # Callers.

    def comes(self, visit: LineVisit) -> None:
        self.counts["visits"] += 1
        self.open[visit] = None

    def leaves(self, visit: LineVisit) -> None:
        self.open.pop(visit, None)

    def hears(self, visit: LineVisit, said: Said) -> None:
        self.counts[f"said: {said.word}"] += 1
        manner = visit.manner
        if said.word == "OK":
            if said.result != visit.want.result:
                self.broken(visit, f"gets {said.result[:20]!r}", TWICE)
        elif said.word == "too-slow":
            is_fine = manner.line == "whole" and manner.end == "whole" and manner.sends >= SLOW
            if is_fine and visit not in self._losers:
                self.broken(visit, "is told that it is slow")
        elif said.word == "bad-request" and (manner.is_honest or visit in self._losers):
            self.broken(visit, "is told that its request is bad")

    def torn(self, visit: LineVisit) -> None:
        """The node closed the connection before the caller had an answer."""
        self.counts["visits torn"] += 1
        is_unread = visit.manner.reads_late and visit.said is not None and visit.said.word != "OK"
        if visit.manner.is_honest and not is_unread:
            self.broken(visit, "is cut off")

    def cut_off(self, connection: LineAtNode, why: str) -> None:
        self.counts[f"cut off: {why}"] += 1
        if why == "slow" and connection.visit.manner.is_honest:
            self.broken(connection.visit, "is cut off as a slow reader")

    # Inputs.

    def receives(self, connection: LineAtNode, size: int) -> None:
        if len(connection.node.running) >= connection.node.limit:
            self.broken(connection.visit, "sends its input to a node without a slot")
        self._receiving[connection] = size <= INLINE_FILE_BYTES_MAX

    def received(self, connection: LineAtNode) -> None:
        self._receiving.pop(connection, None)
        visit, took_s = connection.visit, self._now - connection.began_at
        goal_s = visit.want.size / max(visit.manner.sends, SLOW)
        if connection.node.alive and took_s > goal_s + BODY_RECEIVED_MIN_S + SOON_S:
            self.broken(visit, f"was waited for {took_s:.0f} s")

    def not_received(self, connection: LineAtNode, size: int) -> None:
        self.counts["inputs refused as busy"] += 1
        for other, is_small in self._receiving.items():
            age_s = self._now - other.began_at
            is_slow = age_s > RECEIVE_GRACE_S + SOON_S and other.came / age_s < 0.9 * RECEIVE_BYTES_PER_S_MIN
            if is_small == (size <= INLINE_FILE_BYTES_MAX) and is_slow:
                self.broken(connection.visit, f"is refused, and {other.visit.name} sends slowly")

    def loses_slot(self, loser: LineAtNode) -> None:
        self.counts["slots lost"] += 1
        self._losers.add(loser.visit)
        age_s = self._now - loser.began_at
        if age_s <= RECEIVE_GRACE_S or loser.came / age_s >= RECEIVE_BYTES_PER_S_MIN:
            self.broken(loser.visit, f"loses its slot after {age_s:.1f} s and {loser.came} bytes")

    # Jobs.

    def runs(self, job: int) -> None:
        self.counts["runs"] += 1
        if (since := self._ran_at.get(job)) is not None and since > self._node_ended_at:
            self.broken(None, f"job{job} runs again without need", TWICE)
        self._ran_at[job] = self._now

    def refused_in_vain(self, connection: LineAtNode) -> None:
        """The node had the result when the request came."""
        if self._world.node.stopped_at is None and connection.visit not in self._losers:
            self.broken(connection.visit, "is told that the node is busy, which has the result")

    # The node.

    def stops(self, node: LineNode) -> None:
        life = node.life

        def look() -> None:
            if node.alive and node.life == life:
                self.broken(None, f"the node waits for {node.drain.answering} answers after its time")

        self._world.clock.after(DRAIN_DEADLINE_S + SOON_S, look)

    def drained(self, node: LineNode) -> None:
        assert node.stopped_at is not None
        self.counts["ends of the node in order"] += 1
        answering = sum(visit.said is not None and visit.said.word == "OK" for visit in self.open)
        if answering and self._now - node.stopped_at < DRAIN_DEADLINE_S - SOON_S and node.drain.answering:
            self.broken(None, f"the node ends and cuts off {node.drain.answering} answers")

    def node_ended(self) -> None:
        self.counts["ends of the node"] += 1
        self._node_ended_at = self._now
        self._receiving.clear()

    def look_at_the_end(self) -> None:
        world, node = self._world, self._world.node
        for caller in world.callers:
            if not caller.is_over:
                self.broken(None, f"{caller.name} has no answer after {caller.visits} visits", LOST)
        left = {
            "connections": len(node.connections),
            "visits": len(self.open),
            "receive slots": len(node.receive_slots),
            "answers": node.drain.answering,
            "flows": node.flows.count,
            "jobs": len(node.running),
        }
        if any(left.values()):
            self.broken(None, f"the node has left {left}", LEAKED)
        node.flows.check()
