"""Which clients wait for which results, and when do they get them? (SPEC F9, F11, L9)

A client is an id with any number of connections. A result goes to each connection that waits for it; `results` decides
which results are kept, and for how long.
"""

from __future__ import annotations

from typing import Final

from wakugumi.core.ids import ClientId, ConnId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.jobs.dead_letters import DeadLetters
from wakugumi.core.leader.jobs.file_references import FileReferences
from wakugumi.core.leader.jobs.job_table import JobTable
from wakugumi.core.leader.jobs.results import AROUND_BYTES, ClientConnection, ResultStore, bytes_of
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.journal.entries import ForgetJob, KeepDelivered
from wakugumi.core.leader.records import ClientRecord, JobRecord
from wakugumi.core.leader.scheduling.lanes import Lanes
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.limits.leader import CLIENT_CAP_MAX, CLIENTS_MAX, UNDELIVERED_BYTES_MAX, UNDELIVERED_RESULTS_MAX
from wakugumi.limits.wire import GIVEN_BYTES_MAX, SILENCE_MAX_S

_UNREPORTED: Final = frozenset({"cancelled", "worker-lost", "ack-late", "leader-lost"})
"""Outcomes of attempts whose worker has not reported their end."""


class Clients:
    def __init__(self, out: StepBuilder, lanes: Lanes, jobs: JobTable, file_references: FileReferences) -> None:
        self._out = out
        self._file_references = file_references
        self._lanes = lanes
        self._jobs = jobs
        self.by_id: dict[ClientId, ClientRecord] = {}
        self.connections: dict[ConnId, ClientConnection] = {}
        self.results = ResultStore()
        self.dead = DeadLetters()
        self.undelivered_bytes_max = UNDELIVERED_BYTES_MAX
        """Limit of all undelivered results; less where memory is limited."""
        self._paused = False
        """The leader does not read from old clients."""

    # Connections.

    def get_or_add(self, client_id: ClientId) -> ClientRecord:
        """The client of this id, connected or not."""
        client = self.by_id.get(client_id)
        if client is None:
            client = self.by_id[client_id] = ClientRecord(client_id)
        return client

    def joined(self, event: ev.ClientJoined, now: float) -> None:
        if event.client not in self.by_id and len(self.by_id) >= CLIENTS_MAX:
            self._out.do.append(ev.Close(event.conn, f"full: {CLIENTS_MAX} clients are connected or have open jobs"))
            return
        client = self.get_or_add(event.client)
        client.conns[event.conn] = event.cap
        client.cap = max(client.conns.values())
        self._lanes.room_freed(client)
        connection = ClientConnection(
            event.conn, client, event.receipts, event.heartbeats, now, (event.conn,), event.sight
        )
        self.connections[event.conn] = connection
        if event.receipts or event.heartbeats:
            self._out.at_once.append(ev.SendWelcome(event.conn))
        if not event.receipts:
            if self._paused:
                self._pause(connection)
            self._send_stranded(client, connection)

    def cap_changed(self, event: ev.CapChanged, now: float) -> None:
        """The largest cap of a client's connections holds, as in their hellos."""
        connection, cap = self.connections.get(event.conn), event.cap
        if connection is None:
            return
        connection.seen_at = now
        if not 1 <= cap <= CLIENT_CAP_MAX:
            self._out.complain(connection.conn, f"a cap of {cap} is refused: 1 to {CLIENT_CAP_MAX}")
            return
        client = connection.client
        client.conns[connection.conn] = cap
        client.cap = max(client.conns.values())
        self._lanes.room_freed(client)

    def left(self, connection: ClientConnection) -> None:
        del self.connections[connection.conn]
        client = connection.client
        del client.conns[connection.conn]
        if client.conns:
            client.cap = max(client.conns.values())
            if not connection.receipts and (other := self._old_connection(client)) is not None:
                self._send_stranded(client, other)
        else:
            self._forget_idle(client)

    def beat(self, now: float) -> None:
        """Send heartbeats, and close connections that were silent too long."""
        for connection in self.connections.values():
            if connection.heartbeats and not connection.closing:
                if now - connection.seen_at > SILENCE_MAX_S:
                    connection.closing = True
                    self._out.do.append(ev.Close(connection.conn, f"no sign of life for {SILENCE_MAX_S:.0f} s"))
                else:
                    self._out.at_once.append(ev.SendPeerHeartbeat(connection.conn))

    def reset_silence(self, now: float) -> None:
        """The leader could not read, so the silence of clients has no meaning."""
        for connection in self.connections.values():
            connection.seen_at = now

    # Waiting for results.

    def attach(self, connection: ClientConnection, job: JobRecord) -> None:
        """Let this connection wait for a known job, or send its result at once (SPEC L6).

        No receipt for a delivered result: a receipt promises the result, and a delivered one is kept for a while only.
        A result that waits to be sent for an earlier request is sent once for both: the receipt comes before it.
        """
        if connection.receipts and (not job.delivered or job.id in connection.pending):
            self._out.receipt(connection.conn, job.id)
        self._wait_for(job, connection)
        if job.state is DONE:
            self.send_result(job, connection)

    def claimed(self, event: ev.Claimed, _now: float) -> None:
        connection = self.connections.get(event.conn)
        if connection is None:
            return
        for job_id in event.jobs:
            job = self._jobs.get(job_id)
            # A delivered "cancelled" is kept for the worker only: the client may have submitted the job again.
            if job is None or not connection.sees(job) or (job.delivered and _is_cancelled(job)):
                self._out.refuse(connection, job_id, "unknown-job", "the leader does not know this job, or no longer")
            else:
                self.attach(connection, job)

    def unblocked(self, connection: ClientConnection) -> None:
        connection.blocked = False
        self._send_pending(connection)

    def written(self, connection: ClientConnection) -> None:
        """The connection took all results so far, and gets more."""
        connection.unwritten_bytes = 0
        self._send_pending(connection)

    def _send_pending(self, connection: ClientConnection) -> None:
        while connection.pending and not connection.is_congested:
            job_id, _ = connection.pending.popitem(last=False)
            job = self._jobs.get(job_id)
            if job is None or not connection.sees(job):  # Another client may have submitted the forgotten id again.
                self._out.refuse(connection, job_id, "expired", "the result expired before the client read it")
            elif job.state is DONE:
                self.send_result(job, connection)
            else:
                self._wait_for(job, connection)

    def is_client_waiting(self) -> bool:
        """Does the client of an undelivered result wait on a connection? Only this client can confirm the result."""
        connections = self.connections
        return any(
            (connection := connections.get(conn)) is not None and connection.client is job.client
            for job in self.results.undelivered.values()
            for conn in job.waiters
        )

    def _wait_for(self, job: JobRecord, connection: ClientConnection) -> None:
        if connection.conn not in job.waiters:
            job.waiters = (*(conn for conn in job.waiters if conn in self.connections), connection.conn)

    # Delivery.

    def deliver(self, job: JobRecord) -> None:
        """Send the result of a job that has just finished."""
        self.results.finished(job)
        is_sent = False
        for conn in job.waiters:
            connection = self.connections.get(conn)
            if connection is not None:
                self.send_result(job, connection)
                is_sent = True
        if not is_sent and (other := self._old_connection(job.client)) is not None:
            self._wait_for(job, other)
            self.send_result(job, other)

    def _send_stranded(self, client: ClientRecord, connection: ClientConnection) -> None:
        """Send an old client the results that no connection waits for any more: it has no message to ask for them."""
        if client.undelivered_bytes:
            for job in [job for job in self.results.undelivered.values() if job.client is client]:
                if not any(conn in self.connections for conn in job.waiters):
                    self._wait_for(job, connection)
                    self.send_result(job, connection)

    def _old_connection(self, client: ClientRecord) -> ClientConnection | None:
        """A connection of an old client, which may carry any of its results."""
        return next((self.connections[conn] for conn in client.conns if not self.connections[conn].receipts), None)

    def send_result(self, job: JobRecord, connection: ClientConnection) -> None:
        if connection.blocked or connection.unwritten_bytes >= GIVEN_BYTES_MAX:
            connection.pending[job.id] = None
            return
        result = job.result
        assert result is not None
        self._out.do.append(ev.SendResult(connection.conn, job.id, job.program, result))
        # `bytes_of` inlined: this runs for every job.
        size = len(result) + AROUND_BYTES if type(result) is bytes else bytes_of(result)
        connection.unwritten_bytes += size
        if connection.unwritten_bytes >= GIVEN_BYTES_MAX:
            self._out.do.append(ev.TellWhenPeerWritten(connection.conn))

    def confirmed(self, event: ev.Confirmed, now: float) -> None:
        """The client has these results. Only the client that submitted a job can confirm its result (F9): otherwise the
        result might be gone when that client reconnects."""
        connection = self.connections.get(event.conn)
        if connection is None:
            return
        connection.seen_at = now
        jobs = self._jobs
        client = connection.client
        for job_id in event.jobs:
            job = jobs.get(job_id)
            if job is None or job.state is not DONE or job.delivered or job.client is not client:
                continue
            # A client repeats its last confirms on a new connection: they may mean the result before the requeue.
            if not job.requeued or connection.conn in job.waiters or not connection.receipts:
                self._delivered(job, now)

    def reopened(self, job: JobRecord) -> None:
        """A FAILED job is submitted again: its earlier result is not sent any more (SPEC L6)."""
        self.withdraw(job)
        self._file_references.forget(job.id)
        if job in self.dead:
            self.unbury(job)
        if job.leaf:
            self._out.leaves.release(job.leaf)

    def is_swamped(self) -> bool:
        """Too many results wait to be fetched: no new ones may come."""
        results = self.results
        return (
            results.undelivered_bytes >= self.undelivered_bytes_max
            or len(results.undelivered) >= UNDELIVERED_RESULTS_MAX
        )

    def sweep(self, now: float) -> None:
        """Forget expired results."""
        for job in self.results.expired(now):
            if not job.delivered:
                job.delivered = True
                if self._out.keeps and job in self.dead:
                    self._out.keep.append(KeepDelivered(job.id))
                self._no_longer_open(job.client)
            self._forget(job)
        self._file_references.sweep(now)

    # Dead letters.

    def bury(self, job: JobRecord) -> None:
        """Keep a job that used up its attempts as a dead letter, beside its result (SPEC L3)."""
        self.dead.add(job)
        self.push_out_letters()

    def unbury(self, job: JobRecord) -> None:
        """Remove a dead letter: the job cannot be requeued any more."""
        self.dead.remove(job)
        self._file_references.end(job)

    def push_out_letters(self) -> None:
        """Drop the oldest letters, if there are too many. An undelivered one stays as a result."""
        while (oldest := self.dead.too_many()) is not None:
            self.unbury(oldest)
            if oldest.id in self.results.undelivered:
                oldest.payload = None
            else:
                self._drop(oldest)

    def drop_letter(self, job: JobRecord) -> None:
        """Forget a dead letter and its result, delivered or not."""
        self.unbury(job)
        self._drop(job)

    def is_forgettable(self, job: JobRecord) -> bool:
        """False for a dead letter, which must be dropped as one, and for a result that is kept for the worker only."""
        return job not in self.dead and not (job.delivered and may_still_run(job))

    def forget(self, job: JobRecord, now: float) -> bool:
        """Forget the result of a done job. False if it cannot be forgotten."""
        assert job.state is DONE
        if not self.is_forgettable(job):
            return False
        if may_still_run(job):
            self._delivered(job, now)
        else:
            self._drop(job)
        return True

    def _drop(self, job: JobRecord) -> None:
        self.withdraw(job)
        self._forget(job)

    def withdraw(self, job: JobRecord) -> None:
        """Drop the result, if undelivered."""
        if job.id in self.results.undelivered:
            self.results.dropped(job)
            job.delivered = True
            self._no_longer_open(job.client)

    def _delivered(self, job: JobRecord, now: float) -> None:
        self.results.delivered(job, now)
        if self._out.keeps:
            self._out.keep.append(KeepDelivered(job.id))
        self._no_longer_open(job.client)
        if self.results.too_much():
            self.forget_too_much()

    def forget_too_much(self) -> None:
        while self.results.too_much():
            until, job = self.results.forget_kept()
            self._forget(job, until)

    def forget_all_kept(self) -> None:
        """Forget all delivered results, as the disk has no room. A cancelled job that may still run stays: its worker
        would never get the cancel."""
        for job in self.results.forget_all_kept(but=may_still_run):
            self._forget(job)
        self._file_references.let_all_go()

    def _no_longer_open(self, client: ClientRecord) -> None:
        client.open_jobs -= 1
        if client.parked:
            self._lanes.room_freed(client)
        if not client.conns:
            self._forget_idle(client)

    def forget_idle(self) -> None:
        for client in list(self.by_id.values()):
            self._forget_idle(client)

    def _forget_idle(self, client: ClientRecord) -> None:
        if not client.open_jobs and not client.conns:
            del self.by_id[client.id]

    def _forget(self, job: JobRecord, blobs_until: float = 0.0) -> None:
        """Forget a job that is no dead letter. Its blobs stay until `blobs_until`."""
        if self._jobs.get(job.id) is job and job not in self.dead:
            self._jobs.remove(job)
            if self._file_references.results:
                self._file_references.forget(job.id, blobs_until)
            if self._out.keeps:
                self._out.leaves.release(job.leaf)
                self._out.keep.append(ForgetJob(job.id))

    # Back-pressure.

    def pause_old(self) -> None:
        """Stop reading from old clients while the leader is full: they have no message for it (SPEC F11)."""
        self._paused = True
        for connection in self.connections.values():
            if not connection.receipts:
                self._pause(connection)

    def resume_old(self) -> None:
        self._paused = False
        for connection in self.connections.values():
            if connection.paused:
                connection.paused = False
                self._out.do.append(ev.ResumeReading(connection.conn))

    def _pause(self, connection: ClientConnection) -> None:
        if not connection.paused:
            connection.paused = True
            self._out.do.append(ev.PauseReading(connection.conn))

    def check(self) -> None:
        self.results.check()
        self.dead.check()
        for client_id, client in self.by_id.items():
            assert client.id == client_id
            assert client.conns or client.open_jobs
            assert all(self.connections[conn].client is client for conn in client.conns)
        for connection in self.connections.values():
            assert not connection.pending or connection.is_congested, "a pending result could be sent"


def may_still_run(job: JobRecord) -> bool:
    """The leader ended the job itself, and a worker may still run it: its attempt has no reported end, and the worker
    may be away."""
    return type(job.result) is Verdict and any(attempt.outcome in _UNREPORTED for attempt in job.history)


def _is_cancelled(job: JobRecord) -> bool:
    return type(job.result) is Verdict and job.result.code == "cancelled"
