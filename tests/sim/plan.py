"""What kind of world is it? Drawn from the seed before anything happens, so that worlds differ in kind and not only in
luck: some are small and looked at closely, some have only faults of leaders, some know old peers, a third has several
leaders, some have a quiet night in the middle, after which results are forgotten and the journal is tidied."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec
from tests.sim.client import ClientSettings
from tests.sim.faults import KINDS, LEADER_ONLY
from tests.sim.leader import LeaderSettings
from tests.sim.net import Buffers
from tests.sim.worker import WorkerSettings

from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Subject, parse_pattern, parse_subject
from wakugumi.limits.journal import JOURNAL_SLACK_BYTES, PAYLOAD_MEMORY_BYTES
from wakugumi.limits.leader import QUEUE_JOBS_MAX
from wakugumi.limits.wire import WRITE_BACKLOG_BYTES_MAX

_WORK_S: Final = 100.0
"""What a world's jobs would take if the smallest worker that takes all of them had to do them for the client with the
smallest cap: the world must come to an end."""
SEVERAL_SHARE: Final = 1 / 3
"""Of the worlds have more than one leader."""
PATTERNS_SHARE: Final = 1 / 4
"""Of the worlds have workers with several patterns, over which subjects take turns."""


WIDE_SHARE: Final = 1 / 4
WIDER: Final = 4
"""So many times as many slots: whoever takes many jobs at once takes many bytes."""
SLOW_BYTES_PER_S_MIN: Final = 40.0
"""Less would be taken by heartbeats and receipts alone."""
NARROW: Final = Buffers(2_400, WRITE_BACKLOG_BYTES_MAX)
"""In worlds in which bytes do not matter: some two dozen messages."""


class Wide(msgspec.Struct, frozen=True):
    """A world in which bytes matter: all bounds of bytes are small, and some read slowly."""

    given_bytes_max: int
    """In place of GIVEN_BYTES_MAX. Frames have as much at most, and so a peer is given twice as much before it is
    written; three times as much is too much."""
    slow_share: float
    """Of the directions of links, in which the receiver reads slowly, until the world heals."""
    slow_bytes_per_s: float

    @property
    def buffers(self) -> Buffers:
        return Buffers(self.given_bytes_max // 8, 3 * self.given_bytes_max)


class Plan(msgspec.Struct, frozen=True):
    jobs: int
    lasts_s: float
    """How long jobs and faults come, a quiet night not counted."""
    night_s: float
    faults_per_s: float
    kinds: tuple[str, ...]
    check_every: int
    turn_s: float
    delay_max_s: float
    takes_s: float
    timeout_s: float
    failures: tuple[tuple[str, float], ...]
    cancel_share: float
    endless_share: float
    """Not where old workers are, which nobody can tell to stop."""
    watch_share: float
    hang_share: float
    """Of the jobs whose programs hang until their timeout."""
    asking_share: float
    """Of the jobs that ask for a key, a priority or slots."""
    slots_max: int
    """What the first worker, which takes all jobs, has room for; 1 if it is old and takes one slot for each."""
    looks: int
    """How often an operator and an auditor come by."""
    words: tuple[str, ...]
    journal_slack_bytes: int
    wide: Wide | None
    """If jobs and results have sizes that matter."""
    leaders: tuple[LeaderSettings, ...]
    workers: tuple[WorkerSettings, ...]
    clients: tuple[ClientSettings, ...]

    def when(self, random: Random) -> float:
        """When a job comes: alone, or in a crowd."""
        at = random.random()
        if random.random() < 0.3:
            at = int(4 * at) / 4
        return self.stretched(at * self.lasts_s)

    def wants(self, random: Random) -> Requirements | None:
        """What a job asks for, if it asks for anything."""
        if random.random() >= self.asking_share:
            return None
        return Requirements(
            random.choice(["", "a", "b", "c", "d"]),
            random.choice([0, 0, 0, 1, 5, -3]),
            random.choice([1, 1, 1, 2, self.slots_max]) if self.slots_max > 1 else 1,
        )

    def stretched(self, at: float) -> float:
        return at if at < self.lasts_s / 2 else at + self.night_s

    def subject(self, word: str) -> Subject:
        return parse_subject(f"job.assign.{word}")


def draw_plan(random: Random, jobs: int | None, seed: int) -> Plan:
    small = random.random() < 0.4
    leader_only = random.random() < 0.15
    calm = not leader_only and random.random() < 0.03
    share = random.choice([0.25, 0.6, 1.0])
    kinds = LEADER_ONLY if leader_only else tuple(kind for kind in KINDS if random.random() < share)
    words = ("a", "b", "b.c")
    failing = random.choice([0.0, 0.05, 0.2])
    old_share = 0.0 if leader_only else random.choice([0.0, 0.0, 0.3])
    night_s = 700.0 if random.random() < 0.2 else 0.0
    if jobs is None:
        jobs = random.randrange(5, 40) if small else random.randrange(60, 200)
    several = random.choice([2, 3]) if random.random() < SEVERAL_SHARE else 1
    number_of_workers = several - 1 + random.randrange(1, 6 if several == 1 else 4)
    workers = tuple(_draw_worker(random, number, several, old_share) for number in range(number_of_workers))
    wide = _draw_wide(Random(f"{seed}-bytes"))
    if wide is not None:
        workers = tuple(msgspec.structs.replace(worker, slots=WIDER * worker.slots) for worker in workers)
    clients = tuple(_draw_client(random, several, old_share) for _ in range(random.randrange(1, 5)))
    least = min(worker.slots for worker in workers[:several])
    work_s = _WORK_S * min(least, *(max(1, client.cap // len(client.leaders)) for client in clients)) / jobs
    return Plan(
        jobs=jobs,
        lasts_s=30.0 + random.random() * (60.0 if small else 150.0),
        night_s=night_s,
        faults_per_s=random.choice([0.2, 0.5, 1.0]),
        kinds=() if calm else kinds,
        check_every=1 if small else 16,
        turn_s=random.choice([0.0005, 0.002, 0.05]),
        delay_max_s=random.choice([0.005, 0.05, 0.3]),
        takes_s=min(random.choice([0.2, 2.0, 8.0]), work_s),
        timeout_s=random.choice([10.0, 60.0]),
        failures=(
            ("exit", failing),
            ("timeout", failing / 4),
            ("worker-error", failing / 4),
            ("disk", failing / 8),
        ),
        cancel_share=random.choice([0.0, 0.05, 0.15]),
        endless_share=0.0 if any(worker.old for worker in workers) else random.choice([0.0, 0.03, 0.03 * several]),
        watch_share=random.choice([0.0, 0.1, 0.5]),
        hang_share=Random(f"{seed}-hang").choice([0.0, 0.0, 0.05]),
        asking_share=random.choice([0.0, 0.3, 1.0]),
        slots_max=1 if any(worker.old for worker in workers[:several]) else least,
        looks=random.choice([0, 2, 4]),
        words=words,
        journal_slack_bytes=random.choice([1_000, 20_000, JOURNAL_SLACK_BYTES]),
        wide=wide,
        leaders=tuple(_draw_leader(random) for _ in range(several)),
        workers=workers,
        clients=clients,
    )


def with_patterns(plan: Plan, random: Random) -> Plan:
    """In some worlds workers hear more than their first pattern says, in any order. The draws are of their own: the
    other worlds stay what they were."""
    if random.random() >= PATTERNS_SHARE:
        return plan
    more = [parse_pattern(pattern) for pattern in ("job.assign.a", "job.assign.b", "job.assign.b.>", "job.assign.*.c")]
    workers = []
    for worker in plan.workers:
        patterns = list(dict.fromkeys((*worker.patterns, *random.sample(more, random.randrange(1, 4)))))
        random.shuffle(patterns)
        workers.append(msgspec.structs.replace(worker, patterns=tuple(patterns)))
    return msgspec.structs.replace(plan, workers=tuple(workers))


def _draw_wide(random: Random) -> Wide | None:
    if random.random() >= WIDE_SHARE:
        return None
    given_bytes_max = random.choice([2_000, 6_000])
    slow_bytes_per_s = max(given_bytes_max / random.choice([2.0, 10.0, 60.0]), SLOW_BYTES_PER_S_MIN)
    return Wide(given_bytes_max, random.choice([0.0, 0.3, 0.8]), slow_bytes_per_s)


def _draw_leader(random: Random) -> LeaderSettings:
    return LeaderSettings(
        policies=random.choice(["most-credit", "round-robin", "sticky", "score,a=sticky"]),
        queue_jobs_max=random.choice([6, 20, QUEUE_JOBS_MAX, QUEUE_JOBS_MAX]),
        attempts_max=random.choice([3, 5, 5]),
        payload_memory_bytes=random.choice([0, 500, PAYLOAD_MEMORY_BYTES]),
        skew_s=random.choice([0.0, -40.0, 3_600.0, 1e8]),
    )


def _draw_worker(random: Random, number: int, leaders: int, old_share: float) -> WorkerSettings:
    """The first ones are one for each leader, and take everything."""
    patterns = ">" if number < leaders else random.choice([">", "job.assign.a", "job.assign.b.>", "job.assign.*"])
    return WorkerSettings(
        leader=number if number < leaders else random.randrange(leaders),
        old=random.random() < old_share,
        slots=random.choice([1, 2, 4, 8]),
        patterns=(parse_pattern(patterns),),
        busy_share=random.choice([0.0, 0.3]),
    )


def _draw_client(random: Random, leaders: int, old_share: float) -> ClientSettings:
    old = random.random() < old_share
    order = random.sample(range(leaders), leaders)
    return ClientSettings(
        old=old,
        leaders=tuple(order[:1] if old or random.random() < 0.2 else order),
        cap=random.choice([1, 4, 64]),
        grace_s=random.choice([1.0, 4.0, 10.0, 10.0]),
        choice=random.choice(["least", "round-robin"]),
        unfinished_max=random.choice([4, 1_000]),
    )
