"""Which leader has a job that somebody else submitted, or does none of them know it?

A claim is asked of every leader that serves, or of the one that is known to have the job. It ends with a result, or
when all have said that they do not know the job and nobody else is about to be asked.
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
    """The leader that has the job, if that is known."""
    cancelled: bool = False
    denied: tuple[str, str] | None = None
    """How a leader last said that it does not know the job: code and text."""


class OpenClaims:
    """`LeaderConnection.claimed` names those that a leader was asked for and has said nothing of yet."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._rows = leaders.rows
        self._conns = leaders.conns
        self.open: dict[JobId, OpenClaim] = {}
        self.news = False
        """Something was said in this step that may end a claim."""

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
        """This own leader serves from now on."""
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
        """Is a result from there the end of a claim? Not of a leader that has denied to know the job."""
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
        # One that is away, or whose connection is dead and not yet known to be, may have it as well.
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
        """Give up those that all who serve do not know, once nobody else is about to be asked: one that is away has its
        grace here too, for it may well be the one that has the job."""
        if not self.open:
            return
        some_come = self._leaders.some_may_come(now)
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
                continue  # It is waited for.
            elif claim.denied is not None and (claim.only or not (some_come or old)):
                self._give_up(job, *claim.denied, do)
            elif only_old or (claim.denied is not None and not some_come):
                self._give_up(job, "not-supported", "an old leader cannot be asked for a job of someone else", do)

    def check(self) -> None:
        for job, claim in self.open.items():
            assert not claim.cancelled or self._is_asked(job)

    def _is_asked(self, job: JobId) -> bool:
        """Is there a leader that was asked for it and has not answered?"""
        return any(job in conn.claimed for conn in self._conns.values())

    def _give_up(self, job: JobId, code: str, text: str, do: list[ClientDo]) -> None:
        self.end(job)
        do.append(ev.GiveUp(job, code, text))
