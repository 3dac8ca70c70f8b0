"""Whatever happens to a leader, in whatever order: random events, and an oracle that judges every answer.

A `Storm` sends a leader events (few ids, so that they collide) and holds everything it says against what may be said:
it keeps only what peers can know. Then the weather clears (`heal`), and every job that was accepted must come to its
end, be answered once, and leave nothing behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from random import Random

import msgspec
from tests.kit.leader_journal import Journal
from tests.kit.leader_world import job_id, subject, worker_id

from wakugumi.core.backoff import parse_policies
from wakugumi.core.ids import ClientId, ConnId, JobId, Tried, Verdict, WorkerId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.leader.jobs.broadcast import owner_of, part_id
from wakugumi.core.leader.jobs.not_started import without_shuns
from wakugumi.core.leader.jobs.states import TRANSITIONS, JobState
from wakugumi.core.leader.journal.entries import (
    ForgetJob,
    KeepAttempt,
    KeepDeclined,
    KeepDelivered,
    KeepJob,
    KeepOutcome,
    KeepResult,
    KeepWhole,
    LeaderKeep,
)
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.leader.questions import (
    AskCancel,
    AskDead,
    AskDrain,
    AskDrop,
    AskExplain,
    AskJobs,
    AskLetter,
    AskRequeue,
    AskResume,
    AskStatus,
    AskStory,
    AskTop,
    Question,
)
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.leader.scheduling.turn_jobs import is_simple, slots_of
from wakugumi.core.requirements import Requirements
from wakugumi.core.step import Step
from wakugumi.core.subject import Pattern, matches, parse_pattern
from wakugumi.limits.leader import KEPT_RESULT_TTL_S, RESTING_PATIENCE_S, SWEEP_S, UNDELIVERED_TTL_S
from wakugumi.limits.scheduling import CREDIT_MAX

JOBS = [job_id(number) for number in range(1, 15)]
BROADCASTS = [job_id(300 + number) for number in range(3)]
PARTS = [part_id(job, worker_id(name)) for job in BROADCASTS for name in ("w0", "w1", "w2", "w3", "healer")]
EVERY_JOB = [*JOBS, *BROADCASTS, *PARTS]
BLOBS = [digit * 64 for digit in "0123"]
HOLDERS = {BLOBS[0]: [worker_id("w1")], BLOBS[1]: [worker_id("w0"), worker_id("w2")], "cache:c": [worker_id("w3")]}
WANTS = [None, Requirements(files=(BLOBS[0],)), Requirements("k1", files=(BLOBS[1],)), Requirements("k2", simple=True)]
WANTS += [
    Requirements("k1", 3, unnamed=True),
    Requirements(priority=-5, files=("cache:c",)),
    Requirements(simple=True),
    Requirements(slots=2),
    Requirements("k3", slots=3, files=(BLOBS[0], BLOBS[1])),
]
WANTS += [
    Requirements(priority=100, slots=2),
    Requirements(files=(BLOBS[1], BLOBS[2], "cache:c")),
    Requirements("k2", 1, 2),
]
WANTS += [Requirements(unnamed=True, simple=True), Requirements(files=(BLOBS[3],), simple=True)]
WANTS[8] = msgspec.structs.replace(WANTS[8], env=True)
WANTS[12] = msgspec.structs.replace(WANTS[12], env=True)
"""What each of the jobs asks for, always the same."""
WORDS = ["a", "b", "b.c"]
PATTERNS = [">", "job.assign.a", "job.assign.b.>", "job.assign.*"]
AMOUNTS = [1, 1, 2, 3, 8, 0, -1, CREDIT_MAX, CREDIT_MAX + 1]
REASONS = ["exit", "worker-error", "timeout", "cancelled", "", "no-such-code", "unknown-program"]
NOT_BEGUN = ["disk", "worker-error", "unknown-program", "exit"]
SAID_NO = {"conflict", "full", "disk-full", "stopping", "unknown-job", "expired", "not-supported"}


class ClientConn(msgspec.Struct):
    client: ClientId
    old: bool
    cap: int
    blocked: bool = False
    waits: set[JobId] = set()
    """Jobs that the leader took, or knew, and that it has sent no result of."""
    asked: set[JobId] = set()
    """What it asked for while it was blocked: the results that had been delivered before follow later."""
    unconfirmed: set[JobId] = set()


class WorkerConn(msgspec.Struct):
    worker: WorkerId
    patterns: tuple[Pattern, ...]
    own: bool
    cancels: bool
    settled: bool
    credit: int = 0
    blocked: bool = False
    leaving: bool = False
    slots: int = 0
    blobs: bool = False
    runs_unnamed: bool = False
    env: bool = False
    remote: bool = False
    """It takes simple jobs only, and is sent once more what it says it holds."""
    acked: set[JobId] = set()
    """In this step."""


class Storm:
    """A leader under random events. Each kind takes two numbers that choose who and what."""

    def __init__(self, policies: str = "most-credit", payload_memory_bytes: int = 1_000_000) -> None:
        self.now = 100.0
        self._policies = parse_policies(policies)
        self._payload_memory_bytes = payload_memory_bytes
        self.leader = self._new_leader()
        self.journal = Journal()
        self.loads: list[ev.LoadPayloads] = []
        """What is being read from it."""
        self.loaded: set[JobId] = set()
        """In this step."""
        self._written: list[tuple[ConnId, JobId]] = []
        """Results that went to old clients in this step."""
        self.clients: dict[ConnId, ClientConn] = {}
        self.workers: dict[ConnId, WorkerConn] = {}
        self.gone: list[ConnId] = []
        """Connections that one side gave up, and whose end the leader has not heard of."""
        self.connections: dict[ConnId, ClientConn] = {}
        """As the leader knows them."""
        self.caps: dict[ClientId, int] = {}
        self.runs: dict[WorkerId, dict[JobId, None]] = defaultdict(dict)
        """What each worker really has, whatever the leader thinks."""
        self.turned_down_at: dict[tuple[WorkerId, JobId], float] = {}
        """When a worker could not start a job for the last time, at no cost."""
        self.draining: set[WorkerId] = set()
        self.open: set[JobId] = set()
        self.result: dict[JobId, KeepResult] = {}
        self.forgotten: dict[JobId, KeepResult] = {}
        """In this step."""
        self.answers: Counter[JobId] = Counter()
        self.asked: set[tuple[ConnId, JobId]] = set()
        self.blocked: set[ConnId] = set()
        """In this step."""
        self.stopping = False
        self.stopped = 0
        self.states: dict[JobId, tuple[JobRecord, JobState]] = {}
        self.seen: set[tuple[JobState, JobState]] = set()
        self._conns = 0
        self._outputs = 0
        self._batch: list[LeaderEvent] = []
        self._together = 0

    # What may happen.

    def play(self, kind: str, x: int, y: int) -> None:
        getattr(self, kind)(x, y)

    def gather(self, x: int, y: int) -> None:
        """What happens next reaches the leader as one batch."""
        self._together = x % 5

    def client_joins(self, x: int, y: int) -> None:
        if len(self.clients) < 6:
            self._join(ClientConn(ClientId("kmn"[x % 3]), old=y % 3 == 0, cap=1 + y % 4), heartbeats=y % 2 == 0)

    def client_leaves(self, x: int, y: int) -> None:
        conn = _pick(self.clients, x)
        if conn is not None:
            self._give_up(conn)
            if y % 3:
                self._bury()

    def submits(self, x: int, y: int) -> None:
        conn = _pick(self.clients, x)
        if conn is not None:
            number = y % len(JOBS)
            payload = b"another" if y == 13 and x % 2 else b"request"
            word, retries = subject(WORDS[number % 3]), number // 9
            self.say(ev.Submitted(conn, JOBS[number], word, "p", 5.0 + number, payload, retries, WANTS[number]))

    def broadcasts(self, x: int, y: int) -> None:
        conn = _pick(self.clients, x)
        if conn is not None:
            number = y % len(BROADCASTS)
            word = subject(WORDS[number])
            self.say(ev.Submitted(conn, BROADCASTS[number], word, "p", 7.0, b"hear", broadcast_s=4.0 + 20 * number))

    def claims(self, x: int, y: int) -> None:
        conn = _pick(self.clients, x)
        if conn is not None and not self.clients[conn].old:
            self.say(ev.Claimed(conn, [JOBS[y % len(JOBS)], JOBS[x % len(JOBS)], PARTS[(x + y) % len(PARTS)]]))

    def cancels(self, x: int, y: int) -> None:
        conn = _pick(self.clients, x)
        if conn is not None:
            self.say(ev.CancelWanted(conn, JOBS[y % len(JOBS) : y % len(JOBS) + 2]))

    def confirms(self, x: int, y: int) -> None:
        conn = _pick(self.clients, x)
        if conn is not None and not self.clients[conn].old:
            jobs = JOBS[y % 3 :: 3] if y % 2 else sorted(self.clients[conn].unconfirmed)
            self.clients[conn].unconfirmed -= set(jobs)
            self.say(ev.Confirmed(conn, jobs))

    def worker_joins(self, x: int, y: int) -> None:
        if len(self.workers) >= 4:
            return
        worker = worker_id(f"w{x % 4}")
        for conn in [conn for conn, known in self.workers.items() if known.worker == worker]:
            self._give_up(conn)  # half open
        own = y % 3 > 0
        if not own:
            self.runs[worker].clear()
        patterns = tuple(parse_pattern(text) for text in dict.fromkeys((PATTERNS[y % 4], PATTERNS[x % 4])))
        conn = self._new_conn()
        remote = own and x % 4 == 3 and y % 4 > 0
        slots = (x + y) % 4 if own and not remote else 0
        blobs = remote or (own and x % 3 > 0)
        unnamed = remote or y % 3 == 1
        self.workers[conn] = WorkerConn(
            worker,
            patterns,
            own,
            cancels=y % 2 == 0,
            settled=not own,
            slots=slots,
            blobs=blobs,
            runs_unnamed=unnamed,
            env=y % 4 != 2,
            remote=remote,
        )
        heartbeats = own and y % 5 > 0
        name = worker.decode().strip(".")
        came = ev.WorkerJoined(conn, worker, name, patterns, own, heartbeats, own, y % 2 == 0, slots, blobs)
        self.say(
            msgspec.structs.replace(
                came, runs_unnamed=unnamed, simple_only=remote, weight=1 + y % 3, resend=remote, env=y % 4 != 2
            )
        )

    def holds(self, x: int, y: int) -> None:
        """Mostly the truth; some of it lost, some of it finished, some of it never heard of here."""
        conn = _pick({conn: known for conn, known in self.workers.items() if not known.settled}, x)
        if conn is None:
            return
        known = self.workers[conn]
        runs = self.runs[known.worker]
        if y % 4 == 0:
            runs.pop(JOBS[x % len(JOBS)], None)
        if y % 5 == 0:
            runs[JOBS[y % len(JOBS)]] = None
        jobs = list(runs)
        cut = y % (len(jobs) + 1)
        known.settled = True
        self.say(ev.WorkerHolds(conn, tuple(jobs[cut:]), tuple(jobs[:cut])))

    def credits(self, x: int, y: int) -> None:
        conn = _pick(self.workers, x)
        if conn is not None:
            amount = AMOUNTS[y % len(AMOUNTS)]
            if self.loads:  # What is on its way there is taken off its credit already.
                self.flush()
            loading = self.leader.lifecycle.loading.items()
            used = sum(slots_of(self.leader.jobs[job]) for job, to in loading if to == conn)
            if 0 < amount <= CREDIT_MAX - self.workers[conn].credit + used:
                self.workers[conn].credit += amount
            self.say(ev.Credited(conn, amount))

    def acks(self, x: int, y: int) -> None:
        conn = _pick(self.workers, x)
        if conn is None:
            return
        known = self.workers[conn]
        runs = self.runs[known.worker]
        job = list(runs)[y % len(runs)] if runs else None
        if job is None:
            return
        runs.pop(job)
        ok = (x + y) % 3 > 0
        self._ack(conn, job, ok, "" if ok else REASONS[y % len(REASONS)])

    def turns_down(self, x: int, y: int) -> None:
        """It could not start what it was given, and says so."""
        conn = _pick(self.workers, x)
        if conn is not None and (runs := self.runs[self.workers[conn].worker]):
            job = list(runs)[y % len(runs)]
            runs.pop(job)
            self._ack(conn, job, False, NOT_BEGUN[y % len(NOT_BEGUN)], begun=False)

    def lies(self, x: int, y: int) -> None:
        """An ack of something it may never have had."""
        conn = _pick(self.workers, x)
        if conn is not None:
            self._ack(conn, JOBS[y % len(JOBS)], y % 2 == 0, REASONS[y % len(REASONS)])

    def declines(self, x: int, y: int) -> None:
        """It gives back what it was given, or something that it never had."""
        conn = _pick(self.workers, x)
        if conn is None:
            return
        runs = self.runs[self.workers[conn].worker]
        job = list(runs)[y % len(runs)] if runs else JOBS[y % len(JOBS)]
        runs.pop(job, None)
        self.say(ev.Declined(conn, job))

    def rests(self, x: int, y: int) -> None:
        conn = _pick(self.workers, x)
        if conn is not None:
            self.flush()
            if y % 3:
                self.workers[conn].credit = 0
            self.say(ev.Rested(conn, "no reason" if y % 3 else ""))

    def worker_leaves(self, x: int, y: int) -> None:
        conn = _pick(self.workers, x)
        if conn is not None:
            self._give_up(conn)
            if y % 3:
                self._bury()

    def says_it_leaves(self, x: int, y: int) -> None:
        conn = _pick(self.workers, x)
        if conn is not None:
            self.workers[conn].leaving = True
            self.say(ev.Leaving(conn))

    def blocks(self, x: int, y: int) -> None:
        conn = _pick({**self.clients, **self.workers}, x)
        if conn is not None:
            (self.clients.get(conn) or self.workers[conn]).blocked = True
            self.say(ev.PeerBlocked(conn))

    def unblocks(self, x: int, y: int) -> None:
        conn = _pick({**self.clients, **self.workers}, x)
        if conn is not None:
            (self.clients.get(conn) or self.workers[conn]).blocked = False
            self.say(ev.PeerUnblocked(conn))

    def drains(self, x: int, y: int) -> None:
        worker = worker_id(f"w{x % 4}")
        if self._batch or worker not in self.leader.roster.by_id:
            return
        name = worker.decode().strip(".")
        if y % 2:
            self.draining.add(worker)
        else:
            self.draining.discard(worker)
        self._ask(AskDrain(name) if y % 2 else AskResume(name))

    def asks(self, x: int, y: int) -> None:
        shown = show_job_id(JOBS[y % len(JOBS)])
        questions: list[Question] = [AskStatus(), AskTop(limit=2), AskJobs(limit=3), AskExplain(shown), AskStory(shown)]
        questions += [AskDead(), AskRequeue(jobs=[shown]), AskRequeue(), AskDrop(reason="timeout"), AskLetter(shown)]
        questions += [AskCancel(pattern="job.assign.b.>"), AskCancel(client="k"), AskCancel(jobs=[shown, shown])]
        self._ask(questions[x % len(questions)])

    def reads(self, x: int, y: int) -> None:
        """The journal has read something, or could not."""
        if self.loads:
            self._loaded(self.loads.pop(x % len(self.loads)))

    def disk(self, x: int, y: int) -> None:
        self.say(ev.DiskLow(x % 2 == 0))

    def restarts(self, x: int, y: int) -> None:
        """The leader dies, and another begins with its journal."""
        if self.stopping or x % 3:
            return
        self.flush()
        self.loads.clear()
        for conn in [*self.clients, *self.workers]:
            self._give_up(conn)
        self.gone.clear()
        self.connections.clear()
        self.draining.clear()
        self.now += [0.0, 3.0, 500.0][y % 3]
        before = self.leader
        self.leader = self._new_leader()
        self.leader.recover(self.journal.leaves(self.now + 1.0 - y % 3), self.now)
        self.leader.check()
        _same_jobs(before, self.leader)
        self.states = {job_id_: (job, job.state) for job_id_, job in self.leader.jobs.items()}
        self.caps = {client.id: client.cap for client in self.leader.clients.by_id.values()}

    def beats(self, x: int, y: int) -> None:
        for conn in [*self.clients, *self.workers]:
            self.say(ev.PeerHeard(conn, 0.5))

    def ticks(self, x: int, y: int) -> None:
        self.flush()
        self.now += [0.0, 0.4, 1.1, 2.5, 6.0, 13.0, 75.0][x % 7]
        self.tick()

    def stops(self, x: int, y: int) -> None:
        if (x, y) == (7, 13):
            self.stopping = True
            self.say(ev.StopWanted())

    # The leader hears it, and what it says is judged.

    def say(self, event: LeaderEvent) -> None:
        self._batch.append(event)
        if self._together:
            self._together -= 1
        else:
            self.flush()

    def flush(self) -> None:
        self._together = 0
        batch, self._batch = self._batch, []
        if batch:
            self.judge(self.leader.handle(batch, self.now), batch)

    def tick(self) -> None:
        self.judge(self.leader.tick(self.now), [])
        wake_at = self.leader.wake_at()
        assert wake_at is not None
        assert wake_at > self.now

    def judge(self, step: Step[LeaderKeep, LeaderDo], batch: list[LeaderEvent]) -> None:
        self.leader.check()
        self._judge_states(single=len(batch) <= 1)
        for record in step.keep:
            self._judge_keep(record)
        self.asked = {(event.conn, event.job) for event in batch if isinstance(event, ev.Submitted)}
        self.asked |= {(event.conn, job) for event in batch if isinstance(event, ev.Claimed) for job in event.jobs}
        self.blocked = {event.conn for event in batch if isinstance(event, ev.PeerBlocked)}
        for conn, job in self.asked:
            if conn in self.clients and self.clients[conn].old:
                self.clients[conn].waits.add(job)
            elif conn in self.clients and self.clients[conn].blocked:
                self.clients[conn].asked.add(job)
        assigned: Counter[ClientId] = Counter()
        self.journal.write(step.keep, self.now)
        assert not step.keep or self.leader.leaves.number == self.journal.next_leaf
        for effect in step.at_once:
            is_free = isinstance(effect, ev.SendPeerHeartbeat | ev.SendWelcome | ev.SendAnswer | ev.SendNo)
            assert is_free, "all else waits for the disk"
        for effect in (*step.at_once, *step.do):
            self._judge_do(effect, assigned)
        for conn, job in self._written:
            self._batch.append(ev.Confirmed(conn, (job,)))
        self._written.clear()
        self.forgotten.clear()
        self.loaded.clear()
        for client in assigned:
            running = sum(job.worker is not None for job in self.leader.jobs.values() if job.client.id == client)
            assert running <= self.caps[client], "the cap was passed"
        for conn, known in self.clients.items():
            for job in known.waits if not known.blocked else ():
                assert job in self.open, f"{conn} waits for {job.hex()}, which is done"
        for job in self.open:
            assert self.leader.jobs[job].state != JobState.DONE
        for file in self.needed():
            assert self.leader.holds(file), "something is needed and may be removed"
        for worker in self.workers.values():
            worker.acked.clear()
        self.draining &= self.leader.roster.by_id.keys()

    def needed(self) -> set[str]:
        """By jobs that are to be done or may be requeued, and by results that somebody may ask for."""
        letters = self.leader.clients.dead.letters.keys()
        requirements = [self.leader.jobs[job].requirements for job in self.open | letters]
        files = {file for asked in requirements if asked is not None for file in asked.files}
        return files | {blob for record in self.result.values() for blob in record.blobs}

    def _judge_keep(self, record: LeaderKeep) -> None:
        if isinstance(record, KeepWhole) and record.result is None and record.job not in self.open:
            last = self.result.pop(record.job)
            assert isinstance(last.result, Verdict)
            assert last.result.code == "dead", "only the dead are requeued"
            self.open.add(record.job)
        elif isinstance(record, KeepJob):
            assert record.job not in self.open, "one id, one job"
            last = self.result.pop(record.job, None)
            assert last is None or not last.ok, "a job that was done is done again"
            self.open.add(record.job)
        elif isinstance(record, KeepResult):
            assert record.job in self.open, "a second result, or one of nothing"
            self.open.remove(record.job)
            self.result[record.job] = record
            self.answers[record.job] += 1
        elif isinstance(record, KeepDeclined):
            if record.worker:
                self.turned_down_at[record.worker, record.job] = self.now
        elif isinstance(record, KeepDelivered):
            assert record.job in self.result, "a result that is not there was delivered"
        elif isinstance(record, KeepAttempt | KeepOutcome):
            assert record.job in self.open, "a job that is done is tried again"
        elif isinstance(record, ForgetJob):
            assert record.job not in self.open, "a job that nobody answered is forgotten"
            if (result := self.result.pop(record.job, None)) is not None:
                self.forgotten[record.job] = result

    def _judge_do(self, effect: LeaderDo, assigned: Counter[ClientId]) -> None:
        if isinstance(effect, ev.LeaderStopped):
            self.stopped += 1
            assert not any(job.worker for job in self.leader.jobs.values())
        elif isinstance(effect, ev.LoadPayloads):
            self.loads.append(effect)
        elif isinstance(effect, ev.BlobsFreed):
            assert not self.needed().intersection(effect.blobs), "a blob is freed that somebody needs"
        elif effect.conn not in self.clients and effect.conn not in self.workers:
            # To nobody: it left meanwhile. But nobody is given work after the leader has heard that.
            assert not isinstance(effect, ev.SendAssign) or effect.conn in self.gone
        elif isinstance(effect, ev.SendAssign):
            self._judge_assign(effect, assigned)
        elif isinstance(effect, ev.SendReceipts):
            assert not self.clients[effect.conn].old
            self.clients[effect.conn].waits.update(effect.jobs)
        elif isinstance(effect, ev.SendResult):
            self._judge_result(effect)
        elif isinstance(effect, ev.SendRefusal):
            assert effect.code in SAID_NO
            assert not self.clients[effect.conn].old
            if effect.code == "expired":
                self.clients[effect.conn].waits.discard(effect.job)
        elif isinstance(effect, ev.SendWorkerConfirms):
            assert self.workers[effect.conn].own
            assert set(effect.jobs) <= self.workers[effect.conn].acked
        elif isinstance(effect, ev.SendCancel):
            assert self.workers[effect.conn].cancels
            assert effect.job not in self.open, "a job that is wanted is cancelled"
        elif isinstance(effect, ev.PauseReading | ev.ResumeReading):
            assert self.clients[effect.conn].old
        elif isinstance(effect, ev.Close):
            self._give_up(effect.conn)

    def _judge_assign(self, effect: ev.SendAssign, assigned: Counter[ClientId]) -> None:
        known = self.workers[effect.conn]
        job = self.leader.jobs[effect.job]
        assert known.settled
        assert job.worker is not None
        assert job.worker.conn == effect.conn
        if known.remote and effect.job in self.runs[known.worker]:
            return  # Once more: it holds it.
        # It was decided before its request was read, and much may have happened meanwhile.
        if effect.job not in self.loaded:
            assert not self.stopping
            assert not any((known.blocked, known.leaving, known.worker in self.draining))
        slots = slots_of(job)
        assert known.credit >= slots, "without credit"
        assert slots == 1 or known.slots >= slots, "it never said that it has so many"
        known.credit -= slots
        assert is_simple(job) or not known.remote, "it takes simple jobs only"
        if effect.job not in self.loaded:
            self._judge_shunned(known.worker, job, slots)
        assert known.runs_unnamed or job.requirements is None or not job.requirements.unnamed, (
            "it has no program for it"
        )
        assert known.env or job.requirements is None or not job.requirements.env, "it would run something else"
        owner = owner_of(effect.subject)
        if owner is None:
            assert any(matches(pattern, effect.subject) for pattern in known.patterns)
        else:
            assert owner == known.worker, "a part of a broadcast is its worker's alone"
        if (
            job.requirements is not None
            and job.requirements.blobs
            and not known.blobs
            and effect.job not in self.loaded
        ):
            assert not any(it.blobs for it in self.leader.roster.audience(effect.subject, job.requirements)), (
                "one that knows no blobs was given some, although another one serves"
            )
        self.runs[known.worker][effect.job] = None
        if effect.job not in self.loaded:
            assigned[job.client.id] += 1

    def _judge_shunned(self, worker: WorkerId, job: JobRecord, slots: int) -> None:
        tried = self.leader.lifecycle.tried.get(job.id, Tried())
        others = self.leader.roster.audience(job.subject, without_shuns(job.requirements))
        others = [it for it in others if it.slots >= slots or slots == 1]
        others = [it for it in others if it.blobs or job.requirements is None or not job.requirements.blobs]
        if worker in tried.lack:
            assert all(it.id in tried.lack for it in others), "it goes where its program is not, and another one serves"
        elif worker in tried.sick and any(it.id not in {*tried.sick, *tried.lack} for it in others):
            assert worker not in tried.again, "it goes where it could not be started twice, and another one serves"
            waited_s = self.now - self.turned_down_at[worker, job.id]
            assert waited_s >= RESTING_PATIENCE_S, "it goes where it could not be started, and another one serves"

    def _judge_result(self, effect: ev.SendResult) -> None:
        known = self.clients[effect.conn]
        if isinstance(effect.result, Verdict) and effect.result.code in SAID_NO:
            assert known.old
            known.waits.discard(effect.job)
            return
        assert not known.blocked or effect.conn in self.blocked
        # A batch may open it again after its result was sent, even for the one who got it.
        opened = effect.job in self.open
        result = self.result.get(effect.job) or self.forgotten.get(effect.job)
        assert opened or (result is not None and effect.result == result.result)
        assert effect.job in known.waits | known.asked or known.old or (effect.conn, effect.job) in self.asked, (
            "nobody asked for it"
        )
        if not opened or effect.conn not in self.leader.jobs[effect.job].waiters:
            known.waits.discard(effect.job)
        known.unconfirmed.add(effect.job)
        if known.old:  # Written is delivered (F9): the shell says so when it has written it.
            self._written.append((effect.conn, effect.job))

    def _judge_states(self, *, single: bool) -> None:
        for job_id_, job in self.leader.jobs.items():
            record, before = self.states.get(job_id_, (job, JobState.QUEUED))
            if record is not job:
                assert before == JobState.DONE or not single
            elif before != job.state and single:
                self.seen.add((before, job.state))
                assert job.state in TRANSITIONS[before], (before, job.state)
            self.states[job_id_] = (job, job.state)
        for job_id_ in self.states.keys() - self.leader.jobs.keys():
            assert self.states.pop(job_id_)[1] == JobState.DONE

    # The weather clears.

    def heal(self) -> None:
        """All workers leave for good, and one comes that does everything; each client comes back and asks for what it
        is owed. Then nothing may be left."""
        self.disk(1, 0)
        self.flush()
        for conn in list(self.workers):
            self._give_up(conn)
        self._bury()
        self._read_all()
        for conn in list(self.clients):
            self.clients[conn].blocked = False
            self.say(ev.PeerUnblocked(conn))
        for seconds in (100.0, 5.0):  # After the first it has to find out that it slept.
            self.now += seconds
            self.beats(0, 0)
            self.tick()
        if self.stopping:
            self._end_of_a_stopping_leader()
        else:
            self._end_of_all_jobs()
        self._leaves_nothing_behind()

    def _end_of_a_stopping_leader(self) -> None:
        for conn, known in self.clients.items():
            self.say(ev.Confirmed(conn, sorted(known.unconfirmed | set(EVERY_JOB))))
        assert self.stopped == 1
        for job in sorted(self.open):
            self._ask(AskCancel(jobs=[show_job_id(job)]))

    def _end_of_all_jobs(self) -> None:
        accepted = set(self.open)
        answers = self.answers.copy()
        healer = self._new_conn()
        patterns = (Pattern(">"),)
        self.workers[healer] = WorkerConn(worker_id("healer"), patterns, False, cancels=False, settled=True, slots=10)
        self.workers[healer].runs_unnamed = self.workers[healer].env = True
        came = ev.WorkerJoined(healer, worker_id("healer"), "", patterns, False, False, False, False, 10)
        self.say(msgspec.structs.replace(came, runs_unnamed=True, env=True))
        self.workers[healer].credit = 10
        self.say(ev.Credited(healer, 10))
        runs = self.runs[worker_id("healer")]
        for _ in range(200):
            for job in list(runs):
                runs.pop(job)
                slots = slots_of(self.leader.jobs[job])
                self._ack(healer, job, True, "")
                self.workers[healer].credit += slots
                self.say(ev.Credited(healer, slots))
            if not self.open:
                break
            self.now += 9.0
            self.beats(0, 0)
            self.tick()
            self._read_all()
        assert not self.open, "a job that was accepted never came to its end"
        assert self.answers - answers == Counter(accepted)
        assert all(not known.waits for known in self.clients.values())

    def _leaves_nothing_behind(self) -> None:
        self.flush()
        before = len(self.leader.clients.results.undelivered)
        watcher = self._join(ClientConn(ClientId("watcher"), old=False, cap=1), heartbeats=False)
        self.say(ev.Claimed(watcher, sorted(self.leader.clients.results.undelivered)))
        self.say(ev.Confirmed(watcher, EVERY_JOB))
        assert len(self.leader.clients.results.undelivered) == before, "only its own client can settle a job"
        for client in "kmn":
            owner = self._join(ClientConn(ClientId(client), old=False, cap=1), heartbeats=False)
            self.say(ev.Claimed(owner, sorted(self.leader.clients.results.undelivered)))
            self.say(ev.Confirmed(owner, EVERY_JOB))
        assert not self.leader.clients.results.undelivered
        self._ask(AskDrop())
        for conn in [*self.clients, *self.workers]:
            self._give_up(conn)
        self._bury()
        for seconds in (KEPT_RESULT_TTL_S + SWEEP_S, UNDELIVERED_TTL_S, 5.0):
            self.now += seconds
            self.tick()
        leader = self.leader
        assert not any(
            (leader.jobs, leader.clients.by_id, leader.clients.connections, leader.roster.by_id, leader.orphans.by_job)
        )
        assert not any((leader.lanes.queued, leader.lifecycle.backing_off, leader.lifecycle.open_bytes, leader.full))
        assert not len(leader.roster._tree)
        assert not leader.file_references._needs, "something is held for nobody"
        self.restarts(0, 0)
        assert not self.leader.jobs, "what was forgotten came back"

    def _read_all(self) -> None:
        while self.loads:
            self._loaded(self.loads.pop(0))
            self.flush()

    def _loaded(self, load: ev.LoadPayloads) -> None:
        self.flush()
        self.loaded.update(load.jobs)
        self.say(self.journal.load(load.leaf, load.jobs))
        self.flush()

    def _new_leader(self) -> LeaderMachine:
        return LeaderMachine(
            Random(5).random,
            now=self.now,
            policies=self._policies,
            queue_jobs_max=8,
            attempts_max=3,
            payload_memory_bytes=self._payload_memory_bytes,
            holders=lambda file: HOLDERS.get(file, ()),
        )

    def _ask(self, question: Question) -> None:
        self.flush()
        conn = self._new_conn()
        step = self.leader.handle([ev.QuestionAsked(conn, b"ask", question)], self.now)
        step.do = [effect for effect in step.do if not isinstance(effect, ev.SendAnswer | ev.SendNo)]
        self.judge(step, [])

    def _ack(self, conn: ConnId, job: JobId, ok: bool, reason: str, *, begun: bool = True) -> None:
        self.workers[conn].acked.add(job)
        self._outputs += 1
        blobs = (BLOBS[self._outputs % 4],) if self._outputs % 3 == 0 else ()
        self.say(ev.Acked(conn, job, ok, reason, b"output %d" % self._outputs, blobs=blobs, begun=begun))

    def _join(self, known: ClientConn, *, heartbeats: bool) -> ConnId:
        conn = self._new_conn()
        self.clients[conn] = self.connections[conn] = known
        self._update_cap(known.client)
        self.say(ev.ClientJoined(conn, known.client, known.cap, not known.old, heartbeats))
        return conn

    def _give_up(self, conn: ConnId) -> None:
        if self.workers.pop(conn, None) is not None or self.clients.pop(conn, None) is not None:
            self.gone.append(conn)

    def _bury(self) -> None:
        """The leader hears of those that are gone."""
        while self.gone:
            conn = self.gone.pop()
            known = self.connections.pop(conn, None)
            if known is not None:
                self._update_cap(known.client)
            self.say(ev.Left(conn))
        self.flush()

    def _update_cap(self, client: ClientId) -> None:
        """The largest of its connections; that of the last one outlives it."""
        caps = [known.cap for known in self.connections.values() if known.client == client]
        if caps:
            self.caps[client] = max(caps)

    def _new_conn(self) -> ConnId:
        self._conns += 1
        return ConnId(self._conns)


KINDS = (
    ["submits"] * 6 + ["broadcasts"] + ["credits"] * 4 + ["acks"] * 5 + ["worker_joins"] * 3 + ["holds"] * 4
    + ["client_joins"] * 2 + ["worker_leaves"] * 2
    + ["turns_down"] * 2
    + ["client_leaves", "claims", "cancels", "lies", "says_it_leaves", "drains", "asks", "declines", "rests"]
    + ["confirms"] * 3 + ["ticks"] * 3 + ["blocks", "unblocks", "unblocks", "gather", "beats", "stops"]
    + ["reads"] * 3 + ["disk", "restarts"]
)  # fmt: skip


def _pick(among: Mapping[ConnId, object], number: int) -> ConnId | None:
    return list(among)[number % len(among)] if among else None


def _claimed(leader: LeaderMachine) -> dict[tuple[JobId, WorkerId], tuple[object, ...]]:
    answers = [answer for claim in leader.orphans.by_job.values() for answer in claim.answers]
    return {
        (it.job, by.worker): (by.patterns, it.ok, it.reason, it.payload, it.blobs, it.begun, it.request)
        for by, it in ((answer.claimant, answer.ack) for answer in answers)
    }


def _same_jobs(before: LeaderMachine, after: LeaderMachine) -> None:
    """What a leader knew and what its successor read from its journal are the same, as far as they must be."""
    assert before.jobs.keys() == after.jobs.keys()
    for job_id_, was in before.jobs.items():
        job = after.jobs[job_id_]
        for field in (
            "subject",
            "program",
            "timeout_s",
            "attempts",
            "ok",
            "delivered",
            "result",
            "digest",
            "retries",
        ):
            assert getattr(job, field) == getattr(was, field), field
        assert without_shuns(job.requirements) == without_shuns(was.requirements)
        assert job.client.id == was.client.id
        assert job.state == was.state or {job.state, was.state} == {JobState.QUEUED, JobState.BACKOFF}
        assert (job.worker.id if job.worker else None) == (was.worker.id if was.worker else None)
        assert [attempt.outcome for attempt in job.history] == [attempt.outcome for attempt in was.history]
    assert before.lifecycle.tried == after.lifecycle.tried
    assert before.clients.results.undelivered.keys() == after.clients.results.undelivered.keys()
    assert before.clients.dead.letters.keys() == after.clients.dead.letters.keys()
    assert before.file_references.results == after.file_references.results
    assert _claimed(before) == _claimed(after), "a claim without an answer is forgotten, and no other"
    assert before.lifecycle.open_bytes == after.lifecycle.open_bytes
    assert after.leaves.number == before.leaves.number or not len(after.jobs)
