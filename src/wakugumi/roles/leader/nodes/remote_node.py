"""How does the machine of a node that a leader knows by address act? (SPEC G1, G4)

    AskNode         POST /run/<job>, by a NodeExchange
    PollNode        GET /capacity
    CancelAtNode    DELETE /jobs/<job>

All decisions are in `core/leader/nodes`. The node is a worker of the leader's machine: it gets the leader's effects,
and posts the events of a worker.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.http.client import HttpClient
from wakugumi.adapters.loop.acts import ActPerformer
from wakugumi.adapters.loop.drive import Drive
from wakugumi.core.flows import Act
from wakugumi.core.ids import ConnId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.leader.nodes import events as nev
from wakugumi.core.leader.nodes.machine import NodeAt, NodeMachine
from wakugumi.core.step import LogLine
from wakugumi.limits.leader import OUTPUT_TAIL_CHARS_MAX
from wakugumi.roles.http.job_request import ROOT, RUNS_AS
from wakugumi.roles.http.peer_answers import ANSWER_BYTES_MAX, ask_capacity
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.hub import Hub
from wakugumi.roles.leader.nodes.node_exchange import NodeExchange
from wakugumi.wire.messages.envelope import JOB, TAKES, taken
from wakugumi.wire.messages.hello import ENV
from wakugumi.wire.messages.job import FAILED, JobResult
from wakugumi.wire.messages.payload import encode

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("wakugumi.nodes")


class RemoteNodes:
    """All nodes of one leader. Create it inside a running loop, and close it before the leader."""

    def __init__(
        self,
        hub: Hub,
        blobs: LeaderBlobs | None,
        nodes: Sequence[NodeAt],
        tls: ssl.SSLContext | None = None,
        access: AccessSources | None = None,
    ) -> None:
        """`access`: sources of the keys for nodes."""
        self._questions = HttpClient(tls, access=access, role="node")
        """Separate from the jobs' connections, so that polls and cancels never wait for a job."""
        hub.has_nodes = True
        self.all = [
            RemoteNode(hub, blobs, HttpClient(tls, access=access, role="node"), self._questions, node) for node in nodes
        ]

    async def close(self) -> None:
        """The nodes continue their jobs."""
        await asyncio.gather(*(node.close() for node in self.all))
        await self._questions.close()


class RemoteNode:
    """One node, as a worker of its leader."""

    def __init__(
        self, hub: Hub, blobs: LeaderBlobs | None, calls: HttpClient, questions: HttpClient, node: NodeAt
    ) -> None:
        self.node = node
        self._hub = hub
        self._blobs = blobs
        self._calls = calls
        """A client of its own: a node that hangs uses no other node's connections."""
        self._questions = questions
        self._exchanges: dict[int, NodeExchange] = {}
        self.machine = NodeMachine(node, chance=random.random, now=asyncio.get_running_loop().time())
        self._drive = Drive[nev.NodeEvent, None, nev.NodeDo](self.machine, self._do, name=f"node {node.url}")
        self._drive.failed.add_done_callback(self._failed)
        self._acts = ActPerformer(self._perform, self._drive.post)
        self.conn = ConnId(0)
        self._drive.post(nev.NodeStarts(self._new_conn(), hub.jobs_of(node.worker)))

    async def close(self) -> None:
        self.machine.close()
        self._drive.close()
        await self._acts.close()
        for exchange in self._exchanges.values():
            exchange.close()
        await self._calls.close()
        self._hub.local_peers.pop(self.conn, None)

    # Effects of the leader's machine.

    def perform(self, effect: LeaderDo) -> None:
        match effect:
            case ev.SendAssign() | ev.SendCancel():
                self._drive.post(effect)
            case ev.TellWhenPeerWritten():  # Each job has a connection of its own.
                self._hub.drive.post(ev.PeerWritten(self.conn))
            case ev.Complain():
                log.warning("peer problem node=%s: %s", self.node.url, effect.text)
            case ev.Close():
                self._drive.post(nev.NodeClosed(self._new_conn()))
            case _:  # A welcome needs no action.
                pass

    def _new_conn(self) -> ConnId:
        self._hub.local_peers.pop(self.conn, None)
        self.conn = self._hub.new_conn()
        self._hub.local_peers[self.conn] = self
        return self.conn

    # Effects of the node's machine.

    def _do(self, effects: Sequence[nev.NodeDo]) -> None:
        for effect in effects:
            match effect:
                case LeaderEvent():
                    self._hub.drive.post(effect)
                case nev.OpenExchange():
                    exchange = NodeExchange(self._calls, self.node.url, self._blobs, effect.assigned, self.node.name)
                    self._exchanges[effect.exchange] = exchange
                case nev.CloseExchange():
                    self._exchanges.pop(effect.exchange).close()
                case nev.LookAtAnswers():
                    awaited = {number: self._exchanges[number].awaited_at for number in effect.exchanges}
                    here = {number: size for number, size in awaited.items() if size is not None}
                    self._drive.post(nev.AnswersSeen(here))
                case nev.FailAttempt():
                    if effect.exchange:
                        payload = self._exchanges[effect.exchange].failed(effect.code, effect.text)
                    else:
                        payload = encode(JobResult(show_job_id(effect.job), status=FAILED, reason=effect.code))
                    output = effect.text[-OUTPUT_TAIL_CHARS_MAX:]
                    self._hub.drive.post(ev.Acked(effect.conn, effect.job, False, effect.code, payload, output))
                case LogLine():
                    log.log(effect.level, "%s", effect.text, exc_info=effect.error)
                case _:
                    self._acts.do(effect)

    def _failed(self, failed: asyncio.Future[None]) -> None:
        """An internal error of the node's machine ends the leader, as one of its own does."""
        if not failed.cancelled() and isinstance(error := failed.exception(), Exception):
            self._hub.drive.fail(error)

    async def _perform(self, act: Act[Any]) -> Any:
        match act:
            case nev.AskNode():
                began = partial(self._drive.post, nev.AnswerBegan(act.exchange)) if act.is_bare else _no_one
                return await self._exchanges[act.exchange].ask(began, is_bare=act.is_bare, as_form=act.as_form)
            case nev.CancelAtNode():
                async with self._questions.call("DELETE", f"{self.node.url}/jobs/{show_job_id(act.job)}") as answer:
                    await answer.read(ANSWER_BYTES_MAX)  # So that the connection can be kept.
                    return answer.status
            case _:
                return await self._ask_capacity()

    async def _ask_capacity(self) -> nev.NodeReport:
        """Raises Lost or PeerError."""
        capacity, answer = await ask_capacity(self._questions, self.node.url)
        takes, is_root = taken(answer.header(TAKES)), answer.header(RUNS_AS) == ROOT
        return nev.NodeReport(capacity.running, capacity.limit, is_root, ENV in takes, JOB in takes)


def _no_one() -> None:
    """The machine sets no time for this answer."""
