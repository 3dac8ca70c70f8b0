"""A client as a simulated process: the real `failover` between a wire and a user who wants jobs done.

The user's notes (`Want`) outlive the process: after a restart under the same client id, the user claims or submits
again whatever has no end yet. It has one leader or several, which its user may remove and add again while it runs.
Users also cancel, submit again what FAILED, and wait for jobs of others. An old client is the same machine that asks
for none of our own types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec
from tests.sim.jobs import OPEN, Request, Status, Want, digest_of
from tests.sim.leader import Hello, Leader
from tests.sim.net import Link
from tests.sim.places import Places
from tests.sim.process import Process
from tests.sim.worker import read_result

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ClientDo, LeaderNo
from wakugumi.core.client.failover import Failover
from wakugumi.core.client.leaders import Choice
from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as lev

if TYPE_CHECKING:
    from tests.sim.world import World

GIVEN_SHARE: Final = 0.8
"""Of the new jobs have an id of their user's, and not one that the process has drawn."""
AGAIN_S: Final = 3.0
"""A user's pause before asking again."""
_NOT_NOW: Final = frozenset({"full", "stopping", "disk-full"})
"""Refusals of an old client's job, which reach it as a FAILED result, that say nothing about the job."""


class ClientSettings(msgspec.Struct, frozen=True):
    """What differs from client to client."""

    old: bool
    leaders: tuple[int, ...]
    """Which of the world's leaders it has, counted from 0; an old one has a single one."""
    cap: int
    grace_s: float
    choice: Choice
    unfinished_max: int


class Client(Process):
    """One client id and its user, over all lives of the process."""

    kind = "client"
    machine: Failover

    def __init__(self, world: World, number: int, settings: ClientSettings) -> None:
        super().__init__(world, f"client{number}")
        self.settings = settings
        self.client_id = ClientId(self.name)
        self.wants: dict[JobId, Want] = {}
        self.lines: dict[ConnId, Line] = {}
        self.gone: dict[ConnId, Line] = {}
        """Lines of this life that have ended: the machine may not have heard of that yet."""
        self.leaders: dict[LeaderNo, Leader] = {}
        """By the numbers that its machine knows them by, in this life."""
        self.present: dict[LeaderNo, None] = {}
        """Those of them that its user has not removed."""
        self.removed_at: dict[str, float] = {}
        """When its user removed each of them last, or it parted from it, in any life."""
        self.left_at: dict[str, float] = {}
        """When it lost each of them last, after a welcome, in this life."""
        self.places = Places(self)
        self._parted: set[LeaderNo] = set()
        self._queue: deque[JobId] = deque()
        """Wants that wait for room."""
        self._watching: dict[JobId, float | None] = {}
        """Jobs of others that are waited for in this life, and since when if they were accepted before."""
        self._gate = False
        self._unfinished = 0
        self.lines_lost = 0
        self._users_mind = Random(f"{world.seed}-{self.name}")

    @property
    def takes_jobs(self) -> bool:
        """It lives, and a leader takes jobs from it."""
        return self.alive and not self.paused and self._gate

    @property
    def all_leaders(self) -> list[Leader]:
        return [self.world.leaders[which] for which in self.settings.leaders]

    def is_served(self) -> bool:
        """By all of its leaders, and not only in its own eyes."""
        links = self._links()
        return set(links) == set(self.present) and all(link.number in self.world.net.links for link in links.values())

    def link_to(self, no: LeaderNo) -> Link:
        return self._links()[no]

    def _links(self) -> dict[LeaderNo, Link]:
        return {line.no: line.link for line in self.lines.values() if line.ready and line.link is not None}

    def has_work(self) -> bool:
        return self.alive and self._unfinished > 0

    def undone(self) -> list[Want]:
        return [want for want in self.wants.values() if want.status in OPEN]

    # Its life.

    def born(self) -> None:
        self.lines = {}
        self.gone = {}
        self._watching = {}
        self._queue.clear()
        self._gate = False
        self._unfinished = 0
        settings = self.settings
        self.leaders = {LeaderNo(at): self.world.leaders[which] for at, which in enumerate(settings.leaders, 1)}
        self.present = dict.fromkeys(self.leaders)
        self.left_at = {}
        self._parted = set()
        self.machine = Failover(
            self.random.random,
            leaders=self.leaders,
            names=[leader.name for leader in self.leaders.values()],
            cap=settings.cap,
            choice=settings.choice,
            grace_s=settings.grace_s,
            # What an earlier life handed in may be cancelled beyond that, for the sake of the others.
            unfinished_max=settings.unfinished_max + len(self.undone()),
            old_leader=settings.old,
        )
        wants = list(self.wants.values())
        self._users_mind.shuffle(wants)
        for want in wants:
            if want.status is Status.NEW:
                self._queue.append(want.request.job)
            elif want.status in OPEN or (want.request.endless and not want.told):
                self._ask_again(want)

    def died(self, power: bool) -> None:
        self.lines_lost += 1
        for line in self.lines.values():
            if line.link is not None:
                if power:
                    line.link.cut(soon=False)
                else:
                    line.link.close(line, lose=True)
        self.lines = {}

    # What the user does.

    def want(self, request: Request, resubmits: int) -> None:
        self.wants[request.job] = Want(request, resubmits=resubmits)
        self._queue.append(request.job)
        if self.alive:
            self._hand_in()

    def cancel(self, job: JobId) -> None:
        want = self.wants[job]
        if want.status in {Status.DONE, Status.CANCELLED}:
            return
        want.cancelled = True
        if want.status is Status.NEW:
            want.status = Status.CANCELLED
            want.told = True
            want.life = 0
        elif want.status is Status.ASKED and self.alive:
            self.post(ev.Cancel([job]))

    def watch(self, job: JobId, accepted: bool) -> None:
        """Wait for a job of someone else."""
        if self.alive and job not in self.wants and job not in self._watching and self._has_room():
            self._watching[job] = self.clock.now if accepted else None
            self._unfinished += 1
            self.post(ev.ClaimJob(job))

    def remove_leader(self, no: LeaderNo) -> None:
        del self.present[no]
        self.removed_at[self.leaders[no].name] = self.clock.now
        self.post(ev.LeaderRemoved(no))

    def add_leader(self, no: LeaderNo) -> None:
        """The one that had this number: it is another one if the client has parted from it."""
        leader = self.leaders[no]
        if no in self._parted:
            no = LeaderNo(max(self.leaders) + 1)
            self.leaders[no] = leader
        self.present[no] = None
        self.post(ev.LeaderAdded(no, leader.name))

    def _hand_in(self) -> None:
        while self._queue and self._gate and self._has_room():
            want = self.wants[self._queue.popleft()]
            if want.status is Status.NEW:
                want.submitted_by = self.lines_lost
                self._submit(want)

    def _has_room(self) -> bool:
        return self._unfinished < self.settings.unfinished_max

    def _submit(self, want: Want) -> None:
        want.status = Status.ASKED
        # An id that was handed in before, in whatever life, is the user's own by now.
        want.given = want.life > 0 or self._users_mind.random() < GIVEN_SHARE
        want.life = self.life
        want.asked_at = self.clock.now
        want.claimed = False
        want.submitted_at = self.clock.now
        self._unfinished += 1
        self.world.checker.counts.attempted += 1
        self.post(ev.Submit(want.request.job, want.request.frame, given=want.given))
        if want.cancelled:
            self.post(ev.Cancel([want.request.job]))

    def _claim(self, want: Want) -> None:
        want.status = Status.ASKED
        want.life = self.life
        want.asked_at = self.clock.now
        want.claimed = True
        self._unfinished += 1
        self.post(ev.ClaimJob(want.request.job))
        if want.cancelled:
            self.post(ev.Cancel([want.request.job]))

    def _ask_again(self, want: Want) -> None:
        """It was handed in by an earlier life."""
        if not self._has_room() and not want.cancelled:  # That one goes at once, for the sake of the others.
            self._later(want)
        elif not self.settings.old and (want.cancelled or self.random.random() < (0.7 if want.accepted else 0.3)):
            self._claim(want)
        else:
            self._submit(want)

    def _later(self, want: Want) -> None:
        want.status = Status.LATER
        life = self.life

        def again() -> None:
            if self.alive and self.life == life and want.status is Status.LATER:
                self._ask_again(want)

        self.clock.after(AGAIN_S * (0.5 + self.random.random()), again)

    # What `failover` asks for.

    def do(self, effect: ClientDo) -> None:
        match effect:
            case ev.SendFrames(conn, frames):
                line = self.lines[conn] if conn in self.lines else self.gone[conn]
                for frame in frames:
                    self.places.sent(JobId(frame[:16]), line)
                    if line.lost_at is not None:
                        self.wants[JobId(frame[:16])].submitted_by = -1  # It goes nowhere.
                    self._send(conn, self._submitted(frame))
            case ev.TellWhenLeaderWritten(conn):
                if (line := self.lines.get(conn)) is not None and line.link is not None:
                    line.link.up.when_written(line.is_written)
            case ev.Deliver(results):
                for result in results:
                    self._delivered(result.job, result.payload)
            case ev.SendConfirms(conn, jobs):
                self._send(conn, lambda to: lev.Confirmed(to, tuple(jobs)))
            case ev.SendClaims(conn, jobs):
                line = self.lines[conn] if conn in self.lines else self.gone[conn]
                for job in jobs:
                    self.places.claimed(job, line)
                self._send(conn, lambda to: lev.Claimed(to, tuple(jobs)))
            case ev.SendFinds(conn, jobs):
                line = self.lines[conn] if conn in self.lines else self.gone[conn]
                for job in jobs:
                    self.places.sought(job, line)
                self._send(conn, lambda to: lev.Sought(to, tuple(jobs)))
            case ev.SendCancels(conn, jobs):
                line = self.lines[conn] if conn in self.lines else self.gone[conn]
                for job in jobs:
                    self.places.called_off(job, line.leader.name)
                self._send(conn, lambda to: lev.CancelWanted(to, tuple(jobs)))
            case ev.SendClientHeartbeat(conn):
                self._send(conn, lambda to: lev.PeerHeard(to, 0.0))
            case ev.Accepted(jobs):
                self._accepted(jobs)
            case ev.GiveUp(job, code):
                self._given_up(job, code)
            case ev.SubmitGate(is_open):
                self._gate = is_open
                self._hand_in()
            case ev.Dial(conn, no, cap):
                line = self.lines[conn] = Line(self, conn, no, cap)
                self.world.net.dial(self.name, line, line.leader)
            case ev.HangUp(conn, why):
                if (line := self.lines.get(conn)) is not None:
                    if "silent for" in why and line.link is not None:
                        self.world.checker.silent(line.link, self.name)
                    line.hang_up()
            case ev.Ready(_, conn, old):
                if (line := self.lines.get(conn)) is not None:
                    line.ready = True
                    line.own = not old
            case ev.SendCap(conn, cap):
                self._send(conn, lambda to: lev.CapChanged(to, cap))
            case ev.Parted(no, conn):
                self._parted.add(no)
                self.removed_at[self.leaders[no].name] = self.clock.now
                if (line := self.lines.get(conn)) is not None:
                    self.places.parted(line)
                    line.hang_up(lose=False)
            case _:
                pass

    def _send(self, conn: ConnId, make: Callable[[ConnId], object]) -> None:
        """Say something over this connection; `make` is told what the leader calls it."""
        line = self.lines.get(conn)
        if line is not None and line.link is not None:
            line.link.up.send((make(ConnId(line.link.number)),))

    def _submitted(self, frame: bytes) -> Callable[[ConnId], lev.Submitted]:
        request = self.world.requests[JobId(frame[:16])]
        return lambda to: lev.Submitted(
            to,
            request.job,
            request.subject,
            request.program,
            request.timeout_s,
            frame[16:],
            request.retries,
            request.wants,
            request=digest_of(frame[16:]),
        )

    # What the user sees.

    def _accepted(self, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            want = self.wants.get(job)
            if want is not None and want.status is Status.ASKED and want.life == self.life and not want.accepted:
                want.accepted = True
                if want.submitted_by == self.lines_lost:
                    want.fresh_from = want.submitted_at
                self.world.checker.counts.accepted += 1

    def _delivered(self, job: JobId, result: bytes) -> None:
        checker = self.world.checker
        if job in self._watching:
            del self._watching[job]
            self._unfinished -= 1
            self._hand_in()
            return
        want = self.wants[job]
        if want.status is not Status.ASKED or want.life != self.life:
            checker.duplicated(job, f"{self.name} was given a result that it did not wait for: {want.status.value}")
        self._unfinished -= 1
        checker.delivered(self, want, result)
        want.results.append(result)
        ok, reason = read_result(result)
        if not ok and reason in _NOT_NOW:
            self._want_again(want)
        elif not ok and reason == "cancelled":
            want.status = Status.CANCELLED
            want.told = True
        elif not ok and want.resubmits and not want.cancelled:
            want.resubmits -= 1
            self._want_again(want)
        else:
            want.status = Status.DONE
            want.told = True
        self._hand_in()

    def _want_again(self, want: Want) -> None:
        want.status = Status.NEW
        want.accepted = False
        want.accepted_by = {}
        want.wish += 1
        if len(self.settings.leaders) > 1:
            want.fresh_from = 0.0  # Another leader may have heard nothing of the submit before.
        job = want.request.job
        self.places.wanted_anew(job)
        life = self.life

        def again() -> None:
            if self.alive and self.life == life and want.status is Status.NEW:
                self._queue.append(job)
                self._hand_in()

        self.clock.after(AGAIN_S * self.random.random(), again)

    def _given_up(self, job: JobId, code: str) -> None:
        checker = self.world.checker
        if job in self._watching:
            since = self._watching.pop(job)
            self._unfinished -= 1
            if since is not None and code == "unknown-job":
                checker.unknown_to(self, job, since)
            self._hand_in()
            return
        want = self.wants[job]
        if want.status is not Status.ASKED or want.life != self.life:
            checker.duplicated(job, f"{self.name} was told twice how it ended: {want.status.value}, then {code}")
        self._unfinished -= 1
        if code == "cancelled":
            if not want.cancelled:
                checker.broken(job, "it was cancelled and nobody wanted that")
            want.status = Status.CANCELLED
        elif code == "unknown-job" and not want.claimed:
            checker.lost(want, "it was submitted, and given up because the leader does not know it")
        elif code == "unknown-job" and want.cancelled:
            want.status = Status.CANCELLED
            want.told = True
        elif code == "unknown-job":
            if want.accepted:
                checker.unknown_to(self, job, want.asked_at)
            want.status = Status.NEW
            self._queue.append(job)
        elif code == "not-supported":
            self._later(want)
        else:
            checker.lost(want, f"it was given up: {code}")
        self._hand_in()


class Line:
    """One connection of a client, from the dial on."""

    __slots__ = (
        "came_at",
        "cap",
        "client",
        "conn",
        "deaf",
        "ended",
        "heard_at",
        "leader",
        "life",
        "link",
        "lost_at",
        "no",
        "own",
        "ready",
    )

    def __init__(self, client: Client, conn: ConnId, no: LeaderNo, cap: int) -> None:
        self.client = client
        self.conn = conn
        self.no = no
        self.leader = client.leaders[no]
        self.cap = cap
        """What the hello says."""
        self.came_at = client.clock.now
        """When it was dialled, and then when it was connected."""
        self.ready = False
        self.own = False
        """The client has heard the leader's welcome."""
        self.heard_at = client.clock.now
        self.lost_at: float | None = None
        """When the client heard of its end, or ended it."""
        self.life = client.life
        self.link: Link | None = None
        self.deaf = False
        self.ended = False

    def on_open(self, link: Link) -> None:
        if not self._lives():
            link.close(self, lose=True)
            return
        client = self.client
        if client.paused:
            client.when_resumed(lambda: self.on_open(link))
            return
        self.link = link
        self.came_at = client.clock.now
        own = not client.settings.old
        sight = client.world.guests.sight_of(client.name)
        joined = lev.ClientJoined(ConnId(link.number), client.client_id, self.cap, own, own, sight)
        link.up.send((Hello(joined, self.conn, client.name),))
        client.post(ev.Connected(self.conn))

    def on_message(self, message: object) -> None:
        if self._lives() and not self.deaf:
            self._note(message)
            self.client.post(message)

    def on_alive(self) -> None:
        if self._lives() and not self.deaf:
            self.heard_at = self.client.clock.now
            self.client.post(ev.HeartbeatReceived(self.conn))

    def is_written(self) -> None:
        if self._lives():
            self.client.post(ev.LeaderWritten(self.conn))

    def on_blocked(self, blocked: bool) -> None:
        if self._lives():
            self.client.post(ev.LeaderBlocked(self.conn, blocked))

    def on_lost(self, why: str, *, lose: bool = True) -> None:
        if self._lives():
            self.ended = True
            if self.link is not None:
                self.link.close(self, lose=lose)
            self._is_lost()
            self.client.lines_lost += 1
            del self.client.lines[self.conn]
            self.client.gone[self.conn] = self
            self.client.post(ev.Disconnected(self.conn, why))

    def hang_up(self, *, lose: bool = True) -> None:
        self.deaf = True
        self._is_lost()
        self.client.clock.after(0.0, lambda: self.on_lost("hung up", lose=lose))

    def _note(self, message: object) -> None:
        """For the judge."""
        client = self.client
        self.heard_at = client.clock.now
        if isinstance(message, ev.ResultReceived) and message.job in client.wants:
            client.places.answered(message.job, self)
        elif isinstance(message, ev.JobRefused):
            client.places.refused(message.job, self, message.code)
        elif isinstance(message, ev.JobsFound):
            for job in message.jobs:
                client.places.found(job, self, message.fate)
        elif isinstance(message, ev.Receipts):
            for job in message.jobs:
                if (want := client.wants.get(job)) is not None:
                    want.accepted_by.setdefault(self.leader.name, client.clock.now)

    def _is_lost(self) -> None:
        if self.lost_at is None:
            self.lost_at = self.client.clock.now
            if self.own:
                self.client.left_at[self.leader.name] = self.lost_at
            self.client.places.lost(self)

    def _lives(self) -> bool:
        return not self.ended and self.client.life == self.life and self.client.alive
