"""One seed, one world of blobs on their way: clients and workers, leaders that ask, and places.

    plan ──► live through it: jobs and results come, faults come ──► heal ──► drain ──► nothing is owed or left

A third of the worlds is calm: no fault happens, and then no blob may be sent twice and no job refused.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Final

from tests.sim.clock import Clock
from tests.sim.process import DOOMS, Process
from tests.sim.story import Story
from tests.sim.transfers.client import SimBlob, SimJob, UploadingClient
from tests.sim.transfers.judge import TransferJudge
from tests.sim.transfers.leader import AskingLeader
from tests.sim.transfers.place import File, Place
from tests.sim.transfers.worker import DeliveringWorker, SimResult

from wakugumi.limits.runner import LARGE_WORK_BYTES

CALM_SHARE: Final = 1 / 3
LIVES_S: Final = (60.0, 60.0, 60.0, 700.0)
"""In the longest a place that is not reached is given up."""
DRAIN_S: Final = 600.0
FAULTS: Final = (
    *("place slow", "place cuts", "place breaks", "place raves", "place full", "place unreachable", "place loses"),
    *("leader lost", "leader moves", "leader asks twice", "leader raves", "welcome late", "line lost"),
    *("file changed", "file gone", "job cancelled", "result cancelled"),
    *("place full", "leader asks twice", "place full", "leader asks twice"),  # Oftener: they need each other.
    *("client paused", "worker paused", "worker killed", "worker doomed", "no threads"),
)


class TransferWorld:
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    def __init__(self, seed: int, *, story: Story | None = None) -> None:
        self.seed = seed
        self.story = story
        self.random = random = Random(f"transfers-{seed}")
        self.faults = Random(f"transfers-faults-{seed}")
        self.clock = Clock()
        self.began_at = self.clock.now
        self.turn_s = random.choice([0.0, 0.001, 0.02])
        self.is_stormy = random.random() >= CALM_SHARE
        self.judge = self.checker = TransferJudge(self)
        self.conns = 0
        self.live_s = random.choice(LIVES_S) if self.is_stormy else LIVES_S[0]
        self.places = [Place(self, number) for number in range(random.randint(1, 3))]
        self._by_url = {place.url: place for place in self.places}
        self.leaders = [
            AskingLeader(self, number, random.choice(self.places), is_old=random.random() < 0.2)
            for number in range(random.randint(1, 3))
        ]
        self._has_place = not all(leader.is_old for leader in self.leaders)
        self.clients = [UploadingClient(self, number) for number in range(random.randint(1, 2))]
        self.workers = [
            DeliveringWorker(self, number) for number in range(random.randint(0, 2) if self._has_place else 0)
        ]
        self._contents = [(f"sha{number}", self._size()) for number in range(random.randint(1, 12))]
        self.jobs_made = 0
        self._looks = random.random() < 0.5
        share = self.faults.choice([0.15, 0.4])
        self.kinds = [kind for kind in FAULTS if self.faults.random() < share] if self.is_stormy else []

    def run(self) -> Counter[str]:
        for process in (*self.clients, *self.workers):
            process.start()
        comes_s = self.random.choice([2.0, 10.0, 0.8 * self.live_s])
        for _ in range(self.random.randint(2, 24)):
            self.clock.after(comes_s * self.random.random(), self._new_job)
        for _ in range(self.random.randint(0, 16) if self.workers else 0):
            self.clock.after(comes_s * self.random.random(), self._new_result)
        for _ in range(self.faults.randint(1, 16) if self.kinds else 0):
            self.clock.after(min(comes_s + 20.0, self.live_s) * self.faults.random(), self._befall)
        self.clock.run_until(self.clock.now + self.live_s)
        self._heal()
        self.clock.run_until(self.clock.now + DRAIN_S)
        self.judge.look_at_the_end()
        counts = self.judge.counts
        counts["worlds"] = 1
        counts["jobs"] = self.jobs_made
        counts["virtual seconds"] = int(self.clock.now - self.began_at)
        return counts

    def place_at(self, url: str) -> Place:
        return self._by_url[url]

    def tell(self, who: str, what: str, about: Any) -> None:
        if self.story is not None:
            self.story.add(self.clock.now, who, what, about)

    def looks_closely(self) -> bool:
        return self._looks

    def process_died(self, process: Process) -> None:
        self.clock.after(1.0 + 20.0 * self.faults.random(), lambda: None if process.alive else process.start())

    # Jobs and results.

    def _size(self) -> int:
        return self.random.choice([10, 1_000, 4_000, 20_000])

    def _new_job(self) -> None:
        random = self.random
        self.jobs_made += 1
        blobs = {}
        for sha256, size in random.sample(self._contents, random.randint(0, min(4, len(self._contents)))):
            blobs[sha256] = SimBlob(File(sha256, size), is_in_memory=random.random() < 0.3)
        random.choice(self.clients).start_job(SimJob(self.jobs_made, blobs, env=random.random() < 0.2))

    def _new_result(self) -> None:
        random = self.random
        self.jobs_made += 1
        parts = {}
        for sha256, size in random.sample(self._contents, random.randint(0, min(3, len(self._contents)))):
            parts[sha256] = File(sha256, size)
        if random.random() < 0.2:
            huge = f"huge{self.jobs_made}"
            parts[huge] = File(huge, LARGE_WORK_BYTES + 1)
        random.choice(self.workers).finish(SimResult(self.jobs_made, parts))

    # Faults.

    def _befall(self) -> None:
        random, kind = self.faults, self.faults.choice(self.kinds)
        self.judge.counts[f"fault: {kind}"] += 1
        self.tell("world", kind, None)
        place, leader, client = random.choice(self.places), random.choice(self.leaders), random.choice(self.clients)
        worker = random.choice(self.workers) if self.workers else None
        last_s = 1.0 + 20.0 * random.random()
        match kind:
            case "place slow":
                place.slowness = 10.0
            case "place cuts":
                place.cuts = random.choice([0.7, 1.0])
            case "place breaks":
                place.breaks = random.choice([0.5, 1.0])
            case "place raves":
                place.raves = 0.2
            case "place full":
                place.is_full = True
                if random.random() < 0.5:
                    self.clock.after(last_s, lambda: setattr(place, "is_full", False))
            case "place unreachable":
                place.is_unreachable = True
                if random.random() < 0.5:
                    self.clock.after(last_s, lambda: setattr(place, "is_unreachable", False))
            case "place loses":
                for sha256 in sorted(place.blobs):
                    place.lose(sha256)
            case "leader lost" | "leader moves":
                leader.is_alive = False
                if kind == "leader moves":
                    leader.place = random.choice(self.places)
                leader.cut_all()
                self.clock.after(last_s, lambda: setattr(leader, "is_alive", True))
            case "leader asks twice":
                leader.twice = 0.9
            case "leader raves":
                leader.raves = 0.3
            case "welcome late":
                leader.welcome_s = 15.0
            case "line lost" if leader.lines:
                random.choice(sorted(leader.lines, key=lambda line: line.conn)).cut()
            case "file changed" | "file gone":
                self._spoil("changed" if kind == "file changed" else "gone", client, worker)
            case "job cancelled" if client.jobs:
                client.cancel(random.choice(list(client.jobs.values())))
            case "result cancelled" if worker is not None and worker.results and worker.alive:
                worker.settled(random.choice(list(worker.results)), "cancelled")
            case "client paused":
                self._pause(client, last_s)
            case "worker paused" if worker is not None and worker.alive:
                self._pause(worker, last_s)
            case "worker killed" if worker is not None:
                worker.die(power=False)
            case "worker doomed" if worker is not None and worker.alive:
                worker.doom = random.choice(DOOMS)
            case "no threads" if worker is not None:
                worker.has_no_threads = True
            case _:
                pass

    def _pause(self, process: Process, seconds: float) -> None:
        process.pause()
        self.clock.after(seconds, process.resume)

    def _spoil(self, state: str, client: UploadingClient, worker: DeliveringWorker | None) -> None:
        files = [blob.file for job in client.jobs.values() for blob in job.blobs.values() if not blob.is_in_memory]
        if worker is not None:
            files += [file for result in worker.results.values() for file in result.parts.values()]
        if files:
            self.faults.choice(files).state = state

    def _heal(self) -> None:
        self.kinds = []
        for healed in (*self.places, *self.leaders):
            healed.heal()
        for client in self.clients:
            client.resume()
        for worker in self.workers:
            worker.doom = None
            worker.has_no_threads = False
            worker.resume()
            if not worker.alive:
                worker.start()
