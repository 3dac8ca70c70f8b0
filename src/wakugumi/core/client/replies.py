"""How do a client's jobs go on when a leader answers about them, or serves again?

A leader accepts a job, refuses it, cannot take its files or variables, knows it from an earlier life, or does not.
Results are handled in `failover`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientDo
from wakugumi.core.client.jobs import UnfinishedJobs
from wakugumi.core.client.leader_row import NEEDS_BLOBS, NEEDS_ENV, LeaderConnection, note_accepted
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, Stranded, UnfinishedJob
from wakugumi.core.ids import Fate, JobId

_NOT_NOW: Final = frozenset({"full", "disk-full", "stopping"})
"""Refusals that are not about the job: it is offered to others, and here again."""


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
                    # The leader had the job all the time, and the one that adopted it is gone.
                    conn.claimed.remove(job)
                    self._jobs.give(job, record, conn.leader)
                    record.accept()
            if conn.full:
                note_accepted(conn, job)

    def refused(self, conn: LeaderConnection, job: JobId, code: str, text: str, now: float, do: list[ClientDo]) -> None:
        record = self._records.get(job)
        leader = conn.leader
        if record is None:
            return
        if job in conn.claimed:
            conn.claimed.remove(job)
            record.drop_may_have(leader.no)
            return
        at = record.at
        if type(at) is not Sent or at.leader != leader.no:
            return
        if at.cancelled:
            self._leaders.call_off(job, [no for no in record.may_have if no != leader.no])
            self._jobs.give_up(job, "cancelled", "it was cancelled before the leader took it", do)
        elif code == "unknown-job" and leader.no in record.may_have:
            record.drop_may_have(leader.no)
            record.first = leader.no
            if record.only:
                conn.submit(job, record.frame)
            else:
                self._jobs.find_place(job, record, now, conn)
        elif code == "unknown-job":
            return  # About a claim before the submit, which is in flight and gets its own answer.
        elif code not in _NOT_NOW or record.only:
            self._leaders.call_off(job, [no for no in record.may_have if no != leader.no])
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
        if conn.takes(needs):  # A slow Welcome arrived in between.
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
        """Earlier frames are written. Send waiting jobs, unless they have ended or are with another leader by now."""
        conn.unwritten_bytes = 0
        conn.awaits_written = False
        later, conn.later = conn.later, {}
        for job in later:
            record = self._records.get(job)
            if record is not None and record.is_unanswered_by(conn.leader.no):
                conn.submit(job, record.frame)

    def serves(self, conn: LeaderConnection, now: float) -> None:
        """Claim the jobs that this leader may have; an old leader knows no claims and gets the job again."""
        leader = conn.leader
        for job, record in self._records.items():
            if type(record.at) is Stranded and record.at.leader == leader.no:
                self._jobs.give(job, record, leader)
                if conn.own:
                    conn.claims.append(job)
                else:
                    conn.submit(job, record.frame)
            elif conn.own and leader.no in record.may_have:
                self._claim_beside(job, record, conn)
            elif conn.takes_finds and record.given and record.at.leader != leader.no and len(self._rows) > 1:
                self._search_at(conn, job, record, now)
        self._search.news = True

    def _claim_beside(self, job: JobId, record: UnfinishedJob, conn: LeaderConnection) -> None:
        """Claim a job of other leaders, or of none: this leader may have it as well, or its result already."""
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
        """A leader answers which jobs it knows: it gets those that are with no leader yet."""
        is_expected = self._search.expects_leader(now)
        for job in jobs:
            record = self._records.get(job)
            if conn.open_finds.pop(job, None) is None or record is None:
                continue
            if fate == "failed":
                record.first = conn.leader.no
            if record.at is not SEARCHED:
                if fate == "known" and record.at.leader != conn.leader.no:
                    # The answer was late, and another leader has the job as well: the first result counts.
                    record.add_may_have(conn.leader.no)
                    self._claim_beside(job, record, conn)
            elif fate == "known":
                self._search.jobs.pop(job)
                self._jobs.send(job, record, conn)
            elif not is_expected and self._search.is_settled(job):
                self._found_nowhere(job, record)
        self._search.update_late(conn, now)

    def settle(self, now: float) -> None:
        """A leader connected, disconnected or ran out of time: more searches may be over."""
        for conn in self._search.caught_up(now):
            self.search_missed(conn, now)
        for job in self._search.settled(now):
            self._found_nowhere(job, self._records[job])

    def search_missed(self, conn: LeaderConnection, now: float) -> None:
        """The leader was late, or alone, and may know jobs that are still unsent."""
        for job, record in self._records.items():
            if record.given and (record.at is UNSENT or record.at is SEARCHED):
                self._search_at(conn, job, record, now)

    def _search_at(self, conn: LeaderConnection, job: JobId, record: UnfinishedJob, now: float) -> None:
        """The leader serves from now on, and may know this job from an earlier life."""
        if record.is_cancelled or record.only:
            return
        self._search.ask(conn, job, now)
        if record.at is UNSENT and not record.needs:
            record.at = SEARCHED
            self._search.jobs[job] = None

    def _found_nowhere(self, job: JobId, record: UnfinishedJob) -> None:
        """No leader that can be reached knows the job: it is new."""
        self._search.jobs.pop(job)
        record.at = UNSENT
        self._jobs.unsent.add(job, record)
