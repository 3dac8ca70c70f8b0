"""Which of a client's jobs is with which leader, and where does it go when that one does not have it any more?

A sent job stays with its leader while the connection lives. After the grace another leader adopts it, with the same id
and the same bytes: a leader attaches a job that it knows and answers one that it has finished. A lost connection costs
only time, a lost leader at worst a second run. `may_have` lists other leaders that may have a job: each gets a claim
when it is back, and all but the one with the first result get a cancel.
"""

from __future__ import annotations

from collections import deque

import msgspec

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientDo, LeaderNo
from wakugumi.core.client.job_search import JobSearch
from wakugumi.core.client.leader_row import LeaderConnection, LeaderRow
from wakugumi.core.client.leaders import Leaders
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, Stranded, UnfinishedJob
from wakugumi.core.client.unsent import UnsentQueues
from wakugumi.core.ids import JobId


class UnfinishedJobs:
    """Jobs submitted by this client. `leaders` knows the state of each leader and how many jobs it may get."""

    def __init__(self, leaders: Leaders) -> None:
        self.records: dict[JobId, UnfinishedJob] = {}
        self.unsent = UnsentQueues(self.records)
        self.search = JobSearch(leaders)
        self._leaders = leaders
        self._rows = leaders.rows
        self._conns = leaders.conns
        self._unplaced: list[JobId] = []
        """Jobs in this step whose only leader does not take them."""

    # A job is given to a leader.

    def submit_to(self, job: JobId, frame: bytes, no: LeaderNo, do: list[ClientDo]) -> None:
        """Submit a job that no other leader may get."""
        assert job not in self.records
        leader = self._rows.get(no)
        if leader is None or leader.line is None or leader.removed:
            do.append(ev.GiveUp(job, "no-leader", "the leader that it was meant for does not serve"))
            return
        self.records[job] = record = UnfinishedJob(frame, only=no)
        self.send(job, record, leader.line)

    def send(self, job: JobId, record: UnfinishedJob, conn: LeaderConnection) -> None:
        leader = conn.leader
        self.give(job, record, leader)
        conn.submit(job, record.frame)
        if record.may_have and leader.no not in record.may_have:
            leader.adopted += 1

    def give(self, job: JobId, record: UnfinishedJob, leader: LeaderRow) -> None:
        """The job is with this leader from now on."""
        leader.in_flight += 1
        if job in leader.cancels:
            del leader.cancels[job]
            record.at = Sent(leader.no, doubted=leader.line is not None)
        else:
            record.at = leader.sent

    def send_unsent(self, do: list[ClientDo]) -> None:
        probed = self._leaders.to_probe()
        queues = self.unsent
        if not (queues.without_need or queues.by_need or probed):
            return
        takers = self._leaders.find_takers()
        takers += [conn.leader for conn in probed]
        takers.sort(key=lambda leader: leader.no)
        for needs, queue in queues.by_need.items():
            self._send_queue(queue, takers, needs)
        self._send_queue(queues.without_need, takers, 0)
        for conn in probed:
            if not conn.probing:
                self._leaders.full_over(conn, do)

    def _send_queue(self, queue: deque[JobId], takers: list[LeaderRow], needs: int) -> None:
        while (record := self.unsent.head(queue, needs)) is not None:
            leader = self._leaders.choose(needs, queue[0] if record.given else None, record.first)
            if leader is None:
                break
            conn = leader.conn
            assert conn is not None
            job = queue.popleft()
            self.send(job, record, conn)
            if conn.full:
                conn.probing.add(job)
            has_enough = conn.is_written_to or (conn.full and len(conn.probing) == conn.probes)
            if (leader.on_trial or has_enough) and leader in takers:
                takers.remove(leader)

    def judge_needs(self, now: float, do: list[ClientDo]) -> None:
        """Give up jobs that no leader takes, once no other leader is expected: a lost one has its grace."""
        is_expected = self._leaders.expects_leader(now)
        conns = [leader.conn for leader in self._rows.values() if leader.conn is not None and not leader.removed]
        for needs, queue in list(self.unsent.by_need.items()):
            if not (is_expected or any(conn.takes(needs) for conn in conns)):
                while (record := self.unsent.head(queue, needs)) is not None:
                    job = queue.popleft()
                    self._leaders.call_off(job, record.may_have)
                    self.give_up(job, *self.unsent.unfit[needs], do)
            if not queue:
                del self.unsent.by_need[needs]

    # A job is not with its leader any more.

    def find_place(self, job: JobId, record: UnfinishedJob, now: float, denied: LeaderConnection | None = None) -> None:
        """The job has no leader now: another one may have it as well, or may be back with it in time.

        A leader that `denied` to know the job gets it again, if it takes jobs: it may still read what was sent over the
        connection before this one, and then two leaders would run the job.
        """
        rows = self._rows
        if (home := rows.get(record.at.leader)) is not None and home.serves:
            home.in_flight -= 1
        for no in record.may_have:
            conn = rows[no].conn
            if conn is not None and job in conn.claimed:
                conn.claimed.remove(job)
                self.give(job, record, rows[no])
                return
        for no in record.may_have:
            if not rows[no].serves and self._leaders.is_awaited(rows[no], now):
                record.at = Stranded(no)
                rows[no].has_stranded = True
                return
        record.at = UNSENT
        if record.only:
            self._unplaced.append(job)
        elif record.given and not (record.needs or self.search.is_settled(job)):
            record.at = SEARCHED  # A leader that connected meanwhile was asked, and has not answered yet.
            self.search.jobs[job] = None
        elif denied is not None and denied.leader in self._leaders.find_takers() and not record.needs:
            self.send(job, record, denied)
        else:
            self.unsent.add(job, record)

    def strand(self, lost: LeaderConnection, now: float, do: list[ClientDo]) -> None:
        """Jobs of this lost connection wait for its leader, or for another one that has them as well."""
        leader = lost.leader
        for job, record in list(self.records.items()):
            if record.at.leader == leader.no:
                record.add_may_have(leader.no)
                if record.is_cancelled:
                    self._leaders.call_off(job, record.may_have)
                    self.give_up(job, "cancelled", "it was cancelled, and its connection was lost", do)
                else:
                    self.find_place(job, record, now)
            elif record.is_cancelled and job in lost.claimed:
                leader.remember_cancel(job)

    def grace_over(self, leader: LeaderRow, now: float) -> None:
        """Jobs that wait for this leader go to the first that serves (SPEC K5)."""
        leader.has_stranded = False
        for job, record in self.records.items():
            if type(record.at) is Stranded and record.at.leader == leader.no:
                self.find_place(job, record, now)

    def part_from(self, leader: LeaderRow, now: float) -> None:
        """The leader is removed."""
        for job, record in self.records.items():
            if leader.no in record.may_have:
                record.drop_may_have(leader.no)
            if record.at.leader == leader.no:
                self.find_place(job, record, now)

    def give_up_unplaced(self, do: list[ClientDo]) -> None:
        while self._unplaced:
            job = self._unplaced.pop()
            if job in self.records:
                self.give_up(job, "no-leader", "the leader that it was meant for does not take it", do)

    # A job ends.

    def cancel(self, job: JobId, do: list[ClientDo]) -> None:
        record = self.records.get(job)
        if record is None or record.is_cancelled:
            return
        home = self._rows.get(record.at.leader)
        waits = home is not None and home.conn is not None and job in home.conn.later
        if home is not None and type(record.at) is Sent and not waits:
            self._leaders.call_off(job, [no for no in record.may_have if no != home.no])
            if (line := home.line) is not None:
                record.cancel()
                line.cancels.append(job)
            else:  # The peer may be a leader of our own whose Welcome was slow.
                self._leaders.call_off(job, [home.no])
                self.give_up(job, "cancelled", "it was cancelled here; an old leader cannot be told", do)
        else:
            # A leader may have the job from a connection before this one, or from an earlier life.
            self._leaders.call_off(job, self._rows)
            self.give_up(job, "cancelled", "it was cancelled before it was sent", do)

    def is_answer(self, job: JobId, record: UnfinishedJob, conn: LeaderConnection) -> bool:
        """Is a result from this leader the awaited one? It may belong to an earlier run under the same id: if the
        leader has nothing to do with this run, or got a cancel of the earlier run. Then a claim follows."""
        no = conn.leader.no
        at = record.at
        if at.leader != no:
            return no in record.may_have or job in conn.claimed
        if conn.own and job in conn.later:
            return False  # The leader does not have the request yet: the result may be of another one with the same id.
        if type(at) is Sent and at.doubted:
            record.at = msgspec.structs.replace(at, doubted=False)
            conn.claims.append(job)
            return False
        return True

    def ended(self, job: JobId, record: UnfinishedJob, by: LeaderNo) -> None:
        """A result arrived, not from the only leader that may have the job: cancel it at the others."""
        self._leave(job, record)
        for no in {record.at.leader, *record.may_have} - {by, ANY_LEADER}:
            self._leaders.call_off(job, [no])
            leader = self._rows[no]
            if (line := leader.line) is not None:
                line.confirms.append(job)
            else:
                leader.confirmed.append(job)

    def give_up(self, job: JobId, code: str, text: str, do: list[ClientDo]) -> None:
        self._leave(job, self.records[job])
        do.append(ev.GiveUp(job, code, text))

    def _leave(self, job: JobId, record: UnfinishedJob) -> None:
        """Remove the job from all places."""
        self.records.pop(job, None)
        self.unsent.drop_stale_names()
        if record.given:
            self.search.over(job)
        home = self._rows.get(record.at.leader)
        if home is not None and home.serves:
            home.in_flight -= 1
        for conn in self._conns.values():
            conn.claimed.discard(job)
            conn.probing.discard(job)  # Otherwise a full leader would never finish its probe.

    # For its neighbours and tests.

    def is_wanted_from(self, leader: LeaderRow, job: JobId) -> bool:
        """May a job that was cancelled at this leader be wanted from it again?"""
        record = self.records.get(job)
        return record is not None and (record.at.leader in {ANY_LEADER, leader.no} or leader.no in record.may_have)

    def check(self) -> None:
        self.search.check()
        self.unsent.check()
        in_flight = dict.fromkeys(self._rows, 0)
        searched = 0
        for job, record in self.records.items():
            assert all(no in self._rows for no in record.may_have)
            assert len(set(record.may_have)) == len(record.may_have)
            match record.at:
                case Sent(no):
                    assert self._rows[no].serves
                    assert job not in self._rows[no].cancels
                    in_flight[no] += 1
                case Stranded(no):
                    assert self._rows[no].has_stranded
                    assert no in record.may_have
                case _ if record.at is SEARCHED:
                    assert record.given
                    assert not record.needs
                    assert job in self.search.jobs
                    searched += 1
        assert in_flight == {leader.no: leader.in_flight for leader in self._rows.values()}
        assert len(self.search.jobs) == searched
        for conn in self._conns.values():
            assert all(self.records[job].at.leader == conn.leader.no for job in conn.probing)
        if self._leaders.takers:
            assert not any(record.at is UNSENT and not record.needs for record in self.records.values())
