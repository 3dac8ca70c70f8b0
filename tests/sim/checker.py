"""Was anything lost, done twice, or said that must not be said? The judge of a world, in the manner of Jepsen.

It sees what users see (receipts, results, refusals) and what programs see (that they run), and holds each against what
the grid promises:

    an accepted job has its result in the end, or was cancelled; nobody is given a second one for one submit
    one opening of a job has one result, whoever is told it and however often
    a program runs again only for a reason: an attempt that failed and may be tried again, or trouble of its worker or
    its worker's connection; that the leader died is no reason
    a second leader runs it only if it was right to give it to one: see `places`
    subjects take turns: see `turns`
    between the reading of a submit and its receipt a leader commits a bounded number of another connection's jobs
    a sick machine is given nothing more once it knows; what it could not start is no attempt, once per worker, and a
    program that a worker has is not unknown while that worker is there, has just left, or may come back to a leader
    that was started anew

Broken is raised at once, so that the story ends where it went wrong.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec
from tests.sim.jobs import FIRST_STRANGER, Execution, Request, Want
from tests.sim.leader import Leader
from tests.sim.worker import Worker, read_result

from wakugumi.core.ids import ConnId, JobId, WorkerId
from wakugumi.core.leader.jobs.broadcast import owner_of
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.journal.entries import (
    ForgetJob,
    KeepAttempt,
    KeepDeclined,
    KeepJob,
    KeepOutcome,
    KeepResult,
    KeepWhole,
    LeaderKeep,
)
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.leader.scheduling.roster import members_of
from wakugumi.core.subject import matches
from wakugumi.errors import CODES
from wakugumi.limits.leader import RECOVERY_GRACE_S, RESTING_PATIENCE_S
from wakugumi.limits.wire import SILENCE_MAX_S

if TYPE_CHECKING:
    from tests.sim.client import Client
    from tests.sim.net import Link, Pipe
    from tests.sim.process import Process
    from tests.sim.world import World

_ENDLESS_S: Final = 100_000.0
_STRANGERS_S: Final = 0.5
_ANSWERS: Final = frozenset({"exit", "timeout"})
"""Ends of a program that are the job's answer, unless it asked for retries (W6)."""
SUBMIT_BYTES_MAX: Final = 300
"""A submit of these worlds."""
FOREIGN_WINDOWS_MAX: Final = 2
"""What one other connection may have committed between the reading of a submit and its receipt, in windows. A window is
what `Intake` lets a connection be ahead of the disk, and one submit more: the one that reached the bound.

The next step takes the submit, because no tick and no other batch goes before what was read (`Drive`), and the receipt
is performed with that step, before all later ones. Two things can be committed by then: what was read of the other
connection before the submit and was not safe yet, at most one window; and what was read of it between the submit and
that step. None of the latter is safe before that step, so it is at most one window too."""

Place: TypeAlias = tuple[str, JobId]
"""A job at a leader, by its name."""


LOST: Final = "lost"
TWICE: Final = "twice"
"""Answered twice, or differently."""
LEAKED: Final = "leaked"
BROKEN: Final = "broken"
SORTS: Final = (LOST, TWICE, LEAKED, BROKEN)
"""What may have gone wrong with a world; the last for all other rules."""


class Broken(Exception):
    """A promise was broken, about this job if about any."""

    def __init__(self, job: JobId | None, what: str, sort: str = BROKEN) -> None:
        super().__init__(what)
        self.job = job
        self.what = what
        self.sort = sort


class _Opening(NamedTuple):
    """Of a job at a leader."""

    number: int
    at: float
    wish: int


class Counts(msgspec.Struct):
    """What happened in a world, or in all of them."""

    worlds: int = 0
    virtual_s: float = 0.0
    jobs: int = 0
    attempted: int = 0
    accepted: int = 0
    finished: int = 0
    cancelled: int = 0
    adopted: int = 0
    """Jobs that were given to another leader because theirs was lost for longer than the grace."""
    from_two_leaders: int = 0
    """Results that a second leader brought as well."""
    losers_told: int = 0
    """Cancels that told a leader that another one was first."""
    left_behind: int = 0
    """Endless programs that nobody but a person could end, because the client that knew of them had died or removed
    their leader."""
    recovered: int = 0
    """Finished although a process that held them had died."""
    guests: int = 0
    """Visits of guests with a key."""
    denied: int = 0
    """Acts of guests that their keys do not allow, all refused."""
    conflicts: int = 0
    """Other requests under an id that a leader knew, and refused."""
    reused: int = 0
    """Other requests under an id that a leader had forgotten, and answered."""
    stale: int = 0
    """Failures of an earlier execution, told as the answer to a new submit."""
    turned_down: int = 0
    """Jobs that a sick machine could not start."""
    executions: int = 0
    again: dict[str, int] = {}
    """Executions beyond the first, by their reason."""
    faults: dict[str, int] = {}
    met: dict[str, int] = {}
    """Those of them that met work in flight."""
    complaints: dict[str, int] = {}

    def told(self) -> Counter[str]:
        """For the report (`tests/sim/report.py`)."""
        told: Counter[str] = Counter()
        for name in self.__struct_fields__:
            count = getattr(self, name)
            if isinstance(count, dict):
                told.update({_TOLD_AS[name] + key: times for key, times in count.items()})
            else:
                told[_TOLD_AS.get(name, name.replace("_", " "))] += int(count)
        return told


_TOLD_AS: Final = {
    "virtual_s": "virtual seconds",
    "attempted": "submits attempted",
    "accepted": "submits accepted",
    "finished": "results delivered",
    "recovered": "results delivered after a death",
    "cancelled": "jobs cancelled",
    "adopted": "jobs adopted by another leader",
    "from_two_leaders": "results that came from two leaders",
    "losers_told": "losers told to cancel",
    "left_behind": "endless programs left to a person",
    "guests": "visits of guests with a key",
    "denied": "acts beyond a guest's key, refused",
    "conflicts": "other requests under a used id, refused",
    "reused": "other requests under a used id, run",
    "stale": "old failures told to a new submit",
    "turned_down": "not started by sick machines",
    "again": "executed again because ",
    "faults": "fault: ",
    "met": "met: ",
    "complaints": "complaint: ",
}


def tally(counts: dict[str, int], key: str, count: int = 1) -> None:
    counts[key] = counts.get(key, 0) + count


class Checker:
    """The judge of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.counts = Counts()
        self._executions: dict[JobId, list[Execution]] = {}
        self._opened: Counter[Place] = Counter()
        """How often each leader opened each job, as far as that was kept."""
        self._opened_at: dict[Place, float] = {}
        self._under_way: dict[tuple[ConnId, JobId], deque[_Opening]] = {}
        """For which opening each assignment is that was sent over a connection, the oldest first."""
        self._given: dict[Place, _Opening] = {}
        """For which opening each worker was given each job last. It may have been opened again while that was under
        way."""
        self._results: dict[Place, bytes] = {}
        """What was said of each since it was opened."""
        self._finished: dict[Place, None] = {}
        self.accepted_with: dict[Place, bytes] = {}
        """Which request each id stands for at each leader that knows it."""
        self._foreign: dict[JobId, list[Execution]] = {}
        """What ran for strangers, under ids that others had used before."""
        self._delivered_at: dict[JobId, float] = {}
        self._trouble: dict[str, tuple[float, str]] = {}
        """The latest trouble of a worker, or of its connection."""
        self._held_by_dead: dict[JobId, None] = {}
        self._recovered_leaf: dict[str, int] = {}
        """The last leaf that each leader has read when it was started anew."""
        self._leader_died_at: dict[str, float] = {}
        self._kept_bytes: dict[str, Counter[ConnId]] = {}
        """Of the submits that each leader has committed in this life, by their connections."""
        self._read: dict[Place, tuple[ConnId, int]] = {}
        """Submits that were read and not committed: from where, and their size."""
        self._before: dict[Place, tuple[ConnId, Counter[ConnId]]] = {}
        """What the leader had committed when a submit was read that has no receipt yet."""
        self._turned_down: Counter[tuple[str, int, int]] = Counter()
        """What each worker could not start because it was sick, by its life and by the spell."""
        self._attempt: dict[Place, WorkerId] = {}
        self._free: dict[Place, set[WorkerId]] = {}
        """Who could not start a job, since it was opened, and that was no attempt."""

    # What must not be.

    def broken(self, job: JobId | None, what: str, sort: str = BROKEN) -> None:
        raise Broken(job, what, sort)

    def lost(self, want: Want, what: str) -> None:
        self.broken(want.request.job, f"LOST: {what}", LOST)

    def duplicated(self, job: JobId, what: str) -> None:
        self.broken(job, f"DUPLICATED: {what}", TWICE)

    def unknown_to(self, client: Client, job: JobId, asked_at: float) -> None:
        """A client asked for a job that had been accepted, and gave it up because all that it could ask do not know it.
        A leader that accepted it must know it. If it had it then, and was there for this client, it cannot be
        unknown."""
        world = self._world
        owner = world.client_called(world.requests[job].client)
        if client is not owner and job in self._delivered_at:
            return
        accepted_by = [leader for leader in world.leaders if leader.name in owner.wants[job].accepted_by]
        if not any(leader.knows(job) for leader in accepted_by):
            what = f"LOST: it was accepted, and {client.name}, who asked for it, hears that it is unknown"
            self.broken(job, what, LOST)
        accepted_by = [leader for leader in accepted_by if owner.wants[job].accepted_by[leader.name] < asked_at]
        for line in client.lines.values():
            if line.own and line.lost_at is None and line.leader in accepted_by:
                self.broken(job, f"{client.name} hears that it is unknown, and is connected to {line.leader.name}")
        for leader in accepted_by:
            now, grace_s = world.clock.now, client.settings.grace_s
            for_s = now - client.left_at.get(leader.name, -1.0)
            if for_s < grace_s and client.removed_at.get(leader.name, -1.0) < now - grace_s:
                self.broken(
                    job, f"{client.name} hears that it is unknown, and {leader.name} was there {for_s:.1f} s before"
                )

    def cut_off(self, link: Link, pipe: Pipe) -> None:
        """A peer was sent much while it did not read. If it did, it was given more than it was asked to take."""
        peer, leader = link.ends
        whom, by = (leader, peer) if pipe is link.up else (peer, leader)
        process = self._world.process_called(whom)
        if not (pipe.held or pipe.stalls or pipe.parted or process.paused or link.harm):
            self.broken(None, f"{by} cuts {whom} off, which reads")
        link.harm = "it was cut off because it did not read"
        self.trouble(peer, link.harm)
        tally(self.counts.faults, "peer cut off that does not read")

    def silent(self, link: Link, by: str) -> None:
        """One side hung up because it heard nothing of the other. It must have heard something, if nothing was wrong
        with the two and what is between them: a frame that takes long to arrive is no silence."""
        peer, leader = link.ends
        since = self._world.clock.now - 2 * SILENCE_MAX_S
        troubled = max(self._trouble.get(peer, (-1.0, "")), self._trouble.get(leader, (-1.0, "")))[0] >= since
        alive = all(
            process.alive and not process.paused and process.resumed_at < since and process.born_at < since
            for process in map(self._world.process_called, link.ends)
        )
        if alive and not troubled and not link.harm and link.number in self._world.net.links:
            whom = leader if by == peer else peer
            self.broken(None, f"{by} takes {whom} for dead, of which it hears")

    def complained(self, who: str, text: str) -> None:
        if not who.startswith("leader") or "credit" in text:
            self.broken(None, f"{who} complains: {text}")
        tally(self.counts.complaints, " ".join(word for word in text.split() if not word.startswith("worker")))

    # What leaders do.

    def opened(self, leader: Leader, records: Sequence[LeaderKeep]) -> list[JobId]:
        """A step that kept these is performed next: it may tell results of before and after an opening. Returns the
        jobs that it leaves open: what it tells of them is of before."""
        left: dict[JobId, None] = {}
        for record in records:
            if isinstance(record, KeepJob):
                self.accepted_with[leader.name, record.job] = record.payload
                self._owner_of(record.job).places.taken(record.job, leader.name)
            elif isinstance(record, ForgetJob):
                self.accepted_with.pop((leader.name, record.job), None)
            if isinstance(record, KeepJob) or (
                # A dead job that someone requeued is told whole again, without its result; so is one whose first leaf
                # was dropped before its step was performed.
                isinstance(record, KeepWhole)
                and record.result is None
                and ((leader.name, record.job) in self._finished or (leader.name, record.job) not in self._opened)
            ):
                place = (leader.name, record.job)
                self._opened[place] += 1
                self._opened_at[place] = self._world.clock.now
                self._results.pop(place, None)
                self._finished.pop(place, None)
                self._free.pop(place, None)
                left[record.job] = None
            elif isinstance(record, KeepAttempt):
                self._attempt[leader.name, record.job] = record.worker
            elif isinstance(record, KeepDeclined):
                self._given_back(leader, record)
            elif isinstance(record, KeepOutcome) and record.output == "not begun":
                place = (leader.name, record.job)
                if self._attempt[place] not in self._free.get(place, ()):
                    self.broken(record.job, "it used up an attempt although it was never begun")
            elif isinstance(record, KeepResult):
                self._finished[leader.name, record.job] = None
                left.pop(record.job, None)
        return list(left)

    def submit_read(self, leader: Leader, conn: ConnId, job: JobId, size: int) -> None:
        place = (leader.name, job)
        self._read[place] = (conn, size)
        self._before[place] = conn, Counter(self._kept_bytes.setdefault(leader.name, Counter()))
        if conn < FIRST_STRANGER:
            self._owner_of(job).places.arrived(job, leader, conn)

    def kept(self, leader: Leader, records: Sequence[LeaderKeep]) -> None:
        """A step that kept these is performed next."""
        for record in records:
            if isinstance(record, KeepJob) and (read := self._read.pop((leader.name, record.job), None)) is not None:
                self._kept_bytes.setdefault(leader.name, Counter())[read[0]] += read[1]

    def receipts(self, leader: Leader, conn: ConnId, jobs: Sequence[JobId]) -> None:
        """No client waits for its receipt until all is on the disk that another one has sent."""
        if conn >= FIRST_STRANGER:  # What was read of the job was another request.
            return
        wide = self._world.wide
        submit_bytes_max = SUBMIT_BYTES_MAX if wide is None else SUBMIT_BYTES_MAX + wide.given_bytes_max
        most = FOREIGN_WINDOWS_MAX * (self._world.ahead_bytes_max + submit_bytes_max)
        for job in jobs:
            by, before = self._before.pop((leader.name, job), (None, Counter()))
            if by != conn:  # It is the answer to a claim.
                continue
            self._owner_of(job).places.taken(job, leader.name)
            for other, size in self._kept_bytes[leader.name].items():
                if other != conn and size - before[other] > most:
                    self.broken(
                        job, f"{leader.name} committed {size - before[other]} bytes of another connection before it"
                    )

    def _given_back(self, leader: Leader, record: KeepDeclined) -> None:
        free = self._free.setdefault((leader.name, record.job), set())
        if record.worker and not record.lacks:
            if record.worker in free:
                self.broken(record.job, "one worker could not start it, and that was no attempt for the second time")
            free.add(record.worker)

    def decided(self, leader: Leader, records: Sequence[LeaderKeep]) -> None:
        """What a step wants kept, when it was decided: nobody who is there or may come back has the program that is
        said to be unknown."""
        for record in records:
            if not isinstance(record, KeepResult) or record.outcome != "unknown-program":
                continue
            job, now = leader.machine.jobs.get(record.job), self._world.clock.now
            if job is None:
                continue
            for known in members_of(leader.machine.roster.pools_for(job.subject)):
                has = self._world.health.has(self._world.worker_called(known.label).number, job.program)
                fits = job.requirements is None or job.requirements.slots in (1, *range(known.slots + 1))
                if has and fits and known.joined_at < now:
                    self.broken(record.job, f"its program is unknown, and {known.label} has it")
            if owner_of(job.subject) is None:
                self._nobody_comes_back_with(leader, job)

    def _nobody_comes_back_with(self, leader: Leader, job: JobRecord) -> None:
        """The job's program is said to be unknown."""
        now, slots = self._world.clock.now, 1 if job.requirements is None else job.requirements.slots
        left_at = {it.label: it.spent_at for it in leader.machine.roster.gone.values()}
        started_at = leader.machine.started_at
        # It was open when the leader was started anew.
        is_old = job.submitted_at < started_at and now < started_at + RECOVERY_GRACE_S
        for worker in self._world.workers:
            settings = worker.settings
            serves = worker.leader is leader and any(matches(it, job.subject) for it in settings.patterns)
            fits = slots == 1 or (not settings.old and settings.slots >= slots)
            if not (serves and fits and self._world.health.has(worker.number, job.program)):
                continue
            if worker.name in left_at and now < left_at[worker.name] + RESTING_PATIENCE_S:
                self.broken(job.id, f"its program is unknown, and {worker.name}, which has just left, has it")
            if is_old:
                self.broken(job.id, f"its program is unknown, and {worker.name}, which may still come back, has it")

    def turned_down_by_sick(self, worker: Worker, job: JobId) -> None:
        """It was assigned to a worker whose machine cannot start it. The first ones nobody could foresee."""
        which = worker.name, worker.life, worker.spells
        self._turned_down[which] += 1
        self.counts.turned_down += 1
        if self._turned_down[which] > worker.settings.slots:
            self.broken(job, f"{worker.name} knows that its machine is sick, and goes on taking jobs")

    def open_again(self, leader: Leader, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            self._results.pop((leader.name, job), None)

    def leader_recovers(
        self, leader: Leader, leaves: Sequence[tuple[int, float, Sequence[LeaderKeep]]], performed_leaf: int
    ) -> None:
        """Steps that were kept and never performed count as well: they are what the new leader goes on from. Each
        counts once, also if that leader dies before it has performed anything."""
        counted = max(performed_leaf, self._recovered_leaf.get(leader.name, 0))
        for number, _, records in leaves:
            if number > counted:
                self.open_again(leader, self.opened(leader, records))
                self._recovered_leaf[leader.name] = number

    def result_sent(self, leader: Leader, job: JobId, result: bytes) -> None:
        known = self._results.setdefault((leader.name, job), result)
        if known != result:
            self.broken(job, f"at {leader.name} it has two results: {known!r} and {result!r}", TWICE)

    def assigned(self, leader: Leader, conn: ConnId, job: JobId) -> None:
        place = (leader.name, job)
        wish = self._owner_of(job).places.wish_at(job, leader.name)
        opening = _Opening(self._opened[place], self._opened_at[place], wish)
        self._under_way.setdefault((conn, job), deque()).append(opening)

    def assignment_came(self, worker: Worker, conn: ConnId, job: JobId) -> None:
        self._given[worker.name, job] = self._under_way[conn, job].popleft()

    # What programs do.

    def started(self, worker: Worker, job: JobId, payload: bytes) -> Execution:
        request = self._world.requests[job]
        if self._world.strangers.payloads.get(payload) == job:
            return self._started_for_stranger(worker, job, payload)
        if payload != request.payload:
            self.broken(job, f"{worker.name} was given another request: {payload!r} instead of {request.payload!r}")
        before = self._executions.setdefault(job, [])
        leader = worker.leader.name
        opened, opened_at, wish = self._given[worker.name, job]
        reasons = [
            self._why_again(request, earlier, worker) if earlier.leader == leader else self._why_here(earlier, worker)
            for earlier in before
            if (earlier.opened == opened if earlier.leader == leader else earlier.wish == wish)
        ]
        if reasons:
            tally(self.counts.again, reasons[-1])
        self.counts.executions += 1
        takes_s, reason = self._fate(request)
        execution = Execution(
            self.counts.executions,
            job,
            worker.name,
            leader,
            wish,
            opened,
            opened_at,
            self._world.clock.now,
            takes_s,
            reason,
            payload,
        )
        before.append(execution)
        return execution

    def _started_for_stranger(self, worker: Worker, job: JobId, payload: bytes) -> Execution:
        self.counts.executions += 1
        now, leader = self._world.clock.now, worker.leader.name
        number = self.counts.executions
        execution = Execution(number, job, worker.name, leader, 0, 0, now, now, _STRANGERS_S, "", payload)
        self._foreign.setdefault(job, []).append(execution)
        return execution

    def payload_of(self, job: JobId, number: bytes) -> bytes | None:
        """Which request the execution of this number ran."""
        ran = (*self._executions.get(job, ()), *self._foreign.get(job, ()))
        return next((one.payload for one in ran if b"%d" % one.number == number), None)

    def freed(self, leader: Leader, blobs: Sequence[str]) -> None:
        """Nothing is removed that somebody needs, now that it comes to it."""
        blobs = [blob for blob in blobs if not leader.machine.holds(blob)]
        for job in leader.machine.jobs.values():
            if not _needs(leader, job).isdisjoint(blobs):
                self.broken(job.id, f"{leader.name} frees a blob that it needs")

    def holds(self, leader: Leader) -> None:
        """A leader knows what its jobs and results need, also after it came out of its journal."""
        for job in leader.machine.jobs.values():
            if not all(map(leader.machine.holds, _needs(leader, job))):
                self.broken(job.id, f"{leader.name} does not hold what it needs")

    def _fate(self, request: Request) -> tuple[float, str]:
        random = self._world.random
        if request.endless:
            return _ENDLESS_S, ""
        takes_s = request.takes_s * (0.5 + random.random())
        chance = random.random()
        if request.hangs:
            return request.timeout_s, "timeout"
        if request.poison:
            return takes_s, "disk"
        for reason, share in self._world.failures:
            if chance < share:
                return takes_s, reason
            chance -= share
        if takes_s > request.timeout_s:
            return request.timeout_s, "timeout"
        return takes_s, ""

    def _why_here(self, earlier: Execution, worker: Worker) -> str:
        """Why does another leader run it as well? Broken, if it was not right to give it to that one."""
        reason = self._owner_of(earlier.job).places.why_two_leaders(
            earlier.job, earlier.wish, (earlier.leader, worker.leader.name)
        )
        if not reason:
            self.broken(earlier.job, f"{worker.leader.name} runs it, and {earlier.leader} did for no reason")
        return reason

    def _why_again(self, request: Request, earlier: Execution, worker: Worker) -> str:
        """Why was that execution not enough? Broken, if it should have been."""
        reason = self._why_not_enough(request, earlier, worker)
        if not reason:
            self.broken(
                request.job, f"it is executed again, and {earlier.worker}, which was given it before, had no trouble"
            )
        return reason

    def _why_not_enough(self, request: Request, earlier: Execution, worker: Worker) -> str:
        """Empty if that execution is the job's answer."""
        code = CODES.get(earlier.outcome)
        may_pass = code is not None and (request.retries > 0 if earlier.outcome in _ANSWERS else code.retry)
        if earlier.killed or may_pass:
            return f"it ended by {earlier.outcome}"
        if self._is_old(earlier.worker):
            return "an old worker's connection was lost"
        at, what = max(self._trouble.get(earlier.worker, (-1.0, "")), self._trouble.get(earlier.leader, (-1.0, "")))
        if at >= earlier.started_at:
            return what
        if self._world.worker_called(earlier.worker).is_cut_off():
            return "its connection was cut"
        late_at = max(at, self._trouble.get(worker.name, (-1.0, ""))[0])
        if late_at >= earlier.opened_at:
            return "an assignment was late, and the job was given to others meanwhile"
        if self._world.clock.now - self._delivered_at.get(request.job, self._world.clock.now) > 600.0:
            return "its result was forgotten"
        return ""

    def _stale(self, client: Client, want: Want, execution: Execution, before: float) -> None:
        """A worker that could not hear that its failure was taken may tell it again, and cannot know that the job was
        opened again meanwhile; without such trouble it must not happen."""
        job = want.request.job
        place = (execution.leader, job)
        if execution.opened == self._opened[place] and self._opened_at[place] > before:
            return  # A person requeued it before it was submitted again, which found it running.
        self.counts.stale += 1
        if len(client.all_leaders) > 1:
            return  # A claim, also one before a repeated submit, may reach a leader that kept an earlier failure.
        at, _ = max(self._trouble.get(execution.worker, (-1.0, "")), self._trouble.get(execution.leader, (-1.0, "")))
        if max(at, self._leader_died_at.get(execution.leader, -1.0)) < execution.started_at:
            self.broken(job, "it was submitted again, and its client was given the failure of before")

    def _owner_of(self, job: JobId) -> Client:
        return self._world.client_called(self._world.requests[job].client)

    def _is_old(self, worker: str) -> bool:
        """Then it may be given a job again that it has, and may answer with what it has: it knows no better (W4)."""
        return self._world.worker_called(worker).settings.old

    def trouble(self, who: str, what: str) -> None:
        """From now on something that ran there may have to run again. It also counts for what is still going on."""
        self._trouble[who] = (self._world.clock.now, what)

    def process_died(self, process: Process) -> None:
        world = self._world
        if isinstance(process, Leader):
            self._leader_died_at[process.name] = world.clock.now
            for known in (self._read, self._before):
                for place in [place for place in known if place[0] == process.name]:
                    del known[place]
            self._kept_bytes.pop(process.name, None)
            self._held_by_dead.update(
                (job, None)
                for client in world.clients
                for job, want in client.wants.items()
                if want.accepted and process.name in want.accepted_by
            )
            return
        if isinstance(process, Worker):
            self.trouble(process.name, "its worker died")
            self._held_by_dead.update(dict.fromkeys(process.running))

    # What users see.

    def delivered(self, client: Client, want: Want, result: bytes) -> None:
        job = want.request.job
        before = self._delivered_at.get(job, -1.0)
        self._delivered_at[job] = self._world.clock.now
        ok, reason = read_result(result)
        number = result.rsplit(b"|", 1)[1]
        if number != b"-":
            execution = next((one for one in self._executions.get(job, ()) if b"%d" % one.number == number), None)
            if (payload := self.payload_of(job, number)) not in {None, want.request.payload}:
                self.broken(job, f"{client.name} was given the result of another request: {payload!r}")
            if execution is None or execution.ended_at is None:
                self.broken(job, f"{client.name} was given the result of a program that never ended: {result!r}")
            elif reason != ("" if execution.outcome == "ok" else execution.outcome):
                self.broken(job, f"{client.name} was told {reason!r}, and the program ended by {execution.outcome}")
            elif not ok and execution.started_at < want.fresh_from and not self._is_old(execution.worker):
                self._stale(client, want, execution, before)
        if reason == "cancelled" and not want.cancelled:
            # Its client ended it at a leader that came second, died before that was confirmed, and was claimed from.
            if not client.places.was_called_off_before(job, want):
                self.broken(job, "its result says cancelled, and nobody wanted that")
            self.counts.stale += 1
        if reason == "dead" and len(client.all_leaders) == 1:  # Others may have had the answer, and were lost with it.
            self._look_for_answers(want)
        if reason == "input-lost":
            self.broken(job, "LOST: the leader looked for its request where the journal does not have it", LOST)
        self.counts.finished += 1
        if job in self._held_by_dead:
            self.counts.recovered += 1
            del self._held_by_dead[job]

    def delivered_at(self, job: JobId) -> float:
        """Its last result."""
        return self._delivered_at.get(job, -1.0)

    def _look_for_answers(self, want: Want) -> None:
        """A job is dead if the grid lost its attempts, and not if the program gave an answer (W6) since it was wanted
        last."""
        request = want.request
        for execution in self._executions.get(request.job, ()):
            is_answer = (
                execution.outcome in _ANSWERS
                and execution.wish == want.wish
                and execution.opened == self._opened[execution.leader, request.job]
            )
            worker = self._world.worker_called(execution.worker)
            if is_answer and not self._why_not_enough(request, execution, worker):
                self.broken(request.job, f"it is dead, and its program had ended by {execution.outcome}")


def _needs(leader: Leader, job: JobRecord) -> set[str]:
    is_open = job.state is not DONE or job in leader.machine.clients.dead
    inputs = set() if job.requirements is None or not is_open else set(job.requirements.files)
    return inputs.union(leader.world.blobs_of(job.result)) if type(job.result) is bytes else inputs
