"""Which role has the peer of a leader's connection, and what do its frames mean? (SPEC F4, F5)

The role is unknown until the hello, then client or worker. Frames become events of the leader's machine; frames about
files go through `submit` and `caches`. Only the routing fields of a payload are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from wakugumi.adapters.net.compression import is_packed
from wakugumi.adapters.net.guard import Guard
from wakugumi.adapters.net.link import Link
from wakugumi.core.connections.read_ahead import Intake
from wakugumi.core.ids import ClientId, JobId, WorkerId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.subject import SubjectError, worker_patterns
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.wire import READ_BYTES_LARGE
from wakugumi.roles.leader.files.caches import LeaderCaches, refuse_put
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.old_peers import OldPeers
from wakugumi.roles.leader.peer_access import PeerAccess
from wakugumi.roles.leader.peer_questions import PeerQuestions
from wakugumi.roles.leader.submit import Submissions, checksum_of_packed, plain
from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Frame
from wakugumi.wire.messages.control import read_holding, read_load, read_rest
from wakugumi.wire.messages.hello import (
    BLOBS,
    CANCELS,
    DIGESTS,
    ENV,
    HEARTBEATS,
    REATTACH,
    RECEIPTS,
    RESTS,
    ZSTD,
    read_cap,
    read_hello_client,
    read_hello_worker,
)
from wakugumi.wire.messages.job import (
    FAILED,
    OK,
    JobResult,
    output_tail,
    read_ack,
    read_credit,
    read_submit,
    unpack_ids,
    write_refusal,
)
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import blobs_of_result
from wakugumi.wire.node_request import marked
from wakugumi.wire.request_digest import submitted_digest

log = logging.getLogger("wakugumi.leader")


class PeerConnection:
    """One connection of a leader. `hub.Peer` explains its attributes."""

    def __init__(
        self,
        hub: Hub,
        submissions: Submissions,
        old_peers: OldPeers,
        caches: LeaderCaches | None,
        questions: PeerQuestions,
        guard: Guard,
    ) -> None:
        self.conn = hub.new_conn()
        self._guard = guard
        self.access: PeerAccess
        """Rights of the peer, from its hello on."""
        self._hub = hub
        self._submissions = submissions
        self._old_peers = old_peers
        self._caches = caches
        self._questions = questions
        self.client_id = ClientId("")
        self.paused = False
        self.receipts = False
        self.blobs = False
        self.zstd = False
        self.rests = False
        self._speaks_ours = False
        """The peer asked for types of Wakugumi's own."""
        self.digests = False
        """The peer names the request of each job by its digest."""
        self.link: Link
        self.intake = Intake()
        self._brings_work = False
        """The bytes read last contain a job or a result."""
        self._post = hub.drive.post
        self._event_of = submissions.event_of
        self._role = "unidentified"
        self._name = ""
        self._complained = False
        self._on: dict[int, Callable[[Frame], None]] = {
            fr.HELLO_CLIENT: self._hello_client,
            fr.HELLO_WORKER: self._hello_worker,
        }

    # Called by the link.

    def on_open(self, link: Link) -> None:
        self.link = link
        self.access = PeerAccess(self._guard.caller(link.transport, self._cut_off))
        if self._hub.connections >= self._hub.connections_max and not link.make_room():
            link.close(f"more than {self._hub.connections_max} connections", "full")
            return
        self._hub.add(self)
        self.set_reading()
        deadline_s = self._hub.hello_deadline_s
        link.expect_within(deadline_s, f"no hello within {deadline_s:g} s")

    def on_frame(self, _link: Link, frame: Frame) -> None:
        handler = self._on.get(frame.type)
        if handler is not None:
            handler(frame)
            return
        name = fr.NAMES.get(frame.type)
        if self._role == "unidentified":
            raise PeerError(f"the first frame must be HelloClient or HelloWorker, not {name or f'type {frame.type}'}")
        if name is not None:
            raise PeerError(f"a {self._role} does not send {name}")
        self.complain(f"this {self._role} sent a frame of the unknown type {frame.type}, which is ignored")

    def on_alive(self, _link: Link) -> None:
        self._post(ev.PeerHeard(self.conn))

    def on_blocked(self, _link: Link, blocked: bool) -> None:
        self._post(ev.PeerBlocked(self.conn) if blocked else ev.PeerUnblocked(self.conn))

    def on_lost(self, _link: Link) -> None:
        self.access.left()
        self._questions.disconnect(self.conn)
        if self._hub.remove(self) and self._role not in ("unidentified", "stranger"):
            log.info("%s left peer=%s", self._role, self.link.peer)
            self._post(ev.Left(self.conn))
            self._submissions.disconnect(self)
            self._old_peers.disconnect(self)
            if self._caches is not None:
                self._caches.disconnect(self)

    @property
    def is_client(self) -> bool:
        return self._role == "client"

    def set_reading(self) -> None:
        self.link.pause(self.paused or self.conn in self._hub.held_back)

    def must_wait(self) -> bool:
        self.intake.settle(self._hub.drive.safe_step)
        return self.intake.must_wait(behind=self._hub.behind)

    def _read(self, size: int) -> None:
        """Hold back a peer whose jobs and results are far ahead of the disk; other frames never wait for it."""
        if not self._brings_work:
            return
        self._brings_work = False
        hub = self._hub
        drive = hub.drive
        if self.intake.took(size, drive.steps + 1, drive.safe_step) or hub.behind:
            hub.hold_back(self)

    def complain(self, text: str) -> None:
        """Warn once per connection (SPEC F4): a bad peer must not fill the disk with log lines."""
        level = logging.DEBUG if self._complained else logging.WARNING
        log.log(level, "peer problem peer=%s: %s", self.link.peer, text)
        self._complained = True

    def fail(self, effect: object, error: Exception) -> None:
        """Close this connection only: a bug prevented `effect`. Its jobs go to other workers; a client claims again."""
        level = logging.ERROR if self.link.is_open else logging.DEBUG  # Further effects may fail before it is closed.
        name = effect if isinstance(effect, str) else type(effect).__name__
        log.log(level, "effect failed effect=%s peer=%s", name, self.link.peer, exc_info=error)
        self.link.close("internal error of the leader")
        self.link.abort()

    async def do(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.fail(what, error)

    # Hello (SPEC F5).

    def _hello_client(self, frame: Frame) -> None:
        self.client_id, cap, wants, key = read_hello_client(frame)
        self._wants(wants)
        self.receipts = RECEIPTS in wants
        try:
            cap = self.access.join_as_client(key, self.client_id, cap)
        except Refused as no:
            self._deny(no)
            return
        self._become(
            "client",
            {
                fr.SUBMIT_JOB: self._submit,
                fr.CACHE_PUT: self._cache_put,
                fr.CONFIRM: self._confirm,
                fr.CANCEL: self._cancel,
                fr.CLAIM: self._claim,
                fr.FIND: self._find,
                fr.CAP: self._cap,
                fr.ASK: self._ask,
                fr.HEARTBEAT: self._heartbeat,
            },
        )
        log.info("client joined client=%s peer=%s cap=%d", self.client_id, self.link.peer, cap)
        sight = self.access.sight
        self._post(ev.ClientJoined(self.conn, self.client_id, cap, self.receipts, HEARTBEATS in wants, sight))

    def _hello_worker(self, frame: Frame) -> None:
        hello = read_hello_worker(frame)
        name, wants = hello.name, frozenset(hello.wants)
        self._wants(wants)
        self.rests = RESTS in wants
        self._name = name or str(self.link.peer)
        try:
            patterns = self._hub.shared_patterns(worker_patterns(frame.subject, name))
        except SubjectError as error:
            raise PeerError(f"a worker's patterns cannot be read: {error}") from None
        try:
            self.access.join_as_worker(hello.key, patterns)
        except Refused as no:
            self._deny(no)
            return
        self._become(
            "worker",
            {
                fr.ACK_JOB: self._ack,
                fr.CREDIT: self._credit,
                fr.HOLDING: self._holding,
                fr.LEAVING: self._leaving,
                fr.RESTING: self._resting,
                fr.HEARTBEAT: self._heartbeat,
                fr.CACHE_ACK: self._cache_ack,
                fr.STOCK: self._stock,
                fr.WANT: self._want,
            },
        )
        log.info("worker joined worker=%s peer=%s patterns=%s", name or "-", self.link.peer, ",".join(patterns))
        self._post(
            ev.WorkerJoined(
                self.conn,
                WorkerId(frame.msg_id),
                name,
                patterns,
                receipts=RECEIPTS in wants,
                heartbeats=HEARTBEATS in wants,
                reattach=REATTACH in wants,
                cancels=CANCELS in wants,
                slots=hello.slots,
                blobs=self.blobs,
                runs_unnamed=hello.runs_unnamed,
                as_root=hello.as_root,
                env=ENV in wants,
                key=self.access.worker_key,
            )
        )
        if self._caches is not None:
            self._caches.add_worker(self, WorkerId(frame.msg_id), name, patterns)

    def _wants(self, wants: frozenset[str]) -> None:
        self._speaks_ours = bool(wants)
        self.blobs = BLOBS in wants
        self.zstd = ZSTD in wants
        self.digests = DIGESTS in wants
        self._hub.packed |= self.zstd

    def _become(self, role: str, on: dict[int, Callable[[Frame], None]]) -> None:
        self._role = role
        self._on = on
        if self._hub.is_durable:
            self.link.on_read = self._read
        self.link.trust()

    def _deny(self, no: Refused) -> None:
        """The peer may not join. An old client gets the reason with its first job (SPEC F11), others at once."""
        self._role = "stranger"
        self._on = {}
        text = f"{no.message}; {no.hint}" if no.hint else no.message
        if self._speaks_ours:
            self.link.send(fr.encode(fr.REFUSAL, payload=write_refusal(no.code, text)))
        elif self.client_id:
            self._on = {fr.SUBMIT_JOB: partial(self._refuse_job, text)}
            return
        self._cut_off(no.message)

    def _refuse_job(self, text: str, frame: Frame) -> None:
        failed = JobResult(
            show_job_id(JobId(frame.msg_id)), self.client_id, status=FAILED, stderr=text, reason="denied"
        )
        self.link.send(fr.encode(fr.RESULT, frame.msg_id, frame.msg_id, payload=encode(failed)))
        self._cut_off(text)

    def _cut_off(self, why: str) -> None:
        """A denied peer, or one whose key is valid no longer."""
        self.link.close(why, "denied")

    # Frames of a client.

    def _submit(self, frame: Frame) -> None:
        payload, checksum = frame.payload, 0
        self._brings_work = True
        try:
            if self.zstd and is_packed(payload):
                frame = plain(frame)
                checksum = checksum_of_packed(payload, frame.payload)
            job_id, head = read_submit(frame)
        except Refused as no:
            self._post(ev.SubmitRefused(self.conn, JobId(frame.msg_id), no.code, no.message))
            return
        try:
            has_digest = self.digests and frame.corr_id != fr.NO_ID
            request = frame.corr_id if has_digest else submitted_digest(frame.payload)
            event, blobs = self._event_of(
                self.conn, self.blobs, job_id, frame.subject, head, payload, len(frame.payload), request, checksum
            )
            self.access.check_submit(event)
        except Refused as no:
            self._post(ev.SubmitRefused(self.conn, job_id, no.code, no.message))
            return
        if self._hub.has_nodes:
            event = msgspec.structs.replace(event, requirements=marked(event.requirements, frame.payload))
        if blobs:
            self._submissions.submit(self, event, blobs)
        else:
            self._post(event)
        if len(payload) >= READ_BYTES_LARGE:
            self._hub.drive.flush()

    def _cache_put(self, frame: Frame) -> None:
        if self._caches is not None:
            self._caches.put(self, frame)
            return
        text = "this leader keeps no caches; send the files with each job"
        refuse_put(self, frame, "not-supported" if self.blobs else "", text)

    def _confirm(self, frame: Frame) -> None:
        self._post(ev.Confirmed(self.conn, unpack_ids(frame.payload)))

    def _cancel(self, frame: Frame) -> None:
        jobs = unpack_ids(frame.payload)
        self._submissions.cancel(self, jobs)
        self._post(ev.CancelWanted(self.conn, jobs))

    def _claim(self, frame: Frame) -> None:
        self._post(ev.Claimed(self.conn, unpack_ids(frame.payload)))

    def _find(self, frame: Frame) -> None:
        self._post(ev.Sought(self.conn, unpack_ids(frame.payload)))

    def _cap(self, frame: Frame) -> None:
        self._post(ev.CapChanged(self.conn, read_cap(frame.payload)))

    def _ask(self, frame: Frame) -> None:
        self._questions.ask(self, frame, self._guard.degree)

    def _heartbeat(self, frame: Frame) -> None:
        load = read_load(frame.payload)
        self._post(ev.PeerHeard(self.conn, load.cpu, load.held_by))

    # Frames of a worker.

    def _ack(self, frame: Frame) -> None:
        job_id = JobId(frame.corr_id)
        payload = frame.payload
        self._brings_work = True
        try:
            if self.zstd and is_packed(payload):
                frame = plain(frame)
            head = read_ack(frame.payload)
            request = frame.msg_id if self.digests and frame.msg_id != fr.NO_ID else b""
            if head.status == OK:
                event = ev.Acked(self.conn, job_id, True, "", payload, request=request)
            else:
                output = output_tail(frame.payload)
                reason, begun = head.reason or "", not head.not_begun
                event = ev.Acked(self.conn, job_id, False, reason, payload, output, begun=begun, request=request)
            if head.archive_blob or head.stdout_blob or head.stderr_blob:
                self._submissions.accept_result(self, event, blobs_of_result(head.blobs()))
            else:
                if not event.ok:
                    self._submissions.settle(self, job_id)
                self._post(event)
        except Refused as no:
            self._submissions.settle(self, job_id)
            failed = JobResult(show_job_id(job_id), status=FAILED, stderr=no.message, reason=no.code)
            self._post(ev.Acked(self.conn, job_id, False, no.code, encode(failed)))
            return
        if len(payload) >= READ_BYTES_LARGE:
            self._hub.drive.flush()

    def _credit(self, frame: Frame) -> None:
        self._post(ev.Credited(self.conn, read_credit(frame.payload)))

    def _holding(self, frame: Frame) -> None:
        holding = read_holding(frame.payload)
        running = tuple(JobId(job_id) for job_id in holding.running)
        finished = tuple(JobId(job_id) for job_id in holding.finished)
        kept = tuple(JobId(job_id) for job_id in holding.kept)
        self._post(ev.WorkerHolds(self.conn, running, finished, kept))

    def _leaving(self, _frame: Frame) -> None:
        self._post(ev.Leaving(self.conn))

    def _resting(self, frame: Frame) -> None:
        why = read_rest(frame.payload)
        if why:
            log.warning("worker rests worker=%s: %s", self._name, why)
        else:
            log.info("worker takes jobs again worker=%s", self._name)
        self._post(ev.Rested(self.conn, why))

    def _cache_ack(self, frame: Frame) -> None:
        if self._caches is not None:
            self._caches.ack(self, frame)

    def _stock(self, frame: Frame) -> None:
        if self._caches is not None:
            self._caches.stock(self, frame)

    def _want(self, frame: Frame) -> None:
        if self._caches is not None:
            self._caches.want(self, frame)
