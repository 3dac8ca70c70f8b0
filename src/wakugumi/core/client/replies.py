"""What becomes of a client's jobs when a leader says something about them, or serves again?

A leader accepts a job, refuses it, cannot take its files or variables, knows it from an earlier life, or does not. The
results have a fast path of their own: see `failover`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientDo
from wakugumi.core.client.jobs import UnfinishedJobs
from wakugumi.core.client.leader_row import NEEDS_BLOBS, NEEDS_ENV, LeaderConnection, taken
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, Stranded, UnfinishedJob
from wakugumi.core.ids import Fate, JobId

_NOT_NOW: Final = frozenset({"full", "disk-full", "stopping"})
"""Refusals that say nothing about the job: it is offered to others, and here again."""


class LeaderReplies:
    """Changes the `jobs` of one client."""

    def __init__(self, leaders: Leaders, jobs: UnfinishedJobs) -> None:
        self._leaders = leaders
        self._rows = leaders.rows
        self._jobs = jobs
        self._records = jobs.records
        self._search = jobs.search

    def accepted(self, conn: LeaderConnection, jobs: Sequence[JobId]) -> None:
        sent, accepted = conn.leader.sent, conn.leader.accepted
        for job in jobs:
            record = self._records.get(job)
            if record is not None:
                if record.at is sent:
                    record.at = accepted
                elif record.is_unanswered_by(conn.leader.no):
                    record.accept()
                elif job in conn.claimed and (record.at is UNSENT or type(record.at) is Stranded):
                    # It had the job all the time, and the one that adopted it is gone.
                    conn.claimed.remove(job)
                    self._jobs.give(job, record, conn.leader)
                    record.accept()
            if conn.full:
                taken(conn, job)

    def refused(self, conn: LeaderConnection, job: JobId, code: str, text: str, now: float, do: list[ClientDo]) -> None:
        record = self._records.get(job)
        leader = conn.leader
        if record is None:
            return
        if job in conn.claimed:
            conn.claimed.remove(job)
            record.drop_may(leader.no)
            return
        at = record.at
        if type(at) is not Sent or at.leader != leader.no:
            return
        if at.cancelled:
            self._leaders.call_off(job, [no for no in record.may if no != leader.no])
            self._jobs.give_up(job, "cancelled", "it was cancelled before the leader took it", do)
        elif code == "unknown-job" and leader.no in record.may:
            record.drop_may(leader.no)
            record.first = leader.no
            if record.only:
                conn.submit(job, record.frame)
            else:
                self._jobs.find_place(job, record, now, conn)
        elif code == "unknown-job":
            return  # It is about a claim before the submit, which is under way and has an answer of its own.
        elif code not in _NOT_NOW or record.only:
            self._leaders.call_off(job, [no for no in record.may if no != leader.no])
            self._jobs.give_up(job, code, text, do)
        else:
            self._jobs.find_place(job, record, now)
            self._leaders.refused(conn, code, text, now, do)
        conn.probing.discard(job)

    def does_not_fit(self, conn: LeaderConnection, event: ev.Unfit, now: float, do: list[ClientDo]) -> None:
        job, needs = event.job, NEEDS_ENV if event.env else NEEDS_BLOBS
        record = self._records.get(job)
        if record is None or not record.is_unanswered_by(conn.leader.no):
            return
        if conn.takes(needs):  # Its welcome was slow, and came in between.
            conn.submit(job, record.frame)
            return
        if record.is_cancelled or record.only:
            self.refused(conn, job, event.code, event.text, now, do)
            return
        record.needs |= needs
        self._jobs.unsent.unfit[record.needs] = event.code, event.text
        self._jobs.find_place(job, record, now)
        conn.probing.discard(job)

    def written(self, conn: LeaderConnection) -> None:
        """It has what it was given. What waited for that is sent, unless it is over or with another leader by now."""
        conn.unwritten_bytes = 0
        conn.tells = False
        later, conn.later = conn.later, {}
        for job in later:
            record = self._records.get(job)
            if record is not None and record.is_unanswered_by(conn.leader.no):
                conn.submit(job, record.frame)

    def serves(self, conn: LeaderConnection, now: float) -> None:
        """What this leader may have is asked for; to an old one that cannot be said, so the job is sent again."""
        leader = conn.leader
        for job, record in self._records.items():
            if type(record.at) is Stranded and record.at.leader == leader.no:
                self._jobs.give(job, record, leader)
                if conn.own:
                    conn.claims.append(job)
                else:
                    conn.submit(job, record.frame)
            elif conn.own and leader.no in record.may:
                self._claim_beside(job, record, conn)
            elif conn.takes_finds and record.given and record.at.leader != leader.no and len(self._rows) > 1:
                self._search_at(conn, job, record, now)
        self._search.news = True

    def _claim_beside(self, job: JobId, record: UnfinishedJob, conn: LeaderConnection) -> None:
        """Others have it, or nobody; this one may have it as well, and its result already."""
        if record.at.leader == conn.leader.no or job in conn.claimed or record.only not in {ANY_LEADER, conn.leader.no}:
            return
        if record.at is UNSENT or record.at is SEARCHED:
            self._search.jobs.pop(job, None)
            self._jobs.give(job, record, conn.leader)
        else:
            conn.claimed.add(job)
            if record.is_cancelled:
                self._leaders.call_off(job, [conn.leader.no])
            else:
                conn.leader.cancels.pop(job, None)
        conn.claims.append(job)

    # The search for jobs of an earlier life.

    def found(self, conn: LeaderConnection, fate: Fate, jobs: Sequence[JobId], now: float) -> None:
        """A leader says which jobs it knows: that is where they belong, if they are with nobody yet."""
        some_come = self._search.some_come(now)
        for job in jobs:
            record = self._records.get(job)
            if conn.sought.pop(job, None) is None or record is None:
                continue
            if fate == "failed":
                record.first = conn.leader.no
            if record.at is not SEARCHED:
                if fate == "known" and record.at.leader != conn.leader.no:
                    # It was late, and others have the job as well: the first result counts.
                    record.add_may(conn.leader.no)
                    self._claim_beside(job, record, conn)
            elif fate == "known":
                self._search.jobs.pop(job)
                self._jobs.send(job, record, conn)
            elif not some_come and self._search.is_settled(job):
                self._found_nowhere(job, record)
        self._search.look(conn, now)

    def settle(self, now: float) -> None:
        """There is news of the search: a leader came, went, or has had its time."""
        for conn in self._search.late_no_more(now):
            self.search_missed(conn, now)
        for job in self._search.settled(now):
            self._found_nowhere(job, self._records[job])

    def search_missed(self, conn: LeaderConnection, now: float) -> None:
        """It was late, or alone, and may know jobs that nobody was sent since."""
        for job, record in self._records.items():
            if record.given and (record.at is UNSENT or record.at is SEARCHED):
                self._search_at(conn, job, record, now)

    def _search_at(self, conn: LeaderConnection, job: JobId, record: UnfinishedJob, now: float) -> None:
        """It serves from now on, and may know this job from an earlier life."""
        if record.is_cancelled or record.only:
            return
        self._search.ask(conn, job, now)
        if record.at is UNSENT and not record.needs:
            record.at = SEARCHED
            self._search.jobs[job] = None

    def _found_nowhere(self, job: JobId, record: UnfinishedJob) -> None:
        """Nobody who can be reached knows it: it is new."""
        self._search.jobs.pop(job)
        record.at = UNSENT
        self._jobs.unsent.add(job, record)
