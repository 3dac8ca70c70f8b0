"""One seed, one world of leaders that know nodes by address: leaders share the nodes, and have clients of their own.

    plan ──► live through it: jobs come, faults come ──► heal ──► drain ──► nothing is owed, lost or left

A third of the worlds is calm: no fault happens, and then no job may run twice.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Final

from tests.sim.clock import Clock
from tests.sim.nodes.client import NodeClient
from tests.sim.nodes.jobs import NodeWant
from tests.sim.nodes.judge import NodeJudge
from tests.sim.nodes.leader import NodeLeader
from tests.sim.nodes.node import SimNode
from tests.sim.process import DOOMS, Process
from tests.sim.story import Story

from wakugumi.core.ids import JobId

CALM_SHARE: Final = 1 / 3
LIVE_S: Final = 60.0
DRAIN_S: Final = 1_500.0
"""Attempts with their backoffs, a node's longest rests, several times over."""
SETTLE_S: Final = 150.0
"""Time for polls after the last answer: a node's longest rest, twice."""
FAULTS: Final = (
    *("node killed", "node stopped", "node paused", "node hangs", "node refuses", "node lies", "node slow"),
    *(
        "node stalls",
        "node forgets",
        "node fails",
        "leader killed",
        "leader doomed",
        "leader paused",
        "disk slow",
        "job cancelled",
    ),
)


class NodeWorld:
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    def __init__(self, seed: int, *, story: Story | None = None) -> None:
        self.seed = seed
        self.story = story
        self.random = random = Random(f"nodes-{seed}")
        self.faults = Random(f"nodes-faults-{seed}")
        self.versions = Random(f"nodes-versions-{seed}")
        self.clock = Clock()
        self.began_at = self.clock.now
        self.turn_s = random.choice([0.0, 0.001, 0.02])
        self.is_stormy = random.random() >= CALM_SHARE
        self.judge = self.checker = NodeJudge(self)
        self.nodes = [
            SimNode(self, number, random.randint(1, 4), keeps=random.random() < 0.5)
            for number in range(random.randint(1, 3))
        ]
        self.leaders = [NodeLeader(self, number) for number in range(random.choice([1, 1, 2]))]
        self.clients = [NodeClient(self, number, random.choice(self.leaders)) for number in range(random.randint(1, 3))]
        self._comes_s = random.choice([LIVE_S * 0.8, 2.0])
        """Time in which all jobs come."""
        self._by_job: dict[JobId, list[tuple[NodeClient, NodeWant]]] = {}
        self._plan = [self._draw(number) for number in range(1, random.randint(3, 40))]
        self._looks = random.random() < 0.3
        self.slow_share = random.choice([0.0, 0.0, 0.2])
        """Share of answers that take long on their way, and are not late."""
        self.kinds = [kind for kind in FAULTS if self.faults.random() < 0.5] if self.is_stormy else []

    def run(self) -> Counter[str]:
        for leader in self.leaders:
            leader.start()
        for client in self.clients:
            client.connect()
        for client, want in self._plan:
            self.clock.after(self._comes_s * self.random.random(), lambda c=client, w=want: c.hand_in(w))  # type: ignore[misc]
        for _ in range(self.faults.randint(1, 16) if self.kinds else 0):
            self.clock.after(LIVE_S * self.faults.random(), self._befall)
        for _ in range(self.versions.choice([0, 0, 1, 3]) if self.is_stormy else 0):
            self.clock.after(LIVE_S * self.versions.random(), self._replace)
        self.clock.run_until(self.clock.now + LIVE_S)
        self._heal()
        self.clock.run_until(self.clock.now + DRAIN_S, lambda: not any(client.open for client in self.clients))
        self.clock.run_until(self.clock.now + SETTLE_S)
        self.judge.look_at_the_end()
        counts = self.judge.counts
        counts["worlds"] = 1
        counts["jobs"] = len(self._by_job)
        counts["virtual seconds"] = int(self.clock.now - self.began_at)
        for leader in self.leaders:
            leader.die(power=False)
        return counts

    def clients_of(self, job: JobId) -> list[NodeClient]:
        return [client for client, _ in self._by_job[job]]

    def is_shared(self, job: JobId) -> bool:
        """Do several requests use this id?"""
        return len({want for _, want in self._by_job[job]}) > 1

    def tell(self, who: str, what: str, about: Any) -> None:
        if self.story is not None:
            self.story.add(self.clock.now, who, what, about)

    def looks_closely(self) -> bool:
        return self._looks

    def process_died(self, process: Process) -> None:
        self.clock.after(1.0 + 20.0 * self.faults.random(), lambda: None if process.alive else process.start())

    def _draw(self, number: int) -> tuple[NodeClient, NodeWant]:
        random = self.random
        client = random.choice(self.clients)
        if number > 1 and random.random() < 0.05:
            other = random.randrange(1, number)
            known = self._by_job.get(NodeWant(other, "", 0.0).job, [])
            number = number if client in [one for one, _ in known] else other
        kind = random.random()
        want = NodeWant(
            number,
            "body" if random.random() < 0.95 else "other",
            random.choice([0.05, 0.5, 2.0, 10.0]) * (0.1 + random.random()),
            fails=kind < 0.05,
            is_endless=0.05 <= kind < 0.12,
            is_poison=self.is_stormy and 0.12 <= kind < 0.13,
            is_bad=self.versions.random() < 0.03,
        )
        known = self._by_job.setdefault(want.job, [])
        if known and random.random() < 0.7:
            want = known[0][1]
        known.append((client, want))
        return client, want

    # Faults.

    def _befall(self) -> None:
        random, kind = self.faults, self.faults.choice(self.kinds)
        self.judge.counts[f"fault: {kind}"] += 1
        self.tell("world", kind, None)
        node, leader = random.choice(self.nodes), random.choice(self.leaders)
        last_s = random.choice([1.0, 5.0, 45.0]) * random.random()
        if kind.startswith("node"):
            if kind != "node stopped":
                node.troubled_at = self.clock.now
            if node.running:
                self.judge.counts[f"met: {kind}"] += 1
        elif leader.has_work():
            self.judge.counts[f"met: {kind}"] += 1
        match kind:
            case "leader killed":
                leader.die(power=False)
            case "leader doomed" if leader.alive:
                leader.doom = random.choice(DOOMS)
            case "leader paused" if leader.alive:
                leader.pause()
                self.clock.after(last_s, leader.resume)
            case "disk slow":
                leader.disk.slow_s = 0.5 * random.random()
            case "job cancelled":
                client = random.choice(self.clients)
                if client.open:
                    client.cancel(random.choice(list(client.open)))
            case _:
                node.befall(kind, random, last_s)

    def _replace(self) -> None:
        """A node is started anew, in another version."""
        node = self.versions.choice(self.nodes)
        node.kill()
        node.takes_envelopes = not node.takes_envelopes
        node.was_replaced = True
        self.clock.after(3.0 * self.versions.random(), node.start)
        self.judge.counts["nodes replaced"] += 1
        self.tell("world", f"{node.name} replaced", node.takes_envelopes)

    def _heal(self) -> None:
        self.kinds = []
        for node in self.nodes:
            node.heal()
        for leader in self.leaders:
            leader.doom = None
            leader.disk.slow_s = 0.0
            leader.resume()
            if not leader.alive:
                leader.start()
