"""Which of a client's jobs is with which leader, so that each of them is answered exactly once? (SPEC K1–K6)

    SOUGHT ──► UNSENT ──► SENT ──► ACCEPTED ──► (gone: delivered or given up)
                 ▲ ▲        │          │
                 │ └────────┴──────────┤   the leader is full, or has forgotten it
                 │                     ▼
                 └─ the grace is ── STRANDED   its connection was lost: it waits for that leader, and is claimed there
                    over: adopted

What was sent stays where it is while its connection lives. After the grace others adopt it, under the same id and as
the same bytes: a leader attaches a job that it knows and answers one that it has finished. So losing a connection
costs time and nothing else, and losing a leader at worst a second run. `may` remembers who else may have a job: these
are claimed from when they come back, and whoever did not bring the first result is told to let it go.

A job that an earlier life of the client may have submitted is sought before it is sent, where there are several
leaders: see `seeking`. How each leader is, and how many jobs it may get, is the business of `leaders`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientDo, ClientEvent, ClientStep, LeaderNo, ResultCame, Submit
from wakugumi.core.client.job_search import JobSearch
from wakugumi.core.client.leader_row import NEEDS_BLOBS, NEEDS_ENV, LeaderConnection, LeaderRow, taken
from wakugumi.core.client.leaders import Choice, Leaders
from wakugumi.core.ids import ConnId, Fate, JobId
from wakugumi.core.step import Step
from wakugumi.limits.client import ADOPT_GRACE_S, UNFINISHED_PER_CLIENT_MAX
from wakugumi.limits.leader import CLIENT_CAP_DEFAULT
from wakugumi.limits.wire import GIVEN_BYTES_MAX


class Stage(IntEnum):
    UNSENT = 0
    STRANDED = 1
    """The leader that has it is away, and may be back in time."""
    SENT = 2
    ACCEPTED = 3
    ASKED = 4
    """A job of someone else: every leader is asked for it."""
    SOUGHT = 5
    """Its id was given: every leader is asked whether it knows it."""


class _Unfinished(msgspec.Struct, gc=False, eq=False):
    """A job whose end the user has not seen."""

    frame: bytes
    """Empty for a claim."""
    stage: Stage = Stage.UNSENT
    leader: LeaderNo = ANY_LEADER
    """Whom it is with, or waits for."""
    cancelled: bool = False
    may: tuple[LeaderNo, ...] = ()
    """Leaders that may have it from a connection that is gone. They are asked for it before it is sent there again,
    because they may have its result, and would run a job anew that failed and is submitted again (L6)."""
    only: LeaderNo = ANY_LEADER
    """The leader that it is meant for, if it is for no other."""
    doubted: bool = False
    """Its leader was told to let an earlier run of it go: the first result that comes may be of that one, also after
    the receipt, for a leader that does both in one step sends all receipts first."""
    needs: int = 0
    """It did not fit a leader: it is only for those that take blobs, variables, or both."""
    given: bool = False
    """Its id is the user's own: a leader may know it from an earlier life."""
    first: LeaderNo = ANY_LEADER
    """The leader that gets it before others: it had FAILED there, or a submit to that leader may still be under way."""


class _Question(msgspec.Struct, eq=False):
    frame: bytes
    wanted: LeaderNo
    asked: LeaderNo = ANY_LEADER


class KnownLeader(msgspec.Struct, frozen=True):
    """How a leader is, for people."""

    leader: LeaderNo
    share: int
    in_flight: int
    adopted: int
    removed: bool


_NOT_NOW: Final = frozenset({"full", "disk-full", "stopping"})
"""Refusals that say nothing about the job: it is offered to others, and here again."""

_UNSENT: Final = Stage.UNSENT
_STRANDED: Final = Stage.STRANDED
_SENT: Final = Stage.SENT
_ACCEPTED: Final = Stage.ACCEPTED
_ASKED: Final = Stage.ASKED
_SOUGHT: Final = Stage.SOUGHT

_FROM_LEADER: Final = (
    ev.Receipts,
    ev.Heard,
    ev.LeaderBlocked,
    ev.LeaderWritten,
    ev.JobsFound,
    ev.JobRefused,
    ev.Unfit,
    ev.FilesWanted,
    ev.QuestionAnswered,
    ev.Welcomed,
)
"""What a connection says. A tuple that is made once: `|` makes a type anew each time."""
_STALE_NAMES_MAX: Final = 64
"""Names of jobs that wait no more, beyond as many as there are jobs, before a queue is cleared of them."""


class Failover:
    """The client's state machine. `chance` gives numbers in [0, 1) for jitter.

    An `embedded` leader is our own child: it will say welcome, however long that takes on a busy machine; and neither
    side has to show signs of life, because its end is always noticed and either may well be suspended for a while. With
    `old_leader`, one that never says welcome is one of the nine types; else it gets no job.
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
        self._grace_s = grace_s
        self._leaders = Leaders(
            chance, leaders, names, cap=cap, choice=choice, embedded=embedded, old_leader=old_leader
        )
        self._seeking = JobSearch(self._leaders)
        self._rows = self._leaders.rows
        self._conns = self._leaders.conns
        self._jobs: dict[JobId, _Unfinished] = {}
        self._unsent: deque[JobId] = deque()
        """May also name jobs that are sent or gone by now: they are skipped when their turn comes."""
        self._picky: dict[int, deque[JobId]] = {}
        """The same, of those that only some leaders can take, by what they need: others need not wait behind them."""
        self._unfit: dict[int, tuple[str, str]] = {}
        """How the last leader that could not take one of them said so."""
        self._claims: dict[JobId, tuple[str, str] | None] = {}
        """Jobs of others, and how a leader last said that it does not know them."""
        self._asks: dict[bytes, _Question] = {}
        self._removed: set[LeaderNo] = set()
        """Leaders that are still waited for."""
        self._to_judge = False
        """Something was said in this step that may end a claim."""
        self._homeless: list[JobId] = []
        """In this step: meant for a leader that does not take them."""
        self._gate = False

    def handle(self, events: Sequence[ClientEvent], now: float) -> ClientStep:
        do: list[ClientDo] = []
        results: list[ResultCame] = []
        jobs, conns = self._jobs, self._conns
        takers = self._leaders.look()
        several = len(self._rows) > 1
        for event in events:
            # The two busiest stand here in full: a call each would be a tenth of the client's time.
            if type(event) is ResultCame:
                conn = conns.get(event.conn)
                if conn is None:
                    continue
                conn.heard_at = now
                if conn.own:
                    conn.confirms.append(event.job)
                elif not conn.proven:
                    self._leaders.prove(conn)
                    takers = self._leaders.look()
                record = jobs.pop(event.job, None)
                if record is not None:
                    if record.doubted or record.may or conn.later or record.leader != conn.leader.no:
                        if not self._is_answer(event.job, record, conn):
                            jobs[event.job] = record
                            continue
                        self._ended(event.job, record, conn.leader.no)
                    else:
                        conn.leader.in_flight -= 1
                    results.append(event)
                    if conn.full:
                        taken(conn, event.job)
            elif type(event) is Submit and not event.only:
                assert event.job not in jobs
                if several and event.given and self._seeking.begin(event.job, now):
                    jobs[event.job] = _Unfinished(event.frame, _SOUGHT, given=True)
                    continue
                given = event.job if event.given else None
                leader = takers[0] if len(takers) == 1 else self._leaders.choose(given=given)
                if leader is None:
                    jobs[event.job] = record = _Unfinished(event.frame, given=event.given)
                    self._queue(event.job, record)
                else:
                    conn = leader.conn
                    assert conn is not None
                    jobs[event.job] = record = _Unfinished(event.frame, _SENT, leader.no, given=event.given)
                    conn.frames.append(event.frame)
                    conn.unwritten_bytes += len(event.frame)
                    leader.in_flight += 1
                    if event.job in leader.cancels:
                        del leader.cancels[event.job]
                        record.doubted = conn.own
                    if leader.on_trial or conn.unwritten_bytes >= GIVEN_BYTES_MAX:
                        takers.remove(leader)
            else:
                # What was gathered so far comes first: a job is sent before its cancel.
                results = self._gathered(results, do)
                self._handle_rare(event, now, do)
                takers = self._leaders.look()
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
            if why or (why := self._leaders.look_after(conn, now, do)):
                # A leader that was ready and said nothing has had its time: what it has is not waited for any longer.
                self._hang_up(conn, why, now, do, awaited=conn.own)
        for leader in self._rows.values():
            if leader.has_stranded and not self._is_awaited(leader, now):
                self._grace_over(leader, now, do)
        self._seeking.news = True
        self._finish_step([], now, do)
        return Step(do=do)

    def wake_at(self) -> float | None:
        leaders = self._leaders.wake_at(self._grace_s)
        seeking = self._seeking.wake_at() if self._seeking.jobs else None
        return leaders if seeking is None else seeking if leaders is None else min(leaders, seeking)

    @property
    def unfinished(self) -> int:
        return len(self._jobs)

    def states(self) -> list[KnownLeader]:
        return [
            KnownLeader(leader.no, leader.share, leader.in_flight, leader.adopted, leader.removed)
            for leader in self._rows.values()
        ]

    def check(self) -> None:
        self._leaders.check()
        self._seeking.check()
        assert len(self._jobs) <= self._unfinished_max
        waiting = {needs: set(queue) for needs, queue in self._picky.items()} | {0: set(self._unsent)}
        in_flight = dict.fromkeys(self._rows, 0)
        for job, record in self._jobs.items():
            leader = self._rows.get(record.leader)
            assert all(no in self._rows for no in record.may)
            assert len(set(record.may)) == len(record.may)
            match record.stage:
                case Stage.UNSENT:
                    assert leader is None
                    assert not record.cancelled
                    assert job in waiting[record.needs]
                case Stage.SOUGHT:
                    assert leader is None
                    assert record.given
                    assert not record.cancelled
                    assert not record.needs
                    assert job in self._seeking.jobs
                case Stage.STRANDED:
                    assert leader is not None
                    assert not leader.serves
                    assert leader.has_stranded
                    assert leader.no in record.may
                    assert not record.cancelled
                case Stage.ASKED:
                    assert not record.frame
                    assert job in self._claims
                    assert not record.cancelled or any(job in conn.claimed for conn in self._conns.values())
                case _:
                    assert leader is not None
                    assert leader.serves
                    assert job not in leader.cancels
                    in_flight[leader.no] += 1
        assert in_flight == {leader.no: leader.in_flight for leader in self._rows.values()}
        assert len(self._seeking.jobs) == sum(record.stage is _SOUGHT for record in self._jobs.values())
        assert max(map(len, (self._unsent, *self._picky.values()))) <= 2 * len(self._jobs) + _STALE_NAMES_MAX
        assert set(self._claims) == {job for job, record in self._jobs.items() if record.stage is _ASKED}
        assert self._removed == {leader.no for leader in self._rows.values() if leader.removed}
        for conn in self._conns.values():
            assert all(self._jobs[job].leader == conn.leader.no for job in conn.probing)
            for job in conn.claimed:
                record = self._jobs[job]
                assert conn.own
                assert record.stage is _ASKED or (record.leader != conn.leader.no and conn.leader.no in record.may)
        assert self._gate == bool(self._leaders.takers)
        if self._gate:
            assert not any(record.stage is _UNSENT and not record.needs for record in self._jobs.values())

    # A step.

    def _gathered(self, results: list[ResultCame], do: list[ClientDo]) -> list[ResultCame]:
        """Ask for what this step has gathered; gives the list for the next results."""
        for conn in self._conns.values():
            # Frames that were gathered after a cancel may be of the same job, which is wanted again.
            if conn.cancels:
                do.append(ev.SendCancels(conn.id, conn.cancels))
                conn.cancels = []
            if conn.frames:
                do.append(ev.SendFrames(conn.id, conn.frames))
                conn.frames = []
                if conn.unwritten_bytes >= GIVEN_BYTES_MAX and not conn.tells:
                    conn.tells = True
                    do.append(ev.TellWhenLeaderWritten(conn.id))
            if conn.claims:
                do.append(ev.SendClaims(conn.id, conn.claims))
                conn.claims = []
            if conn.finds:
                do.append(ev.SendFinds(conn.id, conn.finds))
                conn.finds = []
        if results:
            do.append(ev.Deliver(results))
            results = []
        for conn in self._conns.values():
            if conn.confirms:
                do.append(ev.SendConfirms(conn.id, conn.confirms))
                conn.leader.confirmed.extend(conn.confirms)
                conn.confirms = []
        return results

    def _finish_step(self, results: list[ResultCame], now: float, do: list[ClientDo]) -> None:
        self._give_up_homeless(do)
        if self._to_judge:
            self._to_judge = False
            self._judge_claims(now, do)
        if self._seeking.news:
            for conn in self._seeking.late_no_more(now):
                self._seek_missed(conn, now)
            for job in self._seeking.settled(now):
                self._found_nowhere(job, self._jobs[job])
        self._send_unsent(do)
        if self._picky:
            self._judge_picky(now, do)
        self._gathered(results, do)
        if len(self._rows) > 1:
            self._leaders.watch_trials(now)
        if self._removed:
            for no in list(self._removed):
                if not self._has_work(self._rows[no]):
                    self._part(self._rows[no], now, do)
            self._give_up_homeless(do)
            self._send_unsent(do)
            self._gathered([], do)
        may = bool(self._leaders.look())
        if may != self._gate:
            self._gate = may
            do.append(ev.SubmitGate(may))

    def _give_up_homeless(self, do: list[ClientDo]) -> None:
        while self._homeless:
            job = self._homeless.pop()
            if job in self._jobs:
                self._give_up(job, "no-leader", "the leader that it was meant for does not take it", do)

    def _send_unsent(self, do: list[ClientDo]) -> None:
        probed = self._leaders.to_probe()
        if not (self._unsent or self._picky or probed):
            return
        takers = self._leaders.look()
        takers += [conn.leader for conn in probed]
        takers.sort(key=lambda leader: leader.no)
        for needs, queue in self._picky.items():
            self._send_queue(queue, takers, needs)
        self._send_queue(self._unsent, takers, 0)
        for conn in probed:
            if not conn.probing:
                self._leaders.full_over(conn, do)

    def _send_queue(self, queue: deque[JobId], takers: list[LeaderRow], needs: int) -> None:
        while queue:
            record = self._jobs.get(queue[0])
            if record is None or record.stage is not _UNSENT or record.needs != needs:
                queue.popleft()
                continue
            leader = self._leaders.choose(needs, queue[0] if record.given else None, record.first)
            if leader is None:
                break
            conn = leader.conn
            assert conn is not None
            job = queue.popleft()
            self._send(job, record, conn)
            if conn.full:
                conn.probing.add(job)
            has_enough = conn.is_written_to or (conn.full and len(conn.probing) == conn.probes)
            if (leader.on_trial or has_enough) and leader in takers:
                takers.remove(leader)

    def _judge_picky(self, now: float, do: list[ClientDo]) -> None:
        """Give up those that nobody takes, once nobody else is about to be met: one that is away has its grace."""
        some_come = False
        for leader in self._rows.values():
            if not leader.serves and not leader.removed and now < leader.lost_at + self._grace_s:
                leader.has_stranded = some_come = True
            some_come |= leader.is_coming
        conns = [leader.conn for leader in self._rows.values() if leader.conn is not None and not leader.removed]
        for needs, queue in list(self._picky.items()):
            while queue and not (some_come or any(conn.takes(needs) for conn in conns)):
                job = queue.popleft()
                record = self._jobs.get(job)
                if record is not None and record.needs == needs and record.stage is _UNSENT:
                    self._call_off(job, record.may)
                    self._give_up(job, *self._unfit[needs], do)
            if not queue:
                del self._picky[needs]

    def _send(self, job: JobId, record: _Unfinished, conn: LeaderConnection) -> None:
        """Submit it there."""
        leader = conn.leader
        self._give(job, record, leader)
        conn.submit(job, record.frame)
        if record.may and leader.no not in record.may:
            leader.adopted += 1

    def _give(self, job: JobId, record: _Unfinished, leader: LeaderRow) -> None:
        """It is with this leader from now on."""
        record.stage = _SENT
        record.leader = leader.no
        leader.in_flight += 1
        record.doubted = job in leader.cancels and leader.line is not None
        leader.cancels.pop(job, None)

    # What the user wants.

    def _handle_rare(self, event: ClientEvent, now: float, do: list[ClientDo]) -> None:
        match event:
            case ev.ClaimJob(job, only):
                assert job not in self._jobs
                self._jobs[job] = _Unfinished(b"", _ASKED, only=only)
                self._claims[job] = None
                for leader in self._rows.values():
                    if only and leader.no != only:
                        continue
                    leader.cancels.pop(job, None)
                    if (line := leader.line) is not None:
                        line.claims.append(job)
                        line.claimed.add(job)
                self._to_judge = True
            case Submit(job, frame, no):
                self._submit_to(job, frame, no, do)
            case ev.Cancel(jobs):
                for job in jobs:
                    self._cancel(job, do)
            case ev.Ask(ask, frame, wanted):
                self._asks[ask] = _Question(frame, wanted)
                self._send_asks(do)
            case ev.Forget(forgotten):
                self._asks.pop(forgotten, None)
                if (record := self._jobs.get(JobId(forgotten))) is not None:
                    self._leave(JobId(forgotten), record)
            case ev.Connected(conn_id):
                self._leaders.connected(conn_id, now, do)
            case ev.Disconnected(conn_id, why):
                self._lost(conn_id, why, now, do)
            case ev.LeaderAdded(no, name):
                if len(self._rows) == 1 and no not in self._rows:  # The only one got everything, and was not asked.
                    for conn in self._conns.values():
                        if conn.ready and conn.takes_finds:
                            self._seek_missed(conn, now)
                self._leaders.add(no, now, name)
                self._removed.discard(no)
                self._leaders.divide(do)
            case ev.LeaderRemoved(no):
                self._remove(no, now, do)
            case _:
                self._handle_from(event, now, do)

    def _submit_to(self, job: JobId, frame: bytes, no: LeaderNo, do: list[ClientDo]) -> None:
        assert job not in self._jobs
        leader = self._rows.get(no)
        if leader is None or leader.line is None or leader.removed:
            do.append(ev.GiveUp(job, "no-leader", "the leader that it was meant for does not serve"))
            return
        self._jobs[job] = record = _Unfinished(frame, only=no)
        self._send(job, record, leader.line)

    def _cancel(self, job: JobId, do: list[ClientDo]) -> None:
        record = self._jobs.get(job)
        if record is None or record.cancelled:
            return
        if record.stage is _ASKED:
            asked = [conn for conn in self._conns.values() if job in conn.claimed]
            if asked:
                record.cancelled = True
                # One that is away, or whose connection is dead and not yet known to be, may have it as well.
                self._call_off(job, self._rows)
                return
        home = self._rows.get(record.leader)
        waits = home is not None and home.conn is not None and job in home.conn.later
        if home is not None and record.stage in {_SENT, _ACCEPTED} and not waits:
            self._call_off(job, [no for no in record.may if no != home.no])
            if (line := home.line) is not None:
                record.cancelled = True
                line.cancels.append(job)
            else:  # It may turn out to be one of ours, whose welcome was slow.
                self._call_off(job, [home.no])
                self._give_up(job, "cancelled", "it was cancelled here; an old leader cannot be told", do)
        else:
            # A leader may have it all the same: from a connection before this one, or from an earlier life.
            self._call_off(job, self._rows)
            self._give_up(job, "cancelled", "it was cancelled before it was sent", do)

    def _call_off(self, job: JobId, leaders: Iterable[LeaderNo]) -> None:
        """Nobody wants it from these any more; those who are away are told when they come back."""
        for no in leaders:
            leader = self._rows[no]
            leader.remember_cancel(job)
            if (line := leader.line) is not None:
                line.cancels.append(job)

    def _send_asks(self, do: list[ClientDo]) -> None:
        """The questions that nobody was asked yet."""
        for ask, question in list(self._asks.items()):
            if question.asked:
                continue
            whom = [self._rows[question.wanted]] if question.wanted in self._rows else list(self._rows.values())
            if question.wanted and question.wanted not in self._rows:
                del self._asks[ask]
                do.append(ev.NoAnswer(ask, "no-leader", "the leader was removed"))
            elif (line := next((leader.line for leader in whom if leader.line is not None), None)) is not None:
                question.asked = line.leader.no
                do.append(ev.SendFrames(line.id, [question.frame]))
            elif whom and all(leader.serves for leader in whom):
                del self._asks[ask]
                do.append(ev.NoAnswer(ask, "not-supported", "the leader is an old one and answers no questions"))

    # What the leaders say and do.

    def _handle_from(self, event: ClientEvent, now: float, do: list[ClientDo]) -> None:
        """What a connection says after it was hung up is nobody's any more."""
        assert isinstance(event, _FROM_LEADER)
        conn = self._conns.get(event.conn)
        if conn is None:
            return
        if isinstance(event, ev.LeaderBlocked):
            conn.blocked = event.on
            return
        if isinstance(event, ev.LeaderWritten):
            self._written(conn)
            return
        conn.heard_at = now
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
                for job in jobs:
                    self._accepted(conn, job)
            case ev.JobsFound(fate=fate, jobs=jobs):
                self._found(conn, fate, jobs, now)
            case ev.JobRefused(job=job, code=code, text=text):
                self._refused(conn, job, code, text, now, do)
            case ev.Unfit():
                self._does_not_fit(conn, event, now, do)
            case ev.FilesWanted(job=job) if conn.full:
                taken(conn, job)  # It has room. However long the files take, others need not wait for them.
            case ev.QuestionAnswered(ask=ask, refused=refused, payload=payload):
                if self._asks.pop(ask, None) is not None:
                    do.append(ev.AnswerQuestion(ask, refused, payload))
            case _:
                pass

    def _written(self, conn: LeaderConnection) -> None:
        """It has what it was given. What waited for that is sent, unless it is over or with another leader by now."""
        conn.unwritten_bytes = 0
        conn.tells = False
        later, conn.later = conn.later, {}
        for job in later:
            record = self._jobs.get(job)
            if record is not None and record.stage is _SENT and record.leader == conn.leader.no:
                conn.submit(job, record.frame)

    def _found(self, conn: LeaderConnection, fate: Fate, jobs: Sequence[JobId], now: float) -> None:
        """A leader says which jobs it knows: that is where they belong, if they are with nobody yet."""
        some_come = self._seeking.some_come(now)
        for job in jobs:
            record = self._jobs.get(job)
            if conn.sought.pop(job, None) is None or record is None:
                continue
            if fate == "failed":
                record.first = conn.leader.no
            if record.stage is not _SOUGHT:
                if fate == "known" and record.leader != conn.leader.no:
                    # It was late, and others have the job as well: whoever is first has done it.
                    if conn.leader.no not in record.may:
                        record.may = (*record.may, conn.leader.no)
                    self._claim_beside(job, record, conn)
            elif fate == "known":
                self._seeking.jobs.pop(job)
                self._send(job, record, conn)
            elif not some_come and self._seeking.is_settled(job):
                self._found_nowhere(job, record)
        self._seeking.look(conn, now)

    def _found_nowhere(self, job: JobId, record: _Unfinished) -> None:
        """Nobody who can be reached knows it: it is new."""
        self._seeking.jobs.pop(job)
        record.stage = _UNSENT
        self._queue(job, record)

    def _queue(self, job: JobId, record: _Unfinished) -> None:
        """It waits to be sent."""
        (self._picky.setdefault(record.needs, deque()) if record.needs else self._unsent).append(job)
        self._drop_stale_names()

    def _drop_stale_names(self) -> None:
        """Most of a queue that is longer than this is names of jobs that were sent since, or are gone."""
        length_max = 2 * len(self._jobs) + _STALE_NAMES_MAX
        for needs, queue in ((0, self._unsent), *self._picky.items()):
            if len(queue) > length_max:
                waiting = [
                    job
                    for job in dict.fromkeys(queue)
                    if (record := self._jobs.get(job)) is not None and record.stage is _UNSENT and record.needs == needs
                ]
                queue.clear()
                queue.extend(waiting)

    def _accepted(self, conn: LeaderConnection, job: JobId) -> None:
        record = self._jobs.get(job)
        if record is not None:
            if record.stage is _SENT and record.leader == conn.leader.no:
                record.stage = _ACCEPTED
            elif job in conn.claimed and record.stage in {_UNSENT, _STRANDED}:
                # It had the job all the time, and the one that adopted it is gone.
                conn.claimed.remove(job)
                self._give(job, record, conn.leader)
                record.stage = _ACCEPTED
        if conn.full:
            taken(conn, job)

    def _refused(
        self, conn: LeaderConnection, job: JobId, code: str, text: str, now: float, do: list[ClientDo]
    ) -> None:
        record = self._jobs.get(job)
        leader = conn.leader
        if record is None:
            return
        if job in conn.claimed:
            conn.claimed.remove(job)
            record.may = _without(record.may, leader.no)
            if record.stage is _ASKED:
                self._claims[job] = code, text
                self._to_judge = True
            return
        if record.leader != leader.no or record.stage is _STRANDED:
            return
        if record.cancelled:
            self._call_off(job, [no for no in record.may if no != leader.no])
            self._give_up(job, "cancelled", "it was cancelled before the leader took it", do)
        elif code == "unknown-job" and leader.no in record.may:
            record.may = _without(record.may, leader.no)
            record.first = leader.no
            if record.only:
                conn.submit(job, record.frame)
            else:
                self._find_place(job, record, now, conn)
        elif code == "unknown-job" and record.frame:
            return  # It is about a claim before the submit, which is under way and has an answer of its own.
        elif code not in _NOT_NOW or record.only:
            self._call_off(job, [no for no in record.may if no != leader.no])
            self._give_up(job, code, text, do)
        else:
            self._find_place(job, record, now)
            self._leaders.refused(conn, code, text, now, do)
        conn.probing.discard(job)

    def _does_not_fit(self, conn: LeaderConnection, event: ev.Unfit, now: float, do: list[ClientDo]) -> None:
        job, needs = event.job, NEEDS_ENV if event.env else NEEDS_BLOBS
        record = self._jobs.get(job)
        if record is None or record.leader != conn.leader.no or record.stage is not _SENT:
            return
        if conn.takes(needs):  # Its welcome was slow, and came in between.
            conn.submit(job, record.frame)
            return
        if record.cancelled or record.only:
            self._refused(conn, job, event.code, event.text, now, do)
            return
        record.needs |= needs
        self._unfit[record.needs] = event.code, event.text
        self._find_place(job, record, now)
        conn.probing.discard(job)

    def _ready(self, conn: LeaderConnection, now: float, do: list[ClientDo]) -> None:
        """It serves from now on. What it may have is asked for; to an old one that cannot be said, it is sent again."""
        leader = conn.leader
        self._leaders.ready(conn, now, do)
        leader.has_stranded = False
        if conn.own:
            if cancels := [job for job in leader.cancels if not self._is_wanted_from(leader, job)]:
                do.append(ev.SendCancels(conn.id, cancels))
            # An id that is under way again must not be confirmed for what it was before.
            if confirmed := [job for job in leader.confirmed if not self._is_wanted_from(leader, job)]:
                do.append(ev.SendConfirms(conn.id, confirmed))
        for job, record in self._jobs.items():
            if record.stage is _STRANDED and record.leader == leader.no:
                self._give(job, record, leader)
                if conn.own:
                    conn.claims.append(job)
                else:
                    conn.submit(job, record.frame)
            elif conn.own and (record.stage is _ASKED or leader.no in record.may):
                self._claim_beside(job, record, conn)
            elif conn.takes_finds and record.given and record.leader != leader.no and len(self._rows) > 1:
                self._seek_at(conn, job, record, now)
        self._seeking.news = True
        self._send_asks(do)
        self._judge_claims(now, do)

    def _seek_at(self, conn: LeaderConnection, job: JobId, record: _Unfinished, now: float) -> None:
        """It serves from now on, and may know this job from an earlier life."""
        if record.cancelled or record.only:
            return
        self._seeking.ask(conn, job, now)
        if record.stage is _UNSENT and not record.needs:
            record.stage = _SOUGHT
            self._seeking.jobs[job] = None

    def _seek_missed(self, conn: LeaderConnection, now: float) -> None:
        """It was late, or alone, and may know jobs that nobody was sent since."""
        for job, record in self._jobs.items():
            if record.given and record.stage in {_UNSENT, _SOUGHT}:
                self._seek_at(conn, job, record, now)

    def _claim_beside(self, job: JobId, record: _Unfinished, conn: LeaderConnection) -> None:
        """Others have it, or nobody knows who; this one may have it as well, and its result already."""
        if record.leader == conn.leader.no or job in conn.claimed or record.only not in {ANY_LEADER, conn.leader.no}:
            return
        if record.stage is _UNSENT or record.stage is _SOUGHT:
            self._seeking.jobs.pop(job, None)
            self._give(job, record, conn.leader)
        else:
            conn.claimed.add(job)
            if record.cancelled:
                self._call_off(job, [conn.leader.no])
            else:
                conn.leader.cancels.pop(job, None)
        conn.claims.append(job)

    def _is_wanted_from(self, leader: LeaderRow, job: JobId) -> bool:
        """May what was called off there before be wanted from it again?"""
        record = self._jobs.get(job)
        if record is None:
            return False
        return record.stage in {_UNSENT, _ASKED, _SOUGHT} or record.leader == leader.no or leader.no in record.may

    def _judge_claims(self, now: float, do: list[ClientDo]) -> None:
        """Give up those that all who serve do not know, once nobody else is about to be asked: one that is away has its
        grace here too, for it may well be the one that has the job."""
        if not self._claims:
            return
        some_come = False
        for leader in self._rows.values():
            if not leader.serves and not leader.removed and now < leader.lost_at + self._grace_s:
                leader.has_stranded = some_come = True
            some_come |= leader.is_coming
        old = [leader for leader in self._rows.values() if leader.serves and leader.line is None]
        only_old = bool(old) and len(old) == len(self._rows)
        for job, no in list(self._claims.items()):
            if any(job in conn.claimed for conn in self._conns.values()):
                continue
            record = self._jobs[job]
            if record.only and record.only not in self._rows and not record.cancelled:
                self._give_up(job, "no-leader", "the leader that has it was removed", do)
            elif record.only and no is None and not record.cancelled and not only_old:
                continue  # It is waited for.
            elif record.cancelled:
                self._call_off(job, self._rows)
                self._give_up(job, "cancelled", "it was cancelled before a leader was found that knows it", do)
            elif no is not None and (record.only or not (some_come or old)):
                self._give_up(job, *no, do)
            elif only_old or (no is not None and not some_come):
                self._give_up(job, "not-supported", "an old leader cannot be asked for a job of someone else", do)

    # They are lost.

    def _hang_up(self, conn: LeaderConnection, why: str, now: float, do: list[ClientDo], *, awaited: bool) -> None:
        do.append(ev.HangUp(conn.id, why))
        self._lost(conn.id, why, now, do, awaited=awaited)

    def _lost(self, conn_id: ConnId, why: str, now: float, do: list[ClientDo], *, awaited: bool = True) -> None:
        told: list[ClientDo] = []
        lost = self._leaders.lost(conn_id, why, now, told)
        if lost is None:
            return
        leader, conn = lost
        if conn is not None and conn.ready:
            if not awaited or leader.removed:
                leader.lost_at = -math.inf
            self._strand(conn, now, do)
        do += told
        if leader.removed:
            self._part(leader, now, do)
        else:
            self._no_answer_from(leader, now, do)

    def _strand(self, lost: LeaderConnection, now: float, do: list[ClientDo]) -> None:
        """What this connection carried waits for its leader, or for another one that has it as well."""
        leader = lost.leader
        for job, record in list(self._jobs.items()):
            if record.leader == leader.no:
                if leader.no not in record.may:
                    record.may = (*record.may, leader.no)
                if record.cancelled:
                    self._call_off(job, record.may)
                    self._give_up(job, "cancelled", "it was cancelled, and its connection was lost", do)
                else:
                    self._find_place(job, record, now)
            elif record.cancelled and job in lost.claimed:
                leader.remember_cancel(job)

    def _find_place(self, job: JobId, record: _Unfinished, now: float, denied: LeaderConnection | None = None) -> None:
        """It is with nobody any more: another one may have it all the same, or be back with it in time.

        One that has `denied` to know it gets it again, if it takes jobs: what was sent over its connection before this
        one may still be read, and two leaders would run it.
        """
        rows = self._rows
        if (home := rows.get(record.leader)) is not None and home.serves:
            home.in_flight -= 1
        for no in record.may:
            conn = rows[no].conn
            if conn is not None and job in conn.claimed:
                conn.claimed.remove(job)
                self._give(job, record, rows[no])
                return
        for no in record.may:
            if not rows[no].serves and self._is_awaited(rows[no], now):
                record.stage = _STRANDED
                record.leader = no
                rows[no].has_stranded = True
                return
        record.stage = _UNSENT
        record.leader = ANY_LEADER
        if record.only:
            self._homeless.append(job)
        elif record.given and not (record.needs or self._seeking.is_settled(job)):
            record.stage = _SOUGHT  # A leader that came meanwhile was asked, and has not answered yet.
            self._seeking.jobs[job] = None
        elif denied is not None and denied.leader in self._leaders.look() and not record.needs:
            self._send(job, record, denied)
        else:
            self._queue(job, record)

    def _is_awaited(self, leader: LeaderRow, now: float) -> bool:
        """Is there still time for it to come back to what it has? Without others there is all the time it needs."""
        return now < leader.lost_at + self._grace_s or len(self._rows) == 1

    def _grace_over(self, leader: LeaderRow, now: float, do: list[ClientDo]) -> None:
        """What waits for it goes to whoever serves first (SPEC K5)."""
        leader.has_stranded = False
        for job, record in self._jobs.items():
            if record.stage is _STRANDED and record.leader == leader.no:
                self._find_place(job, record, now)
        self._judge_claims(now, do)

    def _remove(self, no: LeaderNo, now: float, do: list[ClientDo]) -> None:
        leader = self._rows.get(no)
        if leader is None:
            return
        leader.removed = True
        self._removed.add(no)
        self._leaders.divide(do)
        if not leader.serves:
            self._part(leader, now, do)

    def _has_work(self, leader: LeaderRow) -> bool:
        """Does it have a job that we wait for, or has it not said yet that it does not know it?"""
        if leader.in_flight or leader.conn is None:
            return bool(leader.in_flight)
        return any(self._jobs[job].stage is _ASKED for job in leader.conn.claimed)

    def _part(self, leader: LeaderRow, now: float, do: list[ClientDo]) -> None:
        """It has nothing of ours any more, or is not there: it is no longer waited for."""
        conn = leader.conn
        self._removed.discard(leader.no)
        self._leaders.drop(leader)
        do.append(ev.Parted(leader.no, conn.id if conn is not None else leader.dialling or ConnId(0)))
        for job, record in self._jobs.items():
            if leader.no in record.may:
                record.may = _without(record.may, leader.no)
            if record.leader == leader.no:
                self._find_place(job, record, now)
        self._no_answer_from(leader, now, do)

    def _no_answer_from(self, leader: LeaderRow, now: float, do: list[ClientDo]) -> None:
        """Whatever it was asked, others have to be asked, or there is nobody left to wait for."""
        self._seeking.news = True
        for question in self._asks.values():
            if question.asked == leader.no:
                question.asked = ANY_LEADER
        self._send_asks(do)
        self._judge_claims(now, do)

    # A job ends.

    def _is_answer(self, job: JobId, record: _Unfinished, conn: LeaderConnection) -> bool:
        """Is a result from there what we wait for? It may be of an earlier run under the same id: from a leader that
        has nothing to do with this one, or that was told to let the earlier one go. That one is asked again."""
        no = conn.leader.no
        if record.leader != no:
            return no in record.may or job in conn.claimed
        if conn.own and job in conn.later:
            return False  # It was not yet told which request is meant: this may be of another one under the same id.
        if record.doubted:
            record.doubted = False
            conn.claims.append(job)
            return False
        return True

    def _ended(self, job: JobId, record: _Unfinished, by: LeaderNo) -> None:
        """Its result came, and not from the only leader that may have it: the others are told to let it go."""
        self._leave(job, record)
        if record.stage is _ASKED:
            return
        for no in {record.leader, *record.may} - {by, ANY_LEADER}:
            self._call_off(job, [no])
            leader = self._rows[no]
            if (line := leader.line) is not None:
                line.confirms.append(job)
            else:
                leader.confirmed.append(job)

    def _leave(self, job: JobId, record: _Unfinished) -> None:
        """It is nobody's any more."""
        self._jobs.pop(job, None)
        if self._unsent or self._picky:
            self._drop_stale_names()
        self._claims.pop(job, None)
        if record.given:
            self._seeking.over(job)
        home = self._rows.get(record.leader)
        if home is not None and home.serves:
            home.in_flight -= 1
        for conn in self._conns.values():
            conn.claimed.discard(job)
            conn.probing.discard(job)  # A full leader that is waited for on its account would be waited for for ever.

    def _give_up(self, job: JobId, code: str, text: str, do: list[ClientDo]) -> None:
        self._leave(job, self._jobs[job])
        do.append(ev.GiveUp(job, code, text))


def _without(leaders: tuple[LeaderNo, ...], gone: LeaderNo) -> tuple[LeaderNo, ...]:
    return tuple(no for no in leaders if no != gone)
