"""Where has each of a client's jobs been, and was it right to give it to another leader? (SPEC K4, K5, K8)

The judge's notes on one client, over all its lives. They come from its lines alone, from what was said over which of
them and when each of them ended, and know nothing of what `failover` thinks:

    a job that was given to one leader is given to another one only if the first refused it, or was lost for longer than
    the grace, or was removed and lost, or said nothing for a long time; or if the client died and knows nothing of it;
    or if the first said that it does not know it, and was sent it over a connection that was lost since
    a job with an id of its user's is given to no leader while another one, which can be reached, knows it: queued,
    running, or done and kept
    a job whose leader is lost for longer than the grace waits no longer, if another one takes jobs
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from tests.sim.jobs import Status, Want

from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.limits.client import FIND_COMING_S, FIND_WITHIN_S, MUTE_MAX_S

if TYPE_CHECKING:
    from tests.sim.client import Client, Line
    from tests.sim.leader import Leader

ADOPTED: Final = "it was adopted: its leader was unreachable for longer than the grace"
_REMOVED: Final = "its leader was removed, and lost with it"
_MUTE: Final = "its leader had said nothing for a long time"
_CLIENT_DIED: Final = "its client died, and asked another leader"
_LATE: Final = "a submit reached its leader over a lost connection, after the leader had said that it did not know it"

_LATE_S: Final = 2.0
"""A client that is not paused has adopted what is to be adopted by then."""
_NEARLY_S: Final = 1e-6
"""Sums of times are not exact."""


class Visit(msgspec.Struct, eq=False):
    """A leader was given the job, or asked for what it had been given before."""

    line: Line
    at: float
    lingers: str = ""
    """It was given the job before, and the client knows nothing of that, for this reason: even if it refuses the job
    now, it may have done it."""
    refused: bool = False
    refused_at: float = -1.0


class _Sent(NamedTuple):
    """A submit."""

    wish: int
    at: float


_NEVER_LATE: Final = _Sent(0, 0.0), -1.0


class Places:
    """The notes on one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._visits: dict[JobId, dict[str, Visit]] = {}
        """By the leader's name, since its user wanted it last from the beginning."""
        self._told: dict[tuple[JobId, str], int] = {}
        """Which wish of its user each leader was told last."""
        self._wishes: dict[tuple[JobId, str], int] = {}
        """Which it took last. One that it refused opens nothing: what it still runs is for the wish before."""
        self._sent_over: dict[tuple[JobId, ConnId], tuple[Line, _Sent]] = {}
        """The last submit of each job over each line, by what the leader calls the line."""
        self._late: dict[tuple[JobId, str], tuple[_Sent, float]] = {}
        """The last submit of each job that opens it and that a leader read over a line that the client had lost; and
        when."""
        self._called_off: dict[tuple[JobId, str], float] = {}
        """When each leader was told last to cancel it."""
        self._denied: dict[tuple[JobId, str], float] = {}
        """When the client heard last from a leader that it does not know the job."""
        self._reasons: dict[tuple[JobId, int], str] = {}
        """Why more than one leader was given the job, for one wish."""
        self._answered: dict[tuple[JobId, int], str] = {}
        """Who brought the first result."""
        self._first_life: dict[tuple[JobId, str], int] = {}
        """In which life each leader was given each job first."""
        self._questions: dict[Line, dict[JobId, float]] = {}
        """What each line was asked for and has not answered, the oldest first."""
        self._fates: dict[tuple[Line, JobId], str] = {}
        """What it answered."""
        self._found_at: dict[JobId, float] = {}
        """When the last of them answered, by job."""

    def wanted_anew(self, job: JobId) -> None:
        self._visits.pop(job, None)

    # What is said.

    def sent(self, job: JobId, line: Line) -> None:
        wish = self._client.wants[job].wish
        name = line.leader.name
        visits = self._visits.setdefault(job, {})
        if self._client.wants[job].given:
            self._look_who_knows(job, line, visits)
        known = self._fates.pop((line, job), "") == "known"  # It is submitted where it was already.
        for other, visit in visits.items():
            if other != name and known and visit.lingers:
                continue
            if other != name and not visit.refused:
                self._reasons[job, wish] = self._why_elsewhere(job, visit, line)
            elif other != name and visit.lingers:
                self._reasons[job, wish] = visit.lingers
        before = visits.get(name)
        visits[name] = Visit(line, self._clock.now, "" if before is None else self._why_it_lingers(before, line))
        self._told[job, name] = wish
        if line.link is not None:
            self._sent_over[job, ConnId(line.link.number)] = line, _Sent(wish, self._clock.now)
        self._first_life.setdefault((job, name), line.life)

    def arrived(self, job: JobId, leader: Leader, conn: ConnId) -> None:
        """A leader reads a submit."""
        line, sent = self._sent_over[job, conn]
        is_lost = line.lost_at is not None or line.life != self._client.life or not self._client.alive
        known = leader.machine.jobs.get(job)
        if is_lost and (known is None or known.state is DONE):
            self._late[job, leader.name] = sent, self._clock.now

    def taken(self, job: JobId, leader: str) -> None:
        """A leader keeps what it was sent, or has it already and says so."""
        self._wishes[job, leader] = self._told.get((job, leader), 0)

    def claimed(self, job: JobId, line: Line) -> None:
        """It is with this leader again, if it was in this life, or if the leader has just said that it knows it, maybe
        from an earlier wish: a job of an earlier life is only looked for."""
        if self._fates.get((line, job)) == "known":
            self._visits.setdefault(job, {})[line.leader.name] = Visit(line, self._clock.now, _CLIENT_DIED)
            return
        visit = self._visits.get(job, {}).get(line.leader.name)
        if visit is not None and visit.line.life == line.life:
            visit.line = line
            visit.at = self._clock.now
            visit.refused = False

    def sought(self, job: JobId, line: Line) -> None:
        self._questions.setdefault(line, {})[job] = self._clock.now

    def found(self, job: JobId, line: Line, fate: str) -> None:
        self._questions[line].pop(job, None)
        self._fates[line, job] = fate
        self._found_at[job] = self._clock.now
        if fate == "unknown":
            self._denied[job, line.leader.name] = self._clock.now

    def refused(self, job: JobId, line: Line, code: str) -> None:
        visit = self._visits.get(job, {}).get(line.leader.name)
        if visit is not None and (visit.line is line or visit.line.life != line.life):
            visit.refused = True
            visit.refused_at = self._clock.now
            if code == "unknown-job":
                visit.lingers = ""
                self._denied[job, line.leader.name] = self._clock.now

    def answered(self, job: JobId, line: Line) -> None:
        wish = self._client.wants[job].wish
        counts = self._client.world.checker.counts
        first = self._answered.setdefault((job, wish), line.leader.name)
        if first not in {line.leader.name, ""}:
            self._answered[job, wish] = ""
            counts.from_two_leaders += 1

    def called_off(self, job: JobId, leader: str) -> None:
        """A leader is told to cancel it. If its user did not want that, another leader has done it."""
        self._called_off[job, leader] = self._clock.now
        want = self._client.wants.get(job)
        if want is not None and not want.cancelled:
            self._client.world.checker.counts.losers_told += 1

    def was_called_off_before(self, job: JobId, want: Want) -> bool:
        """Had a leader been told to cancel it when its user wanted it anew?"""
        first_at = min((at for (name, _), at in self._called_off.items() if name == job), default=math.inf)
        return want.wish > 0 and first_at < want.asked_at

    def _look_who_knows(self, job: JobId, line: Line, visits: dict[str, Visit]) -> None:
        """Whoever was given the job in this life is another matter, and where it is known nothing runs anew."""
        client = self._client
        if self._fates.get((line, job)) == "known":
            return
        for other in client.lines.values():
            leader = other.leader
            if leader is line.leader or not (other.own and other.ready and leader.alive and client.world.finds):
                continue
            visit = visits.get(leader.name)
            if other.lost_at is not None or other.no not in client.present or not leader.machine.knows(job):
                continue
            if visit is not None and visit.line.life == line.life:
                continue
            owed = self._questions.get(other, {})
            if owed and next(iter(owed.values())) + FIND_WITHIN_S <= self._clock.now + _NEARLY_S:
                continue  # It owes an answer for too long.
            fate = self._fates.get((other, job), "was not asked" if job not in owed else "has not answered yet")
            if fate not in {"unknown", "failed"}:
                client.world.checker.broken(
                    job, f"{line.leader.name} is given it, and {leader.name}, which knows it, is connected: {fate}"
                )

    # Lines end.

    def lost(self, line: Line) -> None:
        client = self._client
        if line.ready and len(client.present) > 1:
            self._clock.after(client.settings.grace_s + _LATE_S, lambda: self._look_for_stranded(line))

    def parted(self, line: Line) -> None:
        """The client leaves a leader that was removed. It may still have jobs that others have as well."""
        for job, visits in self._visits.items():
            want = self._client.wants[job]
            here = [visit for visit in visits.values() if not visit.refused and visit.line.life == line.life]
            if want.status is Status.ASKED and len(here) == 1 and here[0].line is line and line.lost_at is None:
                self._client.world.checker.broken(job, f"{line.leader.name} is left, which has it and is there")

    # What the judge wants to know.

    def wish_at(self, job: JobId, leader: str) -> int:
        return self._wishes.get((job, leader), 0)

    def why_two_leaders(self, job: JobId, wish: int, leaders: tuple[str, str]) -> str:
        """Empty if there is no reason."""
        if (job, wish) in self._reasons:
            return self._reasons[job, wish]
        for name in leaders:
            sent, _ = self._late.get((job, name), _NEVER_LATE)
            if sent.wish == wish and self._denied.get((job, name), -1.0) > sent.at:
                return _LATE
        return ""

    def is_told(self, job: JobId, leader: str) -> bool:
        """Must this leader have heard that nobody waits for its result any more? Not if the client died since the
        leader was given the job, or has removed it: nobody knows of it then, and its time will end it. Nor if it read
        a submit over a lost line after the client had its result."""
        visit = self._visits.get(job, {}).get(leader)
        if visit is None or visit.refused or self._first_life[job, leader] != self._client.life:
            return False
        if self._late.get((job, leader), _NEVER_LATE)[1] > self._client.world.checker.delivered_at(job):
            return False
        return self._client.removed_at.get(leader, -1.0) < visit.at

    def is_left_behind(self, want: Want, leader: str) -> bool:
        """Was its end wanted in a life that does not know of this leader's share in it? A client that claims
        a job asks all its leaders; one that submits it again knows of those that it gave it to. Or did the leader read
        the submit, over a lost line, after it was told of the end?"""
        client, key = self._client, (want.request.job, leader)
        if self._late.get(key, _NEVER_LATE)[1] > self._called_off.get(key, math.inf):
            return True
        if want.life != client.life or client.removed_at.get(leader, -1.0) > want.asked_at:
            return True
        return not want.claimed and self._first_life.get(key) != client.life

    def _why_it_lingers(self, before: Visit, line: Line) -> str:
        """It is given to the leader of that visit again, as if for the first time."""
        if before.lingers or before.refused:
            return before.lingers
        if before.line.life != line.life:
            return _CLIENT_DIED
        return _REMOVED if self._client.removed_at.get(line.leader.name, -1.0) >= before.at else ""

    def _why_elsewhere(self, job: JobId, visit: Visit, line: Line) -> str:
        """Why is it not with the leader of that visit any more? Broken, if it should be."""
        checker = self._client.world.checker
        before, name = visit.line, visit.line.leader.name
        if before.life != line.life:
            return _CLIENT_DIED
        if before.lost_at is None:
            checker.broken(job, f"{line.leader.name} is given it, and {name}, which has it, is still connected")
            raise AssertionError
        if self._client.removed_at.get(name, -1.0) >= visit.at:
            return _REMOVED
        for_s, grace_s = self._clock.now - before.lost_at, self._client.settings.grace_s
        if for_s >= grace_s - _NEARLY_S:
            checker.counts.adopted += 1
            return ADOPTED
        if before.lost_at - before.heard_at >= MUTE_MAX_S - _NEARLY_S:
            return _MUTE
        checker.broken(
            job,
            f"{line.leader.name} adopts it {for_s:.1f} s after {name} was lost, and the grace is {grace_s:.0f} s",
        )
        raise AssertionError

    def _look_for_stranded(self, line: Line) -> None:
        client = self._client
        if line.life != client.life or not client.takes_jobs or len(client.present) < 2:
            return
        if line.lost_at is None or client.resumed_at >= line.lost_at:
            return  # It was paused, and has heard of the loss only now.
        now, grace_s = self._clock.now, client.settings.grace_s
        for job, visits in self._visits.items():
            want = client.wants[job]
            here = [visit for visit in visits.values() if not visit.refused and visit.line.life == line.life]
            if want.status is not Status.ASKED or want.life != client.life:
                continue
            if want.cancelled or all(visit.line is not line for visit in here):
                continue
            if any(visit.refused_at > now - _LATE_S for visit in visits.values()):
                continue  # The client may not have heard of that yet.
            if any(owed.get(job, -1.0) > now - FIND_WITHIN_S for owed in self._questions.values()):
                self._clock.after(FIND_WITHIN_S, lambda: self._look_for_stranded(line))
                return  # A leader that came meanwhile is asked for it first.
            if self._found_at.get(job, -1.0) > now - _LATE_S:
                self._clock.after(_LATE_S, lambda: self._look_for_stranded(line))
                return  # It has answered just now.
            if want.given and any(
                not other.ready and other.came_at + FIND_COMING_S > now for other in client.lines.values()
            ):
                self._clock.after(FIND_COMING_S + _LATE_S, lambda: self._look_for_stranded(line))
                return  # One that is being connected will be asked for it.
            # Each line's loss is looked at when the client has had its time: the last one decides.
            had_s = grace_s + _LATE_S - _NEARLY_S
            if all(visit.line.lost_at is not None and visit.line.lost_at + had_s <= now for visit in here):
                client.world.checker.broken(
                    job, f"it is not adopted, and {line.leader.name} is lost since {line.lost_at}"
                )
