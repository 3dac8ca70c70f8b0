"""One leader and whoever talks to it, with neither socket nor clock: a test reads as a script of event and effect.

Ends do something (`desk.submit("calc")`) and take what they were sent (`desk.gets_receipt(job)`); whatever they do not
take fails the test, for `world` asks at its end whether anything else was said. Heartbeats come and go by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict, TypeVar, Unpack

from tests.kit.leader_journal import Journal

from wakugumi.core.access.identity import Sight
from wakugumi.core.backoff import Policies
from wakugumi.core.ids import ClientId, ConnId, JobId, Verdict, WorkerId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.answer_records import Answer, ExplainAnswer, StatusAnswer, StoryAnswer
from wakugumi.core.leader.events import LeaderDo, LeaderEvent
from wakugumi.core.leader.journal.entries import LeaderKeep
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.leader.questions import AskExplain, AskStatus, AskStory, Question
from wakugumi.core.leader.scheduling.locality import Holders
from wakugumi.core.requirements import Requirements
from wakugumi.core.step import Step
from wakugumi.core.subject import Subject, parse_pattern, parse_subject

E = TypeVar("E")

OUTPUT = b"output"
TIMEOUT_S = 100.0


@contextmanager
def a_world(**options: Unpack[Options]) -> Iterator[World]:
    """A world in which nothing may be said that nobody took."""
    world = World(**options)
    yield world
    world.nothing_else()


def job_id(number: int) -> JobId:
    return JobId(number.to_bytes(16, "big"))


def subject(word: str) -> Subject:
    return parse_subject(f"job.assign.{word}")


class Options(TypedDict, total=False):
    """What a leader may be told."""

    policies: Policies
    queue_jobs_max: int
    queue_bytes_max: int
    attempts_max: int
    keeps: bool
    payload_memory_bytes: int
    holders: Holders


class World:
    """A leader, its clock, and all it said that nobody took yet."""

    def __init__(self, **options: Unpack[Options]) -> None:
        self.now = 1_000.0
        self.chance = 0.5
        self._options = options
        self.leader = LeaderMachine(lambda: self.chance, now=self.now, **options)
        self.journal = Journal()
        self.reads_journal = True
        """False: what is to be loaded from it waits in `loads`."""
        self.loads: list[ev.LoadPayloads] = []
        self.said: list[LeaderDo] = []
        """Everything, in order."""
        self.kept: list[LeaderKeep] = []
        self.complaints: list[str] = []
        self.freed: list[str] = []
        """Blobs that nobody needs any more."""
        self.stopped = 0
        self.ends: dict[ConnId, ClientEnd | WorkerEnd] = {}
        self.batch: list[LeaderEvent] | None = None
        self._conns = 0
        self._jobs = 0

    def client(
        self,
        name: str = "desk",
        *,
        cap: int = 100,
        old: bool = False,
        heartbeats: bool = False,
        sight: Sight | None = None,
    ) -> ClientEnd:
        """A client joins. An own one takes its welcome."""
        end = ClientEnd(self, self._new_conn(), ClientId(name), old=old, heartbeats=heartbeats)
        self.hear(ev.ClientJoined(end.conn, end.id, cap, not old, heartbeats, sight))
        if not old and self.batch is None:
            end.takes(ev.SendWelcome)
        return end

    def worker(
        self,
        name: str,
        *patterns: str,
        credit: int = 0,
        old: bool = False,
        heartbeats: bool | None = None,
        cancels: bool | None = None,
        holds: bool = True,
        slots: int = 0,
        blobs: bool = False,
        runs_unnamed: bool = False,
        env: bool = False,
        weight: int = 1,
        is_node: bool = False,
        key: str = "",
    ) -> WorkerEnd:
        """A worker joins, for all jobs unless told otherwise. Its id follows from its name. An own one takes its
        welcome, and unless told otherwise says that it holds nothing."""
        end = WorkerEnd(self, self._new_conn(), worker_id(name), old=old, heartbeats=(heartbeats is None) != old)
        if heartbeats is not None:
            end.heartbeats = heartbeats
        self.hear(
            ev.WorkerJoined(
                end.conn,
                end.id,
                name,
                tuple(parse_pattern(pattern) for pattern in patterns or (">",)),
                receipts=not old,
                heartbeats=end.heartbeats,
                reattach=not old,
                cancels=not old if cancels is None else cancels,
                slots=slots,
                blobs=blobs or is_node,
                runs_unnamed=runs_unnamed or is_node,
                simple_only=is_node,
                weight=weight,
                resend=is_node,
                env=env,
                key=key,
            )
        )
        if (not old or heartbeats or cancels) and self.batch is None:
            end.takes(ev.SendWelcome)
        if not old and holds:
            end.holds()
        if credit:
            end.credit(credit)
        return end

    def hear(self, *events: LeaderEvent) -> None:
        if self.batch is not None:
            self.batch += events
        else:
            self._heed(self.leader.handle(events, self.now))

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What happens inside reaches the leader as one batch."""
        batch: list[LeaderEvent] = []
        self.batch = batch
        yield
        self.batch = None
        self.hear(*batch)

    def wait(self, seconds: float) -> None:
        """Time passes, and the leader wakes whenever it asked to. Living peers with heartbeats send them."""
        until = self.now + seconds
        while (at := self.leader.wake_at()) is not None and at <= until:
            self.now = max(self.now, at)
            self.hear(*(ev.PeerHeard(end.conn, 0.25) for end in self.ends.values() if end.heartbeats and end.alive))
            self._heed(self.leader.tick(self.now))
            wake_at = self.leader.wake_at()
            assert wake_at is not None
            assert wake_at > self.now
        self.now = until

    def restart(self, after_s: float = 1.0) -> None:
        """The leader is killed and starts again from its journal. All connections are gone, nobody's inbox counts."""
        self.now += after_s
        self.leader = LeaderMachine(lambda: self.chance, now=self.now, **self._options)
        self.leader.recover(self.journal.leaves(self.now), self.now)
        self.leader.check()
        self.ends.clear()

    def stop(self) -> None:
        self.hear(ev.StopWanted())

    def new_job(self) -> JobId:
        self._jobs += 1
        return job_id(self._jobs)

    def nothing_else(self) -> None:
        """Nothing was said that nobody took."""
        for end in self.ends.values():
            assert not end.inbox, f"{end} was also sent {list(end.inbox)}"
        assert not self.complaints, self.complaints

    def complains(self, *words: str) -> None:
        """One complaint, with these words in it."""
        text = self.complaints.pop(0)
        assert all(word in text for word in words), text

    def reasons(self, job: JobId) -> list[str]:
        """Why it is not running, or not done."""
        answer = self.ask(AskExplain(show_job_id(job)))
        assert isinstance(answer, ExplainAnswer)
        return answer.reasons

    def story(self, job: JobId) -> list[str]:
        answer = self.ask(AskStory(show_job_id(job)))
        assert isinstance(answer, StoryAnswer)
        return [line.what for line in answer.story]

    def status(self) -> StatusAnswer:
        answer = self.ask(AskStatus())
        assert isinstance(answer, StatusAnswer)
        return answer

    def ask(self, question: Question, sight: Sight | None = None) -> Answer:
        """Asked over a connection of its own, which was never a client: it may ask and nothing else."""
        said = self._ask(question, sight)
        assert isinstance(said, ev.SendAnswer), said
        return said.answer

    def ask_in_vain(self, question: Question, sight: Sight | None = None) -> str:
        """The code of the refusal."""
        said = self._ask(question, sight)
        assert isinstance(said, ev.SendNo), said
        assert said.text
        return said.code

    def _ask(self, question: Question, sight: Sight | None) -> LeaderDo:
        conn = self._new_conn()
        step = self.leader.handle([ev.QuestionAsked(conn, b"ask", question, sight)], self.now)
        mine = [effect for effect in (*step.at_once, *step.do) if getattr(effect, "conn", None) == conn]
        step.at_once = [effect for effect in step.at_once if getattr(effect, "conn", None) != conn]
        step.do = [effect for effect in step.do if getattr(effect, "conn", None) != conn]
        self._heed(step)
        assert len(mine) == 1
        return mine[0]

    def _new_conn(self) -> ConnId:
        self._conns += 1
        return ConnId(self._conns)

    def _heed(self, step: Step[LeaderKeep, LeaderDo]) -> None:
        self.leader.check()
        self.kept += step.keep
        self.journal.write(step.keep, self.now)
        assert not step.keep or self.leader.leaves.number == self.journal.next_leaf
        said = [*step.at_once, *step.do]
        self.said += said
        for effect in said:
            if isinstance(effect, ev.LeaderStopped):
                self.stopped += 1
            elif isinstance(effect, ev.BlobsFreed):
                assert not any(map(self.leader.holds, effect.blobs))
                self.freed += effect.blobs
            elif isinstance(effect, ev.Complain):
                self.complaints.append(effect.text)
            elif isinstance(effect, ev.LoadPayloads):
                if self.reads_journal:
                    self.hear(self.journal.load(effect.leaf, effect.jobs))
                else:
                    self.loads.append(effect)
            elif isinstance(effect, ev.TellWhenPeerWritten):
                self.ends[effect.conn].is_told_when_written()
            elif not isinstance(effect, ev.SendPeerHeartbeat):
                end = self.ends[effect.conn]
                end.inbox.append(effect)
                if (
                    isinstance(effect, ev.SendResult)
                    and not effect.is_refusal
                    and isinstance(end, ClientEnd)
                    and end.old
                ):
                    self.hear(ev.Confirmed(effect.conn, (effect.job,)))  # written is delivered (F9)


class _End:
    def __init__(self, world: World, conn: ConnId, *, heartbeats: bool) -> None:
        self.world = world
        self.conn = conn
        self.heartbeats = heartbeats
        self.alive = True
        self.inbox: deque[LeaderDo] = deque()
        self.slow = False
        """What it is sent is not written at once."""
        self.unwritten = 0

    def takes(self, kind: type[E]) -> E:
        """The next thing it was sent, which is of this kind."""
        assert self.inbox, f"{self} was sent nothing, not even {kind.__name__}"
        effect = self.inbox.popleft()
        assert isinstance(effect, kind), f"{self} was sent {effect}, not {kind.__name__}"
        return effect

    def gets_nothing(self) -> None:
        assert not self.inbox, f"{self} was sent {list(self.inbox)}"

    def leaves(self) -> None:
        self.alive = False
        self.world.hear(ev.Left(self.conn))

    def falls_silent(self) -> None:
        """Its connection stands, but nobody is there any more."""
        self.alive = False

    def is_closed(self) -> None:
        self.takes(ev.Close)

    def blocks(self) -> None:
        self.world.hear(ev.PeerBlocked(self.conn))

    def unblocks(self) -> None:
        self.world.hear(ev.PeerUnblocked(self.conn))

    def is_told_when_written(self) -> None:
        self.unwritten += 1
        if not self.slow:
            self.is_written()

    def is_written(self) -> None:
        """What the leader asked about has left."""
        assert self.unwritten, f"nobody asks when {self} is written"
        self.unwritten -= 1
        self.world.hear(ev.PeerWritten(self.conn))


class ClientEnd(_End):
    """A client's connection."""

    def __init__(self, world: World, conn: ConnId, client_id: ClientId, *, old: bool, heartbeats: bool) -> None:
        super().__init__(world, conn, heartbeats=heartbeats)
        self.id = client_id
        self.old = old
        world.ends[conn] = self

    def __repr__(self) -> str:
        return f"client {self.id}/{self.conn}"

    def submit(
        self,
        word: str = "calc",
        *,
        job: JobId | None = None,
        payload: bytes = b"request",
        retries: int = 0,
        requirements: Requirements | None = None,
        request: bytes = b"",
    ) -> JobId:
        """Submit a job, by default a new one. What comes of it is to be taken."""
        if job is None:
            job = self.world.new_job()
        asked = (subject(word), word, TIMEOUT_S, payload, retries, requirements)
        self.world.hear(ev.Submitted(self.conn, job, *asked, request=request))
        return job

    def submits(self, count: int, word: str = "calc", requirements: Requirements | None = None) -> list[JobId]:
        """Submit new jobs, and take their receipts."""
        jobs = [self.submit(word, requirements=requirements) for _ in range(count)]
        if not self.old:
            for job in jobs:
                self.gets_receipt(job)
        return jobs

    def gets_receipt(self, *jobs: JobId) -> None:
        assert list(self.takes(ev.SendReceipts).jobs) == list(jobs)

    def gets_refusal(self, job: JobId, code: str) -> None:
        refusal = self.takes(ev.SendRefusal)
        assert (refusal.job, refusal.code) == (job, code)
        assert refusal.text

    def gets_result(self, job: JobId, output: bytes = OUTPUT) -> None:
        result = self.takes(ev.SendResult)
        assert (result.job, result.result) == (job, output)

    def gets_failure(self, job: JobId, code: str) -> str:
        """A FAILED result that the system itself wrote. Returns its text."""
        result = self.takes(ev.SendResult)
        assert result.job == job
        assert isinstance(result.result, Verdict), result
        assert result.result.code == code
        assert result.result.text
        return result.result.text

    def confirms(self, *jobs: JobId) -> None:
        self.world.hear(ev.Confirmed(self.conn, jobs))

    def claims(self, *jobs: JobId) -> None:
        self.world.hear(ev.Claimed(self.conn, jobs))

    def asks_for(self, *jobs: JobId) -> dict[str, list[JobId]]:
        """Which of them the leader knows, by its word."""
        self.world.hear(ev.Sought(self.conn, jobs))
        found = [self.takes(ev.SendFound) for _ in list(self.inbox)]
        assert sum(len(one.jobs) for one in found) == len(jobs)
        return {one.fate: list(one.jobs) for one in found}

    def cancels(self, *jobs: JobId) -> None:
        self.world.hear(ev.CancelWanted(self.conn, jobs))


class WorkerEnd(_End):
    """A worker's connection."""

    def __init__(self, world: World, conn: ConnId, worker: WorkerId, *, old: bool, heartbeats: bool) -> None:
        super().__init__(world, conn, heartbeats=heartbeats)
        self.id = worker
        self.old = old
        world.ends[conn] = self

    def __repr__(self) -> str:
        return f"worker {self.id!r}/{self.conn}"

    def holds(self, running: Sequence[JobId] = (), finished: Sequence[JobId] = (), kept: Sequence[JobId] = ()) -> None:
        self.world.hear(ev.WorkerHolds(self.conn, tuple(running), tuple(finished), tuple(kept)))

    def gets_fetch(self, *jobs: JobId) -> None:
        assert list(self.takes(ev.SendFetch).jobs) == list(jobs)

    def credit(self, amount: int) -> None:
        self.world.hear(ev.Credited(self.conn, amount))

    def gets(self, *jobs: JobId) -> None:
        """These assignments come next, in this order."""
        for job in jobs:
            assert self.takes(ev.SendAssign).job == job

    def gets_some(self) -> list[JobId]:
        """All that was assigned to it and not yet taken."""
        return [self.takes(ev.SendAssign).job for _ in range(len(self.inbox))]

    def acks(self, job: JobId, output: bytes = OUTPUT, blobs: tuple[str, ...] = (), request: bytes = b"") -> None:
        """It is done, OK. An own worker takes the leader's confirmation."""
        self._acks(job, True, "", output, blobs=blobs, request=request)

    def fails(
        self,
        job: JobId,
        reason: str = "exit",
        output: bytes = OUTPUT,
        printed: str = "",
        blobs: tuple[str, ...] = (),
    ) -> None:
        self._acks(job, False, reason, output, printed, blobs)

    def gets_cancel(self, job: JobId) -> None:
        assert self.takes(ev.SendCancel).job == job

    def gets_confirm(self, *jobs: JobId) -> None:
        assert list(self.takes(ev.SendWorkerConfirms).jobs) == list(jobs)

    def declines(self, job: JobId) -> None:
        self.world.hear(ev.Declined(self.conn, job))

    def rests(self, why: str = "it is on fire") -> None:
        self.world.hear(ev.Rested(self.conn, why))

    def says_it_leaves(self) -> None:
        self.world.hear(ev.Leaving(self.conn))

    def turns_down(self, job: JobId, reason: str = "disk", printed: str = "no room") -> None:
        """It could not start it."""
        self._acks(job, False, reason, OUTPUT, printed, begun=False)

    def knows_that_we_know(self) -> None:
        self.takes(ev.SendRested)

    def _acks(
        self,
        job: JobId,
        ok: bool,
        reason: str,
        output: bytes,
        printed: str = "",
        blobs: tuple[str, ...] = (),
        *,
        begun: bool = True,
        request: bytes = b"",
    ) -> None:
        self.world.hear(ev.Acked(self.conn, job, ok, reason, output, printed, blobs, begun, request))
        if not self.old and self.world.batch is None:
            self.gets_confirm(job)


def worker_id(name: str) -> WorkerId:
    return WorkerId(name.encode().ljust(16, b"."))
