"""One seed, one world of callers by HTTP: a leader with workers and a disk, and callers that come, leave and come back.

    plan ──► live through it: callers come, faults come ──► heal ──► drain ──► nothing is owed, lost or left

A third of the worlds is calm: no fault happens, and then no job may run twice.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Final

from tests.sim.callers.caller import HttpWant
from tests.sim.callers.judge import CallersJudge
from tests.sim.callers.leader import HttpLeader, SimpleWorker
from tests.sim.clock import Clock
from tests.sim.process import DOOMS, Process
from tests.sim.story import Story

from wakugumi.core.ids import ConnId, show_job_id
from wakugumi.core.leader import clients
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.callers.machine import CALLERS
from wakugumi.core.leader.jobs import results
from wakugumi.core.leader.questions import AskCancel
from wakugumi.core.requirements import Requirements
from wakugumi.limits.leader import CLIENTS_MAX
from wakugumi.limits.wire import GIVEN_BYTES_MAX

CALM_SHARE: Final = 1 / 3
LIVE_S: Final = 60.0
DRAIN_S: Final = 400.0
SETTLE_S: Final = 90.0
"""Longer than a result is unread, and a session lingers."""
FAULTS: Final = (
    *("leader killed", "leader doomed", "leader paused", "leader stopped", "worker lost"),
    *("disk slow", "disk full", "program fails", "caller left", "caller left", "job cancelled"),
)


class CallersWorld:
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    name = "callers"
    drain_s, settle_s = DRAIN_S, SETTLE_S
    fault_kinds = FAULTS
    requirements = Requirements(by_http=True)

    def __init__(self, seed: int, *, story: Story | None = None) -> None:
        self.seed = seed
        self.story = story
        self.random = random = Random(f"{self.name}-{seed}")
        self.faults = Random(f"{self.name}-faults-{seed}")
        self.clock = Clock()
        self.began_at = self.clock.now
        self.turn_s = random.choice([0.0, 0.001, 0.02])
        self.is_stormy = random.random() >= CALM_SHARE
        self.judge = self.checker = self.make_judge()
        self.keeps = random.random() < 0.7
        self.cap = random.choice([2, 1000])
        self.queue_max = random.choice([4, 1000]) if self.is_stormy else 1000
        self.is_bounded = self.is_stormy and random.random() < 0.2
        self.bounds = CALLERS._replace(clients_max=random.randint(1, 3)) if self.is_bounded else CALLERS
        self._clients_max = random.randint(1, 3) if self.is_bounded and random.random() < 0.5 else CLIENTS_MAX
        self._given_bytes_max = random.choice([60, GIVEN_BYTES_MAX])
        self.is_crowded = self.is_stormy and random.random() < 0.4
        """Callers of one client want the same few jobs, and are restless."""
        if self.is_crowded:
            self.keeps, self._given_bytes_max = True, 60
        self.takes_s = random.choice([(0.01, 0.5, 5.0), (0.01, 0.1, 1.0), (0.01, 15.0, 25.0)])
        """Times that programs take."""
        self.fails = 0.0
        """Share of the programs that fail."""
        self.workers: list[SimpleWorker] = []
        self.leader = self.make_leader()
        self.make_workers()
        self._comes_s = random.choice([LIVE_S * 0.8, 2.0])
        """Time in which all callers come."""
        self.wants = [self._draw_want(number) for number in range(random.randint(2, 24))]
        self._looks = random.random() < 0.3
        self.kinds = [kind for kind in self.fault_kinds if self.faults.random() < 0.5] if self.is_stormy else []

    def make_judge(self) -> CallersJudge:
        return CallersJudge(self)

    def make_leader(self) -> HttpLeader:
        return HttpLeader(self)

    def make_workers(self) -> None:
        random = self.random
        self.workers = [SimpleWorker(self, number, random.randint(1, 4)) for number in range(random.randint(1, 3))]

    def run(self) -> Counter[str]:
        vars(clients)["GIVEN_BYTES_MAX"] = vars(results)["GIVEN_BYTES_MAX"] = self._given_bytes_max
        vars(clients)["CLIENTS_MAX"] = self._clients_max
        try:
            return self._run()
        finally:
            vars(clients)["GIVEN_BYTES_MAX"] = vars(results)["GIVEN_BYTES_MAX"] = GIVEN_BYTES_MAX
            vars(clients)["CLIENTS_MAX"] = CLIENTS_MAX

    def _run(self) -> Counter[str]:
        self.leader.start()
        if self.is_crowded:
            self.leader.disk.slow_s = self.random.choice([0.0, 0.3, 2.0])
        for worker in self.workers:
            self._join_again(worker)
        for want in self.wants:
            self.clock.after(self._comes_s * self.random.random(), want.ask)
        for _ in range(self.faults.randint(1, 20) if self.kinds else 0):
            self.clock.after(LIVE_S * self.faults.random(), self._befall)
        self.clock.run_until(self.clock.now + LIVE_S)
        self._heal()
        self.clock.run_until(self.clock.now + self.drain_s, self._is_over)
        self.clock.run_until(self.clock.now + self.settle_s)
        self.judge.look_at_the_end()
        self.leader.callers.check()
        counts = self.judge.counts
        counts["worlds"] = 1
        counts["callers"] = len(self.wants)
        counts["jobs"] = len({want.job for want in self.wants})
        counts["virtual seconds"] = int(self.clock.now - self.began_at)
        return counts

    def tell(self, who: str, what: str, about: Any) -> None:
        if self.story is not None:
            self.story.add(self.clock.now, who, what, about)

    def looks_closely(self) -> bool:
        return self._looks

    def process_died(self, process: Process) -> None:
        self.clock.after(0.2 + 10.0 * self.faults.random(), lambda: None if process.alive else process.start())

    def _is_over(self) -> bool:
        return all(want.is_over and not want.visits for want in self.wants)

    def _draw_want(self, number: int) -> HttpWant:
        """Some share an id, and of these some are another request."""
        random = self.random
        name = f"job{number if random.random() < 0.7 else random.randrange(number + 1)}"
        if self.is_crowded:
            name = f"job{random.randrange(4)}"
        body = f"{'other' if random.random() < (0.4 if self.is_crowded else 0.15) else 'body'}-{name}"
        client = "http" if self.is_crowded else random.choice(["http", "http", "desk", "night"])
        return HttpWant(self, name, body.encode(), client)

    def _join_again(self, worker: SimpleWorker) -> None:
        worker.join()
        self.clock.after(1.0 + self.random.random(), lambda: self._join_again(worker))

    # Faults.

    def _befall(self) -> None:
        random, leader = self.faults, self.leader
        if not self.kinds:
            return
        kind = random.choice(self.kinds)
        self.judge.counts[f"fault: {kind}"] += 1
        self.tell("world", kind, None)
        last_s = 1.0 + 10.0 * random.random()
        want = random.choice(self.wants)
        match kind:
            case "leader killed":
                leader.die(power=False)
            case "leader doomed" if leader.alive:
                leader.doom = random.choice(DOOMS)
            case "leader paused" if leader.alive:
                leader.pause()
                self.clock.after(last_s, leader.resume)
            case "leader stopped":
                leader.stop(last_s)
            case "worker lost":
                random.choice(self.workers).lose()
            case "disk slow":
                leader.disk.slow_s = 0.5 * random.random()
            case "disk full":
                leader.disk.full = True
                self.clock.after(last_s, leader.disk.room_came)
            case "program fails":
                self.fails = 0.5
            case "caller left":
                want.leave()
            case "job cancelled" if leader.alive:
                self.judge.cancels(want.job)
                leader.post(ev.QuestionAsked(ConnId(0), b"", AskCancel([show_job_id(want.job)])))
            case _:
                self.befall_others(kind, last_s)

    def befall_others(self, kind: str, last_s: float) -> None:
        """For worlds with more faults."""

    def _heal(self) -> None:
        self.tell("world", "heals", None)
        self.kinds = []
        self.heal_others()
        self.fails = self.leader.disk.slow_s = 0.0
        self.leader.disk.room_came()
        self.leader.doom = None
        self.leader.resume()
        if not self.leader.alive:
            self.leader.start()
        # A leader takes the results of an earlier life with its first request.
        last = HttpWant(self, "last", b"body-last", "http")
        self.wants.append(last)
        self.clock.after(15.0, last.ask)

    def heal_others(self) -> None:
        """For worlds with more faults."""
