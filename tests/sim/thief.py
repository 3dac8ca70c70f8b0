"""A worker that claims jobs which are none of its business, and answers them with a result that no program made.

It knows the ids of the leader's jobs, and its patterns match none of them. A leader must not take its word for anything
(SPEC L4). Like a stranger, it talks to the leader's shell without a network.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.leader import Leader

from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.leader import events as lev
from wakugumi.core.subject import parse_pattern

if TYPE_CHECKING:
    from tests.sim.world import World

FIRST_THIEF: Final = 2_000_000
"""From here on connections are those of thieves."""
FORGED: Final = b"OK||999999999"
"""A result as workers write it, of an execution that never was."""
_NOWHERE: Final = (parse_pattern("nowhere.at.all"),)


class Thieves:
    """All of one world, in some worlds. Their chance is their own, so that worlds without them are what they were."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = Random(f"{seed}-thief")
        self._visits = self._random.choice([0, 0, 5, 20])
        self._count = 0

    def plan(self) -> None:
        plan, clock = self._world.plan, self._world.clock
        for _ in range(self._visits):
            clock.after(plan.stretched(plan.lasts_s * self._random.random()), self._come)

    def _come(self) -> None:
        leader = self._random.choice(self._world.leaders)
        if not leader.listening or leader.paused:
            return
        # A job that nobody has submitted here yet counts as known once it is claimed: a client of several leaders that
        # looks for it would be led astray, and it might run twice. Nobody can tell a thief from an honest worker then.
        is_alone = len(self._world.leaders) == 1
        jobs = list(self._world.requests if is_alone else leader.machine.jobs)
        jobs = [job for job in jobs if job in self._world.requests]
        if not jobs:
            return
        self._count += 1
        conn = ConnId(FIRST_THIEF + self._count)
        some = tuple(self._random.sample(jobs, min(len(jobs), 3)))
        running = self._random.random() < 0.5
        leader.peers[conn] = Thief(leader, conn)  # type: ignore[assignment]
        worker = WorkerId(self._count.to_bytes(16, "big"))
        leader.post(lev.WorkerJoined(conn, worker, "thief", _NOWHERE, True, False, True, True))
        leader.post(lev.WorkerHolds(conn, some if running else (), () if running else some, ()))
        for job in some:
            leader.post(lev.Acked(conn, job, True, "", FORGED))
        self._world.clock.after(self._random.choice([0.0, 5.0]), lambda: self._leave(leader, conn))

    def _leave(self, leader: Leader, conn: ConnId) -> None:
        if leader.peers.pop(conn, None) is not None:
            leader.post(lev.Left(conn))


class Thief:
    """One visit: a connection of the leader's, as its shell knows it."""

    is_worker = True
    receipts = True
    paused = False
    their_conn = ConnId(0)
    name = "thief"

    def __init__(self, leader: Leader, conn: ConnId) -> None:
        self.leader = leader
        self.conn = conn

    def send(self, message: object) -> None:
        """Whatever it is told, it does not mind."""

    def end(self, power: bool) -> None:
        """Its leader died."""

    def hang_up(self) -> None:
        if self.leader.peers.pop(self.conn, None) is not None:
            self.leader.post(lev.Left(self.conn))

    def look_at_window(self) -> None:
        """It has said all that it will say."""
