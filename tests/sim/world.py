"""One seed, one world: leaders, their workers and clients, the network and disks, and what befalls them.

    plan ──► live through it: jobs come, faults come ──► heal ──► drain ──► nothing is owed, lost or left

All chance comes from one generator, all time from one clock: the same seed is the same world, to the last step. The
seed also draws how large the world is, which faults it knows, and how small the leaders' bounds are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec
from tests.sim import faults
from tests.sim.checker import Broken, Checker, tally
from tests.sim.client import Client
from tests.sim.clock import Clock
from tests.sim.guest import Guests
from tests.sim.health import Health, Spell
from tests.sim.jobs import BLOBS, FILES, OPEN, Request, Status
from tests.sim.leader import Leader
from tests.sim.net import Net
from tests.sim.plan import NARROW, Plan, draw_plan, with_patterns
from tests.sim.process import Process
from tests.sim.story import Story
from tests.sim.stranger import STRANGER, Strangers
from tests.sim.thief import Thieves
from tests.sim.worker import Worker

from wakugumi.core.client import failover, leader_row, leaders
from wakugumi.core.ids import ConnId, JobId, show_job_id
from wakugumi.core.leader import clients, records
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs import results
from wakugumi.core.leader.jobs.not_started import without_shuns
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.journal import leaves
from wakugumi.core.leader.questions import AskCancel, AskDrain, AskRequeue, AskResume, Question
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.leader.scheduling import roster
from wakugumi.core.runner import resend
from wakugumi.limits.wire import AHEAD_BYTES_MAX, GIVEN_BYTES_MAX

DRAIN_S: Final = 900.0
"""Five attempts with their backoff, two silences, the recovery's grace and a late ack's, and then some."""
SETTLE_S: Final = 8.0
FINDS_SHARE: Final = 0.9
"""Of the worlds have leaders that say which jobs they know."""
HANG_S: Final = 5.0
"""The timeout of a job whose program hangs: with its retries, and submitted again, it must come to an end."""


class World:
    """Make it from a seed, and `run` it: it returns what happened, or raises Broken."""

    def __init__(self, seed: int, *, story: Story | None = None, jobs: int | None = None) -> None:
        self.seed = seed
        self.story = story
        self.random = random = Random(seed)
        self.clock = Clock()
        self.plan: Plan = with_patterns(draw_plan(random, jobs, seed), Random(f"{seed}-patterns"))
        plan = self.plan
        self._hanging = Random(f"{seed}-hanging")
        self.wide = plan.wide
        self._sizes = Random(f"{seed}-sizes")
        self.turn_s = plan.turn_s
        self.ahead_bytes_max = Random(f"{seed}-ahead").choice([300, 1_000, AHEAD_BYTES_MAX])
        """How far a connection may be ahead of a leader's disk."""
        self.failures = plan.failures
        self.finds = Random(f"{seed}-finds").random() < FINDS_SHARE
        self.checker = Checker(self)
        buffers = NARROW if plan.wide is None else plan.wide.buffers
        self.net = Net(self.clock, random, plan.delay_max_s, buffers, self.checker.cut_off, self._speeds)
        self.strangers = Strangers(self, seed)
        self.thieves = Thieves(self, seed)
        self.guests = Guests(self, seed)
        self.requests: dict[JobId, Request] = {}
        self.undo: dict[int, Callable[[], None]] = {}
        self._undone = 0
        self._steps = 0
        self._healing = False
        self.leaders = [Leader(self, number, settings) for number, settings in enumerate(plan.leaders)]
        self.health = Health(seed, len(plan.workers), plan.lasts_s)
        self.workers = [Worker(self, number, settings) for number, settings in enumerate(plan.workers)]
        self.clients = [Client(self, number, settings) for number, settings in enumerate(plan.clients)]
        self.processes: tuple[Process, ...] = (*self.leaders, *self.workers, *self.clients)
        self._workers = {worker.name: worker for worker in self.workers}
        self._clients = {client.name: client for client in self.clients}

    def run(self) -> Counter[str]:
        """All of it."""
        vars(leaves)["JOURNAL_SLACK_BYTES"] = self.plan.journal_slack_bytes
        given_bytes_max = GIVEN_BYTES_MAX if self.wide is None else self.wide.given_bytes_max
        for module in (records, roster, clients, results, resend, failover, leaders, leader_row):
            vars(module)["GIVEN_BYTES_MAX"] = given_bytes_max
        counts = self.checker.counts
        began_at = self.clock.now
        self._live()
        self._heal()
        self._drain()
        self._look_at_the_end()
        counts.worlds = 1
        counts.jobs = len(self.requests)
        counts.virtual_s = self.clock.now - began_at
        counts.cancelled = sum(
            want.status is Status.CANCELLED for client in self.clients for want in client.wants.values()
        )
        return counts.told()

    def process_called(self, name: str) -> Process:
        return next(process for process in self.processes if process.name == name)

    def worker_called(self, name: str) -> Worker:
        return self._workers[name]

    def client_called(self, name: str) -> Client:
        return self._clients[name]

    def tell(self, who: str, what: str, about: Any) -> None:
        if self.story is not None:
            self.story.add(self.clock.now, who, what, about)

    def blobs_of(self, payload: bytes) -> tuple[str, ...]:
        """What of a result did not fit. Most worlds have no such results, and so are what they were before."""
        return (BLOBS[len(payload) % 4],) if self.seed % 3 == 1 and len(payload) % 3 == 0 else ()

    def printed_bytes(self, job: JobId) -> int:
        """How much a program of this job prints, each time."""
        if self.wide is None:
            return 0
        return int.from_bytes(job, "big") * 7919 % self.wide.given_bytes_max if job[-1] % 2 else 0

    def _some_bytes(self, most: int) -> int:
        """Mostly little, and often nearly as much as a frame takes."""
        return self._sizes.randrange(most // 20 if self._sizes.random() < 0.5 else most)

    def _speeds(self) -> tuple[float, float]:
        wide = self.wide
        if wide is None or self._healing:
            return 0.0, 0.0
        chance = self._sizes.random
        return (
            wide.slow_bytes_per_s if chance() < wide.slow_share else 0.0,
            wide.slow_bytes_per_s if chance() < wide.slow_share else 0.0,
        )

    def looks_closely(self) -> bool:
        """Are the machine's invariants to be checked after this step?"""
        self._steps += 1
        return self._steps % self.plan.check_every == 0

    def lasts(self, seconds: float, end: Callable[[], None]) -> None:
        """A fault that lasts; it ends by itself, or when the world heals."""
        self._undone += 1
        number = self._undone
        self.undo[number] = end

        def undo() -> None:
            if self.undo.pop(number, None) is not None:
                end()

        self.clock.after(seconds, undo)

    def process_died(self, process: Process) -> None:
        """It will be started again, sooner or later."""
        usual_s, long_s = (1.0, 15.0) if process.kind == "leader" and len(self.leaders) == 1 else (3.0, 40.0)
        seconds = 0.05 + self.random.random() * (usual_s if self.random.random() < 0.8 else long_s)
        if process.kind == "client" and self.random.random() < 0.5:
            seconds += self.plan.night_s  # Longer than a delivered result is kept.
        self.clock.after(0.05 if self._healing else seconds, lambda: self._start(process))

    # It lives.

    def _live(self) -> None:
        random, plan = self.random, self.plan
        for process in self.processes:
            self.clock.after(0.2 * random.random(), self._starter(process))
        for number in range(1, plan.jobs + 1):
            self.clock.after(plan.when(random), self._arrival(number))
        at = random.expovariate(plan.faults_per_s)
        while plan.kinds and at < plan.lasts_s:
            self.clock.after(plan.stretched(at), self._fault)
            at += random.expovariate(plan.faults_per_s)
        for spell in self.health.spells:
            self.clock.after(plan.stretched(spell.at_s), self._falls_sick(spell))
        self.strangers.plan()
        self.thieves.plan()
        self.guests.plan()
        for _ in range(plan.looks):
            self.clock.after(plan.when(random), self._someone_looks)
        self.clock.run_until(self.clock.now + plan.stretched(plan.lasts_s))

    def _starter(self, process: Process) -> Callable[[], None]:
        return lambda: self._start(process)

    def _start(self, process: Process) -> None:
        if not process.alive:
            process.start()

    def _fault(self) -> None:
        kind = self.random.choice(self.plan.kinds)
        met = faults.KINDS[kind](self)
        if met is not None:
            tally(self.checker.counts.faults, kind)
            tally(self.checker.counts.met, kind, met)

    def _falls_sick(self, spell: Spell) -> Callable[[], None]:
        worker = self.workers[spell.worker]

        def fall() -> None:
            self.tell(worker.name, f"has a sick machine for {spell.lasts_s:.1f} s", None)
            worker.fall_sick(spell.lasts_s)

        return fall

    def _arrival(self, number: int) -> Callable[[], None]:
        return lambda: self._job_comes(number)

    def _job_comes(self, number: int) -> None:
        random, plan = self.random, self.plan
        client = random.choice(self.clients)
        endless = not client.settings.old and random.random() < plan.endless_share
        hangs = not endless and self._hanging.random() < plan.hang_share
        word = random.choice(plan.words)
        job = JobId(number.to_bytes(16, "big"))
        wants = plan.wants(random)
        if wants is not None:  # By its number, for a draw more would be another world.
            wants = msgspec.structs.replace(wants, files=FILES[number % len(FILES)])
        payload = b"request %d " % number + b"." * random.randrange(200)
        if self.wide is not None:
            payload = b"request %d " % number + b"." * self._some_bytes(self.wide.given_bytes_max)
        self.requests[job] = request = Request(
            number,
            job,
            client.name,
            plan.subject(word),
            word if endless else self.health.program(number, word),
            10_000.0 if endless else HANG_S if hangs else plan.timeout_s,
            2 if random.random() < 0.1 else 0,
            payload,
            # The work of a world is the same, however many slots its jobs take.
            min(plan.takes_s * random.expovariate(1.0), 0.6 * plan.timeout_s) / (1 if wants is None else wants.slots),
            endless,
            wants,
            hangs,
            not endless and self.health.is_poison(number),
            not endless and self.health.is_too_large(number),
        )
        client.want(request, resubmits=random.randrange(3))
        if endless or random.random() < plan.cancel_share:
            self.clock.after(20.0 * random.random(), lambda: client.cancel(job))
        if random.random() < plan.watch_share:
            self.clock.after(10.0 * random.random(), lambda: self._someone_watches(client, job))

    def _someone_watches(self, owner: Client, job: JobId) -> None:
        watcher = self.random.choice(self.clients)
        want = owner.wants[job]
        may_watch = not watcher.settings.old and watcher is not owner and self.guests.may_watch(watcher.name)
        if may_watch and want.status is Status.ASKED:
            watcher.watch(job, want.accepted)

    def _someone_looks(self) -> None:
        """An operator: takes a worker out for a while, or requeues what is dead; and an auditor: reads the disk."""
        self.compare_with_disk()
        leader = self.random.choice(self.leaders)
        letters = leader.machine.clients.dead.letters if leader.alive else ()
        dead = [show_job_id(job) for job in letters if not self.requests[job].endless]
        question: Question = AskRequeue(jobs=dead)
        if not dead or self.random.random() < 0.5:
            worker = self.random.choice(self.workers)
            leader = worker.leader
            question = AskDrain(worker.name)
            self.lasts(10.0 * self.random.random(), lambda: self._resume(worker))
        self._ask(leader, question)

    def _resume(self, worker: Worker) -> None:
        """Again until it is: a worker that is away cannot be resumed, and a leader that is away, or paused with the
        drain still to be heard, does not listen."""
        leader = worker.leader
        self._ask(leader, AskResume(worker.name))

        def look() -> None:
            if leader.paused or leader.machine.workers.is_drained(worker.worker_id):
                self._resume(worker)

        self.clock.after(5.0, look)

    def _ask(self, leader: Leader, question: Question) -> None:
        if leader.alive:
            leader.post(ev.QuestionAsked(ConnId(0), b"", question))

    # It heals, and drains.

    def _heal(self) -> None:
        self.tell("world", "heals", None)
        self._healing = True
        for leader in self.leaders:
            leader.disk.fails = False
        for worker in self.workers:
            worker.sick_until = -1.0
        for end in list(self.undo.values()):
            end()
        self.undo.clear()
        for link in self.net.links.values():
            link.up.bytes_per_s = link.down.bytes_per_s = 0.0
        for process in self.processes:
            process.doom = None
            self.clock.after(0.05, self._starter(process))
        self._end_what_was_left_behind()

    def _end_what_was_left_behind(self) -> None:
        """Endless programs that a dead client's earlier life was to end, at leaders that the next one does not ask, or
        that a client has removed. Nobody knows of them but a person who looks."""
        for leader in self.leaders:
            jobs = leader.machine.jobs.values() if leader.alive else ()
            left = []
            self.strangers.end_all(leader)
            for job in jobs:
                if job.client.id == STRANGER:
                    continue
                client = self._clients[job.client.id]
                want = client.wants[job.id]
                is_over = want.status is Status.CANCELLED and job.state is not DONE and want.request.endless
                if is_over and client.places.is_left_behind(want, leader.name):
                    left.append(show_job_id(job.id))
            if left:
                self.checker.counts.left_behind += len(left)
                self._ask(leader, AskCancel(jobs=left))
        self.clock.after(30.0, self._end_what_was_left_behind)

    def _drain(self) -> None:
        deadline = self.clock.now + DRAIN_S
        self.clock.run_until(deadline, self._is_quiet)
        if not self._is_quiet():
            job, what = self._what_is_left()
            raise Broken(job, f"NOT DRAINED within {DRAIN_S:.0f} s: {what}")

    def _is_quiet(self) -> bool:
        return not self._what_is_left()[1]

    def _what_is_left(self) -> tuple[JobId | None, str]:
        for process in self.processes:
            if not process.alive:
                return None, f"{process.name} is down"
        for client in self.clients:
            for want in client.wants.values():
                if want.status in OPEN:
                    return want.request.job, f"{client.name} still waits for it"
        for leader in self.leaders:
            for job in leader.machine.jobs.values():
                if job.state is not DONE:
                    return job.id, f"{leader.name} has not done {show_job_id(job.id)}: {job.state.name.lower()}"
        for worker in self.workers:
            for running in worker.running:
                return running, f"{worker.name} still runs it"
            if worker.machine.unconfirmed:
                return None, f"{worker.name} has results that nobody confirmed"
            if not self._is_connected(worker):
                return None, f"{worker.name} is not connected"
            if worker.machine.state.health.is_sick:
                return None, f"{worker.name} is out of order"
        for client in self.clients:
            if not client.is_served():
                return None, f"{client.name} is not served by all its leaders"
        return None, ""

    def _is_connected(self, worker: Worker) -> bool:
        """Both sides think so, and it is true."""
        link = None if worker.line is None else worker.line.link
        known = worker.leader.machine.roster.by_id.get(worker.worker_id)
        return link is not None and link.number in self.net.links and known is not None and known.conn == link.number

    def _look_at_the_end(self) -> None:
        """Nothing is owed: both sides agree on credit, and a leader that began now would know what this one knows."""
        self.clock.run_until(self.clock.now + SETTLE_S)
        for process in self.processes:
            process.machine.check()
        for worker in self.workers:
            known = worker.leader.machine.roster.by_id.get(worker.worker_id)
            credit = worker.machine.state.credit.credit
            if known is None or known.credit != credit:
                theirs = "does not know it" if known is None else f"thinks of {known.credit}"
                raise Broken(None, f"{worker.name} offers a credit of {credit}, and the leader {theirs}")
        self._look_for_owed_results()
        self._look_at_caps()
        self.compare_with_disk()

    def _look_for_owed_results(self) -> None:
        """A leader that ran a job in vain knows that: it does not keep a result for who has one. What a person requeued
        is kept for who asks for it again."""
        for leader in self.leaders:
            for job in leader.machine.jobs.values():
                if job.client.id == STRANGER:
                    continue
                client = self._clients[job.client.id]
                has_it = client.wants[job.id].status is Status.DONE
                if has_it and not (job.delivered or job.requeued) and client.places.is_told(job.id, leader.name):
                    raise Broken(job.id, f"{leader.name} keeps a result for {client.name}, which has one")

    def _look_at_caps(self) -> None:
        """The leaders of a client know its cap's share, and all of it is shared out."""
        for client in self.clients:
            shares = {state.leader: state.share for state in client.machine.states()}
            if sum(shares.values()) != client.settings.cap:
                raise Broken(None, f"{client.name} divides {client.settings.cap} into {shares}")
            for no, share in shares.items():
                leader = client.leaders[no]
                known = leader.machine.clients.by_id[client.client_id].conns[ConnId(client.link_to(no).number)]
                if share and known != share:
                    raise Broken(None, f"{client.name} has a share of {share} at {leader.name}, which knows {known}")

    def compare_with_disk(self) -> None:
        """What the disks would bring back is what the leaders hold."""
        for leader in self.leaders:
            if leader.disk.busy or not leader.alive:
                continue
            twin = leader.twin()
            twin.check()
            if twin.lifecycle.tried != leader.machine.lifecycle.tried:
                raise Broken(None, f"{leader.name} and its disk do not know the same of jobs that could not be started")
            for job_id in {**twin.jobs, **leader.machine.jobs}:
                mine, its = leader.machine.jobs.get(job_id), twin.jobs.get(job_id)
                if _gist(mine) != _gist(its):
                    raise Broken(job_id, f"its disk has {_gist(its)}, and {leader.name} {_gist(mine)}")


def _gist(job: JobRecord | None) -> tuple[object, ...] | None:
    if job is None:
        return None
    return (
        job.state is DONE,
        job.ok,
        job.result,
        job.delivered,
        job.client.id,
        job.subject,
        job.program,
        job.timeout_s,
        job.retries,
        without_shuns(job.requirements),
        job.attempts,
        job.digest,
        [(attempt.worker_id, attempt.outcome) for attempt in job.history],
    )
