"""Somebody who uses a job id again for another request (SPEC L6), at a leader that knows the job or has forgotten it.

A leader that knows the id refuses it as a conflict. To one that was told to forget it, it is a new job: then the
stranger gets the result of its own request, although workers may still have that of the other one. It talks to the
leader's shell without a network: what is tried here is what leader and workers make of it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.jobs import FIRST_STRANGER, Status, digest_of
from tests.sim.leader import Leader
from tests.sim.worker import read_result

from wakugumi.core.client import events as ev
from wakugumi.core.ids import ClientId, ConnId, JobId, show_job_id
from wakugumi.core.leader import events as lev
from wakugumi.core.leader.questions import AskCancel

if TYPE_CHECKING:
    from tests.sim.world import World

STRANGER: Final = ClientId("stranger")
_NOT_NOW: Final = frozenset({"full", "stopping", "disk-full"})


class Strangers:
    """All who come by in one world. Their chance is their own, so that worlds without them are what they were."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = Random(f"{seed}-stranger")
        self._visits = self._random.choice([0, 0, 10, 40])
        self._count = 0
        self._used: set[JobId] = set()
        """Each id is tried once: another one would cancel what runs for the first."""
        self.payloads: dict[bytes, JobId] = {}
        """What they asked for, under which id."""

    def plan(self) -> None:
        plan, clock = self._world.plan, self._world.clock
        for _ in range(self._visits):
            clock.after(plan.stretched(plan.lasts_s * self._random.random()), self._come)

    def end_all(self, leader: Leader) -> None:
        """What they left behind is nobody's business any more."""
        if self._visits and leader.alive:
            leader.post(lev.QuestionAsked(ConnId(0), b"", AskCancel(client=STRANGER, forget=True)))

    def _come(self) -> None:
        leader = self._random.choice(self._world.leaders)
        if not leader.listening or leader.paused:
            return
        known = [job for job in leader.machine.jobs if job not in self._used]
        done = [job for job in known if self._is_done(job)]
        forget = bool(done) and self._random.random() < 0.5
        if not known:
            return
        job = self._random.choice(done if forget else known)
        self._used.add(job)
        self._count += 1
        payload = b"another request %d" % self._count
        self.payloads[payload] = job
        Stranger(self._world, leader, ConnId(FIRST_STRANGER + self._count), job, payload).submit(forget=forget)

    def _is_done(self, job: JobId) -> bool:
        """Its user has its result, and will not ask for it again."""
        world = self._world
        return world.client_called(world.requests[job].client).wants[job].status is Status.DONE


class Stranger:
    """One visit: a connection of the leader's, as its shell knows it."""

    is_worker = False
    receipts = True
    paused = False
    their_conn = ConnId(0)
    name = "stranger"

    def __init__(self, world: World, leader: Leader, conn: ConnId, job: JobId, payload: bytes) -> None:
        self.leader = leader
        self.conn = conn
        self._world = world
        self._job = job
        self._payload = payload

    def submit(self, *, forget: bool) -> None:
        request = self._world.requests[self._job]
        leader, job = self.leader, self._job
        leader.peers[self.conn] = self  # type: ignore[assignment]
        leader.post(lev.ClientJoined(self.conn, STRANGER, 4, True, False))
        if forget:
            leader.post(lev.QuestionAsked(ConnId(0), b"", AskCancel(jobs=[show_job_id(job)], forget=True)))
        digest = digest_of(self._payload)
        asked = (request.subject, request.program, request.timeout_s, self._payload)
        leader.post(lev.Submitted(self.conn, job, *asked, request=digest))

    def send(self, message: object) -> None:
        checker, job = self._world.checker, self._job
        if isinstance(message, ev.JobRefused):
            if message.code == "conflict":
                checker.counts.conflicts += 1
            elif message.code not in _NOT_NOW:
                checker.broken(job, f"another request under its id is refused as {message.code}")
            self._leave()
        elif isinstance(message, ev.Receipts):
            # None: somebody had it forgotten in the same step.
            if checker.accepted_with.get((self.leader.name, job)) not in {None, self._payload}:
                checker.broken(job, f"{self.leader.name} takes another request under its id for the same")
        elif isinstance(message, ev.ResultReceived):
            ok, _ = read_result(message.payload)
            number = message.payload.rsplit(b"|", 1)[1]
            if (ok or number != b"-") and checker.payload_of(job, number) != self._payload:
                checker.broken(job, f"another request under its id is answered with its result: {message.payload!r}")
            checker.counts.reused += 1
            self.leader.post(lev.Confirmed(self.conn, (job,)))
            self._leave()

    def end(self, power: bool) -> None:
        """Its leader died."""

    def look_at_window(self) -> None:
        """It has said all that it will say."""

    def _leave(self) -> None:
        if self.leader.peers.pop(self.conn, None) is self:
            self.leader.post(lev.Left(self.conn))
