"""Which leader has a job that another client submitted, or does none of them know it?

A claim goes to every serving leader, or to the one that is known to have the job. It ends with a result, or when all
have denied to know the job and no other leader is expected.
"""

from __future__ import annotations

import msgspec

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientDo, LeaderNo
from wakugumi.core.client.leader_row import LeaderConnection
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.ids import JobId


class OpenClaim(msgspec.Struct, gc=False, eq=False):
    only: LeaderNo = ANY_LEADER
    """The leader that has the job, if known."""
    cancelled: bool = False
    denied: tuple[str, str] | None = None
    """Code and text of the last leader's denial to know the job."""


class OpenClaims:
    """`LeaderConnection.claimed` holds the claims that a leader has not answered yet."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._rows = leaders.rows
        self._conns = leaders.conns
        self.open: dict[JobId, OpenClaim] = {}
        self.news = False
        """An event of this step may end a claim."""

    def add(self, job: JobId, only: LeaderNo) -> None:
        self.open[job] = OpenClaim(only)
        for leader in self._rows.values():
            if only and leader.no != only:
                continue
            leader.cancels.pop(job, None)
            if (line := leader.line) is not None:
                line.claims.append(job)
                line.claimed.add(job)
        self.news = True

    def ask(self, conn: LeaderConnection) -> None:
        """This leader of our own serves from now on."""
        for job, claim in self.open.items():
            if job in conn.claimed or claim.only not in {ANY_LEADER, conn.leader.no}:
                continue
            conn.claimed.add(job)
            if claim.cancelled:
                self._leaders.call_off(job, [conn.leader.no])
            else:
                conn.leader.cancels.pop(job, None)
            conn.claims.append(job)

    def answered(self, job: JobId, conn: LeaderConnection) -> bool:
        """Does a result from this leader end a claim? Not if the leader has denied to know the job."""
        if job not in self.open or job not in conn.claimed:
            return False
        self.end(job)
        return True

    def refused(self, conn: LeaderConnection, job: JobId, code: str, text: str) -> None:
        if job in conn.claimed:
            conn.claimed.remove(job)
            self.open[job].denied = code, text
            self.news = True

    def cancel(self, job: JobId, do: list[ClientDo]) -> None:
        claim = self.open[job]
        if claim.cancelled:
            return
        # A leader whose connection is lost, noticed or not, may have the job as well.
        self._leaders.call_off(job, self._rows)
        if self._is_asked(job):
            claim.cancelled = True
        else:
            self._give_up(job, "cancelled", "it was cancelled before it was sent", do)

    def end(self, job: JobId) -> None:
        del self.open[job]
        for conn in self._conns.values():
            conn.claimed.discard(job)

    def judge(self, now: float, do: list[ClientDo]) -> None:
        """Give up jobs that no serving leader knows, once no other leader is expected: a lost one has its grace here
        too, because it may be the one that has the job."""
        if not self.open:
            return
        is_expected = self._leaders.expects_leader(now)
        old = [leader for leader in self._rows.values() if leader.serves and leader.line is None]
        only_old = bool(old) and len(old) == len(self._rows)
        for job, claim in list(self.open.items()):
            if self._is_asked(job):
                continue
            if claim.cancelled:
                self._leaders.call_off(job, self._rows)
                self._give_up(job, "cancelled", "it was cancelled before a leader was found that knows it", do)
            elif claim.only and claim.only not in self._rows:
                self._give_up(job, "no-leader", "the leader that has it was removed", do)
            elif claim.only and claim.denied is None and not only_old:
                continue  # Wait for this leader.
            elif claim.denied is not None and (claim.only or not (is_expected or old)):
                self._give_up(job, *claim.denied, do)
            elif only_old or (claim.denied is not None and not is_expected):
                self._give_up(job, "not-supported", "an old leader cannot be asked for a job of someone else", do)

    def check(self) -> None:
        for job, claim in self.open.items():
            assert not claim.cancelled or self._is_asked(job)

    def _is_asked(self, job: JobId) -> bool:
        """Has a leader not answered a claim of this job yet?"""
        return any(job in conn.claimed for conn in self._conns.values())

    def _give_up(self, job: JobId, code: str, text: str, do: list[ClientDo]) -> None:
        self.end(job)
        do.append(ev.GiveUp(job, code, text))
