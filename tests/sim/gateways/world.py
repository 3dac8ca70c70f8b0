"""One seed, one world of gateways: they share a store, have groups before them and clients behind them.

    plan ──► live through it: jobs come, faults come ──► heal ──► drain ──► nothing is owed, lost or left

A third of the worlds is calm: no fault happens, and then no job may run twice, and a near group must get its jobs.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Final

from tests.sim.clock import Clock
from tests.sim.gateways.caller import Prowl, Want
from tests.sim.gateways.gateway import GatewayProcess
from tests.sim.gateways.group import Group
from tests.sim.gateways.judge import GatewayJudge
from tests.sim.gateways.store import SharedStore
from tests.sim.process import DOOMS, Process
from tests.sim.story import Story

from wakugumi.core.access.identity import Identity, Role, Rules
from wakugumi.core.gateway.groups import CHOICES, LEAST_LOADED

CALM_SHARE: Final = 1 / 3
LIVE_S: Final = 60.0
DRAIN_S: Final = 900.0
"""A try's patience, a lease, the longest pauses, several times over."""
SETTLE_S: Final = 60.0
"""Time for housekeeping after the last answer."""
ADMIN: Final = Identity("ops", Role.ADMIN)
ONLOOKER: Final = Identity("cid", Role.CLIENT, Rules(sees="all"))
SENDERS: Final = [*(Identity(name, Role.CLIENT) for name in ("ann", "ann.night", "bob")), ONLOOKER, ADMIN]
FAULTS: Final = (
    *("gateway killed", "gateway doomed", "gateway paused", "power lost", "group killed", "group hangs"),
    *("group deserted", "group full", "group fails", "store busy", "store full", "store slow"),
    *("client left", "job cancelled"),
)


class GatewayWorld:
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    def __init__(self, seed: int, *, story: Story | None = None) -> None:
        self.seed = seed
        self.story = story
        self.random = random = Random(f"gateways-{seed}")
        self.faults = Random(f"gateways-faults-{seed}")
        self.versions = Random(f"gateways-versions-{seed}")
        """Which groups take files without a form, and when another version is put in their place."""
        self.clients = Random(f"gateways-clients-{seed}")
        """Which clients send jobs, and which jobs a client asks for that are not its own."""
        self._senders = SENDERS if self.clients.random() < 0.5 else [ADMIN]
        self.clock = Clock()
        self.began_at = self.clock.now
        self.turn_s = random.choice([0.0, 0.001, 0.02])
        self.is_stormy = random.random() >= CALM_SHARE
        self.judge = self.checker = GatewayJudge(self)
        self.choice = random.choice(CHOICES) if random.random() < 0.7 else LEAST_LOADED
        self.store = SharedStore(self)
        self.groups = [
            Group(self, f"group{number}", zone, random.randint(1, 6 if self.is_stormy else 12), random.random() < 0.5)
            for number, zone in enumerate(random.choices(["near", "far"], k=random.randint(1, 3)))
        ]
        self._comes_s = random.choice([LIVE_S * 0.6, 2.0])
        """Time in which all jobs come."""
        self.gateways = [GatewayProcess(self, number, "near") for number in range(random.randint(1, 3))]
        self._bodies_drawn: list[tuple[str, bytes]] = []
        self.wants = [self._draw_want(number) for number in range(random.randint(2, 24))]
        self._by_name = {group.name: group for group in self.groups}
        names = Counter(want.name for want in self.wants)
        bodies = {want.name: {other.body for other in self.wants if other.name == want.name} for want in self.wants}
        self._shared = {name for name in names if len(bodies[name]) > 1}
        self._looks = random.random() < 0.3
        self.kinds = [kind for kind in FAULTS if self.faults.random() < 0.5] if self.is_stormy else []

    def run(self) -> Counter[str]:
        for gateway in self.gateways:
            gateway.start()
        for want in self.wants:
            self.clock.after(6.0 + self._comes_s * self.random.random(), want.ask)
        for _ in range(self.faults.randint(1, 12) if self.kinds else 0):
            self.clock.after(LIVE_S * self.faults.random(), self._befall)
        for _ in range(self.versions.randint(0, 4) if self.is_stormy else 0):
            self.clock.after(LIVE_S * self.versions.random(), self._replace_group)
        for _ in range(self.clients.randint(0, 12)):
            self.clock.after(LIVE_S * self.clients.random(), self._prowl)
        for _ in range(self.clients.randint(0, 3) if self.is_stormy and len(self._senders) > 1 else 0):
            self.clock.after(LIVE_S * self.clients.random(), self._repeat_cancelled)
        self.clock.run_until(self.clock.now + LIVE_S)
        self._heal()
        self.clock.run_until(self.clock.now + DRAIN_S, lambda: all(want.is_over for want in self.wants))
        self.store.are_old = True
        self.clock.run_until(self.clock.now + SETTLE_S)
        self.judge.look_at_the_end()
        counts = self.judge.counts
        counts["worlds"] = 1
        counts["jobs"] = len({want.name for want in self.wants})
        counts["virtual seconds"] = int(self.clock.now - self.began_at)
        for gateway in self.gateways:
            counts["jobs taken over"] += gateway.machine.keeper.taken_over
            gateway.machine.close()
        return counts

    def group_called(self, name: str) -> Group:
        return self._by_name[name]

    def is_shared(self, name: str) -> bool:
        """Do several requests use this id?"""
        return name in self._shared

    def owns(self, sender: str, client: str) -> bool:
        """May this sender change jobs of the client?"""
        (sight,) = [one.sight() for one in SENDERS if one.name == sender]
        return sight is None or sight.owns(client)

    def tell(self, who: str, what: str, about: Any) -> None:
        if self.story is not None:
            self.story.add(self.clock.now, who, what, about)

    def looks_closely(self) -> bool:
        return self._looks

    def process_died(self, process: Process) -> None:
        self.clock.after(1.0 + 20.0 * self.faults.random(), lambda: None if process.alive else process.start())

    def _draw_want(self, number: int) -> Want:
        random = self.random
        name = f"job{number if random.random() < 0.8 else random.randrange(number + 1)}"
        other = "other" if random.random() < 0.1 else "body"
        body = f"{other}-{name}" + ("-and-a-lot-more" if random.random() < 0.3 and other == "body" else "")
        sender = self.clients.choice(self._senders)
        return Want(self, name, self._same_body(name, body), sender, is_async=random.random() < 0.5)

    def _same_body(self, name: str, body: str) -> bytes:
        """Requests of one id are mostly the same request."""
        for drawn, other in self._bodies_drawn:
            if drawn == name and self.random.random() < 0.8:
                return other
        self._bodies_drawn.append((name, body.encode()))
        return body.encode()

    def _prowl(self) -> None:
        if living := [gateway for gateway in self.gateways if gateway.alive]:
            self.judge.counts["prowls"] += 1
            question = self.clients.choice(["status", "result", "events", "cancel"])
            Prowl(self.clients.choice(self.wants), self.clients.choice(living), question)

    def _repeat_cancelled(self) -> None:
        """A client cancels its job, and one that may only see the job sends it again."""
        want = self.clients.choice(self.wants)
        want.cancel()
        again = Want(self, want.name, want.body, ONLOOKER, is_async=want.is_async)
        self.wants.append(again)
        self.clock.after(0.5 + 5.0 * self.clients.random(), again.ask)

    # Faults.

    def _replace_group(self) -> None:
        """Another version takes its place, at once and with the same jobs."""
        group = self.versions.choice(self.groups)
        group.takes_files = not group.takes_files
        self.judge.counts["fault: group replaced"] += 1
        self.tell("world", f"{group.name} replaced", group.takes_files)

    def _befall(self) -> None:
        random, kind = self.faults, self.faults.choice(self.kinds)
        self.judge.counts[f"fault: {kind}"] += 1
        self.tell("world", kind, None)
        gateway, group, store = random.choice(self.gateways), random.choice(self.groups), self.store
        last_s = 1.0 + 20.0 * random.random()
        match kind:
            case "gateway killed":
                gateway.die(power=False)
            case "gateway doomed" if gateway.alive:
                gateway.doom = random.choice(DOOMS)
            case "gateway paused" if gateway.alive:
                gateway.pause()
                self.clock.after(last_s, gateway.resume)
            case "power lost":
                for one in self.gateways:
                    one.die(power=True)
                store.lose_power()
            case "group killed":
                group.kill()
                self.clock.after(last_s, group.start)
            case "group hangs":
                group.hang()
            case "group deserted":
                group.set_limit(0)
            case "group full":
                group.is_full = True
            case "group fails":
                group.fails = 0.3
            case "store busy":
                store.is_busy = True
                self.clock.after(last_s, lambda: setattr(store, "is_busy", False))
            case "store full":
                store.is_full = True
                self.clock.after(last_s, lambda: setattr(store, "is_full", False))
            case "store slow":
                store.slow_s = 0.5 * random.random()
            case "client left":
                random.choice(self.wants).leave()
            case "job cancelled":
                random.choice(self.wants).cancel()
            case _:
                pass

    def _heal(self) -> None:
        self.kinds = []
        self.store.is_busy = self.store.is_full = False
        self.store.slow_s = 0.0
        for group in self.groups:
            group.fails = 0.0
            group.start()
        for gateway in self.gateways:
            gateway.doom = None
            gateway.resume()
            if not gateway.alive:
                gateway.start()
