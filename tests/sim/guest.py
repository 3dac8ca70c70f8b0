"""Guests with keys, who know the ids of all jobs and workers, and try what they may and what they may not (SPEC O1).

A guest shows its key to the leader's edge, which asks `core/access` as the real one does, and talks to the leader's
shell without a network. What it may is known here a second time, in the plainest words (`_KEYS`): the core must agree.
Nothing of others is ever told to a guest or changed by it, and a key that has ended has no connection.

In worlds with guests all honest clients and workers have keys as well: what they may do must not be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from tests.sim.checker import LEAKED
from tests.sim.leader import Leader

from wakugumi.core.access.decide import check_client, check_patterns, check_question, check_submit
from wakugumi.core.access.identity import Identity, Role, Rules, Sight
from wakugumi.core.access.key_events import CloseConnections, ConnectionLeft, KeyAsked, KeyEvent, KeyUsed, KeyWanted
from wakugumi.core.access.key_questions import AskKeys, AskRevokeKey
from wakugumi.core.access.key_ring import KeyRing
from wakugumi.core.client import events as fev
from wakugumi.core.ids import ClientId, ConnId, JobId, show_job_id
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import events as lev
from wakugumi.core.leader import questions as qu
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.subject import parse_pattern, parse_subject
from wakugumi.errors import Refused
from wakugumi.limits.access import KEY_LOOK_S

if TYPE_CHECKING:
    from tests.sim.world import World

FIRST_GUEST: Final = 3_000_000
"""From here on connections are those of guests."""
STAYS_S: Final = 30.0
_ADMIN: Final = ConnId(0)


class _Key(NamedTuple):
    """What a key may, as a person would say it."""

    role: Role
    rules: Rules
    does: str
    """Of look, run, work, keys."""
    clients: tuple[str, ...] = ()
    """Of `_CLIENTS`, those that it may speak for."""
    subjects: tuple[str, ...] = ()
    """Of `_SUBJECTS`, those that it may name."""


_CLIENTS: Final = ("guest", "guest.home", "guest2", "client0", "*")
_SUBJECTS: Final = (
    "job.assign.in.a",
    "job.assign.in.*",
    "job.assign.in.no.a",
    "job.assign.in.>",
    "job.assign.out",
    ">",
)
_IN: Final = ("job.assign.in.>", "!job.assign.in.no.>")
_KEYS: Final = {
    "guest": _Key(
        *(Role.CLIENT, Rules(subjects=_IN), "look run"),
        ("guest", "guest.home"),
        ("job.assign.in.a", "job.assign.in.*"),
    ),
    "looker": _Key(
        *(Role.CLIENT, Rules(clients=("guest*", "!guest.*"), subjects=("job.assign.in.>",), sees="all"), "look run"),
        ("guest", "guest2"),
        ("job.assign.in.a", "job.assign.in.*", "job.assign.in.no.a", "job.assign.in.>"),
    ),
    "reader": _Key(Role.READER, Rules(sees="own"), "look"),
    "rack": _Key(Role.WORKER, Rules(subjects=_IN), "work", (), ("job.assign.in.a", "job.assign.in.*")),
}
_RIGHTS: Final[tuple[tuple[qu.Question, str], ...]] = (
    *((qu.AskStatus(), "look"), (qu.AskJobs(), "look"), (qu.AskDead(), "look"), (qu.AskCaches(), "look")),
    *((qu.AskCancel(), "run"), (qu.AskRequeue(), "run"), (qu.AskDrain("worker0"), "change")),
    *((qu.AskDropCache("data"), "change"), (AskKeys(), "keys"), (AskRevokeKey("guest"), "keys")),
)


class Guests:
    """All of one world, in some worlds. Their chance is their own, so that worlds without them are what they were."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self.random = random = Random(f"{seed}-guest")
        self._visits = random.choice([0, 0, 0, 10, 30])
        self._count = 0
        self._here: dict[ConnId, Guest] = {}
        self.ring = KeyRing(lambda: world.clock.now, world.clock.now)
        self.ends_at: dict[str, float] = {}
        """When a key ends by itself, or was ended."""
        self._alarm_at = 0.0

    @property
    def guarded(self) -> bool:
        """Do honest clients and workers of this world have keys, too?"""
        return self._visits > 0

    def sight_of(self, client: str) -> Sight | None:
        """Of an honest client: half of them may watch the jobs of others."""
        return Sight((client, f"{client}.*"), sees_all=self.may_watch(client)) if self.guarded else None

    def may_watch(self, client: str) -> bool:
        return not self.guarded or int(client.removeprefix("client")) % 2 == 0

    def plan(self) -> None:
        plan, clock = self._world.plan, self._world.clock
        if not self.guarded:
            return
        for name, key in _KEYS.items():
            expires_s = self.random.choice([0.0, plan.stretched(plan.lasts_s) * (0.2 + self.random.random())])
            self.tell(KeyWanted(_ADMIN, b"", name, key.role, key.rules, expires_s, secret_of(name)))
            if expires_s:
                self.ends_at[name] = clock.now + expires_s
        for _ in range(self._visits):
            clock.after(plan.stretched(plan.lasts_s * self.random.random()), self._come)
        clock.after(plan.stretched(plan.lasts_s * self.random.random()), self._revoke_one)

    # The leader's edge: the ring of keys, its clock and its connections.

    def tell(self, *events: KeyEvent) -> None:
        self._perform(self.ring.handle(events, self._world.clock.now).do)

    def _perform(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, CloseConnections):
                for conn in effect.conns:
                    self._here[conn].leave()
        self.ring.check()
        at = self.ring.wake_at()
        if at is not None and at != self._alarm_at:
            self._alarm_at = at
            self._world.clock.after(max(0.0, at - self._world.clock.now), lambda: self._ring_at(at))

    def _ring_at(self, at: float) -> None:
        if at == self._alarm_at:
            self._perform(self.ring.tick(self._world.clock.now).do)

    def entered(self, guest: Guest) -> None:
        self._here[guest.conn] = guest
        self.tell(KeyUsed(guest.conn, guest.key))

    def left(self, guest: Guest) -> None:
        if self._here.pop(guest.conn, None) is not None:
            self.tell(ConnectionLeft(guest.conn))

    def answered(self, effect: lev.SendAnswer | lev.SendNo) -> None:
        guest = self._here.get(effect.conn)
        if guest is not None:
            guest.answered(effect)

    def has_ended(self, name: str) -> bool:
        return self.ends_at.get(name, float("inf")) <= self._world.clock.now

    # What befalls them.

    def _revoke_one(self) -> None:
        name = self.random.choice(list(_KEYS))
        self.ends_at[name] = min(self.ends_at.get(name, float("inf")), self._world.clock.now)
        self.tell(KeyAsked(_ADMIN, b"", AskRevokeKey(name)))
        self._look_for_ended()

    def _look_for_ended(self, late_s: float = 0.0) -> None:
        for guest in self._here.values():
            if self.ends_at.get(guest.key, float("inf")) + late_s <= self._world.clock.now:
                self._world.checker.broken(None, f"a guest is connected by the key {guest.key}, which has ended")

    def _come(self) -> None:
        self._look_for_ended(KEY_LOOK_S)
        leader = self.random.choice(self._world.leaders)
        if not leader.listening or leader.paused:
            return
        self._count += 1
        name = self.random.choice(list(_KEYS))
        is_right = self.random.random() < 0.8
        conn = ConnId(FIRST_GUEST + self._count)
        may = is_right and not self.has_ended(name)
        try:
            identity = self.ring.identify(name, secret_of(name if is_right else "guess"), self._world.clock.now)
        except Refused:
            if may:
                self._world.checker.broken(None, f"the key {name} is valid, and was refused")
            return
        if not may:
            self._world.checker.broken(None, f"the key {name} has ended or its secret is wrong, and it was taken")
        self._world.checker.counts.guests += 1
        guest = Guest(self._world, leader, conn, identity)
        guest.try_rules()
        self.entered(guest)
        guest.try_to_see()


class Guest:
    """One visit: a connection of the leader's, as its shell knows it."""

    receipts = True
    paused = False
    their_conn = ConnId(0)
    name = "guest"

    def __init__(self, world: World, leader: Leader, conn: ConnId, identity: Identity) -> None:
        self.leader = leader
        self.conn = conn
        self.key = identity.key
        self.is_worker = identity.role is Role.WORKER
        self._world = world
        self._identity = identity
        self._random = world.guests.random
        self._asked: dict[bytes, qu.Question] = {}

    # What the rules say.

    def try_rules(self) -> None:
        """All decisions about this key, each against the table."""
        key, identity = _KEYS[self.key], self._identity
        for client in _CLIENTS:
            self._compare(client in key.clients, f"speak for {client}", partial(check_client, identity, client))
        for subject in _SUBJECTS:
            may_name = subject in key.subjects
            if key.does == "work":
                check = partial(check_patterns, identity, [parse_pattern(subject)])
                self._compare(may_name, f"take jobs of {subject}", check)
            client = key.clients[0] if key.clients else "guest"
            may_submit = may_name and "run" in key.does
            self._compare(may_submit, f"submit to {subject}", partial(check_submit, identity, client, "calc", subject))
        for question, right in _RIGHTS:
            self._compare(right in key.does, f"ask {question}", partial(check_question, identity, question))

    def _compare(self, may: bool, what: str, check: Callable[[], None]) -> None:
        try:
            check()
        except Refused as no:
            if may:
                self._world.checker.broken(None, f"{self.key} may {what}, and was refused: {no.message}")
            self._world.checker.counts.denied += 1
            return
        if not may:
            self._world.checker.broken(None, f"{self.key} may not {what}, and was let through")

    # What it tries at the leader.

    def try_to_see(self) -> None:
        self.leader.peers[self.conn] = self  # type: ignore[assignment]
        if self.is_worker:
            self._pose()
        elif self.key == "reader":
            self._ask_about(list(self.leader.machine.jobs))
        else:
            client = ClientId(self._random.choice(_KEYS[self.key].clients))
            self.leader.post(lev.ClientJoined(self.conn, client, 4, True, False, self._identity.sight()))
            jobs = list(self.leader.machine.jobs)
            if jobs:
                self._touch(self._random.sample(jobs, min(3, len(jobs))))
            self._ask_about(jobs)
        stays_s = self._random.choice([0.0, STAYS_S, 10 * STAYS_S])
        self._world.clock.after(stays_s, self.leave)

    def _pose(self) -> None:
        """As a worker that is there, with patterns of its own rules."""
        there = [worker.id for worker in self.leader.machine.roster.by_conn.values() if worker.key]
        if not there:
            self.leave()
            return
        patterns = (parse_pattern("job.assign.in.a"),)
        worker = self._random.choice(there)
        self.leader.post(lev.WorkerJoined(self.conn, worker, "guest", patterns, True, False, True, True, key=self.key))

    def _touch(self, jobs: list[JobId]) -> None:
        leader, machine = self.leader, self.leader.machine
        leader.post(lev.CancelWanted(self.conn, tuple(jobs)))
        leader.post(lev.Confirmed(self.conn, tuple(jobs)))
        if self.key != "guest":
            return
        leader.post(lev.Sought(self.conn, tuple(jobs)))
        leader.post(lev.Claimed(self.conn, tuple(jobs)))
        for job in jobs:
            record = machine.jobs[job]
            if record.state is not DONE:  # Else it might be forgotten, and then be the guest's.
                request = self._world.requests[job]
                subject = parse_subject("job.assign.in.a")
                leader.post(lev.Submitted(self.conn, job, subject, "calc", 10.0, request.payload))

    def _ask_about(self, jobs: list[JobId]) -> None:
        some = [show_job_id(job) for job in self._random.sample(jobs, min(2, len(jobs)))]
        questions: list[qu.Question] = [qu.AskStatus(), qu.AskTop(), qu.AskWorkers(), qu.AskJobs(), qu.AskDead()]
        for ask in (qu.AskJob, qu.AskStory, qu.AskExplain, qu.AskLetter):
            questions += [ask(job) for job in some]
        if self.key == "looker":
            questions = []
        if "run" in _KEYS[self.key].does:
            questions += [
                qu.AskCancel(pattern=">", forget=True),
                qu.AskCancel(client="client0"),
                qu.AskCancel(jobs=some),
            ]
            questions += [qu.AskRequeue(), qu.AskDrop(), qu.AskDrop(jobs=some), qu.AskRequeue(pattern=">")]
        for number, question in enumerate(self._random.sample(questions, min(6, len(questions)))):
            ask_id = b"%d" % number
            self._asked[ask_id] = question
            self.leader.post(lev.QuestionAsked(self.conn, ask_id, question, self._identity.sight()))

    # What it is told.

    def send(self, message: object) -> None:
        broken = self._world.checker.broken
        match message:
            case fev.Welcomed() | fev.HeartbeatReceived():
                pass
            case fev.JobRefused():
                if message.code not in {"unknown-job", "denied"}:
                    broken(message.job, f"a guest is refused as {message.code}", LEAKED)
            case fev.JobsFound():
                if message.fate != "unknown":
                    broken(message.jobs[0], f"a guest hears that it is {message.fate}", LEAKED)
            case _:
                broken(getattr(message, "job", None), f"the guest {self.key} is sent {message}", LEAKED)

    def answered(self, effect: lev.SendAnswer | lev.SendNo) -> None:
        question, broken = self._asked[effect.ask_id], self._world.checker.broken
        if isinstance(effect, lev.SendNo):
            if effect.code not in {"unknown-job", "denied", "bad-request"}:
                broken(None, f"{question} of a guest is refused as {effect.code}", LEAKED)
            return
        answer = effect.answer
        if isinstance(answer, an.CancelAnswer):
            if answer.cancelled or answer.finished or answer.forgotten or answer.left:
                broken(None, f"{question} of the guest {self.key} changes jobs of others: {answer}")
        elif isinstance(answer, an.DeadDoneAnswer):
            if answer.done or answer.left:
                broken(None, f"{question} of the guest {self.key} changes dead letters of others: {answer}")
        else:
            told = [value for value in _told(msgspec.to_builtins(answer)) if value not in _KEYS[self.key].clients]
            if told:
                broken(None, f"{question} tells the guest {self.key} of {told[0]}", LEAKED)

    # It goes.

    def hang_up(self) -> None:
        self.leave()

    def leave(self) -> None:
        if self.leader.peers.pop(self.conn, None) is not None:
            self.leader.post(lev.Left(self.conn))
        self._world.guests.left(self)

    def end(self, power: bool) -> None:
        """Its leader died."""
        self._world.clock.after(0.0, lambda: self._world.guests.left(self))

    def look_at_window(self) -> None:
        """It has said all that it will say."""


def _told(value: Any, field: str = "") -> Iterator[str]:
    """Jobs, clients and subjects that an answer names."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _told(below, name)
    elif isinstance(value, list):
        for below in value:
            yield from _told(below, field)
    elif field in {"job", "kept_for", "client", "subject", "patterns", "group"} and value:
        yield str(value)


def secret_of(name: str) -> bytes:
    return sha256(name.encode()).digest()
