"""How does a node run one job? The request is repeated under the same id until it is answered. (SPEC G1, N2)

    200               the result
    423               the job runs there: wait, then ask again
    503, refused      the node has not begun the job: another worker may have it
    400, 415          to an envelope, from a node that does not say that it takes envelopes: the same as a form
    answer stalls     as a lost connection
    connection lost   ask again for as long as for a lost worker; then the attempt is lost
    anything else     FAILED with the code of the problem

Each request carries its digest. A node that has another request under this id answers 409, which ends the job (SPEC
L6). A node that may know the job is first asked without the input. It answers with the result, with 423, or that the
form is missing; only then the input is sent (again). No other node gets a job that a node may have begun while that
node may return.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple, TypeAlias

from wakugumi.core.connections.answer_pace import AnswerPace
from wakugumi.core.flows import Deadline, Flow, Timer
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader.events import Acked, Declined, PeerHeard, SendAssign
from wakugumi.core.leader.nodes.events import (
    AskNode,
    CloseExchange,
    FailAttempt,
    LookAtAnswers,
    NodeAnswered,
    NodeReply,
    OpenExchange,
)
from wakugumi.core.leader.nodes.health import NodeHealth
from wakugumi.core.leader.nodes.state import NodeState
from wakugumi.core.leader.nodes.unwanted import UnwantedJobs
from wakugumi.core.step import ERROR, WARNING
from wakugumi.core.visible_text import readable
from wakugumi.errors import CODES, Lost, PeerError, Refused
from wakugumi.limits.leader import REATTACH_GRACE_S, RECOVERY_GRACE_S
from wakugumi.limits.node import NODE_AGAIN_S, NODE_QUESTION_S, NODE_RETRY_AFTER_MAX_S, NODE_SENDS_MAX

_RETRY_AFTER_S: Final = 1.0
"""Seconds until the next request when a node sends no Retry-After."""
_WHY_CHARS_MAX: Final = 500
_FAULTS: Final = frozenset({"worker-error", "disk", "disk-full", "bad-result"})
"""Codes of failures that are the node's own fault."""
_NOT_UNDERSTOOD: Final = frozenset({400, 415})
"""Statuses with which a node that knows no envelopes refuses one."""


class AttemptFailed(NamedTuple):
    """The attempt ended without a result of the node."""

    code: str
    text: str
    fault: str = ""
    """Why the node is to blame; empty if it is not."""


class GivenBack(NamedTuple):
    """The node has not begun the job."""

    why: str
    unreached: bool
    """The connection was refused; otherwise the node is busy."""


class NodeLost(NamedTuple):
    """The node was lost and may have begun the job."""

    why: str


NodeOutcome: TypeAlias = NodeAnswered | AttemptFailed | GivenBack | NodeLost


class NodeJob:
    """One job at the node."""

    def __init__(self, job: JobId, exchange: int, *, is_held: bool) -> None:
        self.job = job
        self.exchange = exchange
        self.may_know = is_held
        """The node may have got the job before."""
        self.patience_s = RECOVERY_GRACE_S if is_held else REATTACH_GRACE_S
        """How long to retry a node that may have begun the job."""
        self.sends = 0
        """Requests with the input."""
        self.by_form = False
        """The node did not understand the job in an envelope."""
        self.lost_at: float | None = None
        """The node has not answered since then."""
        self.is_asking = False
        self.is_resent = False
        """The leader is about to send the job again, without credit."""
        self.deadline: Deadline | None = None
        self.flow: Flow[None]


class NodeJobs:
    """All jobs of one leader at one node."""

    def __init__(self, state: NodeState, health: NodeHealth, unwanted: UnwantedJobs) -> None:
        self._state = state
        self._flows = state.flows
        self._health = health
        self._unwanted = unwanted
        self.running: dict[JobId, NodeJob] = {}
        self._open: dict[int, NodeJob] = {}
        """Exchanges that are not closed."""
        self._exchanges = 0
        self._held: dict[JobId, None] = {}
        """Jobs of the node from before the leader's restart, which the leader has not sent again yet."""
        self._pace: AnswerPace[int] = AnswerPace()
        self._look: Timer | None = None
        """Set while the node is asked for jobs."""

    @property
    def known(self) -> tuple[JobId, ...]:
        """Jobs that the node may have."""
        return (*self.running, *self._held)

    @property
    def exchanges(self) -> int:
        return len(self._open)

    def offer(self) -> None:
        """Post free slots as credit."""
        self._health.offer(len(self.running), len(self.running) + len(self._held))

    def hold(self, held: tuple[JobId, ...]) -> None:
        self._held.update((job, None) for job in held if job not in self.running)
        for job in held:
            if job in self.running:
                self.running[job].is_resent = True

    def assign(self, assigned: SendAssign) -> None:
        job = assigned.job
        if (known := self.running.get(job)) is not None:
            # The leader gave the job up, and chose this node again. To a node that joined anew it sends what it knows.
            if known.is_resent:
                known.is_resent = False
            else:
                self._health.assigned()
            return
        is_held = job in self._held
        self._held.pop(job, None)
        self._unwanted.discard(job)
        if not is_held:
            self._health.assigned()
        self._exchanges += 1
        one = self.running[job] = self._open[self._exchanges] = NodeJob(job, self._exchanges, is_held=is_held)
        self._state.emit(OpenExchange(one.exchange, assigned))
        one.flow = self._flows.start(partial(self._live, one), "job at a node")

    def cancel(self, job: JobId) -> None:
        """The leader does not want the job any more."""
        one = self.running.pop(job, None)
        if one is None and job not in self._held:
            return
        self._held.pop(job, None)
        self._fail(job, 0 if one is None else one.exchange, "cancelled", "")
        if one is not None:
            one.flow.cancel()
        self._unwanted.add(job)
        self.offer()

    def answer_began(self, exchange: int) -> None:
        self._health.heard()
        if (one := self._open.get(exchange)) is not None and one.deadline is not None:
            one.deadline.close()

    def answers_seen(self, received: dict[int, int]) -> None:
        """Cut off the answers that stall: a node that answers polls would hold their jobs for ever."""
        late = self._pace.too_slow(received)
        moving = tuple(self._open[one].job for one in received if one not in late and one in self._open)
        if moving:
            self._health.heard()
            self._state.emit(PeerHeard(self._state.conn, moving=moving))
        for exchange in late:
            if (one := self._open.get(exchange)) is not None and one.is_asking:
                one.flow.interrupt(self._stopped_answering(one))

    def hang_up(self) -> None:
        """Cut the connections of a silent node: a lost machine closes none of them."""
        for one in self.running.values():
            if one.is_asking:
                one.flow.interrupt(self._stopped_answering(one))

    async def _live(self, one: NodeJob) -> None:
        try:
            try:
                outcome = await self._ask_until(one)
            except Refused as no:
                outcome = AttemptFailed(no.code, no.message)
            except PeerError as error:  # Another node may do better: the leader may try again.
                outcome = AttemptFailed("worker-error", str(error), str(error))
            except Exception as error:
                self._state.log(ERROR, f"unexpected error job={show_job_id(one.job)} node={self._state.url}", error)
                text = f"the job could not be sent to its node: {error!r}"[:_WHY_CHARS_MAX]
                outcome = AttemptFailed("worker-error", text, text)
            del self.running[one.job]
            self._health.ended()
            self._ended(one, outcome)
        finally:
            del self._open[one.exchange]
            self._state.emit(CloseExchange(one.exchange))

    async def _ask_until(self, one: NodeJob) -> NodeOutcome:
        is_bare = one.may_know
        await self._unwanted.settled(one.job)
        while True:
            as_form = one.by_form or not self._health.report.takes_envelopes
            try:
                reply = await self._ask(one, is_bare=is_bare, as_form=as_form)
            except Lost as lost:
                if lost.why == "refused" and not one.may_know:
                    return GivenBack(str(lost), unreached=True)
                one.may_know = is_bare = True
                one.lost_at = self._flows.now if one.lost_at is None else one.lost_at
                if self._flows.now - one.lost_at >= one.patience_s:
                    return NodeLost(str(lost))
                await self._flows.pause(NODE_AGAIN_S)
                continue
            one.lost_at = None
            if isinstance(reply, NodeAnswered):
                return reply
            status, code = reply.status, reply.code
            # A node that shuts down finishes its jobs, but does not say which ones it has.
            if status == 423 or (code == "stopping" and one.may_know):
                one.may_know = is_bare = True
                await self._flows.pause(_retry_after_s(reply.retry_after_s))
            elif status in {401, 403, 429, 503}:
                return GivenBack(reply.text, unreached=False)
            elif status in _NOT_UNDERSTOOD and not (is_bare or as_form or reply.takes_envelopes):
                one.by_form = True
                one.sends -= 1  # The node had no job.
                self._health.refused_envelope()
            elif is_bare and 400 <= status < 500 and code != "conflict":
                # The node does not know the job. If it had the input twice, the job may be what ends the node.
                if one.sends >= NODE_SENDS_MAX:
                    return NodeLost(f"{self._state.url} had the job {one.sends} times and does not know it")
                one.may_know = is_bare = False
            else:
                code = code if code in CODES else "worker-error"
                return AttemptFailed(code, reply.text, reply.text if code in _FAULTS else "")

    async def _ask(self, one: NodeJob, *, is_bare: bool, as_form: bool) -> NodeAnswered | NodeReply:
        one.is_asking = True
        if is_bare:
            one.deadline = Deadline(self._flows, NODE_QUESTION_S, self._stopped_answering(one))
        else:
            one.sends += 1
        if self._look is None:
            self._look_later()
        try:
            reply = await AskNode(one.exchange, one.job, is_bare, as_form)
            self._health.heard()
            return reply
        finally:
            one.is_asking = False
            self._pace.ended(one.exchange)
            if one.deadline is not None:
                one.deadline.close()
                one.deadline = None

    def _look_later(self) -> None:
        self._look = self._flows.call_at(self._flows.now + self._pace.look_s, self._look_at_answers)

    def _look_at_answers(self) -> None:
        self._look = None
        if asking := tuple(one.exchange for one in self.running.values() if one.is_asking):
            self._state.emit(LookAtAnswers(asking))
            self._look_later()

    def _ended(self, one: NodeJob, outcome: NodeOutcome) -> None:
        """Post a rest before the outcome, so that a retry goes to another worker."""
        health = self._health
        match outcome:
            case NodeAnswered():
                health.answered(f"a job ended with {outcome.reason}" if outcome.reason in _FAULTS else "")
                self._state.emit(Acked(self._state.conn, one.job, *outcome))
                self.offer()
            case AttemptFailed():
                health.answered(outcome.fault)
                self._fail(one.job, one.exchange, outcome.code, outcome.text)
                self.offer()
            case GivenBack():
                if outcome.unreached:
                    health.failed(outcome.why)
                else:
                    health.busy(outcome.why)
                self._state.emit(Declined(self._state.conn, one.job))
            case NodeLost():
                why = readable(outcome.why)
                self._state.log(WARNING, f"job lost job={show_job_id(one.job)} node={self._state.url}: {why}")
                health.faulty(why)
                self._fail(one.job, one.exchange, "worker-lost", why)
                self._unwanted.add(one.job)

    def _fail(self, job: JobId, exchange: int, code: str, text: str) -> None:
        self._state.emit(FailAttempt(self._state.conn, exchange, job, code, readable(text)))

    def _stopped_answering(self, one: NodeJob) -> Lost:
        return Lost(f"{self._state.url}/run/{show_job_id(one.job)} stopped answering", "slow")

    def check(self) -> None:
        for job, one in self.running.items():
            assert one.job == job
            assert not one.flow.ended.is_kept
            assert self._open[one.exchange] is one
            assert job not in self._held
            assert job not in self._unwanted
        assert self._look is not None or not any(one.is_asking for one in self.running.values())
        for one in self._open.values():
            assert not one.flow.ended.is_kept


def _retry_after_s(seconds: float | None) -> float:
    return _RETRY_AFTER_S if seconds is None else min(max(seconds, NODE_AGAIN_S), NODE_RETRY_AFTER_MAX_S)
