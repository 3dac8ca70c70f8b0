"""A client by frames: it submits its jobs, after each end of its leader again, until it has every answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.sim.jobs import digest_of
from tests.sim.nodes.jobs import NodeWant

from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import parse_subject

if TYPE_CHECKING:
    from tests.sim.nodes.leader import NodeLeader
    from tests.sim.nodes.world import NodeWorld

SUBJECT: Final = parse_subject("job.assign.calc")
SIMPLE: Final = Requirements(simple=True)


class NodeClient:
    """One client of one leader. Its process never dies."""

    def __init__(self, world: NodeWorld, number: int, leader: NodeLeader) -> None:
        self.world = world
        self.name = f"client{number}"
        self.leader = leader
        self.open: dict[JobId, NodeWant] = {}
        """Jobs that were handed in and have no answer."""
        self.cancelled: set[JobId] = set()
        self._session: _Session | None = None

    def hand_in(self, want: NodeWant) -> None:
        self.open[want.job] = want
        if self._session is not None:
            self._session.submit(want)
        if want.is_endless:
            self.world.clock.after(5.0 + 40.0 * self.world.random.random(), lambda: self.cancel(want.job))

    def cancel(self, job: JobId) -> None:
        if job in self.open:
            self.cancelled.add(job)
            self.world.judge.cancels(job)
            if self._session is not None:
                self._session.cancel(job)

    def connect(self) -> None:
        """Once its leader lives."""
        if self.leader.alive and (self._session is None or not self._session.is_open):
            self._session = _Session(self)
            for want in list(self.open.values()):
                self._session.submit(want)
            for job in [job for job in self.open if job in self.cancelled]:
                self._session.cancel(job)
        self.world.clock.after(1.0 + self.world.random.random(), self.connect)

    # What its leader says.

    def got(self, job: JobId, result: bytes) -> None:
        self.world.judge.answered(self, job, result)
        self.open.pop(job, None)

    def refused(self, job: JobId, code: str) -> None:
        self.world.judge.refused(self, job, code)
        self.open.pop(job, None)


class _Session:
    """One connection. What is sent comes in order, or not at all."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client
        self._leader = client.leader
        self._life = client.leader.life
        self._clock = client.world.clock
        self._up_at = self._down_at = 0.0
        self._is_closed = False
        self.conn: ConnId = client.leader.new_conn(self)
        self._send(ev.ClientJoined(self.conn, ClientId(client.name), 100, receipts=True, heartbeats=False))

    @property
    def is_open(self) -> bool:
        return not self._is_closed and self._leader.alive and self._leader.life == self._life

    def submit(self, want: NodeWant) -> None:
        payload = want.payload
        request = digest_of(payload)
        self._send(
            ev.Submitted(self.conn, want.job, SUBJECT, "calc", 3_600.0, payload, requirements=SIMPLE, request=request)
        )

    def cancel(self, job: JobId) -> None:
        self._send(ev.CancelWanted(self.conn, (job,)))

    def perform(self, effect: LeaderDo) -> None:
        client, judge = self._client, self._client.world.judge
        match effect:
            case ev.SendReceipts():
                jobs = tuple(effect.jobs)
                self._down(lambda: judge.accepted(client, jobs))
            case ev.SendResult():
                result = (
                    effect.result if isinstance(effect.result, bytes) else b"FAILED|%s" % effect.result.code.encode()
                )
                job = effect.job
                self._down(lambda: client.got(job, result))
                self._down(lambda: self._send(ev.Confirmed(self.conn, (job,))))
            case ev.SendRefusal():
                job, code = effect.job, effect.code
                self._down(lambda: client.refused(job, code))
            case ev.TellWhenPeerWritten():
                self._down(lambda: self._send(ev.PeerWritten(self.conn)))
            case ev.Complain():
                judge.complained(effect.text)
            case ev.Close():
                self._is_closed = True
            case _:
                pass

    def _send(self, event: LeaderEvent) -> None:
        self._up_at = max(self._up_at, self._clock.now + 0.02 * self._client.world.random.random())
        self._clock.at(self._up_at, lambda: self._leader.post(event) if self.is_open else None)

    def _down(self, call: Callable[[], None]) -> None:
        self._down_at = max(self._down_at, self._clock.now + 0.02 * self._client.world.random.random())
        self._clock.at(self._down_at, lambda: call() if self.is_open else None)
