"""Which leader knows a job already? (SPEC K8)

    Submit, its id given ──► sought: every leader is asked ──► one knows it: it is submitted there
                                       └── none does ────────► a leader is chosen by the id's hash

A client that was killed comes back with the ids of its user, and knows nothing of where its earlier life sent them. A
second leader would run what the first one runs or has done. So a job whose id was given is submitted only when all
leaders that can be reached have said that they do not know it. All jobs of a turn are asked for in one question.

A leader that does not answer within `FIND_WITHIN_S` is waited for no longer, and not asked again until it has answered:
one that hangs must not hold up what others could do. Its late "known" counts all the same: see `replies`. When it has
answered, it is asked for the jobs that still wait to be submitted.
"""

from __future__ import annotations

import math

from wakugumi.core.client.leader_row import LeaderConnection, LeaderRow
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.ids import JobId
from wakugumi.limits.client import FIND_COMING_S, FIND_WITHIN_S


class JobSearch:
    """The jobs of one client that are being looked for."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self.jobs: dict[JobId, None] = {}
        """In the order in which they came. A job leaves when one leader knows it, or none does."""
        self.news = False
        """Somebody came, went, or has had its time: more of them may be settled."""
        self._looked_at = -math.inf

    def begin(self, job: JobId, now: float) -> bool:
        """Ask every leader that can be asked. False if none of them is waited for."""
        waits = False
        for conn in self._leaders.conns.values():
            if not conn.takes_finds or conn.leader.removed:
                continue
            if conn.late:
                conn.missed = True
            else:
                self.ask(conn, job, now)
                waits |= not conn.late
        waits = waits or self.some_come(now)
        if waits:
            self.jobs[job] = None
        return waits

    def ask(self, conn: LeaderConnection, job: JobId, now: float) -> None:
        if job not in conn.sought:
            conn.finds.append(job)
            conn.sought[job] = now
            self.look(conn, now)

    def look(self, conn: LeaderConnection, now: float) -> None:
        """Has it answered in time?"""
        conn.late = bool(conn.sought) and next(iter(conn.sought.values())) + FIND_WITHIN_S <= now
        self.news |= conn.missed and not conn.late

    def late_no_more(self, now: float) -> list[LeaderConnection]:
        """Those that have answered since, and were not asked for some jobs before."""
        conns = [conn for conn in self._leaders.conns.values() if conn.missed]
        for conn in conns:
            self.look(conn, now)
            conn.missed = conn.late
        return [conn for conn in conns if not (conn.late or conn.leader.removed)]

    def is_settled(self, job: JobId) -> bool:
        """All that were asked have answered, or have had their time."""
        return not any(job in conn.sought and not conn.late for conn in self._leaders.conns.values())

    def settled(self, now: float) -> list[JobId]:
        """Those that nobody else is waited for."""
        self.news = False
        self._looked_at = now
        for conn in self._leaders.conns.values():
            self.look(conn, now)
        return [] if self.some_come(now) else [job for job in self.jobs if self.is_settled(job)]

    def some_come(self, now: float) -> bool:
        """Is a leader about to serve, which could be asked then?"""
        return any(now < _comes_by(leader) for leader in self._leaders.rows.values())

    def over(self, job: JobId) -> None:
        """It is looked for no longer, nor is anything that is still said of it waited for."""
        self.jobs.pop(job, None)
        for conn in self._leaders.conns.values():
            conn.sought.pop(job, None)
            conn.late = conn.late and bool(conn.sought)

    def wake_at(self) -> float | None:
        """When more of them may be settled, if there are any."""
        times = [_comes_by(leader) for leader in self._leaders.rows.values()]
        times += [
            next(iter(conn.sought.values())) + FIND_WITHIN_S
            for conn in self._leaders.conns.values()
            if conn.sought and not conn.late
        ]
        return min((at for at in times if at > self._looked_at), default=None)

    def check(self) -> None:
        for conn in self._leaders.conns.values():
            assert conn.takes_finds or not conn.sought
            assert not conn.late or conn.sought


def _comes_by(leader: LeaderRow) -> float:
    """Until when a leader that does not serve yet is waited for."""
    if leader.serves or leader.removed:
        return -math.inf
    if leader.conn is not None:
        return leader.conn.greeted_at + FIND_COMING_S
    return leader.tried_at + FIND_COMING_S if leader.is_coming else -math.inf
