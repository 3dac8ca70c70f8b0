"""The rules for callers and the rules for nodes, in one world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tests.sim.callers.judge import CallersJudge
from tests.sim.checker import Broken
from tests.sim.nodes.judge import NodeJudge

from wakugumi.core.ids import JobId

if TYPE_CHECKING:
    from tests.sim.groups.world import GroupWorld
    from tests.sim.nodes.jobs import NodeWant
    from tests.sim.nodes.leader import AnswerOnItsWay, NodeLeader, NodePart
    from tests.sim.nodes.node import SimNode
    from tests.sim.nodes.world import NodeWorld


class GroupJudge(CallersJudge):
    """Of one world."""

    def __init__(self, world: GroupWorld) -> None:
        super().__init__(world)
        self._group = world
        self._nodes = NodeJudge(cast("NodeWorld", world))
        self._nodes.counts = self.counts
        self._last_runs: dict[JobId, tuple[float, SimNode]] = {}

    def runs(self, job: JobId, body: Any, node: SimNode | None = None) -> int:
        assert node is not None
        want = cast("NodeWant", body)
        if (before := self._last_runs.get(job)) is not None:
            since, last = before
            is_excused = last.was_troubled_since(since) or node.was_troubled_since(since)
            world = self._group
            others = len([one for one in world.wants if one.job == job]) > 1
            if not is_excused and not world.leader.was_troubled_since(since) and not others and not world.is_stormy:
                raise Broken(job, f"{want.body} runs at {node.name}, and ran at {last.name} since {since:.3f}")
        self._last_runs[job] = self._group.clock.now, node
        self.excuse(job)
        return super().runs(job, want.body.encode())

    def cancels(self, job: JobId) -> None:
        super().cancels(job)
        self._nodes.cancels(job)

    # Of nodes.

    def error(self, text: str) -> None:
        self._nodes.error(text)

    def complained(self, text: str) -> None:
        self._nodes.complained(text)

    def cut_off(self, part: NodePart, job: JobId, answer: AnswerOnItsWay) -> None:
        self._nodes.cut_off(part, job, answer)

    def look_at_the_end(self) -> None:
        super().look_at_the_end()
        leader = self._group.leader
        for part in self._group.parts:
            self._nodes.look_at_part(cast("NodeLeader", leader), part)
