"""The leader's state machine: what becomes of a job, from its submit to its confirmed result.

    submit ─► queue (`queues`) ─► assign to the best worker (`roster`, `policy`) ─► ack ─► result (`delivery`)
                 ▲                                        │
                 └──── lost, late, failed by its worker ◄─┘        up to ATTEMPTS_MAX times, then it is dead

One job id has one accepted result, whoever dies: the first one wins, later ones are confirmed and dropped. What may be
asked about all this is answered in `explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from heapq import heappop, heappush
from typing import Any

import msgspec

from wakugumi.core import events as ev
from wakugumi.core import explain
from wakugumi.core.claims import Claim, Claims
from wakugumi.core.delivery import Delivery, Door
from wakugumi.core.events import LeaderDo, LeaderEvent, LeaderKeep, Step
from wakugumi.core.job import (
    BACKOFF,
    DONE,
    LIMBO,
    QUEUED,
    RUNNING,
    Attempt,
    ClientId,
    ConnId,
    JobId,
    Verdict,
    parse_job_id,
)
from wakugumi.core.policy import Ranking, backoff_s, most_credit
from wakugumi.core.questions import Answer, AskCancel, AskDrain, AskResume, CancelAnswer
from wakugumi.core.queues import Client, Job, Lanes
from wakugumi.core.roster import Roster, Worker
from wakugumi.errors import CODES, Refused
from wakugumi.limits import (
    ACK_MARGIN_S,
    ATTEMPTS_MAX,
    CLIENTS_MAX,
    CREDIT_MAX,
    HEARTBEAT_S,
    HELLO_DEADLINE_S,
    QUEUE_BYTES_MAX,
    QUEUE_JOBS_MAX,
    QUEUE_RESUME_SHARE,
    REATTACH_GRACE_S,
    SILENCE_MAX_S,
    SWEEP_S,
)


class Counts(msgspec.Struct):
    """What happened since the leader began."""

    submitted: int = 0
    finished_ok: int = 0
    finished_failed: int = 0
    redelivered: int = 0
    dead: int = 0


class Dispatch:
    """The leader. See `events` for the four doors."""

    def __init__(
        self,
        chance: Callable[[], float],
        *,
        now: float = 0.0,
        ranking: Ranking = most_credit,
        queue_jobs_max: int = QUEUE_JOBS_MAX,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:
        self._chance = chance
        self._queue_jobs_max = queue_jobs_max
        self._queue_bytes_max = queue_bytes_max
        self._attempts_max = attempts_max
        self.started_at = now
        self.roster = Roster(ranking)
        self.lanes = Lanes(self.roster)
        self.delivery = Delivery()
        self.jobs: dict[JobId, Job] = {}
        self.clients: dict[ClientId, Client] = {}
        self.doors: dict[ConnId, Door] = {}
        self.counts = Counts()
        self.open_bytes = 0
        """Payload bytes of jobs that are not done."""
        self.full = False
        self.backing_off = 0
        self.stopping = False
        self._claims = Claims()
        self._timers: list[tuple[float, int, Job | Worker]] = []
        self._timer_count = 0
        self._beat_at = now + HEARTBEAT_S
        self._sweep_at = now + SWEEP_S
        self._keep: list[LeaderKeep] = []
        self._do: list[LeaderDo] = []
        self._receipts: dict[ConnId, list[JobId]] = {}
        self._confirms: dict[ConnId, list[JobId]] = {}
        self._stopped = False
        self._on: dict[type[object], Callable[[Any, float], None]] = {
            ev.ClientJoined: self._client_joined,
            ev.WorkerJoined: self._worker_joined,
            ev.Left: self._left,
            ev.Submitted: self._submitted,
            ev.SubmitRefused: self._submit_refused,
            ev.Credited: self._credited,
            ev.Acked: self._acked,
            ev.Held: self._held,
            ev.Confirmed: self._confirmed,
            ev.Claimed: self._claimed,
            ev.CancelWanted: self._cancel_wanted,
            ev.Heard: self._heard,
            ev.Leaving: self._leaving,
            ev.Blocked: self._blocked,
            ev.Unblocked: self._unblocked,
            ev.Asked: self._asked,
            ev.StopWanted: self._stop_wanted,
        }

    # The four doors.

    def handle(self, events: Sequence[LeaderEvent], now: float) -> Step[LeaderKeep, LeaderDo]:
        on = self._on
        for event in events:
            on[type(event)](event, now)
        return self._step(now)

    def tick(self, now: float) -> Step[LeaderKeep, LeaderDo]:
        while self._timers and self._timers[0][0] <= now:
            due, _, who = heappop(self._timers)
            if isinstance(who, Worker):
                if who.conn is None and who.away_until == due:
                    self._give_up_on(who, now)
            elif who.state is BACKOFF and who.since == due:
                who.state = QUEUED
                self.backing_off -= 1
                self.lanes.push(who, first=True)
        if self._beat_at <= now:
            self._beat_at = now + HEARTBEAT_S
            self._beat(now)
        if self._sweep_at <= now:
            self._sweep_at = now + SWEEP_S
            for job in self.delivery.expired(now):
                if not job.delivered:
                    self._no_longer_open(job.client)
                self._forget(job)
            self._claims.sweep(self.roster.by_id, now)
        return self._step(now)

    def wake_at(self) -> float | None:
        at = min(self._beat_at, self._sweep_at)
        return min(at, self._timers[0][0]) if self._timers else at

    def check(self) -> None:
        self.roster.check()
        self.lanes.check()
        self.delivery.check()
        self._claims.check()
        running: dict[Client, int] = {}
        opened: dict[Client, int] = {}
        open_bytes = backing_off = 0
        for job_id, job in self.jobs.items():
            assert job.id == job_id
            assert job.state is not LIMBO
            assert (job.state is RUNNING) == (job.worker is not None)
            assert (job.state is DONE) == (job.payload is None) == (job.result is not None)
            assert (job.state is DONE and not job.delivered) == (job_id in self.delivery.undelivered)
            if not job.delivered:
                opened[job.client] = opened.get(job.client, 0) + 1
                assert self.clients[job.client.id] is job.client
            if job.worker is not None:
                running[job.client] = running.get(job.client, 0) + 1
                assert job_id in job.worker.jobs
                assert self.roster.by_id[job.worker.id] is job.worker
            open_bytes += len(job.payload or b"")
            backing_off += job.state is BACKOFF
        assert open_bytes == self.open_bytes
        assert backing_off == self.backing_off
        for client_id, client in self.clients.items():
            assert client.id == client_id
            assert client.in_flight == running.get(client, 0)
            assert client.open_jobs == opened.get(client, 0)
            assert client.conns or client.open_jobs
            assert all(self.doors[conn].client is client for conn in client.conns)
        assert not self._keep
        assert not self._do
        assert not self._receipts
        assert not self._confirms

    # Who comes and goes.

    def _client_joined(self, event: ev.ClientJoined, now: float) -> None:
        client = self.clients.get(event.client)
        if client is None:
            if len(self.clients) >= CLIENTS_MAX:
                self._do.append(ev.Close(event.conn, f"more than {CLIENTS_MAX} clients have work here"))
                return
            client = self.clients[event.client] = Client(event.client)
        client.conns[event.conn] = event.cap
        client.cap = max(client.conns.values())
        self.lanes.room_came(client)
        door = Door(event.conn, client, event.receipts, event.heartbeats, now, (event.conn,))
        self.doors[event.conn] = door
        if event.receipts or event.heartbeats:
            self._do.append(ev.SendWelcome(event.conn))
        if not event.receipts:
            if self.full:
                self._pause(door)
            if client.undelivered_bytes:
                for job in [job for job in self.delivery.undelivered.values() if job.client is client]:
                    if not any(conn in self.doors for conn in job.waiters):
                        self._send_result(job, door, now)

    def _worker_joined(self, event: ev.WorkerJoined, now: float) -> None:
        worker = self.roster.by_id.get(event.worker)
        if worker is None:
            worker = self.roster.add(event.worker)
        elif worker.conn is not None:
            # The old connection is half open, or someone copied an id: the newer one is the one that lives.
            self._do.append(ev.Close(worker.conn, "the same worker connected anew"))
            self._disconnect(worker, now)
        if not event.reattach:
            self._lose_all(worker, now)
            worker.away_until = None
        worker.call(event.name)
        worker.receipts, worker.heartbeats = event.receipts, event.heartbeats
        worker.reattach, worker.cancels = event.reattach, event.cancels
        worker.settled = not event.reattach
        worker.leaving = worker.blocked = False
        worker.seen_at = worker.joined_at = now
        self.lanes.pools_came(self.roster.connect(worker, event.conn, event.patterns))
        if event.receipts or event.heartbeats or event.reattach or event.cancels:
            self._do.append(ev.SendWelcome(event.conn))

    def _left(self, event: ev.Left, now: float) -> None:
        door = self.doors.pop(event.conn, None)
        if door is not None:
            client = door.client
            del client.conns[event.conn]
            if client.conns:
                client.cap = max(client.conns.values())
            else:
                self._forget_idle(client)
            return
        worker = self.roster.by_conn.get(event.conn)
        if worker is None:
            return
        self._disconnect(worker, now)
        assert worker.away_until is not None
        if worker.jobs and worker.away_until > now:
            self._set_timer(worker.away_until, worker)
        else:
            self._give_up_on(worker, now)

    def _disconnect(self, worker: Worker, now: float) -> None:
        """From now on it has its time to come back, if it asked for that; one that came back and went again before it
        had said what it holds gets no more of it."""
        if worker.settled and worker.reattach:
            worker.away_until = now + REATTACH_GRACE_S
        elif worker.away_until is None:
            worker.away_until = now
        self.lanes.pools_went(self.roster.disconnect(worker))

    def _give_up_on(self, worker: Worker, now: float) -> None:
        """It is gone: what it ran goes back to the head of the queue (SPEC L4)."""
        self._lose_all(worker, now)
        self.roster.remove(worker)

    def _lose_all(self, worker: Worker, now: float, keeps: Container[JobId] = ()) -> None:
        # The last one first: each goes to the head of its queue, and so they stand there as they stood before.
        for job_id in reversed([job_id for job_id in worker.jobs if job_id not in keeps]):
            del worker.jobs[job_id]
            job = self.jobs.get(job_id)
            if job is not None and job.worker is worker:
                self._attempt_lost(job, "worker-lost", now, at_once=True)

    def _held(self, event: ev.Held, now: float) -> None:
        """A worker is back, or this leader is new to it: it keeps what it has, and loses what it has not (SPEC L4)."""
        worker = self.roster.by_conn.get(event.conn)
        if worker is None or worker.settled:
            return
        running = dict.fromkeys(event.running)
        held = running | dict.fromkeys(event.finished)
        self._lose_all(worker, now, keeps=held)
        for job_id in held:
            job = self.jobs.get(job_id)
            if job is None and job_id not in worker.jobs:
                self._claims.hold(job_id, worker.id, now)
                continue
            worker.jobs[job_id] = None
            if job is None or job.state is DONE:
                if worker.cancels and job_id in running:
                    self._do.append(ev.SendCancel(event.conn, job_id))
            elif job.state is not RUNNING:
                self._run_on(job, worker, now)
            elif job.worker is not worker and worker not in job.also:
                job.also = (*job.also, worker)
        worker.settled = True
        worker.away_until = None
        self.roster.changed(worker)

    def _leaving(self, event: ev.Leaving, _now: float) -> None:
        worker = self.roster.by_conn.get(event.conn)
        if worker is not None:
            worker.leaving = True
            self.roster.changed(worker)

    def _credited(self, event: ev.Credited, _now: float) -> None:
        worker = self.roster.by_conn.get(event.conn)
        if worker is None:
            return
        if event.amount <= 0 or worker.credit + event.amount > CREDIT_MAX:
            self._complain(event.conn, f"a credit of {event.amount} to {worker.credit} is refused: 1 to {CREDIT_MAX}")
            return
        worker.credit += event.amount
        self.roster.changed(worker)

    def _heard(self, event: ev.Heard, now: float) -> None:
        door = self.doors.get(event.conn)
        if door is not None:
            door.seen_at = now
        elif (worker := self.roster.by_conn.get(event.conn)) is not None:
            worker.seen_at = now
            worker.cpu = event.cpu

    # A job comes in.

    def _submitted(self, event: ev.Submitted, now: float) -> None:
        door = self.doors.get(event.conn)
        if door is None:
            self._complain(event.conn, "only clients submit jobs")
            return
        job = self.jobs.get(event.job)
        if job is not None:
            if not _same_request(job, event):
                self._refuse(door, event.job, "conflict", "this job id was used for another request")
                return
            if job.state is not DONE or job.ok or not job.delivered:
                self._attach(door, job, now)
                return
        if self.stopping:
            self._refuse(door, event.job, "stopping", "the leader is shutting down")
            return
        if door.receipts and (self.full or self._is_full()):
            self._refuse(
                door, event.job, "full", f"{self.lanes.queued} jobs are queued, {self.open_bytes} bytes in all"
            )
            return
        self._accept(door, event, now)

    def _accept(self, door: Door, event: ev.Submitted, now: float) -> None:
        client = door.client
        job = Job(
            event.job,
            client,
            event.subject,
            event.program,
            event.timeout_s,
            now,
            event.payload,
            door.alone,
            QUEUED,
            now,
        )
        self.jobs[event.job] = job
        client.open_jobs += 1
        self.open_bytes += len(event.payload)
        self.counts.submitted += 1
        self._keep.append(
            ev.KeepJob(event.job, client.id, event.subject, event.program, event.timeout_s, event.payload)
        )
        if door.receipts:
            self._receipt(door.conn, event.job)
        if self._claims.by_job and (claim := self._claims.take(event.job)) is not None:
            self._take_claim(job, claim, now)
        else:
            self.lanes.push(job)

    def _take_claim(self, job: Job, claim: Claim, now: float) -> None:
        """A worker that was there before this leader runs the job already, or has its result."""
        worker = self.roster.by_id.get(claim.worker)
        answer = claim.answer
        if answer is not None and _is_final(answer):
            job.state = LIMBO
            self._finish(job, answer.ok, answer.payload, now)
        elif answer is None and worker is not None and claim.since >= worker.joined_at:
            job.state = LIMBO
            self._run_on(job, worker, now)
        else:
            self.lanes.push(job)

    def _attach(self, door: Door, job: Job, now: float) -> None:
        """The job is known: this connection waits for it as well, or gets its result at once (SPEC L6)."""
        if door.receipts:
            self._receipt(door.conn, job.id)
        if job.state is DONE:
            self._send_result(job, door, now)
        else:
            self._wait_for(job, door)

    def _wait_for(self, job: Job, door: Door) -> None:
        if door.conn not in job.waiters:
            job.waiters = (*(conn for conn in job.waiters if conn in self.doors), door.conn)

    def _claimed(self, event: ev.Claimed, now: float) -> None:
        door = self.doors.get(event.conn)
        if door is None:
            return
        for job_id in event.jobs:
            job = self.jobs.get(job_id)
            if job is None:
                self._refuse(door, job_id, "unknown-job", "the leader does not know this job, or no longer")
            else:
                self._attach(door, job, now)

    def _submit_refused(self, event: ev.SubmitRefused, _now: float) -> None:
        door = self.doors.get(event.conn)
        if door is not None:
            self._refuse(door, event.job, event.code, event.text)

    # A job goes out, and its answer comes back.

    def _step(self, now: float) -> Step[LeaderKeep, LeaderDo]:
        do = self._do
        for job in self.lanes.assign() if not self.stopping else ():
            job.attempts += 1
            job.since = now
            assert job.worker is not None
            assert job.worker.conn is not None
            assert job.payload is not None
            do.append(ev.SendAssign(job.worker.conn, job.id, job.subject, job.payload))
        if self.full or self._is_full():
            self._update_full()
        if self._receipts:
            self._receipts = {}
        if self._confirms:
            self._confirms = {}
        if self.stopping and not self._stopped and self._is_quiet():
            self._stopped = True
            do.append(ev.Stopped())
        step = Step(self._keep, do)
        self._keep, self._do = [], []
        return step

    def _acked(self, event: ev.Acked, now: float) -> None:
        worker = self.roster.by_conn.get(event.conn)
        if worker is None:
            self._complain(event.conn, "only workers ack jobs")
            return
        if worker.receipts:
            self._confirm(event.conn, event.job)
        given = event.job in worker.jobs
        if given:
            del worker.jobs[event.job]
            self.roster.changed(worker)
        job = self.jobs.get(event.job)
        if job is None:
            if not self._claims.answer(event) and not given:
                self._complain(event.conn, f"{worker.label} acked a job that nobody submitted")
        elif not given and not _was_given(job, worker):
            self._complain(event.conn, f"{worker.label} acked a job that it was never given")
        elif job.state is DONE:
            return
        elif event.ok or _is_final(event):
            self._finish(job, event.ok, event.payload, now, by=worker, why=event.reason)
        elif job.worker is worker:
            # "cancelled" is the echo of a cancel, under an id that was opened again since: nothing is wrong with it.
            self._attempt_lost(job, event.reason, now, at_once=event.reason == "cancelled")

    def _run_on(self, job: Job, worker: Worker, now: float) -> None:
        """The worker holds this job already: no assignment, no credit."""
        if job.state is QUEUED:
            self.lanes.taken(job)
        elif job.state is BACKOFF:
            self.backing_off -= 1
        job.state = RUNNING
        job.worker = worker
        job.since = now
        job.attempts = max(job.attempts, 1)
        job.client.in_flight += 1
        worker.jobs[job.id] = None
        self.roster.changed(worker)

    def _attempt_lost(self, job: Job, code: str, now: float, *, at_once: bool) -> None:
        """The attempt ended without an answer: again, now or after a while, or never (SPEC L3, L4)."""
        attempt = self._end_attempt(job, code, now)
        if job.attempts >= self._attempts_max:
            self.counts.dead += 1
            text = f"dead: {job.attempts} attempts failed, the last one on {attempt.worker} by {code}"
            job.state = LIMBO
            self._finish(job, False, Verdict("dead", text), now)
            return
        self.counts.redelivered += 1
        if at_once:
            job.state = QUEUED
            job.since = now
            self.lanes.push(job, first=True)
        else:
            job.state = BACKOFF
            self.backing_off += 1
            job.since = now + backoff_s(job.attempts, self._chance())
            self._set_timer(job.since, job)

    def _end_attempt(self, job: Job, outcome: str, now: float) -> Attempt:
        worker, client = job.worker, job.client
        assert worker is not None
        attempt = Attempt(job.attempts, worker.id, worker.label, job.since, now, outcome)
        job.history = (*job.history, attempt) if job.history else (attempt,)
        job.worker = None
        client.in_flight -= 1
        if client.parked:
            self.lanes.room_came(client)
        return attempt

    def _finish(
        self, job: Job, ok: bool, result: bytes | Verdict, now: float, *, by: Worker | None = None, why: str = ""
    ) -> None:
        """The one accepted result of this job. Whoever else runs it may stop (SPEC L3)."""
        before, job.state = job.state, DONE
        if job.also or job.worker is not by:
            self._call_off(job)
        if before is RUNNING:
            if job.worker is not by:
                outcome = "cancelled"
            elif ok:
                outcome = "ok"
            else:
                outcome = why if why in CODES else "exit"
            self._end_attempt(job, outcome, now)
        elif before is QUEUED:
            self.lanes.dropped(job)
        elif before is BACKOFF:
            self.backing_off -= 1
        assert job.payload is not None
        self.open_bytes -= len(job.payload)
        job.digest = hash(job.payload)
        job.payload = None
        job.since = now
        job.ok = ok
        job.result = result
        if ok:
            self.counts.finished_ok += 1
        else:
            self.counts.finished_failed += 1
        self._keep.append(ev.KeepResult(job.id, ok, result))
        self.delivery.finished(job)
        self._deliver(job, now)

    def _call_off(self, job: Job) -> None:
        """Whoever has been given it and has not answered need not go on."""
        for worker in dict.fromkeys((job.worker, *job.also)):
            if worker is not None and worker.conn is not None and worker.cancels and job.id in worker.jobs:
                self._do.append(ev.SendCancel(worker.conn, job.id))
        job.also = ()

    # The result goes back.

    def _deliver(self, job: Job, now: float) -> None:
        somebody = False
        for conn in job.waiters:
            door = self.doors.get(conn)
            if door is not None:
                self._send_result(job, door, now)
                somebody = True
        if not somebody:
            # An old client that came back cannot ask for its results: any connection of its will do.
            for conn in job.client.conns:
                if not self.doors[conn].receipts:
                    self._send_result(job, self.doors[conn], now)
                    break

    def _send_result(self, job: Job, door: Door, now: float) -> None:
        if door.blocked:
            door.pending[job.id] = None
            return
        assert job.result is not None
        self._do.append(ev.SendResult(door.conn, job.id, job.program, job.result))
        if not door.receipts and not job.delivered:
            self._delivered(job, now)

    def _confirmed(self, event: ev.Confirmed, now: float) -> None:
        jobs = self.jobs
        for job_id in event.jobs:
            job = jobs.get(job_id)
            if job is not None and job.state is DONE and not job.delivered:
                self._delivered(job, now)

    def _delivered(self, job: Job, now: float) -> None:
        self.delivery.delivered(job, now)
        self._no_longer_open(job.client)
        while self.delivery.too_much():
            self._forget(self.delivery.forget_kept())

    def _no_longer_open(self, client: Client) -> None:
        client.open_jobs -= 1
        if client.parked:
            self.lanes.room_came(client)
        if not client.conns:
            self._forget_idle(client)

    def _forget_idle(self, client: Client) -> None:
        if not client.open_jobs and not client.conns:
            del self.clients[client.id]

    def _forget(self, job: Job) -> None:
        if self.jobs.get(job.id) is job:
            del self.jobs[job.id]
            self._keep.append(ev.ForgetJob(job.id))

    def _blocked(self, event: ev.Blocked, _now: float) -> None:
        door = self.doors.get(event.conn)
        if door is not None:
            door.blocked = True
        elif (worker := self.roster.by_conn.get(event.conn)) is not None:
            worker.blocked = True
            self.roster.changed(worker)

    def _unblocked(self, event: ev.Unblocked, now: float) -> None:
        door = self.doors.get(event.conn)
        if door is None:
            if (worker := self.roster.by_conn.get(event.conn)) is not None:
                worker.blocked = False
                self.roster.changed(worker)
            return
        door.blocked = False
        pending, door.pending = door.pending, {}
        for job_id in pending:
            job = self.jobs.get(job_id)
            if job is None:
                self._refuse(door, job_id, "expired", "its result waited too long to be read, and was forgotten")
            elif job.state is DONE:
                self._send_result(job, door, now)
            else:
                self._wait_for(job, door)

    # Cancel, drain, and whatever else is asked.

    def _cancel_wanted(self, event: ev.CancelWanted, now: float) -> None:
        door = self.doors.get(event.conn)
        if door is None:
            return
        for job_id in event.jobs:
            job = self.jobs.get(job_id)
            if job is not None and job.client is door.client:
                self._cancel(job, now)

    def _cancel(self, job: Job, now: float) -> bool:
        if job.state is DONE:
            return False
        self._finish(job, False, Verdict("cancelled", "the job was cancelled"), now)
        return True

    def _asked(self, event: ev.Asked, now: float) -> None:
        question = event.question
        try:
            if isinstance(question, AskCancel):
                answer: Answer = self._cancel_all(question, now)
            elif isinstance(question, AskDrain | AskResume):
                worker = explain.worker_called(self, question.worker)
                worker.draining = isinstance(question, AskDrain)
                self.roster.changed(worker)
                answer = explain.worker_row(worker, now)
            else:
                answer = explain.answer(self, question, now)
        except Refused as no:
            self._do.append(ev.SendNo(event.conn, event.ask_id, no.code, no.message))
        else:
            self._do.append(ev.SendAnswer(event.conn, event.ask_id, answer))

    def _cancel_all(self, question: AskCancel, now: float) -> CancelAnswer:
        unknown: list[str] = []
        if question.jobs:
            named: dict[JobId, Job] = {}
            for text in question.jobs:
                try:
                    job = self.jobs.get(parse_job_id(text))
                except ValueError:
                    job = None
                if job is None:
                    unknown.append(text)
                else:
                    named[job.id] = job
            found = list(named.values())
        elif question.client or question.pattern:
            found = [job for job in self.jobs.values() if job.state is not DONE]
        else:
            raise Refused("bad-request", "say which jobs: ids, a client, or a pattern")
        found = explain.chosen(found, question.client, question.pattern)
        cancelled = sum(self._cancel(job, now) for job in found)
        return CancelAnswer(cancelled, len(found) - cancelled, unknown)

    def _stop_wanted(self, _event: ev.StopWanted, _now: float) -> None:
        """Running jobs may finish; what is queued stays with its clients, which send it to the next leader."""
        self.stopping = True

    def _is_quiet(self) -> bool:
        if any(client.in_flight for client in self.clients.values()):
            return False
        return not any(conn in self.doors for job in self.delivery.undelivered.values() for conn in job.waiters)

    # Time passes.

    def _beat(self, now: float) -> None:
        """Say that we live, and look who does not (SPEC L3)."""
        for door in self.doors.values():
            if door.heartbeats and not door.closing:
                if now - door.seen_at > SILENCE_MAX_S:
                    door.closing = True
                    self._do.append(ev.Close(door.conn, f"no sign of life for {SILENCE_MAX_S:.0f} s"))
                else:
                    self._do.append(ev.SendHeartbeat(door.conn))
        for worker in list(self.roster.by_conn.values()):
            assert worker.conn is not None
            if worker.heartbeats and now - worker.seen_at > SILENCE_MAX_S:
                self._hang_up(worker, f"no sign of life for {SILENCE_MAX_S:.0f} s")
            elif not worker.settled and now - worker.joined_at > HELLO_DEADLINE_S:
                self._hang_up(worker, "it wanted to re-attach and did not say what it holds")
            elif worker.heartbeats:
                self._do.append(ev.SendHeartbeat(worker.conn))
            else:
                self._look_for_late_acks(worker, now)

    def _look_for_late_acks(self, worker: Worker, now: float) -> None:
        """A job that is late may still be answered, so the worker goes on holding it (SPEC L3)."""
        for job_id in list(worker.jobs):
            job = self.jobs.get(job_id)
            if job is None:
                del worker.jobs[job_id]
            elif job.worker is worker and now - job.since > job.timeout_s + ACK_MARGIN_S:
                if worker not in job.also:
                    job.also = (*job.also, worker)
                self._attempt_lost(job, "ack-late", now, at_once=False)
        self.roster.changed(worker)

    def _hang_up(self, worker: Worker, why: str) -> None:
        assert worker.conn is not None
        worker.leaving = True
        self.roster.changed(worker)
        self._do.append(ev.Close(worker.conn, why))

    def _set_timer(self, at: float, who: Job | Worker) -> None:
        self._timer_count += 1
        heappush(self._timers, (at, self._timer_count, who))

    # Back pressure.

    def _is_full(self) -> bool:
        return self.lanes.queued >= self._queue_jobs_max or self.open_bytes >= self._queue_bytes_max

    def _update_full(self) -> None:
        """Old clients cannot be told: while it is full they are not read from (SPEC F11)."""
        if not self.full:
            self.full = True
            for door in self.doors.values():
                if not door.receipts:
                    self._pause(door)
        elif (
            self.lanes.queued < self._queue_jobs_max * QUEUE_RESUME_SHARE
            and self.open_bytes < self._queue_bytes_max * QUEUE_RESUME_SHARE
        ):
            self.full = False
            for door in self.doors.values():
                if door.paused:
                    door.paused = False
                    self._do.append(ev.ResumeReading(door.conn))

    def _pause(self, door: Door) -> None:
        if not door.paused:
            door.paused = True
            self._do.append(ev.PauseReading(door.conn))

    # Small words.

    def _receipt(self, conn: ConnId, job_id: JobId) -> None:
        """One effect per connection and step, which stands before anything else that is said about its jobs."""
        receipts = self._receipts.get(conn)
        if receipts is None:
            self._receipts[conn] = receipts = []
            self._do.append(ev.SendReceipts(conn, receipts))
        receipts.append(job_id)

    def _confirm(self, conn: ConnId, job_id: JobId) -> None:
        confirms = self._confirms.get(conn)
        if confirms is None:
            self._confirms[conn] = confirms = []
            self._do.append(ev.SendConfirms(conn, confirms))
        confirms.append(job_id)

    def _refuse(self, door: Door, job_id: JobId, code: str, text: str) -> None:
        """Never by silence: an own client hears the code, an old one gets a FAILED result (SPEC F11)."""
        if door.receipts:
            self._do.append(ev.SendRefusal(door.conn, job_id, code, text))
        else:
            self._do.append(ev.SendResult(door.conn, job_id, "", Verdict(code, text)))

    def _complain(self, conn: ConnId, text: str) -> None:
        self._do.append(ev.Complain(conn, text))


def _same_request(job: Job, event: ev.Submitted) -> bool:
    if job.subject != event.subject:
        return False
    if job.payload is not None:
        return job.payload == event.payload
    return job.digest == hash(event.payload)


def _was_given(job: Job, worker: Worker) -> bool:
    """Before, in an attempt that was given up."""
    return any(attempt.worker_id == worker.id for attempt in job.history)


def _is_final(event: ev.Acked) -> bool:
    """Is it the job's answer, or does it only end this attempt? An old worker gives no reason: its FAILED is an answer
    (SPEC W6). A worker that was told to cancel says so, and that was answered when it was told."""
    if event.ok:
        return True
    code = CODES.get(event.reason)
    return event.reason != "cancelled" and (code is None or not code.retry)
