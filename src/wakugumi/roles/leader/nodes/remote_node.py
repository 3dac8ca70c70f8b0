"""How are nodes that a leader knows by their addresses workers of its own? (SPEC G1, G4)

Each has a RemoteNode, which stands for it in the leader's process: the leader's machine hears of it what it hears of
any worker.

    GET /capacity    what it has free is offered as credit: every two seconds, and whenever one of its jobs has ended
    assigned         POST /run/<job>, by a NodeJob; busy or not there: the job is given back, and the node rests
    its own fault    an answer that a healthy node would not give: it rests, with a backoff, and is then tried with one
                     job at a time
    cancelled        DELETE /jobs/<job>
    no answer        it rests, with a backoff; what it runs goes on being asked for, and is lost like any worker's

Its id follows from its URL, so that a leader that was started anew knows what its last life gave to whom: it asks the
same node for the same jobs before anybody else gets them. The nodes remember their jobs by their ids.
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
_CALL_OFF_TRIES_MAX: Final = 5
"""A node that answers polls, and this often not that it shall end a job, runs that to its end."""
_TRIED_S: Final = 10.0
"""After a rest for its own fault, a node has one job at a time for so long, or until one is done. Most faults show at
once; and one whose jobs take hours is not to have only one of them for hours."""
_NOT_YET: Final = "it has not answered yet"


class RemoteNodes:
    """All nodes of one leader. Make it inside a running loop, and close it before the leader."""

    def __init__(
        self, hub: Hub, blobs: LeaderBlobs | None, nodes: Sequence[NodeAt], tls: ssl.SSLContext | None = None
    ) -> None:
        self._questions = HttpClient(tls)
        """Apart from the jobs: of each node one poll and one cancel are under way, and no job keeps them waiting."""
        hub.has_nodes = True
        self.all = [RemoteNode(hub, blobs, HttpClient(tls), self._questions, node) for node in nodes]

    async def close(self) -> None:
        """The nodes go on with what they run."""
        await asyncio.gather(*(node.close() for node in self.all))
        await self._questions.close()


class _Capacity(msgspec.Struct, frozen=True, gc=False):
    running: int
    limit: int


class _Kind(NamedTuple):
    """What a node says of itself beside its capacity."""

    as_root: bool = False
    env: bool = False
    """It takes variables."""


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
        """Its own: one that hangs takes nobody else's connections."""
        self._questions = questions
        self._post = hub.drive.post
        self._tasks = Tasks()
        self._running: dict[JobId, tuple[NodeJob, asyncio.Task[None]]] = {}
        self._told = 0
        """Credit that was offered and not used, as far as we have heard."""
        self._capacity = _Capacity(0, 0)
        self._kind = _Kind()
        """What the node said last, less what has ended since."""
        self._rests = _NOT_YET
        self._failures = 0
        """Of the node, one after the other, without a sign of life."""
        self._away_until = 0.0
        """It is not looked for before, because of these."""
        self._declines = 0
        """Jobs that it was too busy for, although it had said otherwise; since the last one that it did."""
        self._faults = 0
        """Jobs that it failed by its own fault; since the last one that it did. A poll says nothing about that."""
        self._rest_until = 0.0
        """It gets no job before, because of either."""
        self._heard_at = asyncio.get_running_loop().time()
        self._left: dict[JobId, int] = {}
        """What it may still run, and nobody wants of it any more; how often it was told so in vain."""
        self._calling_off: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._held: set[JobId] = set()
        """What it was given in an earlier life of the leader."""
        self.conn = ConnId(0)
        self._join(hub.jobs_of(self.id))
        self._tasks.start_loop(self._watch, name=f"node {node.url}")
        self._tasks.start_loop(self._listen, name=f"silence of node {node.url}")

    async def close(self) -> None:
        await self._tasks.close()
        await self._calls.close()
        self._hub.local_peers.pop(self.conn, None)

    # What dispatch asks for.

    def perform(self, effect: LeaderDo) -> None:
        match effect:
            case ev.SendAssign():
                self._assigned(effect)
            case ev.SendCancel():
                self._cancelled(effect.job)
            case ev.TellWhenPeerWritten():  # Each job has a connection of its own.
                self._post(ev.PeerWritten(self.conn))
            case ev.Complain():
                log.warning("node %s: %s", self.node.url, effect.text)
            case ev.Close():
                self._hub.local_peers.pop(self.conn, None)
                self._post(ev.Left(self.conn))
                self._join(tuple(self._running))
            case _:  # A welcome: we know the leader.
                pass

    def _join(self, held: tuple[JobId, ...]) -> None:
        """Say who it is and what it has, as a worker does. Until it has answered it rests."""
        self.conn = self._hub.new_conn()
        self._hub.local_peers[self.conn] = self
        self._held.update(job for job in held if job not in self._running)
        self._told = 0
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
        self._left.pop(job, None)
        if not is_held:
            self._told = max(0, self._told - 1)
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
        """If it has to rest that is said first: what is tried again goes to another."""
        if isinstance(outcome, NodeAnswered):
            self._heard()
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
            log.warning("job %s is lost at node %s: %s", show_job_id(job), self.node.url, why)
            self._faulty(why)
            failed = JobResult(show_job_id(job), status=FAILED, stderr=why, reason="worker-lost")
            self._post(ev.Acked(self.conn, job, False, "worker-lost", encode(failed), why))
            self._let_go(job)

    # What nobody wants of it any more.

    def _let_go(self, job: JobId) -> None:
        """It may still run there, and need not."""
        self._left[job] = 0
        if len(self._left) > NODE_LEFT_MAX:
            del self._left[next(iter(self._left))]
        self._call_off_soon()

    def _call_off_soon(self) -> None:
        if self._left and (self._calling_off is None or self._calling_off.done()):
            self._calling_off = self._tasks.start(self._call_off(), name=f"cancel jobs at {self.node.url}")

    async def _call_off(self) -> None:
        """One after the other, until one is not answered: then again when the node is next heard of."""
        while (job := next(iter(self._left), None)) is not None:
            told = await self._is_called_off(job)
            tries = self._left.pop(job, None)
            if not told:
                if tries is not None and tries + 1 < _CALL_OFF_TRIES_MAX:
                    self._left[job] = tries + 1  # Behind the others.
                return

    async def _is_called_off(self, job: JobId) -> bool:
        url = f"{self.node.url}/jobs/{show_job_id(job)}"
        try:
            async with asyncio.timeout(NODE_POLL_TIMEOUT_S), self._questions.call("DELETE", url) as answer:
                return answer.status < 500
        except (Lost, TimeoutError):
            return False

    # Its health, and what it has free.

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._capacity = await self._ask_capacity()
            except (Lost, PeerError) as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("node %s cannot be asked", self.node.url)
                self._failed(repr(error))
            else:
                self._heard()
                self._post(ev.PeerHeard(self.conn, 0.0))
                self._call_off_soon()
                self._offer()
            now = loop.time()
            if self._failures:
                pause_s = max(0.0, self._away_until - now)
            elif self._rest_until > now:
                pause_s = min(NODE_POLL_S, self._rest_until - now)
            else:
                pause_s = NODE_POLL_S
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._news.wait()

    async def _listen(self) -> None:
        """A machine that is gone says nothing on the connections on which its answers are waited for."""
        loop = asyncio.get_running_loop()
        hung_up_at = 0.0
        while True:
            silent_s = loop.time() - max(self._heard_at, hung_up_at)
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
            raise PeerError(f"{url} answered with something that is no capacity") from None
        if capacity.running < 0 or capacity.limit < 0:
            raise PeerError(f"{url} answered with numbers below zero")
        takes = [word.strip() for word in (answer.header(TAKES) or "").split(",")]
        kind = _Kind(answer.header(RUNS_AS) == ROOT, ENV in takes)
        if kind != self._kind:  # Before it offers anything: it may be of another version now.
            self._kind = kind
            self._post(ev.Described(self.conn, kind.as_root, kind.env))
        return capacity

    def _heard(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        if self._failures:
            self._failures = self._faults = 0  # It may have been started anew.
            log.info("node %s is back", self.node.url)

    def _offer(self) -> None:
        """As much credit as it has slots free, unless it rests. What others give it to run counts, too."""
        now = asyncio.get_running_loop().time()
        if self._failures or self._rest_until > now:
            return
        if self._rests:
            if self._rests == _NOT_YET:
                log.info("node %s is there: %d slots", self.node.url, self._capacity.limit)
            self._rests = ""
            self._post(ev.Rested(self.conn, ""))
        limit = min(self._capacity.limit, CREDIT_MAX, CALLS_MAX)  # Each of its jobs is a connection.
        amount = limit - max(self._capacity.running, len(self._running)) - self._told
        if self._faults and now < self._rest_until + _TRIED_S:
            amount = min(amount, 1 - len(self._running) - self._told)
        if amount > 0:
            self._told += amount
            self._post(ev.Credited(self.conn, amount))

    def _busy(self, why: str) -> None:
        """It took no job, although it had said that it would."""
        now = asyncio.get_running_loop().time()
        if self._rest_until <= now:  # Several at once say the same.
            self._declines += 1
            self._rest_until = now + backoff_s(self._declines, random.random())
        self._rest(why)

    def _faulty(self, why: str) -> None:
        """It answers, and not as one should whose disk and programs are well."""
        now = asyncio.get_running_loop().time()
        if self._rest_until <= now:
            self._faults += 1
            self._rest_until = now + backoff_s(self._faults, random.random())
            log.warning("node %s rests: %s", self.node.url, readable(why))
        self._rest(why)

    def _failed(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._away_until <= now or not self._failures:
            if not self._failures:
                log.warning("node %s is out of order: %s", self.node.url, readable(why))
            self._failures += 1
            self._away_until = now + backoff_s(self._failures, random.random())
        self._rest(why)

    def _rest(self, why: str) -> None:
        self._news.set()  # It is looked at again when its time has come.
        self._rests = readable(why)
        self._told = 0
        self._post(ev.Rested(self.conn, self._rests))
