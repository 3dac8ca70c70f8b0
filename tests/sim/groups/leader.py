"""A leader as a group: callers by HTTP in front, nodes by address behind; all machines are real."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tests.sim.callers.leader import HttpLeader
from tests.sim.nodes.jobs import NodeWant
from tests.sim.nodes.leader import NodeLeader, NodePart
from tests.sim.nodes.node import SimNode

from wakugumi.core.ids import ConnId

if TYPE_CHECKING:
    from tests.sim.groups.world import GroupWorld
    from tests.sim.nodes.world import NodeWorld


class GroupLeader(HttpLeader):
    """The leader of a world, with the part of each node in it."""

    def __init__(self, world: GroupWorld) -> None:
        super().__init__(world)
        self.nodes: list[GroupPart] = []
        self.troubled_at = -1.0

    def was_troubled_since(self, at: float) -> bool:
        return not self.is_listening or self.paused or self.troubled_at >= at

    def born(self) -> None:
        super().born()
        for part in self.nodes:
            part.start()

    def died(self, power: bool) -> None:
        self.troubled_at = self.clock.now
        super().died(power)
        for part in self.nodes:
            part.die(power=False)

    def pause(self) -> None:
        super().pause()
        for part in self.nodes:
            part.pause()

    def resume(self) -> None:
        if self.paused:
            self.troubled_at = self.clock.now
        super().resume()
        for part in self.nodes:
            part.resume()


class GroupPart(NodePart):
    """One node in the leader's process."""

    def __init__(self, leader: GroupLeader, node: SimNode) -> None:
        super().__init__(cast(NodeLeader, leader), node)
        self._group = leader

    def new_conn(self) -> ConnId:
        conn = self._group.new_conn()
        self._group.workers[conn] = self
        return conn

    def drop_conn(self) -> None:
        del self._group.workers[self.conn]


class GroupNode(SimNode):
    """A node whose programs are those of the world's callers."""

    def __init__(self, world: GroupWorld, number: int, limit: int, *, keeps: bool) -> None:
        super().__init__(cast("NodeWorld", world), number, limit, keeps=keeps)
        self._here = world

    def want_in(self, payload: bytes) -> NodeWant:
        fails = self._here.faults.random() < self._here.fails
        return NodeWant(0, payload.decode(), self._here.random.choice(self._here.takes_s), fails=fails)

    def is_bad(self, payload: bytes) -> bool:
        """The leader has checked the requests of its callers."""
        del payload
        return False
