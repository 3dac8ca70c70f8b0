"""Which leader knows a job already? (SPEC K8)

    Submit, its id given ──► searched: every leader is asked ──► one knows it: it is submitted there
                                         └── none does ────────► a leader is chosen by the id's hash

A restarted client does not know where its earlier life sent a job, and a second leader would run it again. A job whose
id the user gave is therefore submitted only when all reachable leaders have denied to know it. All jobs of a step share
one question.

A leader that does not answer within `FIND_WITHIN_S` is not awaited, and gets no further questions until it has
answered: a hanging leader must not delay jobs that others could do. Its late "known" still counts: see `replies`. After
its answer it is asked for the jobs that are still unsent.
"""

from __future__ import annotations

import math

from wakugumi.core.client.leader_row import LeaderConnection, LeaderRow
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.ids import JobId
from wakugumi.limits.client import FIND_COMING_S, FIND_WITHIN_S


class JobSearch:
    """Jobs of one client for which leaders are asked."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self.jobs: dict[JobId, None] = {}
        """In the order of their submits. A job leaves when one leader knows it, or none does."""
        self.news = False
        """A leader connected, disconnected or ran out of time: more jobs may be settled."""
        self._looked_at = -math.inf

    def begin(self, job: JobId, now: float) -> bool:
        """Ask every leader that can be asked. False if no answer is awaited."""
        waits = False
        for conn in self._leaders.conns.values():
            if not conn.takes_finds or conn.leader.removed:
                continue
            if conn.late:
                conn.missed = True
            else:
                self.ask(conn, job, now)
                waits |= not conn.late
        waits = waits or self.expects_leader(now)
        if waits:
            self.jobs[job] = None
        return waits

    def ask(self, conn: LeaderConnection, job: JobId, now: float) -> None:
        if job not in conn.open_finds:
            conn.finds.append(job)
            conn.open_finds[job] = now
            self.update_late(conn, now)

    def update_late(self, conn: LeaderConnection, now: float) -> None:
        """Update `late`: has the leader answered in time?"""
        conn.late = bool(conn.open_finds) and next(iter(conn.open_finds.values())) + FIND_WITHIN_S <= now
        self.news |= conn.missed and not conn.late

    def caught_up(self, now: float) -> list[LeaderConnection]:
        """Leaders that have caught up, and were not asked for some jobs while they were late."""
        conns = [conn for conn in self._leaders.conns.values() if conn.missed]
        for conn in conns:
            self.update_late(conn, now)
            conn.missed = conn.late
        return [conn for conn in conns if not (conn.late or conn.leader.removed)]

    def is_settled(self, job: JobId) -> bool:
        """Have all asked leaders answered, or run out of time?"""
        return not any(job in conn.open_finds and not conn.late for conn in self._leaders.conns.values())

    def settled(self, now: float) -> list[JobId]:
        """Jobs for which no answer is awaited any more."""
        self.news = False
        self._looked_at = now
        for conn in self._leaders.conns.values():
            self.update_late(conn, now)
        return [] if self.expects_leader(now) else [job for job in self.jobs if self.is_settled(job)]

    def expects_leader(self, now: float) -> bool:
        """Is a leader about to serve, which could be asked then?"""
        return any(now < _expected_until(leader) for leader in self._leaders.rows.values())

    def over(self, job: JobId) -> None:
        """End the search for a job, and ignore later answers."""
        self.jobs.pop(job, None)
        for conn in self._leaders.conns.values():
            conn.open_finds.pop(job, None)
            conn.late = conn.late and bool(conn.open_finds)

    def wake_at(self) -> float | None:
        """When more jobs may be settled, if any."""
        times = [_expected_until(leader) for leader in self._leaders.rows.values()]
        times += [
            next(iter(conn.open_finds.values())) + FIND_WITHIN_S
            for conn in self._leaders.conns.values()
            if conn.open_finds and not conn.late
        ]
        return min((at for at in times if at > self._looked_at), default=None)

    def check(self) -> None:
        for conn in self._leaders.conns.values():
            assert conn.takes_finds or not conn.open_finds
            assert not conn.late or conn.open_finds


def _expected_until(leader: LeaderRow) -> float:
    """Until when to wait for a leader that does not serve yet."""
    if leader.serves or leader.removed:
        return -math.inf
    if leader.conn is not None:
        return leader.conn.greeted_at + FIND_COMING_S
    return leader.tried_at + FIND_COMING_S if leader.is_coming else -math.inf
