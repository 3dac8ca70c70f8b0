"""What does a leader do next about a node that it knows by address? The state machine of one node. (SPEC G1, G4)

    leader's machine ◄── events of a worker ── NodeMachine ── acts ──► the node
                     ──► SendAssign, SendCancel

The node's id follows from its URL. A restarted leader therefore knows which node had which jobs, and asks that node for
them before another worker gets them. The nodes remember their jobs by id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from wakugumi.core.flows import ActFailed, Answered, Deadline, Promise
from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader.events import Left, SendAssign, SendCancel, WorkerHolds, WorkerJoined
from wakugumi.core.leader.nodes.events import (
    AnswerBegan,
    AnswersSeen,
    NodeClosed,
    NodeDo,
    NodeEvent,
    NodeStarts,
    PollNode,
)
from wakugumi.core.leader.nodes.health import NodeHealth
from wakugumi.core.leader.nodes.jobs import NodeJobs
from wakugumi.core.leader.nodes.state import NodeState
from wakugumi.core.leader.nodes.unwanted import UnwantedJobs
from wakugumi.core.step import ERROR, Step
from wakugumi.core.subject import Pattern
from wakugumi.errors import Lost, PeerError
from wakugumi.limits.node import NODE_POLL_TIMEOUT_S, NODE_REJOIN_S
from wakugumi.limits.wire import SILENCE_MAX_S

_NAMESPACE: Final = UUID("5d0e6b0d-7f1e-5c0b-9a53-6e6f64650000")


class NodeAt(NamedTuple):
    """A node, as given with `--node`."""

    url: str
    """Without a slash at the end."""
    patterns: tuple[Pattern, ...]
    name: str = ""
    """Empty: the URL is the name."""
    weight: int = 1

    @property
    def worker(self) -> WorkerId:
        return WorkerId(uuid5(_NAMESPACE, self.url).bytes_le)


class NodeMachine:
    """One node of one leader. See `core/step.py` for the four doors."""

    def __init__(self, node: NodeAt, *, chance: Callable[[], float], now: float) -> None:
        self._node = node
        self._state = NodeState(node.url, chance, now)
        self._flows = self._state.flows
        self.health = NodeHealth(self._state, self._wake)
        self.unwanted = UnwantedJobs(self._state)
        self.jobs = NodeJobs(self._state, self.health, self.unwanted)
        self._woken: Promise[None] = Promise(self._flows)
        """Kept when the next poll is due."""
        self._hung_up_at = self._joined_at = now

    def handle(self, events: Sequence[NodeEvent], now: float) -> Step[None, NodeDo]:
        self._flows.now = now
        for event in events:
            match event:
                case Answered() | ActFailed():
                    self._flows.hear(event)
                case SendAssign():
                    self.jobs.assign(event)
                case SendCancel():
                    self.jobs.cancel(event.job)
                case AnswerBegan():
                    self.jobs.answer_began(event.exchange)
                case AnswersSeen():
                    self.jobs.answers_seen(event.received)
                case NodeStarts():
                    self._join(event.conn, event.held)
                    self._flows.start(self._watch, "poll")
                    self._watch_silence()
                case NodeClosed():
                    self._state.emit(Left(self._state.conn))
                    rejoin_at = max(now, self._joined_at + NODE_REJOIN_S)
                    self._flows.call_at(rejoin_at, partial(self._join, event.conn, None))
        return Step(do=self._flows.run(now))

    def tick(self, now: float) -> Step[None, NodeDo]:
        return Step(do=self._flows.run(now))

    def wake_at(self) -> float | None:
        return self._flows.wake_at()

    def check(self) -> None:
        self._flows.check()
        self.health.check()
        self.unwanted.check()
        self.jobs.check()

    def close(self) -> None:
        """Ends all flows where they rest. The node continues its jobs."""
        self._flows.close()

    @property
    def flows(self) -> int:
        """Number of flows that have not ended: one for polls, one for each job, one while jobs are cancelled."""
        return self._flows.count

    def _join(self, conn: ConnId, held: tuple[JobId, ...] | None) -> None:
        """Join as a worker with these jobs; None: with all that are known."""
        node, kind = self._node, self.health.report
        held = self.jobs.known if held is None else held
        self._joined_at = self._flows.now
        self._state.conn = conn
        self.jobs.hold(held)
        self._state.emit(
            WorkerJoined(
                conn,
                node.worker,
                node.name or node.url,
                node.patterns,
                receipts=False,
                heartbeats=False,
                reattach=True,
                cancels=True,
                blobs=True,
                runs_unnamed=True,
                simple_only=True,
                weight=node.weight,
                resend=True,
                as_root=kind.as_root,
                env=kind.env,
            )
        )
        self._state.emit(WorkerHolds(conn, held, ()))
        self.health.joined()

    # Polls.

    def _wake(self) -> None:
        self._woken.keep(None)

    async def _watch(self) -> None:
        while True:
            await self._poll()
            self._woken = Promise(self._flows)
            timer = self._flows.call_at(self._flows.now + self.health.poll_s(), self._wake)
            await self._woken
            timer.cancel()

    async def _poll(self) -> None:
        why = f"{self._node.url}/capacity did not answer within {NODE_POLL_TIMEOUT_S:g} s"
        deadline = Deadline(self._flows, NODE_POLL_TIMEOUT_S, Lost(why, "slow"))
        own = len(self.jobs.running)
        try:
            report = await PollNode()
        except (Lost, PeerError) as error:
            self.health.failed(str(error))
        except Exception as error:  # Any other error counts as no answer.
            self._state.log(ERROR, f"poll failed node={self._node.url}", error)
            self.health.failed(repr(error))
        else:
            self.health.reported(report, own)
            self.unwanted.cancel_soon()
            self.jobs.offer()
        finally:
            deadline.close()

    def _watch_silence(self) -> None:
        """Hang up if the node was silent for too long, and look again later."""
        now = self._flows.now
        due_at = max(self.health.alive_at, self._hung_up_at) + SILENCE_MAX_S
        if due_at <= now:
            self._hung_up_at, due_at = now, now + SILENCE_MAX_S
            self.jobs.hang_up()
        self._flows.call_at(due_at, self._watch_silence)
