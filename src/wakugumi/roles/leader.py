"""The leader as a process: `dispatch` behind sockets.

Each connection has a Peer, which turns frames into events; `Leader` performs what dispatch asks for. Between them
stands the drive: nothing else calls the state machine. Payloads pass through as the bytes they came in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections.abc import Callable, Collection, Container, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from wakugumi import __version__
from wakugumi.adapters.drive import Drive
from wakugumi.adapters.journal import Journal
from wakugumi.adapters.manifests import Manifests
from wakugumi.adapters.net import Link, adopt, bound_port, listen
from wakugumi.adapters.packing import is_packed
from wakugumi.adapters.web import Door
from wakugumi.core import events as ev
from wakugumi.core.broadcast import PARTS
from wakugumi.core.dispatch import Dispatch
from wakugumi.core.events import LeaderDo, LeaderEvent, LeaderKeep
from wakugumi.core.job import ClientId, ConnId, JobId, Verdict, WorkerId, show_job_id
from wakugumi.core.nearness import nobody
from wakugumi.core.policy import EVERYWHERE, Policies
from wakugumi.core.questions import CACHE_QUESTIONS
from wakugumi.core.subject import Subject, SubjectError, route, worker_patterns
from wakugumi.core.wants import Wants, check_wants
from wakugumi.errors import PeerError, Refused
from wakugumi.limits import (
    CLOSE_DEADLINE_S,
    CONNECTIONS_MAX,
    DRAIN_DEADLINE_S,
    EXEC_NAME_CHARS_MAX,
    HELLO_DEADLINE_S,
    JOB_TIMEOUT_MAX_S,
    JOB_TIMEOUT_S,
    JOURNAL_QUEUE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_MEMORY_BYTES,
    QUEUE_BYTES_MAX,
    QUEUE_JOBS_MAX,
    READ_BYTES_LARGE,
    RETRIES_MAX,
    ROUTES_REMEMBERED_MAX,
)
from wakugumi.roles.caches import Caches
from wakugumi.roles.egress import Egress
from wakugumi.roles.ingress import Ingress, digest_of_packed, plain
from wakugumi.roles.leader_blobs import LeaderBlobs
from wakugumi.wire import frame as fr
from wakugumi.wire import message as ms
from wakugumi.wire.frame import Frame
from wakugumi.wire.refs import blobs_of_result

log = logging.getLogger("wakugumi.leader")

_OWN: Final = (ev.Stopped, ev.LoadPayloads, ev.BlobsFreed)
"""What concerns no connection."""
_IDS_PER_FRAME: Final = PAYLOAD_BYTES_MAX // 16


class Leader:
    """One leader. Make it inside a running loop, then `listen`."""

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        policies: Policies = EVERYWHERE,
        queue_jobs_max: int = QUEUE_JOBS_MAX,
        queue_bytes_max: int | None = None,
        payload_memory_bytes: int = PAYLOAD_MEMORY_BYTES,
        final: Container[str] = (),
        hello_deadline_s: float = HELLO_DEADLINE_S,
        blobs: LeaderBlobs | None = None,
    ) -> None:
        """With a journal it goes on where the last leader ended that had it. Raises ConfigError if that cannot be."""
        loop = asyncio.get_running_loop()
        if queue_bytes_max is None:
            queue_bytes_max = QUEUE_BYTES_MAX if journal is None else JOURNAL_QUEUE_BYTES_MAX
        machine = Dispatch(
            random.random,
            now=loop.time(),
            policies=policies,
            queue_jobs_max=queue_jobs_max,
            queue_bytes_max=queue_bytes_max,
            payload_memory_bytes=payload_memory_bytes,
            final=final,
            keeps=journal is not None,
            holders=self._holders_of,
        )
        self._journal = journal
        self.knows = machine.knows
        self.ingress = Ingress(self)
        self.egress = Egress(self)
        self.packed = False
        """There may be packed payloads, in the journal or from a peer that asked for that."""
        self.holders: Callable[[str], Collection[WorkerId]] = nobody
        """Who holds a blob or a cache."""
        self.needed_by: list[Callable[[str], bool]] = [machine.holds]
        """Who needs a blob: what none of these does may be removed."""
        self.blobs = blobs
        if blobs is not None:
            blobs.begin()
            self.needed_by.append(blobs.expected.__contains__)
            blobs.is_held = lambda blob: any(needs(blob) for needs in self.needed_by)
        if journal is not None:
            _recover(machine, journal, loop.time())
            self.packed = bool(machine.jobs)
        self.drive: Drive[LeaderEvent, LeaderKeep, LeaderDo] = Drive(
            machine, self._perform, name="leader", keeper=journal
        )
        self.behind = False
        """The disk does not keep up, so nobody is read from."""
        if journal is not None:
            journal.begin(loop, self.drive.fail, self._disk_low, self._fall_behind)
        self.peers: dict[ConnId, Peer] = {}
        self.hello_deadline_s = hello_deadline_s
        self._conns = 0
        self._server: asyncio.Server | None = None
        self.door: Door | None = None
        self._stopped = asyncio.Event()
        self._alone = asyncio.Event()
        self._alone.set()
        self._routes: dict[tuple[str, str], tuple[Subject, str, int]] = {}
        self._wants: dict[Wants, Wants] = {}
        self._act: dict[type[object], Callable[[Peer, Any], None]] = {
            ev.SendWelcome: _send_welcome,
            ev.SendReceipts: _send_receipts,
            ev.SendRefusal: _send_refusal,
            ev.SendAssign: _send_assign,
            ev.SendResult: _send_result,
            ev.SendFetch: _send_fetch,
            ev.SendConfirms: _send_confirms,
            ev.SendCancel: _send_cancel,
            ev.SendHeartbeat: _send_heartbeat,
            ev.SendAnswer: _send_answer,
            ev.SendNo: _send_no,
            ev.PauseReading: _pause_reading,
            ev.ResumeReading: _resume_reading,
            ev.Complain: _complain,
            ev.Close: _close,
        }
        self.caches: Caches | None = None
        """Only a leader with a place for blobs keeps caches."""
        if blobs is not None:
            manifests = None if journal is None else Manifests(Path(journal.path).parent / "caches")
            self.caches = Caches(self.peers, self._act, blobs, manifests)
            self.caches.drive.failed.add_done_callback(self._caches_failed)
            self.caches.machine.shelf.is_needed = machine.holds
            self.holders = self.caches.holders
            self.needed_by.append(self.caches.pins)

    async def listen(self, host: str, port: int) -> int:
        """Take connections; returns the port, which matters if 0 was asked for. Raises ConfigError."""
        self.door = Door(host, () if self.blobs is None else self.blobs.routes)
        self._server = await listen(host, port, self.new_peer, self.door.at)
        return bound_port(self._server)

    async def adopt(self, sock: socket.socket) -> None:
        """Take a socket that is already connected to a peer."""
        await adopt(sock, self.new_peer(), trusted=False)

    async def drain(self, deadline_s: float = DRAIN_DEADLINE_S) -> bool:
        """Assign nothing more and let what runs finish. False if that took longer than it may."""
        if self._server is not None:
            self._server.close()
        self.drive.post(ev.StopWanted())
        try:
            async with asyncio.timeout(deadline_s):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Leave now. Workers keep what they run for the next leader."""
        if self._server is not None:
            self._server.close()
        for peer in list(self.peers.values()):
            peer.link.close()
        # The loop still has to flush what was queued; a peer that does not read gets no more time than this.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._alone.wait()
        for peer in list(self.peers.values()):
            peer.link.abort()
        if self.caches is not None:
            await self.caches.close()
        await self.egress.close()
        if self.door is not None:
            await self.door.close()
        if self.blobs is not None:
            await self.blobs.close()
        self.drive.close()
        if self._journal is not None:
            await self._journal.close()

    @property
    def connections(self) -> int:
        return len(self.peers) + (0 if self.door is None else self.door.connections)

    def new_peer(self) -> Peer:
        self._conns += 1
        return Peer(self, ConnId(self._conns))

    def came(self, peer: Peer) -> None:
        self.peers[peer.conn] = peer
        self._alone.clear()

    def went(self, peer: Peer) -> bool:
        """False for a peer that was never let in."""
        known = self.peers.pop(peer.conn, None) is not None
        if not self.peers:
            self._alone.set()
        return known

    def route(self, subject: str, program: str) -> tuple[Subject, str, int]:
        """Where a submit goes (SPEC F8), the one copy of the program's name, and how large a payload fits beside that
        subject. Raises Refused."""
        known = self._routes.get((subject, program))
        if known is not None:
            return known
        if len(program) > EXEC_NAME_CHARS_MAX:
            raise Refused("bad-name", f"an exec name has at most {EXEC_NAME_CHARS_MAX} characters")
        if not program.isprintable():
            raise Refused("bad-name", "an exec name has printable characters only")
        try:
            to = route(subject, program)
        except SubjectError as error:
            raise Refused("bad-subject", str(error)) from None
        routed = to, program, fr.payload_max(to)
        if len(self._routes) >= ROUTES_REMEMBERED_MAX:
            self._routes.clear()
        self._routes[subject, program] = routed
        return routed

    def wants(self, head: ms.SubmitHead) -> Wants:
        """What a job asks for besides being run; the one copy of it, for many ask for the same. Raises Refused."""
        asked = Wants(head.key, head.priority, head.slots)
        known = self._wants.get(asked)
        if known is not None:
            return known
        check_wants(head.key, head.priority, head.slots)
        if len(self._wants) >= ROUTES_REMEMBERED_MAX:
            self._wants.clear()
        self._wants[asked] = asked
        return asked

    def _holders_of(self, file: str) -> Collection[WorkerId]:
        return self.holders(file)

    def _perform(self, effects: Sequence[LeaderDo]) -> None:
        peers, act = self.peers, self._act
        for effect in effects:
            if isinstance(effect, _OWN):
                self._perform_own(effect)
                continue
            peer = peers.get(effect.conn)
            if peer is not None:
                try:
                    act[type(effect)](peer, effect)
                except Exception as error:
                    peer.fail(effect, error)

    def _perform_own(self, effect: ev.Stopped | ev.LoadPayloads | ev.BlobsFreed) -> None:
        if isinstance(effect, ev.Stopped):
            self._stopped.set()
            return
        if isinstance(effect, ev.BlobsFreed):
            if self.blobs is not None:
                self.blobs.freed(effect.blobs)
            return
        assert self._journal is not None
        post, leaf, jobs = self.drive.post, effect.leaf, effect.jobs
        self._journal.load(leaf, jobs, lambda payloads: post(ev.PayloadsLoaded(leaf, jobs, payloads)))

    def _caches_failed(self, failed: asyncio.Future[None]) -> None:
        """A leader is one process: with one of its machines it ends."""
        if not failed.cancelled():
            error = failed.exception()
            assert isinstance(error, Exception)
            self.drive.fail(error)

    # What the journal says.

    def _disk_low(self, low: bool) -> None:
        if low:
            log.warning("the journal's disk is nearly full: new jobs are refused until there is room")
        else:
            log.info("the journal's disk has room again")
        self.drive.post(ev.DiskLow(low))

    def _fall_behind(self, behind: bool) -> None:
        """Whoever sends us work waits until the disk has taken what came before."""
        self.behind = behind
        self.drive.post(ev.ReadingStopped(behind))
        for peer in self.peers.values():
            peer.set_reading()


class Peer:
    """One connection of a leader: nobody until its hello, then a client or a worker."""

    def __init__(self, leader: Leader, conn: ConnId) -> None:
        self.leader = leader
        self.conn = conn
        self.client_id = ClientId("")
        self.paused = False
        self.receipts = False
        """It speaks our own types, in which an empty result is a result (OK, without output)."""
        self.blobs = False
        """It exchanges what does not fit a frame as blobs."""
        self.zstd = False
        """Payloads may be packed."""
        self.link: Link
        self._post = leader.drive.post
        self._role = "nobody"
        self._complained = False
        self._on: dict[int, Callable[[Frame], None]] = {
            fr.HELLO_CLIENT: self._hello_client,
            fr.HELLO_WORKER: self._hello_worker,
        }

    # What the link calls.

    def on_open(self, link: Link) -> None:
        self.link = link
        if self.leader.connections >= CONNECTIONS_MAX:
            link.close(f"more than {CONNECTIONS_MAX} connections")
            return
        self.leader.came(self)
        self.set_reading()
        deadline_s = self.leader.hello_deadline_s
        link.expect_within(deadline_s, f"no hello within {deadline_s:g} s")

    def on_frame(self, _link: Link, frame: Frame) -> None:
        handler = self._on.get(frame.type)
        if handler is not None:
            handler(frame)
            return
        name = fr.NAMES.get(frame.type)
        if self._role == "nobody":
            raise PeerError(f"the first frame must be HelloClient or HelloWorker, not {name or f'type {frame.type}'}")
        if name is not None:
            raise PeerError(f"a {self._role} does not send {name}")
        self.complain(f"this {self._role} sent a frame of the unknown type {frame.type}, which is ignored")

    def on_blocked(self, _link: Link, blocked: bool) -> None:
        self._post(ev.Blocked(self.conn) if blocked else ev.Unblocked(self.conn))

    def on_lost(self, _link: Link) -> None:
        if self.leader.went(self) and self._role != "nobody":
            log.info("%s %s left", self._role, self.link.peer)
            self._post(ev.Left(self.conn))
            self.leader.ingress.left(self)
            if self.leader.caches is not None:
                self.leader.caches.went(self)

    @property
    def is_client(self) -> bool:
        return self._role == "client"

    def set_reading(self) -> None:
        self.link.pause(self.paused or self.leader.behind)

    def complain(self, text: str) -> None:
        """One line per connection (SPEC F4): a peer that is wrong all the time must not fill the disk with it."""
        log.log(logging.DEBUG if self._complained else logging.WARNING, "%s: %s", self.link.peer, text)
        self._complained = True

    def fail(self, effect: object, error: Exception) -> None:
        """A bug of ours kept us from doing this for it. Others are not to suffer: the connection ends, and with that it
        is as if it was never sent. A worker's job goes to another, and a client asks for its result again."""
        level = logging.ERROR if self.link.is_open else logging.DEBUG  # Once, though more may be on its way to it.
        log.log(level, "%s is not done for %s", type(effect).__name__, self.link.peer, exc_info=error)
        self.link.close("a bug of the leader's")
        self.link.abort()

    # Nobody becomes somebody (SPEC F5).

    def _hello_client(self, frame: Frame) -> None:
        self.client_id, cap, wants = ms.read_hello_client(frame)
        self._wants(wants)
        self.receipts = ms.RECEIPTS in wants
        self._become(
            "client",
            {
                fr.SUBMIT_JOB: self._submit,
                fr.CACHE_PUT: self._cache_put,
                fr.CONFIRM: self._confirm,
                fr.CANCEL: self._cancel,
                fr.CLAIM: self._claim,
                fr.CAP: self._cap,
                fr.ASK: self._ask,
                fr.HEARTBEAT: self._heartbeat,
            },
        )
        log.info("client %s joined from %s, cap %d", self.client_id, self.link.peer, cap)
        self._post(ev.ClientJoined(self.conn, self.client_id, cap, self.receipts, ms.HEARTBEATS in wants))

    def _hello_worker(self, frame: Frame) -> None:
        name, wants, slots = ms.read_hello_worker(frame)
        self._wants(wants)
        try:
            patterns = worker_patterns(frame.subject, name)
        except SubjectError as error:
            raise PeerError(f"a worker's patterns cannot be read: {error}") from None
        self._become(
            "worker",
            {
                fr.ACK_JOB: self._ack,
                fr.CREDIT: self._credit,
                fr.HOLDING: self._holding,
                fr.LEAVING: self._leaving,
                fr.HEARTBEAT: self._heartbeat,
                fr.CACHE_ACK: self._cache_ack,
                fr.STOCK: self._stock,
                fr.WANT: self._want,
            },
        )
        log.info("worker %s joined from %s for %s", name or "-", self.link.peer, " ".join(patterns))
        self._post(
            ev.WorkerJoined(
                self.conn,
                WorkerId(frame.msg_id),
                name,
                patterns,
                receipts=ms.RECEIPTS in wants,
                heartbeats=ms.HEARTBEATS in wants,
                reattach=ms.REATTACH in wants,
                cancels=ms.CANCELS in wants,
                slots=slots,
                blobs=self.blobs,
            )
        )
        if self.leader.caches is not None:
            self.leader.caches.worker_came(self, WorkerId(frame.msg_id), name, patterns)

    def _wants(self, wants: frozenset[str]) -> None:
        self.blobs = ms.BLOBS in wants
        self.zstd = ms.ZSTD in wants
        self.leader.packed |= self.zstd

    def _become(self, role: str, on: dict[int, Callable[[Frame], None]]) -> None:
        self._role = role
        self._on = on
        self.link.trust()

    # What a client says.

    def _submit(self, frame: Frame) -> None:
        payload, digest = frame.payload, 0
        try:
            if self.zstd and is_packed(payload):
                frame = plain(frame)
                digest = digest_of_packed(payload, frame.payload)
            job_id, head = ms.read_submit(frame)
        except Refused as no:
            self._post(ev.SubmitRefused(self.conn, JobId(frame.msg_id), no.code, no.message))
            return
        try:
            subject, program, bytes_max = self.leader.route(frame.subject, head.exec_name)
            if len(frame.payload) > bytes_max:
                # The routed subject may be longer than the one it came with.
                raise Refused("too-big", f"a request of {len(frame.payload)} bytes does not fit a frame to a worker")
            timeout_s = JOB_TIMEOUT_S if head.timeout_s is None else head.timeout_s
            if not 0 < timeout_s <= JOB_TIMEOUT_MAX_S:
                raise Refused("bad-request", f"TimeoutS is above 0 and at most {JOB_TIMEOUT_MAX_S:.0f} seconds")
            if not 0 <= head.retries <= RETRIES_MAX:
                raise Refused("bad-request", f"Retries is 0 to {RETRIES_MAX}")
            if head.broadcast_s is not None and not 0 < head.broadcast_s <= JOB_TIMEOUT_MAX_S:
                raise Refused("bad-request", f"BroadcastS is above 0 and at most {JOB_TIMEOUT_MAX_S:.0f} seconds")
            wants = None
            blobs: tuple[ms.BlobRef, ...] = ()
            if head.files:
                wants, blobs = self.leader.ingress.files(self, head)
            if wants is None and (head.key or head.priority or head.slots != 1):
                wants = self.leader.wants(head)
        except Refused as no:
            self._post(ev.SubmitRefused(self.conn, job_id, no.code, no.message))
            return
        event = ev.Submitted(
            self.conn,
            job_id,
            subject,
            program,
            timeout_s,
            payload,
            head.retries,
            wants,
            head.broadcast_s or 0.0,
            digest,
        )
        if blobs:
            self.leader.ingress.submitted(self, event, blobs)
        else:
            self._post(event)
        if len(payload) >= READ_BYTES_LARGE:
            self.leader.drive.flush()

    def _cache_put(self, frame: Frame) -> None:
        if self.leader.caches is not None:
            self.leader.caches.put(self, frame)
            return
        cache_id = ms.read_cache_put(frame.payload)
        text = "this leader keeps no caches; send the files with each job"
        no = ms.CachePutResult(cache_id, ms.FAILED, text, code="not-supported" if self.blobs else "")
        subject = f"cache.ack.{cache_id}"
        self.link.send(fr.encode(fr.CACHE_ACK, corr_id=frame.msg_id, subject=subject, payload=ms.encode(no)))

    def _confirm(self, frame: Frame) -> None:
        self._post(ev.Confirmed(self.conn, ms.unpack_ids(frame.payload)))

    def _cancel(self, frame: Frame) -> None:
        jobs = ms.unpack_ids(frame.payload)
        self.leader.ingress.cancelled(self, jobs)
        self._post(ev.CancelWanted(self.conn, jobs))

    def _claim(self, frame: Frame) -> None:
        self._post(ev.Claimed(self.conn, ms.unpack_ids(frame.payload)))

    def _cap(self, frame: Frame) -> None:
        self._post(ev.CapChanged(self.conn, ms.read_cap(frame.payload)))

    def _ask(self, frame: Frame) -> None:
        try:
            question = ms.read_question(frame.payload)
        except Refused as no:
            _send_no(self, ev.SendNo(self.conn, frame.msg_id, no.code, no.message))
            return
        if isinstance(question, CACHE_QUESTIONS) and self.leader.caches is not None:
            self.leader.caches.ask(self, frame.msg_id, question)
        else:
            self._post(ev.Asked(self.conn, frame.msg_id, question))

    def _heartbeat(self, frame: Frame) -> None:
        self._post(ev.Heard(self.conn, ms.read_load(frame.payload).cpu))

    # What a worker says.

    def _ack(self, frame: Frame) -> None:
        job_id = JobId(frame.corr_id)
        payload = frame.payload
        try:
            if self.zstd and is_packed(payload):
                frame = plain(frame)
            head = ms.read_ack(frame.payload)
            if head.status == ms.OK:
                event = ev.Acked(self.conn, job_id, True, "", payload)
            else:
                output = ms.output_tail(frame.payload)
                event = ev.Acked(self.conn, job_id, False, head.reason or "", payload, output)
            if head.archive_blob or head.stdout_blob or head.stderr_blob:
                self.leader.ingress.acked(self, event, blobs_of_result(head))
            else:
                if not event.ok:
                    self.leader.ingress.settled(self, job_id)
                self._post(event)
        except Refused as no:
            self.leader.ingress.settled(self, job_id)
            failed = ms.JobResult(show_job_id(job_id), status=ms.FAILED, stderr=no.message, reason=no.code)
            self._post(ev.Acked(self.conn, job_id, False, no.code, ms.encode(failed)))
            return
        if len(payload) >= READ_BYTES_LARGE:
            self.leader.drive.flush()

    def _credit(self, frame: Frame) -> None:
        self._post(ev.Credited(self.conn, ms.read_credit(frame.payload)))

    def _holding(self, frame: Frame) -> None:
        holding = ms.read_holding(frame.payload)
        running = tuple(JobId(job_id) for job_id in holding.running)
        finished = tuple(JobId(job_id) for job_id in holding.finished)
        kept = tuple(JobId(job_id) for job_id in holding.kept)
        self._post(ev.Held(self.conn, running, finished, kept))

    def _leaving(self, _frame: Frame) -> None:
        self._post(ev.Leaving(self.conn))

    def _cache_ack(self, frame: Frame) -> None:
        if self.leader.caches is not None:
            self.leader.caches.ack(self, frame)

    def _stock(self, frame: Frame) -> None:
        if self.leader.caches is not None:
            self.leader.caches.stock(self, frame)

    def _want(self, frame: Frame) -> None:
        if self.leader.caches is not None:
            self.leader.caches.want(self, frame)


def _recover(machine: Dispatch, journal: Journal, now: float) -> None:
    """Bring back all that the journal has. The wall clock says how old it is, for those who look at it."""
    wall_now = time.time()
    began_at = time.perf_counter()
    machine.recover(((leaf.number, wall_now - leaf.written_at, leaf.records) for leaf in journal.leaves()), now)
    if machine.jobs:
        log.info(
            "recovered from %s: jobs=%d queued=%d results=%d dead=%d workers=%d in %.2f s",
            journal.path,
            len(machine.jobs),
            machine.lanes.queued,
            len(machine.callers.delivery.undelivered),
            len(machine.callers.dead.letters),
            len(machine.roster.by_id),
            time.perf_counter() - began_at,
        )


# What dispatch asks for, done to the connection it is about.


def _send_welcome(peer: Peer, _effect: ev.SendWelcome) -> None:
    wants = [ms.CAPS] if peer.is_client else []
    blobs = peer.leader.blobs
    if blobs is not None:
        wants.append(ms.BLOBS)
    if peer.zstd:
        wants.append(ms.ZSTD)
    welcome = ms.Welcome(__version__, wants, "" if blobs is None else blobs.url)
    peer.link.send(fr.encode(fr.WELCOME, payload=ms.encode(welcome)))


def _send_receipts(peer: Peer, effect: ev.SendReceipts) -> None:
    _send_ids(peer, fr.RECEIPT, effect.jobs)


def _send_refusal(peer: Peer, effect: ev.SendRefusal) -> None:
    peer.link.send(fr.encode(fr.REFUSAL, corr_id=effect.job, payload=ms.write_refusal(effect.code, effect.text)))


def _send_assign(peer: Peer, effect: ev.SendAssign) -> None:
    if peer.blobs and not peer.leader.packed:
        peer.link.send(fr.encode(fr.ASSIGN_JOB, effect.job, fr.NO_ID, effect.subject, effect.payload))
    else:
        peer.leader.egress.assign(peer, effect)


def _send_result(peer: Peer, effect: ev.SendResult) -> None:
    result = effect.result
    if isinstance(result, Verdict):
        record = ms.JobResult(show_job_id(effect.job), peer.client_id, effect.program)
        if result.code == PARTS:
            record = msgspec.structs.replace(record, stdout=result.text, exit_code=0)
        else:
            record = msgspec.structs.replace(record, status=ms.FAILED, stderr=result.text, reason=result.code)
        result = ms.encode(record)
    elif not result and not peer.receipts:
        result = ms.encode(ms.JobResult(show_job_id(effect.job), peer.client_id, effect.program, exit_code=0))
    elif not peer.blobs or peer.leader.packed:
        peer.leader.egress.result(peer, effect.job, result)
        return
    peer.link.send(fr.encode(fr.RESULT, effect.job, effect.job, payload=result))
    if not peer.receipts and not effect.is_refusal:  # It cannot say that it has it: written is delivered (F9).
        peer.leader.drive.post(ev.Confirmed(effect.conn, (effect.job,)))


def _send_fetch(peer: Peer, effect: ev.SendFetch) -> None:
    _send_ids(peer, fr.FETCH, effect.jobs)


def _send_confirms(peer: Peer, effect: ev.SendConfirms) -> None:
    _send_ids(peer, fr.CONFIRM, effect.jobs)


def _send_cancel(peer: Peer, effect: ev.SendCancel) -> None:
    peer.link.send(fr.encode(fr.CANCEL, corr_id=effect.job, payload=effect.job))


def _send_heartbeat(peer: Peer, _effect: ev.SendHeartbeat) -> None:
    peer.link.send(fr.encode(fr.HEARTBEAT))


def _send_answer(peer: Peer, effect: ev.SendAnswer) -> None:
    payload = ms.encode(effect.answer)
    if len(payload) > fr.payload_max(""):
        _send_no(peer, ev.SendNo(effect.conn, effect.ask_id, "too-big", f"the answer would have {len(payload)} bytes"))
    else:
        peer.link.send(fr.encode(fr.ASK, corr_id=effect.ask_id, payload=payload))


def _send_no(peer: Peer, effect: ev.SendNo) -> None:
    payload = ms.write_refusal(effect.code, effect.text)
    peer.link.send(fr.encode(fr.ASK, corr_id=effect.ask_id, subject="refused", payload=payload))


def _pause_reading(peer: Peer, _effect: ev.PauseReading) -> None:
    peer.paused = True
    peer.set_reading()


def _resume_reading(peer: Peer, _effect: ev.ResumeReading) -> None:
    peer.paused = False
    peer.set_reading()


def _complain(peer: Peer, effect: ev.Complain) -> None:
    peer.complain(effect.text)


def _close(peer: Peer, effect: ev.Close) -> None:
    peer.link.close(effect.why)
    peer.link.abort()


def _send_ids(peer: Peer, kind: int, jobs: Sequence[JobId]) -> None:
    """A turn's ids, which may be more than one frame holds."""
    for at in range(0, len(jobs), _IDS_PER_FRAME):
        peer.link.send(fr.encode(kind, payload=ms.pack_ids(jobs[at : at + _IDS_PER_FRAME])))
