"""One seed, one world of a node and its callers by line.

    plan ──► live through it: callers come, well- and ill-behaved ──► heal ──► drain ──► all answered, nothing left

A third of the worlds is calm: every caller behaves, and the node stays.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Final

from tests.sim.clock import Clock
from tests.sim.lines.caller import DRIP, FAST, SLOW, STEADY, LineCaller, LineWant, Manner
from tests.sim.lines.judge import LineJudge
from tests.sim.lines.node import LineNode
from tests.sim.story import Story

from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.limits.units import KIB

CALM_SHARE: Final = 1 / 3
LIVE_S: Final = 120.0
DRAIN_S: Final = 2_000.0
"""Pauses of refused callers, inputs at a steady pace, many times over."""
SETTLE_S: Final = 120.0
"""Time for the last slow ones."""
FAULTS: Final = ("node killed", "node stopped", "disk full")


class LineWorld:
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    def __init__(self, seed: int, *, story: Story | None = None) -> None:
        self.seed = seed
        self.story = story
        self.random = random = Random(f"lines-{seed}")
        self.faults = Random(f"lines-faults-{seed}")
        self.clock = Clock()
        self.began_at = self.clock.now
        self.is_stormy = random.random() >= CALM_SHARE
        self.judge = LineJudge(self)
        self._ill = random.choice([0.2, 0.6]) if self.is_stormy else 0.0
        """Share of visits that are ill-behaved."""
        self.node = LineNode(self, random.randint(1, 4), random.randint(1, 3))
        self.callers = [self._draw(number) for number in range(random.randint(8, 24))]
        self.kinds = [kind for kind in FAULTS if self.faults.random() < 0.5] if self.is_stormy else []

    def run(self) -> Counter[str]:
        try:
            return self._run()
        finally:
            self.node.kill()

    def _run(self) -> Counter[str]:
        comes_s = self.random.choice([1.0, 10.0, 0.5 * LIVE_S])
        for caller in self.callers:
            self.clock.after(comes_s * self.random.random(), caller.come)
        for _ in range(self.faults.randint(0, 4) if self.kinds else 0):
            self.clock.after(LIVE_S * self.faults.random(), self._befall)
        self.clock.run_until(self.clock.now + LIVE_S)
        self._heal()
        self.clock.run_until(self.clock.now + DRAIN_S, lambda: all(caller.is_over for caller in self.callers))
        self.clock.run_until(self.clock.now + SETTLE_S)
        self.judge.look_at_the_end()
        counts = self.judge.counts
        counts["worlds"] = 1
        counts["jobs"] = len({caller.want.job for caller in self.callers})
        counts["virtual seconds"] = int(self.clock.now - self.began_at)
        return counts

    def tell(self, who: str, what: str, about: Any) -> None:
        if self.story is not None:
            self.story.add(self.clock.now, who, what, about)

    def _draw(self, number: int) -> LineCaller:
        random = self.random
        job = number if random.random() < 0.7 else random.randrange(number + 1)
        size = random.choice([0, 500, 60 * KIB, INLINE_FILE_BYTES_MAX, INLINE_FILE_BYTES_MAX + 1, 3 * 1024 * KIB])
        result = b"%d|" % job + bytes(job % 2 * 300 * KIB)
        takes_s = random.choice([0.05, 2.0, 10.0, 50.0]) * (0.1 + random.random())
        manners = [self._manner() for _ in range(random.randint(1, 3))]
        return LineCaller(self, number, LineWant(job, size, takes_s, result), manners)

    def _manner(self) -> Manner:
        random = self.random
        manner = Manner(
            sends=random.choice([FAST, FAST, STEADY]),
            reads=random.choice([FAST, FAST, STEADY]),
            reads_late=random.random() < 0.3,
        )
        if random.random() >= self._ill:
            return manner
        self.judge.counts["fault: caller ill-behaved"] += 1
        match random.choice(["line", "input", "input", "reader", "leaves"]):
            case "line":
                return manner._replace(line=random.choice(["none", "half", "long", "mute"]))
            case "input":
                manner = manner._replace(
                    sends=random.choice([FAST, STEADY, SLOW, DRIP]), ends_at=random.choice([random.random(), 1.0])
                )
                return manner._replace(
                    end="whole" if manner.ends_at == 1.0 else random.choice(["eof", "gone", "stall"])
                )
            case "reader":
                return manner._replace(reads=random.choice([0.0, DRIP]), leaves_s=300.0)
            case _:
                return manner._replace(leaves_s=0.1 + 30.0 * random.random())

    # Faults.

    def _befall(self) -> None:
        random, kind, node = self.faults, self.faults.choice(self.kinds), self.node
        self.judge.counts[f"fault: {kind}"] += 1
        self.judge.counts[f"met: {kind}"] += bool(node.connections)
        self.tell("world", kind, None)
        match kind:
            case "node killed":
                node.kill()
                self.clock.after(1.0 + 10.0 * random.random(), node.start)
            case "node stopped":
                node.stop()
            case _:
                node.disk_is_full = True
                self.clock.after(20.0 * random.random(), lambda: setattr(node, "disk_is_full", False))

    def _heal(self) -> None:
        self.kinds = []
        self.node.disk_is_full = False
        self.node.start()
