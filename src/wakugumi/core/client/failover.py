"""How is each of a client's jobs answered exactly once, however its leaders connect and disconnect? (SPEC K1–K6)

    Failover ──► UnfinishedJobs (`jobs`): which job is with which leader; its stages are in `stages`
       │         LeaderReplies (`replies`): a leader's answers about jobs
       ├───────► OpenClaims (`claims`): jobs of other clients   JobSearch (`job_search`): jobs of an earlier life
       ├───────► OpenQuestions (`questions`)
       └───────► Leaders (`leaders`): which leaders serve, and how many jobs each may get

This file dispatches events to these parts. The two most frequent events, a submit and a result, are handled in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from wakugumi.core.client import events as ev
from wakugumi.core.client.claims import OpenClaims
from wakugumi.core.client.events import ClientDo, ClientEvent, ClientStep, LeaderNo, ResultReceived, Submit
from wakugumi.core.client.jobs import UnfinishedJobs
from wakugumi.core.client.leader_row import KnownLeader, LeaderConnection, LeaderRow, gather, note_accepted
from wakugumi.core.client.leaders import Choice, Leaders
from wakugumi.core.client.questions import OpenQuestions
from wakugumi.core.client.replies import LeaderReplies
from wakugumi.core.client.stages import SEARCHED, UNSENT, Sent, UnfinishedJob
from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.step import Step
from wakugumi.limits.client import ADOPT_GRACE_S, UNFINISHED_PER_CLIENT_MAX
from wakugumi.limits.leader import CLIENT_CAP_DEFAULT
from wakugumi.limits.wire import GIVEN_BYTES_MAX

_FROM_LEADER: Final = (
    ev.Receipts,
    ev.HeartbeatReceived,
    ev.LeaderBlocked,
    ev.LeaderWritten,
    ev.JobsFound,
    ev.JobRefused,
    ev.Unfit,
    ev.FilesWanted,
    ev.QuestionAnswered,
    ev.Welcomed,
    ev.HelloRefused,
)
"""Events of a connection. A tuple made once: `|` makes a type anew each time."""


class Failover:
    """The client's state machine. `chance` gives numbers in [0, 1) for jitter.

    An `embedded` leader is our own child: its Welcome may take long on a busy machine, and neither side needs
    heartbeats, because its end is always noticed and either side may be suspended for a while. With `old_leader`, a
    leader that never sends a Welcome speaks the nine old types; otherwise it gets no job.
    """

    def __init__(
        self,
        chance: Callable[[], float],
        *,
        leaders: Iterable[LeaderNo] = (LeaderNo(1),),
        names: Iterable[str] = (),
        cap: int = CLIENT_CAP_DEFAULT,
        choice: Choice = "least",
        grace_s: float = ADOPT_GRACE_S,
        unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
        embedded: bool = False,
        old_leader: bool = False,
    ) -> None:
        self._unfinished_max = unfinished_max
        self._leaders = Leaders(
            chance, leaders, names, cap=cap, choice=choice, grace_s=grace_s, embedded=embedded, old_leader=old_leader
        )
        self._rows = self._leaders.rows
        self._conns = self._leaders.conns
        self._unfinished = UnfinishedJobs(self._leaders)
        self._jobs = self._unfinished.records
        self._search = self._unfinished.search
        self._replies = LeaderReplies(self._leaders, self._unfinished)
        self._claims = OpenClaims(self._leaders)
        self._questions = OpenQuestions(self._leaders)
        self._removed: set[LeaderNo] = set()
        """Removed leaders that still have jobs."""
        self._gate = False

    def handle(self, events: Sequence[ClientEvent], now: float) -> ClientStep:
        do: list[ClientDo] = []
        results: list[ResultReceived] = []
        jobs, conns = self._jobs, self._conns
        takers = self._leaders.find_takers()
        several = len(self._rows) > 1
        for event in events:
            # The two most frequent events are written out: a call each would be a tenth of the client's time.
            if type(event) is ResultReceived:
                conn = conns.get(event.conn)
                if conn is None:
                    continue
                conn.received_at = now
                if conn.own:
                    conn.confirms.append(event.job)
                elif not conn.proven:
                    self._leaders.prove(conn)
                    takers = self._leaders.find_takers()
                record = jobs.pop(event.job, None)
                if record is not None:
                    leader, at = conn.leader, record.at
                    if record.may_have or conn.later or type(at) is not Sent or at.leader != leader.no or at.doubted:
                        if not self._unfinished.is_answer(event.job, record, conn):
                            jobs[event.job] = record
                            continue
                        self._unfinished.ended(event.job, record, leader.no)
                    else:
                        leader.in_flight -= 1
                    results.append(event)
                    if conn.full:
                        note_accepted(conn, event.job)
                elif self._claims.answered(event.job, conn):
                    results.append(event)
            elif type(event) is Submit and not event.only:
                assert event.job not in jobs
                if several and event.given and self._search.begin(event.job, now):
                    jobs[event.job] = UnfinishedJob(event.frame, SEARCHED, given=True)
                    continue
                given = event.job if event.given else None
                taker = takers[0] if len(takers) == 1 else self._leaders.choose(given=given)
                if taker is None:
                    jobs[event.job] = record = UnfinishedJob(event.frame, UNSENT, given=event.given)
                    self._unfinished.unsent.add(event.job, record)
                else:
                    conn = taker.conn
                    assert conn is not None
                    jobs[event.job] = record = UnfinishedJob(event.frame, taker.sent, given=event.given)
                    conn.frames.append(event.frame)
                    conn.unwritten_bytes += len(event.frame)
                    taker.in_flight += 1
                    if event.job in taker.cancels:
                        del taker.cancels[event.job]
                        record.at = Sent(taker.no, doubted=conn.own)
                    if taker.on_trial or conn.unwritten_bytes >= GIVEN_BYTES_MAX:
                        takers.remove(taker)
            else:
                # Effects gathered so far go first: a job is sent before its cancel.
                results = gather(conns, results, do)
                self._handle_rare(event, now, do)
                takers = self._leaders.find_takers()
                several = len(self._rows) > 1
        self._finish_step(results, now, do)
        return Step(do=do)

    def tick(self, now: float) -> ClientStep:
        do: list[ClientDo] = []
        self._leaders.dial(now, do)
        for conn in list(self._conns.values()):
            why = self._leaders.greeted(conn, now)
            if why == "":
                self._ready(conn, now, do)
            if why or (why := self._leaders.check_alive(conn, now, do)):
                # A silent old leader has had its time: its jobs do not wait for the grace.
                self._hang_up(conn, why, now, do, awaited=conn.own)
        for leader in self._rows.values():
            if leader.has_stranded and not self._leaders.is_awaited(leader, now):
                self._unfinished.grace_over(leader, now)
                self._claims.judge(now, do)
        self._search.news = True
        self._finish_step([], now, do)
        return Step(do=do)

    def wake_at(self) -> float | None:
        leaders = self._leaders.wake_at()
        search = self._search.wake_at() if self._search.jobs else None
        return leaders if search is None else search if leaders is None else min(leaders, search)

    @property
    def records(self) -> Mapping[JobId, UnfinishedJob]:
        return self._jobs

    @property
    def conns(self) -> Mapping[ConnId, LeaderConnection]:
        return self._conns

    @property
    def unfinished(self) -> int:
        return len(self._jobs) + len(self._claims.open)

    def states(self) -> list[KnownLeader]:
        return self._leaders.states()

    def check(self) -> None:
        self._leaders.check()
        self._unfinished.check()
        self._claims.check()
        assert self.unfinished <= self._unfinished_max
        assert not self._jobs.keys() & self._claims.open.keys()
        assert self._removed == {leader.no for leader in self._rows.values() if leader.removed}
        for conn in self._conns.values():
            for job in conn.claimed - self._claims.open.keys():
                record = self._jobs[job]
                assert record.at.leader != conn.leader.no
                assert conn.leader.no in record.may_have
            assert conn.own or not conn.claimed
        assert self._gate == bool(self._leaders.takers)

    def _finish_step(self, results: list[ResultReceived], now: float, do: list[ClientDo]) -> None:
        self._unfinished.give_up_unplaced(do)
        if self._claims.news:
            self._claims.news = False
            self._claims.judge(now, do)
        if self._search.news:
            self._replies.settle(now)
        self._unfinished.send_unsent(do)
        if self._unfinished.unsent.by_need:
            self._unfinished.judge_needs(now, do)
        gather(self._conns, results, do)
        if len(self._rows) > 1:
            self._leaders.watch_trials(now)
        if self._removed:
            for no in list(self._removed):
                if not self._has_work(self._rows[no]):
                    self._part(self._rows[no], now, do)
            self._unfinished.give_up_unplaced(do)
            self._unfinished.send_unsent(do)
            gather(self._conns, [], do)
        may = bool(self._leaders.find_takers())
        if may != self._gate:
            self._gate = may
            do.append(ev.SubmitGate(may))

    # Events of the user.

    def _handle_rare(self, event: ClientEvent, now: float, do: list[ClientDo]) -> None:
        match event:
            case ev.ClaimJob(job, only):
                assert job not in self._jobs
                self._claims.add(job, only)
            case Submit(job, frame, no):
                self._unfinished.submit_to(job, frame, no, do)
            case ev.Cancel(jobs):
                for job in jobs:
                    (self._claims if job in self._claims.open else self._unfinished).cancel(job, do)
            case ev.Ask():
                self._questions.add(event, do)
            case ev.Forget(forgotten):
                self._questions.forget(forgotten)
                if JobId(forgotten) in self._claims.open:
                    self._claims.end(JobId(forgotten))
            case ev.Connected(conn_id, secured):
                self._leaders.connected(conn_id, now, do, secured=secured)
            case ev.Disconnected(conn_id, why):
                self._lost(conn_id, why, now, do)
            case ev.LeaderAdded(no, name):
                self._add(no, name, now, do)
            case ev.LeaderRemoved(no):
                self._remove(no, now, do)
            case _:
                self._handle_from(event, now, do)

    def _add(self, no: LeaderNo, name: str, now: float, do: list[ClientDo]) -> None:
        if len(self._rows) == 1 and no not in self._rows:  # The only leader got all jobs without a search.
            for conn in self._conns.values():
                if conn.ready and conn.takes_finds:
                    self._replies.search_missed(conn, now)
        self._leaders.add(no, now, name)
        self._removed.discard(no)
        self._leaders.divide(do)

    def _remove(self, no: LeaderNo, now: float, do: list[ClientDo]) -> None:
        leader = self._rows.get(no)
        if leader is None:
            return
        leader.removed = True
        self._removed.add(no)
        self._leaders.divide(do)
        if not leader.serves:
            self._part(leader, now, do)

    # Events of connections.

    def _handle_from(self, event: ClientEvent, now: float, do: list[ClientDo]) -> None:
        """Events of a closed connection are ignored."""
        assert isinstance(event, _FROM_LEADER)
        conn = self._conns.get(event.conn)
        if conn is None:
            return
        if isinstance(event, ev.LeaderBlocked):
            conn.blocked = event.on
            return
        if isinstance(event, ev.LeaderWritten):
            self._replies.written(conn)
            return
        conn.received_at = now
        match event:
            case ev.Welcomed() if not conn.own:
                conn.own = True
                conn.takes_cap = event.takes_cap
                conn.takes_blobs = event.takes_blobs
                conn.takes_env = event.takes_env
                conn.takes_finds = event.finds
                self._ready(conn, now, do)
            case ev.Receipts(jobs=jobs):
                do.append(ev.Accepted(jobs))
                self._replies.accepted(conn, jobs)
            case ev.JobsFound(fate=fate, jobs=jobs):
                self._replies.found(conn, fate, jobs, now)
            case ev.JobRefused(job=job, code=code, text=text):
                if job in self._claims.open:
                    self._claims.refused(conn, job, code, text)
                else:
                    self._replies.refused(conn, job, code, text, now, do)
            case ev.Unfit():
                self._replies.does_not_fit(conn, event, now, do)
            case ev.FilesWanted(job=job) if conn.full:
                note_accepted(conn, job)  # The leader has room. Other jobs need not wait for these files.
            case ev.HelloRefused(code=code, text=text):
                self._refused(conn, code, text, now, do)
            case ev.QuestionAnswered():
                self._questions.answered(event, do)
            case _:
                pass

    def _ready(self, conn: LeaderConnection, now: float, do: list[ClientDo]) -> None:
        """The leader serves from now on."""
        leader = conn.leader
        self._leaders.ready(conn, now, do)
        leader.has_stranded = False
        if conn.own:
            if cancels := [job for job in leader.cancels if not self._is_wanted_from(leader, job)]:
                do.append(ev.SendCancels(conn.id, cancels))
            # An id that is in use again must not be confirmed for its earlier job.
            if confirmed := [job for job in leader.confirmed if not self._is_wanted_from(leader, job)]:
                do.append(ev.SendConfirms(conn.id, confirmed))
        self._replies.serves(conn, now)
        if conn.own:
            self._claims.ask(conn)
        self._questions.send(do)
        self._claims.judge(now, do)

    def _is_wanted_from(self, leader: LeaderRow, job: JobId) -> bool:
        """May a job that was cancelled at this leader be wanted from it again?"""
        return job in self._claims.open or self._unfinished.is_wanted_from(leader, job)

    # Lost connections.

    def _refused(self, conn: LeaderConnection, code: str, text: str, now: float, do: list[ClientDo]) -> None:
        """The leader closes the connection. Its jobs do not wait for it."""
        conn.leader.refused = True
        if self._leaders.all_refuse:
            do.append(ev.AllRefused(code, text))
        self._lost(conn.id, text, now, do, awaited=False)

    def _hang_up(self, conn: LeaderConnection, why: str, now: float, do: list[ClientDo], *, awaited: bool) -> None:
        do.append(ev.HangUp(conn.id, why))
        self._lost(conn.id, why, now, do, awaited=awaited)

    def _lost(self, conn_id: ConnId, why: str, now: float, do: list[ClientDo], *, awaited: bool = True) -> None:
        away: list[ClientDo] = []
        lost = self._leaders.lost(conn_id, why, now, away)
        if lost is None:
            return
        leader, conn = lost
        if conn is not None and conn.ready:
            if not awaited or leader.removed:
                leader.lost_at = -math.inf
            self._unfinished.strand(conn, now, do)
        do += away
        if leader.removed:
            self._part(leader, now, do)
        else:
            self._no_answer_from(leader, now, do)

    def _has_work(self, leader: LeaderRow) -> bool:
        """Does the leader have a job that we wait for, or an open claim?"""
        if leader.in_flight or leader.conn is None:
            return bool(leader.in_flight)
        return not leader.conn.claimed.isdisjoint(self._claims.open)

    def _part(self, leader: LeaderRow, now: float, do: list[ClientDo]) -> None:
        """The leader has none of our jobs any more, or is not connected: remove it for good."""
        conn = leader.conn
        self._removed.discard(leader.no)
        self._leaders.drop(leader)
        do.append(ev.Parted(leader.no, conn.id if conn is not None else leader.dialling or ConnId(0)))
        self._unfinished.part_from(leader, now)
        self._no_answer_from(leader, now, do)

    def _no_answer_from(self, leader: LeaderRow, now: float, do: list[ClientDo]) -> None:
        """Open questions, claims and searches at this leader go to others, or end."""
        self._search.news = True
        self._questions.lost(leader.no, do)
        self._claims.judge(now, do)
