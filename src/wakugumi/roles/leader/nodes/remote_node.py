"""How is a node that a leader knows by address a worker of that leader? (SPEC G1, G4)

A RemoteNode represents it in the leader's process and posts the events of a worker to the leader's machine.

    GET /capacity    free slots become credit: every two seconds, and whenever one of the node's jobs has ended
    assigned         POST /run/<job>, by a NodeJob; a busy or absent node gives the job back, and rests
    node's fault     after an answer that no healthy node gives, the node rests with a backoff, then gets one job at a
                     time for a while
    cancelled        DELETE /jobs/<job>
    no answer        the node rests with a backoff; its running jobs are asked for until they are lost, as a worker's

The id follows from the URL. A restarted leader therefore knows which node had which jobs, and asks that node for them
before another worker gets them. The nodes remember their jobs by id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid5

import msgspec

from wakugumi.adapters.http.client import HttpClient
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.core.backoff import backoff_s
from wakugumi.core.ids import ConnId, JobId, WorkerId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo
from wakugumi.errors import Lost, PeerError
from wakugumi.limits.http import CALLS_MAX
from wakugumi.limits.leader import REATTACH_GRACE_S, RECOVERY_GRACE_S
from wakugumi.limits.node import NODE_LEFT_MAX, NODE_POLL_S, NODE_POLL_TIMEOUT_S
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import SILENCE_MAX_S
from wakugumi.roles.http.job_request import ROOT, RUNS_AS, TAKES
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.nodes.addresses import NodeAt
from wakugumi.roles.leader.nodes.node_job import GivenBack, NodeAnswered, NodeJob, Outcome
from wakugumi.roles.leader.nodes.node_result import readable
from wakugumi.wire.messages.hello import ENV
from wakugumi.wire.messages.job import FAILED, JobResult
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.untrusted_json import Unreadable, read_json

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("wakugumi.nodes")

_NAMESPACE: Final = UUID("5d0e6b0d-7f1e-5c0b-9a53-6e6f64650000")
_CAPACITY_BYTES_MAX: Final = 4_096
_CANCEL_TRIES_MAX: Final = 5
"""After so many failed DELETE requests to a node that answers polls, its job runs to its end."""
_TRIAL_S: Final = 10.0
"""After a rest for its own fault, a node gets one job at a time for so long, or until one ends without its fault. Most
faults show at once, and a node with long jobs must not run only one of them for hours."""
_NOT_YET: Final = "it has not answered yet"


class RemoteNodes:
    """All nodes of one leader. Create it inside a running loop, and close it before the leader."""

    def __init__(
        self, hub: Hub, blobs: LeaderBlobs | None, nodes: Sequence[NodeAt], tls: ssl.SSLContext | None = None
    ) -> None:
        self._questions = HttpClient(tls)
        """Separate from the jobs' connections, so that polls and cancels never wait for a job."""
        hub.has_nodes = True
        self.all = [RemoteNode(hub, blobs, HttpClient(tls), self._questions, node) for node in nodes]

    async def close(self) -> None:
        """The nodes continue their jobs."""
        await asyncio.gather(*(node.close() for node in self.all))
        await self._questions.close()


class _Capacity(msgspec.Struct, frozen=True, gc=False):
    running: int
    limit: int


class _Kind(NamedTuple):
    """Properties that a node reports with its capacity."""

    as_root: bool = False
    env: bool = False
    """Jobs may set environment variables."""


class RemoteNode:
    """One node, as a worker of its leader."""

    def __init__(
        self, hub: Hub, blobs: LeaderBlobs | None, calls: HttpClient, questions: HttpClient, node: NodeAt
    ) -> None:
        self.node = node
        self.id = WorkerId(uuid5(_NAMESPACE, node.url).bytes_le)
        self._hub = hub
        self._blobs = blobs
        self._calls = calls
        """A client of its own: a node that hangs uses no other node's connections."""
        self._questions = questions
        self._post = hub.drive.post
        self._tasks = Tasks()
        self._running: dict[JobId, tuple[NodeJob, asyncio.Task[None]]] = {}
        self._offered = 0
        """Credit that the leader has not used yet."""
        self._capacity = _Capacity(0, 0)
        """The last report of the node, less the jobs that have ended since."""
        self._kind = _Kind()
        self._rests = _NOT_YET
        self._failures = 0
        """Consecutive failures to reach the node."""
        self._away_until = 0.0
        """Time of the next poll while `_failures` is above 0."""
        self._declines = 0
        """Jobs that the node declined as busy since its last finished job, although it had reported free slots."""
        self._faults = 0
        """Jobs that failed by the node's fault since its last good answer. A poll does not reset this."""
        self._rest_until = 0.0
        """The node gets no job before this time, because of `_declines` or `_faults`."""
        self._alive_at = asyncio.get_running_loop().time()
        self._unwanted: dict[JobId, int] = {}
        """Unwanted jobs that the node may still run, with the number of failed DELETE requests."""
        self._cancelling: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._held: set[JobId] = set()
        """Jobs of the node from before the leader's restart."""
        self.conn = ConnId(0)
        self._join(hub.jobs_of(self.id))
        self._tasks.start_loop(self._watch, name=f"node {node.url}")
        self._tasks.start_loop(self._watch_silence, name=f"silence of node {node.url}")

    async def close(self) -> None:
        await self._tasks.close()
        await self._calls.close()
        self._hub.local_peers.pop(self.conn, None)

    # Effects of the leader's machine.

    def perform(self, effect: LeaderDo) -> None:
        match effect:
            case ev.SendAssign():
                self._assigned(effect)
            case ev.SendCancel():
                self._cancelled(effect.job)
            case ev.TellWhenPeerWritten():  # Each job has a connection of its own.
                self._post(ev.PeerWritten(self.conn))
            case ev.Complain():
                log.warning("peer problem node=%s: %s", self.node.url, effect.text)
            case ev.Close():
                self._hub.local_peers.pop(self.conn, None)
                self._post(ev.Left(self.conn))
                self._join(tuple(self._running))
            case _:  # A welcome needs no action.
                pass

    def _join(self, held: tuple[JobId, ...]) -> None:
        """Join as a worker with these jobs. The node rests until its first answer."""
        self.conn = self._hub.new_conn()
        self._hub.local_peers[self.conn] = self
        self._held.update(job for job in held if job not in self._running)
        self._offered = 0
        self._post(
            ev.WorkerJoined(
                self.conn,
                self.id,
                self.node.name or self.node.url,
                self.node.patterns,
                receipts=False,
                heartbeats=False,
                reattach=True,
                cancels=True,
                blobs=True,
                runs_unnamed=True,
                simple_only=True,
                weight=self.node.weight,
                resend=True,
                as_root=self._kind.as_root,
                env=self._kind.env,
            )
        )
        self._post(ev.WorkerHolds(self.conn, held, ()))
        self._rest(self._rests or _NOT_YET)

    def _assigned(self, effect: ev.SendAssign) -> None:
        job = effect.job
        if job in self._running:
            return
        is_held = job in self._held
        self._held.discard(job)
        self._unwanted.pop(job, None)
        if not is_held:
            self._offered = max(0, self._offered - 1)
        node_job = NodeJob(
            self._calls,
            self.node.url,
            self._blobs,
            effect,
            may_know=is_held,
            patience_s=RECOVERY_GRACE_S if is_held else REATTACH_GRACE_S,
        )
        name = f"job {show_job_id(job)} at {self.node.url}"
        self._running[job] = node_job, self._tasks.start(self._run(job, node_job), name=name)

    def _cancelled(self, job: JobId) -> None:
        known = self._running.pop(job, None)
        if known is None:
            return
        known[1].cancel()
        failed = JobResult(show_job_id(job), status=FAILED, reason="cancelled")
        self._post(ev.Acked(self.conn, job, False, "cancelled", encode(failed)))
        self._let_go(job)
        self._offer()

    # A job and its end.

    async def _run(self, job: JobId, node_job: NodeJob) -> None:
        try:
            outcome = await node_job.run()
        finally:
            if (known := self._running.get(job)) is not None and known[0] is node_job:
                del self._running[job]
        running, limit = self._capacity.running, self._capacity.limit
        self._capacity = _Capacity(max(0, running - 1), limit)
        self._ended(job, outcome)

    def _ended(self, job: JobId, outcome: Outcome) -> None:
        """Post a rest before the outcome, so that a retry goes to another worker."""
        if isinstance(outcome, NodeAnswered):
            self._mark_alive()
            self._declines = 0
            if outcome.fault:
                self._faulty(outcome.fault)
            else:
                self._faults = 0
            ok, reason, payload, output, blobs, _ = outcome
            self._post(ev.Acked(self.conn, job, ok, reason, payload, output, blobs))
            self._offer()
        elif isinstance(outcome, GivenBack):
            if outcome.unreached:
                self._failed(outcome.why)
            else:
                self._busy(outcome.why)
            self._post(ev.Declined(self.conn, job))
        else:
            why = readable(outcome.why)
            log.warning("job lost job=%s node=%s: %s", show_job_id(job), self.node.url, why)
            self._faulty(why)
            failed = JobResult(show_job_id(job), status=FAILED, stderr=why, reason="worker-lost")
            self._post(ev.Acked(self.conn, job, False, "worker-lost", encode(failed), why))
            self._let_go(job)

    # Unwanted jobs.

    def _let_go(self, job: JobId) -> None:
        """Cancel a job that the node may still run."""
        self._unwanted[job] = 0
        if len(self._unwanted) > NODE_LEFT_MAX:
            del self._unwanted[next(iter(self._unwanted))]
        self._cancel_soon()

    def _cancel_soon(self) -> None:
        if self._unwanted and (self._cancelling is None or self._cancelling.done()):
            self._cancelling = self._tasks.start(self._cancel_unwanted(), name=f"cancel jobs at {self.node.url}")

    async def _cancel_unwanted(self) -> None:
        """Cancel unwanted jobs one by one. After a failure the rest waits for the next answered poll."""
        while (job := next(iter(self._unwanted), None)) is not None:
            is_cancelled = await self._send_cancel(job)
            tries = self._unwanted.pop(job, None)
            if not is_cancelled:
                if tries is not None and tries + 1 < _CANCEL_TRIES_MAX:
                    self._unwanted[job] = tries + 1  # Now the last one.
                return

    async def _send_cancel(self, job: JobId) -> bool:
        url = f"{self.node.url}/jobs/{show_job_id(job)}"
        try:
            async with asyncio.timeout(NODE_POLL_TIMEOUT_S), self._questions.call("DELETE", url) as answer:
                return answer.status < 500
        except (Lost, TimeoutError):
            return False

    # Health and free slots.

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._capacity = await self._ask_capacity()
            except (Lost, PeerError) as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("poll failed node=%s", self.node.url)
                self._failed(repr(error))
            else:
                self._mark_alive()
                self._post(ev.PeerHeard(self.conn, 0.0))
                self._cancel_soon()
                self._offer()
            now = loop.time()
            if self._failures:
                pause_s = max(0.0, self._away_until - now)
            elif self._rest_until > now:
                pause_s = min(NODE_POLL_S, self._rest_until - now)
            else:
                pause_s = NODE_POLL_S
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    async def _watch_silence(self) -> None:
        """Cut the connections of a silent node: a lost machine closes none of them."""
        loop = asyncio.get_running_loop()
        hung_up_at = 0.0
        while True:
            silent_s = loop.time() - max(self._alive_at, hung_up_at)
            if silent_s < SILENCE_MAX_S:
                await asyncio.sleep(SILENCE_MAX_S - silent_s)
                continue
            hung_up_at = loop.time()
            for node_job, _ in self._running.values():
                node_job.hang_up()

    async def _ask_capacity(self) -> _Capacity:
        """Raises Lost or PeerError."""
        url = f"{self.node.url}/capacity"
        try:
            async with asyncio.timeout(NODE_POLL_TIMEOUT_S), self._questions.call("GET", url) as answer:
                body = await answer.read(_CAPACITY_BYTES_MAX)
        except TimeoutError:
            raise Lost(f"{url} did not answer within {NODE_POLL_TIMEOUT_S:g} s", "slow") from None
        if answer.status != 200:
            raise PeerError(f"{url} answered with status {answer.status}")
        try:
            capacity = read_json(body, _Capacity)
        except Unreadable:
            raise PeerError(f"{url} answered with no capacity: the body is not {{running, limit}}") from None
        if capacity.running < 0 or capacity.limit < 0:
            raise PeerError(f"{url} answered with a negative capacity")
        takes = [word.strip() for word in (answer.header(TAKES) or "").split(",")]
        kind = _Kind(answer.header(RUNS_AS) == ROOT, ENV in takes)
        if kind != self._kind:  # Posted before any credit: the node may have another version now.
            self._kind = kind
            self._post(ev.Described(self.conn, kind.as_root, kind.env))
        return capacity

    def _mark_alive(self) -> None:
        self._alive_at = asyncio.get_running_loop().time()
        if self._failures:
            self._failures = self._faults = 0  # The node may have been restarted.
            log.info("node is back node=%s", self.node.url)

    def _offer(self) -> None:
        """Post free slots as credit, unless the node rests. Jobs of other leaders use slots, too."""
        now = asyncio.get_running_loop().time()
        if self._failures or self._rest_until > now:
            return
        if self._rests:
            if self._rests == _NOT_YET:
                log.info("node joined node=%s slots=%d", self.node.url, self._capacity.limit)
            self._rests = ""
            self._post(ev.Rested(self.conn, ""))
        limit = min(self._capacity.limit, CREDIT_MAX, CALLS_MAX)  # Each job needs a connection.
        amount = limit - max(self._capacity.running, len(self._running)) - self._offered
        if self._faults and now < self._rest_until + _TRIAL_S:
            amount = min(amount, 1 - len(self._running) - self._offered)
        if amount > 0:
            self._offered += amount
            self._post(ev.Credited(self.conn, amount))

    def _busy(self, why: str) -> None:
        """The node declined a job although it had reported a free slot."""
        now = asyncio.get_running_loop().time()
        if self._rest_until <= now:  # Several declined at once count as one.
            self._declines += 1
            self._rest_until = now + backoff_s(self._declines, random.random())
        self._rest(why)

    def _faulty(self, why: str) -> None:
        """The node answers, but its disk or its programs fail."""
        now = asyncio.get_running_loop().time()
        if self._rest_until <= now:
            self._faults += 1
            self._rest_until = now + backoff_s(self._faults, random.random())
            log.warning("node rests node=%s: %s", self.node.url, readable(why))
        self._rest(why)

    def _failed(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._away_until <= now or not self._failures:
            if not self._failures:
                log.warning("node is out of order node=%s: %s", self.node.url, readable(why))
            self._failures += 1
            self._away_until = now + backoff_s(self._failures, random.random())
        self._rest(why)

    def _rest(self, why: str) -> None:
        self._wake.set()  # The next poll may be due earlier.
        self._rests = readable(why)
        self._offered = 0
        self._post(ev.Rested(self.conn, self._rests))
