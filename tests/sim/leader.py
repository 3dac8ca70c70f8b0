"""A leader as a simulated process: the real machine between wires and a disk.

Like `roles/leader/leader.py` with other hands: wires bring events, effects become messages. A new life begins with what
the disk has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from tests.sim.disk import Disk
from tests.sim.net import Link
from tests.sim.process import Process
from tests.sim.turns import Turns

from wakugumi.core.backoff import parse_policies
from wakugumi.core.client import events as fev
from wakugumi.core.connections.read_ahead import Intake
from wakugumi.core.ids import ConnId, JobId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.journal.entries import LeaderKeep
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.runner import events as sev
from wakugumi.core.step import Step

if TYPE_CHECKING:
    from tests.sim.world import World

HELLO_DEADLINE_S: Final = 10.0
EVENT_BYTES: Final = 50
LOAD_S: Final = 0.01
LOAD_SLOW_S: Final = 3.0
LOAD_SLOW_SHARE: Final = 0.1
"""Of the reads: meanwhile the leaf may be dropped, because its jobs were moved."""


class LeaderSettings(msgspec.Struct, frozen=True):
    """What differs from leader to leader."""

    policies: str
    queue_jobs_max: int
    attempts_max: int
    payload_memory_bytes: int
    skew_s: float
    """How far its wall clock is from the others'."""


class Leader(Process):
    """One leader with its disk, over all its lives."""

    kind = "leader"
    machine: LeaderMachine

    def __init__(self, world: World, number: int, settings: LeaderSettings) -> None:
        super().__init__(world, f"leader{number}")
        self.settings = settings
        self.skew_s = settings.skew_s
        self.disk = Disk(self)
        self.disk_low = False
        self.peers: dict[ConnId, Peer] = {}
        self.steps = 0
        self.safe_step = 0
        """Steps of this life, and those of them that are on the disk and performed; all of them, in order."""
        self._act: dict[type[object], Callable[[Peer, Any], None]] = {
            ev.SendWelcome: _send_welcome,
            ev.SendReceipts: _send_receipts,
            ev.SendFound: _send_found,
            ev.SendRefusal: _send_refusal,
            ev.SendAssign: _send_assign,
            ev.SendResult: _send_result,
            ev.SendFetch: _send_fetch,
            ev.SendWorkerConfirms: _send_confirms,
            ev.SendCancel: _send_cancel,
            ev.SendRested: _send_rested,
            ev.SendPeerHeartbeat: _send_heartbeat,
            ev.TellWhenPeerWritten: _tell_when_written,
            ev.PauseReading: _pause_reading,
            ev.ResumeReading: _resume_reading,
            ev.Complain: _complain,
            ev.Close: _close,
        }

    @property
    def listening(self) -> bool:
        return self.alive and not self.machine.stopping

    def accept(self) -> Peer:
        return Peer(self)

    def came(self, peer: Peer) -> None:
        self.peers[peer.conn] = peer

    def has_work(self) -> bool:
        return self.alive and any(job.state is not DONE or not job.delivered for job in self.machine.jobs.values())

    def knows(self, job: JobId) -> bool:
        """Or would, if it began a life now."""
        if self.alive:
            return job in self.machine.jobs
        return job in self.twin().jobs

    def twin(self) -> LeaderMachine:
        """What its disk would bring back."""
        twin = LeaderMachine(lambda: 0.5, now=self.clock.now, keeps=True)
        twin.recover(self.disk.read_all(), self.clock.now)
        return twin

    # Its life.

    def born(self) -> None:
        self.peers = {}
        self.steps = self.safe_step = 0
        settings = self.settings
        self.disk.reopen()
        self.machine = LeaderMachine(
            self.random.random,
            now=self.clock.now,
            policies=parse_policies(settings.policies),
            queue_jobs_max=settings.queue_jobs_max,
            attempts_max=settings.attempts_max,
            payload_memory_bytes=settings.payload_memory_bytes,
            keeps=True,
        )
        Turns(self.machine.lanes, self.world.checker.broken)
        leaves = self.disk.read_all()
        self.world.checker.leader_recovers(self, leaves, self.disk.performed_leaf)
        self.machine.recover(leaves, self.clock.now)
        if self.world.looks_closely():
            self.machine.check()
            self.world.checker.holds(self)
        if self.disk_low:
            self.post(ev.DiskLow(True))

    def died(self, power: bool) -> None:
        self.disk.crash()
        for peer in self.peers.values():
            peer.end(power)
        self.peers = {}

    # Keep, then perform.

    def stepped(self, step: Step[LeaderKeep, LeaderDo]) -> None:
        self.steps += 1
        self.world.checker.decided(self, step.keep)
        if self.doom == "handled" and (step.keep or step.do):
            self.die(power=False, why="killed before its step was kept")
            return
        for effect in step.at_once:
            self.do(effect)
        if step.keep or self.disk.busy:
            self.disk.commit(step)
        else:
            self.perform(step.do)
            self._is_safe()

    def committed(self, leaf: int, step: Step[LeaderKeep, LeaderDo]) -> None:
        if self.doom == "committed":
            self.die(power=False, why="killed after its step was kept, before it was performed")
            return
        if leaf:
            self.disk.performed_leaf = leaf
        opened = self.world.checker.opened(self, step.keep)
        self.world.checker.kept(self, step.keep)
        self.perform(step.do)
        self.world.checker.open_again(self, opened)
        self._is_safe()

    def _is_safe(self) -> None:
        """One step more."""
        self.safe_step += 1
        for peer in self.peers.values():
            peer.look_at_window()

    def do(self, effect: LeaderDo) -> None:
        if isinstance(effect, ev.LoadPayloads):
            life = self.life
            longest_s = LOAD_SLOW_S if self.random.random() < LOAD_SLOW_SHARE else LOAD_S
            self.clock.after(longest_s * self.random.random(), lambda: self._load(effect, life))
        elif isinstance(effect, ev.LeaderStopped):
            self.die(power=False, why="it was asked to stop, and nothing ran any more")
        elif isinstance(effect, ev.BlobsFreed):
            self.world.checker.freed(self, effect.blobs)
        elif isinstance(effect, ev.SendAnswer | ev.SendNo):
            self.world.guests.answered(effect)
        else:
            peer = self.peers.get(effect.conn)
            if peer is not None:
                self._act[type(effect)](peer, effect)

    def _load(self, effect: ev.LoadPayloads, life: int) -> None:
        if life == self.life and self.alive:
            self.post(ev.PayloadsLoaded(effect.leaf, effect.jobs, self.disk.payloads(effect.leaf, effect.jobs)))

    def went(self, peer: Peer) -> None:
        if self.peers.pop(peer.conn, None) is not None and peer.joined:
            self.post(ev.Left(peer.conn))


class Peer:
    """One connection of the leader, as its shell knows it."""

    __slots__ = (
        "conn",
        "held_back",
        "intake",
        "is_worker",
        "joined",
        "leader",
        "life",
        "link",
        "name",
        "paused",
        "receipts",
        "their_conn",
    )

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.life = leader.life
        self.link: Link
        self.conn: ConnId
        self.joined = False
        self.name = ""
        self.is_worker = False
        self.receipts = False
        self.paused = False
        self.intake = Intake(leader.world.ahead_bytes_max)
        self.held_back = False
        self.their_conn = ConnId(0)

    def on_open(self, link: Link) -> None:
        self.link = link
        self.conn = ConnId(link.number)
        self.leader.came(self)
        self.leader.clock.after(HELLO_DEADLINE_S, self._look_for_hello)

    def on_message(self, message: object) -> None:
        """Messages to a leader are its events; the hello says also what its sender calls this connection."""
        if isinstance(message, Hello):
            self.joined = True
            self.name = message.name
            self.is_worker = isinstance(message.event, ev.WorkerJoined)
            self.receipts = message.event.receipts
            self.their_conn = message.their_conn
            self._read(message.event)
        else:
            self._read(message)

    def on_alive(self) -> None:
        self.post(ev.PeerHeard(self.conn))

    def on_blocked(self, blocked: bool) -> None:
        self.post(ev.PeerBlocked(self.conn) if blocked else ev.PeerUnblocked(self.conn))

    def on_lost(self, why: str) -> None:
        if self.leader.life == self.life and self.leader.alive:
            if self.link.harm:
                self.leader.world.checker.trouble(self.name, self.link.harm)
            self.link.close(self, lose=True)
            self.leader.went(self)

    def send(self, message: object) -> None:
        self.link.down.send((message,))

    def end(self, power: bool) -> None:
        if power:
            self.link.cut(soon=False)
        else:
            self.link.close(self, lose=True)

    def hang_up(self) -> None:
        self.link.close(self, lose=True)
        self.leader.clock.after(0.0, lambda: self.on_lost("hung up"))

    def look_at_window(self) -> None:
        """It is read from only while little of what it brought waits for the disk."""
        leader = self.leader
        self.intake.settle(leader.safe_step)
        wait = self.intake.must_wait(behind=False)
        if wait and not self.held_back:
            self.link.up.hold()
        elif self.held_back and not wait:
            self.link.up.release()
        self.held_back = wait

    def _read(self, event: object) -> None:
        leader = self.leader
        if leader.life == self.life and leader.alive and self.conn in leader.peers:
            if isinstance(event, ev.Submitted | ev.Acked):
                size = EVENT_BYTES + len(event.payload)
                if isinstance(event, ev.Submitted):
                    leader.world.checker.submit_read(leader, self.conn, event.job, size)
                self.intake.took(size, leader.steps + 1 + leader.batches_waiting, leader.safe_step)
            leader.post(event)
            self.look_at_window()

    def post(self, event: object) -> None:
        if self.leader.life == self.life and self.leader.alive and self.conn in self.leader.peers:
            self.leader.post(event)

    def _look_for_hello(self) -> None:
        if not self.joined and self.leader.life == self.life and self.leader.alive and not self.leader.paused:
            self.hang_up()


class Hello(msgspec.Struct, frozen=True, gc=False):
    """Who dialled, and what it calls this connection."""

    event: ev.ClientJoined | ev.WorkerJoined
    their_conn: ConnId
    name: str


def show_result(result: bytes | Verdict) -> bytes:
    """What a client gets: a worker's result as it came, or the system's own word."""
    return result if isinstance(result, bytes) else b"FAILED|%s|-" % result.code.encode()


# What dispatch asks for, done to the connection it is about.


def _send_welcome(peer: Peer, _effect: ev.SendWelcome) -> None:
    client = fev.Welcomed(peer.their_conn, takes_cap=True, finds=peer.leader.world.finds)
    peer.send(sev.LeaderWelcomed(rests=True) if peer.is_worker else client)


def _send_receipts(peer: Peer, effect: ev.SendReceipts) -> None:
    peer.leader.world.checker.receipts(peer.leader, peer.conn, effect.jobs)
    peer.send(fev.Receipts(peer.their_conn, tuple(effect.jobs)))


def _send_found(peer: Peer, effect: ev.SendFound) -> None:
    peer.send(fev.JobsFound(peer.their_conn, effect.fate, tuple(effect.jobs)))


def _send_refusal(peer: Peer, effect: ev.SendRefusal) -> None:
    peer.send(fev.JobRefused(peer.their_conn, effect.job, effect.code, effect.text))


def _send_assign(peer: Peer, effect: ev.SendAssign) -> None:
    world = peer.leader.world
    world.checker.assigned(peer.leader, peer.conn, effect.job)
    wants = None if effect.payload in world.strangers.payloads else world.requests[effect.job].wants
    peer.send(sev.Assigned(effect.job, effect.payload, 1 if wants is None else wants.slots))


def _send_result(peer: Peer, effect: ev.SendResult) -> None:
    result = show_result(effect.result)
    if not effect.is_refusal:
        peer.leader.world.checker.result_sent(peer.leader, effect.job, result)
    peer.send(fev.ResultReceived(peer.their_conn, effect.job, result))
    if not peer.receipts and not effect.is_refusal:
        # Old clients say nothing: written is delivered (SPEC F9).
        peer.leader.post(ev.Confirmed(peer.conn, (effect.job,)))


def _send_fetch(peer: Peer, effect: ev.SendFetch) -> None:
    peer.send(sev.Fetched(tuple(effect.jobs)))


def _send_confirms(peer: Peer, effect: ev.SendWorkerConfirms) -> None:
    peer.send(sev.ResultsConfirmed(tuple(effect.jobs)))


def _send_cancel(peer: Peer, effect: ev.SendCancel) -> None:
    peer.send(sev.Cancelled((effect.job,)))


def _send_rested(peer: Peer, _effect: ev.SendRested) -> None:
    peer.send(sev.RestKnown())


def _send_heartbeat(peer: Peer, _effect: ev.SendPeerHeartbeat) -> None:
    peer.send(sev.LeaderAlive() if peer.is_worker else fev.HeartbeatReceived(peer.their_conn))


def _tell_when_written(peer: Peer, _effect: ev.TellWhenPeerWritten) -> None:
    peer.link.down.when_written(lambda: peer.post(ev.PeerWritten(peer.conn)))


def _pause_reading(peer: Peer, _effect: ev.PauseReading) -> None:
    if not peer.paused:
        peer.paused = True
        peer.link.up.hold()


def _resume_reading(peer: Peer, _effect: ev.ResumeReading) -> None:
    if peer.paused:
        peer.paused = False
        peer.link.up.release()


def _complain(peer: Peer, effect: ev.Complain) -> None:
    peer.leader.world.checker.complained(peer.leader.name, effect.text)


def _close(peer: Peer, effect: ev.Close) -> None:
    if effect.why.startswith("no sign of life"):
        peer.leader.world.checker.silent(peer.link, peer.leader.name)
    peer.hang_up()
