"""One seed, one world of a group: callers by HTTP want jobs of a leader, and nodes that it knows by address run them.

    callers ◄── HTTP ──► sessions │ the leader's machine │ the machine of each node ◄── HTTP ──► nodes

All faults of callers, leaders and nodes may come together. A third of the worlds is calm.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.sim.callers.judge import CallersJudge
from tests.sim.callers.leader import HttpLeader
from tests.sim.callers.world import FAULTS, CallersWorld
from tests.sim.groups.judge import GroupJudge
from tests.sim.groups.leader import GroupLeader, GroupNode, GroupPart

from wakugumi.core.requirements import Requirements

NODE_FAULTS: Final = (
    *("node killed", "node stopped", "node paused", "node hangs", "node refuses", "node lies", "node slow"),
    *("node stalls", "node forgets", "node fails"),
)


class GroupWorld(CallersWorld):
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    name = "groups"
    fault_kinds = tuple(kind for kind in FAULTS if kind != "worker lost") + NODE_FAULTS
    requirements = Requirements(by_http=True, simple=True)
    drain_s = 1_500.0
    settle_s = 150.0
    nodes: list[GroupNode]
    parts: list[GroupPart]
    slow_share = 0.0
    versions: Random
    """Which nodes take envelopes."""

    def make_judge(self) -> CallersJudge:
        return GroupJudge(self)

    def make_leader(self) -> HttpLeader:
        random = self.random
        leader = GroupLeader(self)
        self.slow_share = random.choice([0.0, 0.0, 0.2])
        self.versions = Random(f"groups-versions-{self.seed}")
        self.nodes = [
            GroupNode(self, number, random.randint(1, 4), keeps=random.random() < 0.5)
            for number in range(random.randint(1, 3))
        ]
        self.parts = leader.nodes = [GroupPart(leader, node) for node in self.nodes]
        return leader

    def make_workers(self) -> None:
        """Nodes are the workers."""

    def befall_others(self, kind: str, last_s: float) -> None:
        random, node = self.faults, self.faults.choice(self.nodes)
        if kind != "node stopped":
            node.troubled_at = self.clock.now
        self.judge.counts[f"met: {kind}"] += bool(node.running)
        node.befall(kind, random, random.choice([last_s, 45.0 * random.random()]))

    def heal_others(self) -> None:
        for node in self.nodes:
            node.heal()
