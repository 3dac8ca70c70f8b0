"""A leader with nodes as a simulated process: the real machine of the leader, its journal, and the real machine of each
node that it knows by address.

Like `roles/leader/leader.py` and `roles/leader/nodes/remote_node.py` with other hands. An act takes a while; one that
is abandoned may have been done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tests.sim.disk import Disk
from tests.sim.nodes.node import STEADY, NodeSays, SimNode
from tests.sim.process import Process

from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, Perform
from wakugumi.core.ids import ConnId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.journal.entries import LeaderKeep
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.leader.nodes import events as nev
from wakugumi.core.leader.nodes.machine import NodeAt, NodeMachine
from wakugumi.core.step import ERROR, LogLine, Step
from wakugumi.core.subject import worker_patterns
from wakugumi.errors import Lost, PeerError

if TYPE_CHECKING:
    from tests.sim.nodes.world import NodeWorld


class LocalSession(Protocol):
    """A client or worker of the leader's machine."""

    def perform(self, effect: LeaderDo) -> None: ...


class AnswerOnItsWay(NamedTuple):
    """An answer whose head was received."""

    asked_at: float
    began_at: float
    pace: float
    """Bytes per second."""

    def received(self, now: float) -> int:
        return int(self.pace * (now - self.began_at))


class NodeLeader(Process):
    """One leader with its disk, over all its lives."""

    kind = "leader"
    machine: LeaderMachine

    def __init__(self, world: NodeWorld, number: int) -> None:
        super().__init__(world, f"leader{number}")  # type: ignore[arg-type]
        self.here = world
        self.disk = Disk(self)  # type: ignore[arg-type]
        self.sessions: dict[ConnId, LocalSession] = {}
        self.nodes = [NodePart(self, node) for node in world.nodes]
        self.troubled_at = -1.0
        """When it last died, or was paused."""
        self.payload_memory_bytes = self.random.choice([1 << 20, 60])
        self._conns = 0

    def was_troubled_since(self, at: float) -> bool:
        return not self.alive or self.paused or self.troubled_at >= at

    def new_conn(self, session: LocalSession) -> ConnId:
        self._conns += 1
        conn = ConnId(self._conns)
        self.sessions[conn] = session
        return conn

    def has_work(self) -> bool:
        return self.alive and any(job.state is not DONE for job in self.machine.jobs.values())

    # Its life.

    def born(self) -> None:
        self.sessions = {}
        self.disk.reopen()
        self.machine = LeaderMachine(
            self.random.random, now=self.clock.now, payload_memory_bytes=self.payload_memory_bytes, keeps=True
        )
        self.machine.recover(self.disk.read_all(), self.clock.now)
        for part in self.nodes:
            part.start()

    def died(self, power: bool) -> None:
        del power
        self.troubled_at = self.clock.now
        self.disk.crash()
        for part in self.nodes:
            part.die(power=False)

    def pause(self) -> None:
        super().pause()
        for part in self.nodes:
            part.pause()

    def resume(self) -> None:
        if self.paused:
            self.troubled_at = self.clock.now
        super().resume()
        for part in self.nodes:
            part.resume()

    # Keep, then perform.

    def stepped(self, step: Step[LeaderKeep, LeaderDo]) -> None:
        if self.doom == "handled" and (step.keep or step.do):
            self.die(power=False, why="killed before its step was kept")
            return
        for effect in step.at_once:
            self.do(effect)
        if step.keep or self.disk.busy:
            self.disk.commit(step)
        else:
            self.perform(step.do)

    def committed(self, leaf: int, step: Step[LeaderKeep, LeaderDo]) -> None:
        if self.doom == "committed":
            self.die(power=False, why="killed after its step was kept, before it was performed")
            return
        if leaf:
            self.disk.performed_leaf = leaf
        self.perform(step.do)

    def do(self, effect: LeaderDo) -> None:
        if isinstance(effect, ev.LoadPayloads):
            life = self.life
            late_s = (3.0 if self.random.random() < 0.1 else 0.01) * self.random.random()
            self.clock.after(late_s, lambda: self._load(effect, life))
        elif (conn := getattr(effect, "conn", None)) is not None and (session := self.sessions.get(conn)) is not None:
            session.perform(effect)

    def _load(self, effect: ev.LoadPayloads, life: int) -> None:
        if life == self.life and self.alive:
            self.post(ev.PayloadsLoaded(effect.leaf, effect.jobs, self.disk.payloads(effect.leaf, effect.jobs)))


class NodePart(Process):
    """One node in a leader's process."""

    kind = "part of a leader"
    machine: NodeMachine

    def __init__(self, leader: NodeLeader, node: SimNode) -> None:
        super().__init__(leader.here, f"{leader.name}-{node.name}")  # type: ignore[arg-type]
        self.leader = leader
        self.here = leader.here
        self.node = node
        self.at = NodeAt(f"http://{node.name}", worker_patterns(""))
        self.conn = ConnId(0)
        self.exchanges: dict[int, bytes] = {}
        """Requests by exchange."""
        self.waiting: dict[int, Act[Any]] = {}
        """Acts that are not answered and not abandoned."""
        self.answers: dict[int, AnswerOnItsWay] = {}
        """By exchange."""
        self.polled_at = 0.0

    def born(self) -> None:
        self.exchanges, self.waiting, self.answers = {}, {}, {}
        self.polled_at = self.clock.now
        self.machine = NodeMachine(self.at, chance=self.random.random, now=self.clock.now)
        self.conn = self.new_conn()
        known = self.leader.machine.roster.by_id.get(self.at.worker)
        self.post(nev.NodeStarts(self.conn, () if known is None else tuple(known.jobs)))

    def new_conn(self) -> ConnId:
        return self.leader.new_conn(self)

    def drop_conn(self) -> None:
        del self.leader.sessions[self.conn]

    def die(self, *, power: bool, why: str = "killed") -> None:
        """With its leader."""
        del power, why
        if self.alive:
            self.alive = False
            self.machine.close()

    def has_work(self) -> bool:
        return bool(self.machine.jobs.running)

    # Effects of the leader's machine.

    def perform(self, effect: Any) -> None:
        if isinstance(effect, list):
            super().perform(effect)
            return
        match effect:
            case ev.SendAssign() | ev.SendCancel():
                self.post(effect)
            case ev.TellWhenPeerWritten():
                self.leader.post(ev.PeerWritten(self.conn))
            case ev.Complain():
                self.here.judge.complained(effect.text)
            case ev.Close():
                self.drop_conn()
                self.conn = self.new_conn()
                self.post(nev.NodeClosed(self.conn))
            case _:
                pass

    # Effects of the node's machine.

    def do(self, effect: Any) -> None:
        match effect:
            case ev.LeaderEvent():
                self.leader.post(effect)
            case Perform():
                self.waiting[effect.number] = effect.act
                self._perform(effect.number, effect.act)
            case Abandon():
                act = self.waiting.pop(effect.number, None)
                if isinstance(act, nev.AskNode) and (answer := self.answers.pop(act.exchange, None)) is not None:
                    self.here.judge.cut_off(self, act.job, answer)
            case nev.OpenExchange():
                self.exchanges[effect.exchange] = effect.assigned.payload
            case nev.CloseExchange():
                del self.exchanges[effect.exchange]
            case nev.LookAtAnswers():
                on_way = {exchange: self.answers.get(exchange) for exchange in effect.exchanges}
                here = {number: answer.received(self.clock.now) for number, answer in on_way.items() if answer}
                self.post(nev.AnswersSeen(here))
            case nev.FailAttempt():
                assert not effect.exchange or effect.exchange in self.exchanges
                failed = b"FAILED|%s|" % effect.code.encode()
                self.leader.post(ev.Acked(effect.conn, effect.job, False, effect.code, failed, effect.text))
            case LogLine() if effect.level >= ERROR:
                self.here.judge.error(f"{effect.text} {effect.error!r}")
            case _:
                pass

    def _later(self, call: Callable[[], None], seconds: float = 0.03) -> None:
        """Unless this life ends before. A process that is paused gets it later."""
        life, late_s = self.life, seconds * self.here.random.random() + self.node.slow_s * self.here.faults.random()
        self.clock.after(late_s, lambda: call() if self.alive and life == self.life else None)

    def _perform(self, number: int, act: Act[Any]) -> None:
        node, life, asked_at = self.node, self.life, self.clock.now

        def says(answer: NodeSays) -> None:
            if life == self.life:
                self._later(lambda: self._heard(number, act, answer, asked_at))

        payload = self.exchanges[act.exchange] if isinstance(act, nev.AskNode) else b""
        if isinstance(act, nev.PollNode):
            self.polled_at = self.clock.now

        def page() -> None:
            match act:
                case nev.AskNode():
                    node.run(act.job, payload, says, is_bare=act.is_bare, as_form=act.as_form)
                case nev.CancelAtNode():
                    node.cancel(act.job, says)
                case _:
                    says(NodeSays(200))

        is_question = not isinstance(act, nev.AskNode) or act.is_bare
        self._later(lambda: node.arrives(page, says, is_question=is_question))

    def _heard(self, number: int, act: Act[Any], says: NodeSays, asked_at: float) -> None:
        if number not in self.waiting:
            return
        fails = self.here.faults.random() < self.node.fails
        if says.status == 0:
            self._answer(number, Lost("the connection ended", says.why))
        elif isinstance(act, nev.CancelAtNode):
            self._answer(number, says.status)
        elif isinstance(act, nev.PollNode):
            errors = [PeerError("this is no capacity"), RecursionError("nested too deeply"), Lost("cut", "dead")]
            self._answer(number, self.here.faults.choice(errors) if fails else self.node.capacity())
        elif isinstance(act, nev.AskNode):
            self.post(nev.AnswerBegan(act.exchange))
            self.answers[act.exchange] = AnswerOnItsWay(asked_at, self.clock.now, says.pace)
            if says.pace < STEADY:
                return
            reply = self._reply(says)
            takes_s = 6.0 if fails else 0.01 if says.pace > STEADY else 90.0
            self._later(lambda: self._answer(number, reply), takes_s)

    def _reply(self, says: NodeSays) -> Any:
        if says.trouble == "nonsense":
            return PeerError("this is no ZIP")
        if says.trouble == "half":
            return Lost("the answer ended early", "dead")
        if says.status != 200:
            return nev.NodeReply(says.status, says.code, says.code, None, says.takes_envelopes)
        is_ok = says.content.startswith(b"OK")
        return nev.NodeAnswered(is_ok, "" if is_ok else "exit", says.content, "")

    def _answer(self, number: int, answer: Any) -> None:
        act = self.waiting.pop(number, None)
        if act is None:
            return
        if isinstance(act, nev.AskNode):
            self.answers.pop(act.exchange, None)
        for _ in range(2 if self.here.faults.random() < 0.01 else 1):  # Some answers come twice.
            self.post(ActFailed(number, answer) if isinstance(answer, Exception) else Answered(number, answer))
