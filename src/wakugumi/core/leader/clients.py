"""Who submits, who waits for which job, and who gets its result? The leader's side towards clients. (SPEC F9, F11, L9)

A client is an id with any number of doors, its connections. A result goes through every door that waits for it; which
results are kept, and for how long, is `delivery`'s business.
"""

from __future__ import annotations

from typing import Final

from wakugumi.core.ids import DONE, ClientId, ConnId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.dead_letters import Dead
from wakugumi.core.leader.file_references import Holds
from wakugumi.core.leader.job_table import Jobs
from wakugumi.core.leader.results import AROUND_BYTES, Delivery, Door, bytes_of
from wakugumi.core.leader.scheduling.lanes import Client, Job, Lanes
from wakugumi.core.leader.step_builder import Outbox
from wakugumi.limits.leader import CLIENT_CAP_MAX, CLIENTS_MAX, UNDELIVERED_BYTES_MAX, UNDELIVERED_RESULTS_MAX
from wakugumi.limits.wire import GIVEN_BYTES_MAX, SILENCE_MAX_S

_UNHEARD: Final = frozenset({"cancelled", "worker-lost", "ack-late", "leader-lost"})
"""The outcomes of attempts of whose end their worker has said nothing."""


class Callers:
    """All clients of one leader."""

    def __init__(self, out: Outbox, lanes: Lanes, jobs: Jobs, holds: Holds) -> None:
        self._out = out
        self._holds = holds
        self._lanes = lanes
        self._jobs = jobs
        self.clients: dict[ClientId, Client] = {}
        self.doors: dict[ConnId, Door] = {}
        self.delivery = Delivery()
        self.dead = Dead()
        self.undelivered_bytes_max = UNDELIVERED_BYTES_MAX
        """Less where memory is limited."""

    # They come and go.

    def called(self, client_id: ClientId) -> Client:
        """The client of this id, whether it is here or not."""
        client = self.clients.get(client_id)
        if client is None:
            client = self.clients[client_id] = Client(client_id)
        return client

    def joined(self, event: ev.ClientJoined, now: float, *, paused: bool) -> None:
        if event.client not in self.clients and len(self.clients) >= CLIENTS_MAX:
            self._out.do.append(ev.Close(event.conn, f"more than {CLIENTS_MAX} clients have work here"))
            return
        client = self.called(event.client)
        client.conns[event.conn] = event.cap
        client.cap = max(client.conns.values())
        self._lanes.room_came(client)
        door = Door(event.conn, client, event.receipts, event.heartbeats, now, (event.conn,))
        self.doors[event.conn] = door
        if event.receipts or event.heartbeats:
            self._out.at_once.append(ev.SendWelcome(event.conn))
        if not event.receipts:
            if paused:
                self._pause(door)
            self._send_stranded(client, door)

    def cap_changed(self, door: Door, cap: int) -> None:
        """The largest cap of a client's connections holds, as in their hellos."""
        if not 1 <= cap <= CLIENT_CAP_MAX:
            self._out.complain(door.conn, f"a cap of {cap} is refused: 1 to {CLIENT_CAP_MAX}")
            return
        client = door.client
        client.conns[door.conn] = cap
        client.cap = max(client.conns.values())
        self._lanes.room_came(client)

    def left(self, door: Door) -> None:
        del self.doors[door.conn]
        client = door.client
        del client.conns[door.conn]
        if client.conns:
            client.cap = max(client.conns.values())
            if not door.receipts and (other := self._old_door(client)) is not None:
                self._send_stranded(client, other)
        else:
            self._forget_idle(client)

    def beat(self, now: float) -> None:
        """Say that we live, and look who does not."""
        for door in self.doors.values():
            if door.heartbeats and not door.closing:
                if now - door.seen_at > SILENCE_MAX_S:
                    door.closing = True
                    self._out.do.append(ev.Close(door.conn, f"no sign of life for {SILENCE_MAX_S:.0f} s"))
                else:
                    self._out.at_once.append(ev.SendHeartbeat(door.conn))

    def hear_all(self, now: float) -> None:
        """We could not hear them: their silence says nothing."""
        for door in self.doors.values():
            door.seen_at = now

    # They wait.

    def attach(self, door: Door, job: Job) -> None:
        """The job is known: this connection waits for it as well, or gets its result at once (SPEC L6).

        A result that was delivered before is kept for a while only, so no receipt promises it.
        """
        if door.receipts and not job.delivered:
            self._out.receipt(door.conn, job.id)
        self._wait_for(job, door)
        if job.state is DONE:
            self.send_result(job, door)

    def claimed(self, door: Door, event: ev.Claimed) -> None:
        for job_id in event.jobs:
            job = self._jobs.get(job_id)
            # That it was cancelled is kept for its worker alone: whoever asks may have submitted it again since.
            if job is None or (job.delivered and _is_cancelled(job)):
                self._out.refuse(door, job_id, "unknown-job", "the leader does not know this job, or no longer")
            else:
                self.attach(door, job)

    def unblocked(self, door: Door) -> None:
        door.blocked = False
        self._send_pending(door)

    def written(self, door: Door) -> None:
        """It was sent what it was given, and gets more."""
        door.unwritten_bytes = 0
        self._send_pending(door)

    def _send_pending(self, door: Door) -> None:
        while door.pending and not door.is_written_to:
            job_id, _ = door.pending.popitem(last=False)
            job = self._jobs.get(job_id)
            if job is None:
                self._out.refuse(door, job_id, "expired", "its result waited too long to be read, and was forgotten")
            elif job.state is DONE:
                self.send_result(job, door)
            else:
                self._wait_for(job, door)

    def someone_waits(self) -> bool:
        """For a result that is there, and its word would settle it (see `confirmed`): others that wait were sent it."""
        doors = self.doors
        return any(
            (door := doors.get(conn)) is not None and door.client is job.client
            for job in self.delivery.undelivered.values()
            for conn in job.waiters
        )

    def _wait_for(self, job: Job, door: Door) -> None:
        if door.conn not in job.waiters:
            job.waiters = (*(conn for conn in job.waiters if conn in self.doors), door.conn)

    # They get it.

    def deliver(self, job: Job) -> None:
        """The job has just finished."""
        self.delivery.finished(job)
        somebody = False
        for conn in job.waiters:
            door = self.doors.get(conn)
            if door is not None:
                self.send_result(job, door)
                somebody = True
        if not somebody and (other := self._old_door(job.client)) is not None:
            self._wait_for(job, other)
            self.send_result(job, other)

    def _send_stranded(self, client: Client, door: Door) -> None:
        """An old client cannot ask for its results: those for which no connection waits any more go through this one,
        which waits for them from now on."""
        if client.undelivered_bytes:
            for job in [job for job in self.delivery.undelivered.values() if job.client is client]:
                if not any(conn in self.doors for conn in job.waiters):
                    self._wait_for(job, door)
                    self.send_result(job, door)

    def _old_door(self, client: Client) -> Door | None:
        """Any connection of an old client will do for its results."""
        return next((self.doors[conn] for conn in client.conns if not self.doors[conn].receipts), None)

    def send_result(self, job: Job, door: Door) -> None:
        if door.blocked or door.unwritten_bytes >= GIVEN_BYTES_MAX:
            door.pending[job.id] = None
            return
        result = job.result
        assert result is not None
        self._out.do.append(ev.SendResult(door.conn, job.id, job.program, result))
        # What `bytes_of` says, in full: this is asked for every job.
        size = len(result) + AROUND_BYTES if type(result) is bytes else bytes_of(result)
        door.unwritten_bytes += size
        if door.unwritten_bytes >= GIVEN_BYTES_MAX:
            self._out.do.append(ev.TellWhenWritten(door.conn))

    def confirmed(self, door: Door, event: ev.Confirmed, now: float) -> None:
        """It has these results. Only the word of the client that submitted a job counts (F9): if another one that
        waited for it could settle it, it might be gone when its own client comes back."""
        jobs = self._jobs
        client = door.client
        for job_id in event.jobs:
            job = jobs.get(job_id)
            if job is None or job.state is not DONE or job.delivered or job.client is not client:
                continue
            # A client says its last confirms again over a new connection: they may be about what was before.
            if not job.requeued or door.conn in job.waiters or not door.receipts:
                self._delivered(job, now)

    def reopened(self, job: Job) -> None:
        """A FAILED job is submitted again, so nobody is told any more how it ended before (SPEC L6)."""
        self.withdraw(job)
        self._holds.forget(job.id)
        if job in self.dead:
            self.unbury(job)
        if job.leaf:
            self._out.leaves.release(job.leaf)

    def is_swamped(self) -> bool:
        """So many results wait to be fetched that no more may come."""
        delivery = self.delivery
        return (
            delivery.undelivered_bytes >= self.undelivered_bytes_max
            or len(delivery.undelivered) >= UNDELIVERED_RESULTS_MAX
        )

    def sweep(self, now: float) -> None:
        """Forget results whose time has come."""
        for job in self.delivery.expired(now):
            if not job.delivered:
                job.delivered = True
                if self._out.keeps and job in self.dead:
                    self._out.keep.append(ev.KeepDelivered(job.id))
                self._no_longer_open(job.client)
            self._forget(job)
        self._holds.sweep(now)

    # Some are dead.

    def bury(self, job: Job) -> None:
        """It used up its attempts: beside its result, its story waits for someone to look at it (SPEC L3)."""
        self.dead.add(job)
        self.push_out_letters()

    def unbury(self, job: Job) -> None:
        """It is no letter any more, and cannot be requeued."""
        self.dead.remove(job)
        self._holds.end(job)

    def push_out_letters(self) -> None:
        """The oldest, if there are too many. One whose client has still to hear of it stays a result like any other."""
        while (oldest := self.dead.too_many()) is not None:
            self.unbury(oldest)
            if oldest.id in self.delivery.undelivered:
                oldest.payload = None
            else:
                self._drop(oldest)

    def drop_letter(self, job: Job) -> None:
        """Nobody wants to hear of it any more, its client included."""
        self.unbury(job)
        self._drop(job)

    def is_forgettable(self, job: Job) -> bool:
        """A dead letter is not, it has to be dropped as one; nor what is kept for its worker alone."""
        return job not in self.dead and not (job.delivered and may_still_run(job))

    def forget(self, job: Job, now: float) -> bool:
        """Nobody is told any more how a done job ended. False if that cannot be."""
        assert job.state is DONE
        if not self.is_forgettable(job):
            return False
        if may_still_run(job):
            self._delivered(job, now)
        else:
            self._drop(job)
        return True

    def _drop(self, job: Job) -> None:
        """It is as if it had never been."""
        self.withdraw(job)
        self._forget(job)

    def withdraw(self, job: Job) -> None:
        """Nobody is told any more how it ended."""
        if job.id in self.delivery.undelivered:
            self.delivery.dropped(job)
            job.delivered = True
            self._no_longer_open(job.client)

    def _delivered(self, job: Job, now: float) -> None:
        self.delivery.delivered(job, now)
        if self._out.keeps:
            self._out.keep.append(ev.KeepDelivered(job.id))
        self._no_longer_open(job.client)
        if self.delivery.too_much():
            self.forget_too_much()

    def forget_too_much(self) -> None:
        while self.delivery.too_much():
            until, job = self.delivery.forget_kept()
            self._forget(job, until)

    def forget_all_kept(self) -> None:
        """There is no room for what is only kept in case someone asks again. A job that was called off and may still
        run is not: its worker would never be told."""
        for job in self.delivery.forget_all_kept(but=may_still_run):
            self._forget(job)
        self._holds.let_all_go()

    def _no_longer_open(self, client: Client) -> None:
        client.open_jobs -= 1
        if client.parked:
            self._lanes.room_came(client)
        if not client.conns:
            self._forget_idle(client)

    def forget_idle(self) -> None:
        for client in list(self.clients.values()):
            self._forget_idle(client)

    def _forget_idle(self, client: Client) -> None:
        if not client.open_jobs and not client.conns:
            del self.clients[client.id]

    def _forget(self, job: Job, blobs_until: float = 0.0) -> None:
        """Its blobs may have to stay longer than its result."""
        if self._jobs.get(job.id) is job and job not in self.dead:
            self._jobs.remove(job)
            if self._holds.results:
                self._holds.forget(job.id, blobs_until)
            if self._out.keeps:
                self._out.leaves.release(job.leaf)
                self._out.keep.append(ev.ForgetJob(job.id))

    # They are held back.

    def pause_old(self) -> None:
        """Old clients cannot be told that the leader is full: while it is, they are not read from (SPEC F11)."""
        for door in self.doors.values():
            if not door.receipts:
                self._pause(door)

    def resume_old(self) -> None:
        for door in self.doors.values():
            if door.paused:
                door.paused = False
                self._out.do.append(ev.ResumeReading(door.conn))

    def _pause(self, door: Door) -> None:
        if not door.paused:
            door.paused = True
            self._out.do.append(ev.PauseReading(door.conn))

    def check(self) -> None:
        self.delivery.check()
        self.dead.check()
        for client_id, client in self.clients.items():
            assert client.id == client_id
            assert client.conns or client.open_jobs
            assert all(self.doors[conn].client is client for conn in client.conns)
        for door in self.doors.values():
            assert not door.pending or door.is_written_to, "a result waits for nothing"


def may_still_run(job: Job) -> bool:
    """It was called off, and a worker that had it has not said that it ended: it may be away, and come back with it."""
    return type(job.result) is Verdict and any(attempt.outcome in _UNHEARD for attempt in job.history)


def _is_cancelled(job: Job) -> bool:
    return type(job.result) is Verdict and job.result.code == "cancelled"
