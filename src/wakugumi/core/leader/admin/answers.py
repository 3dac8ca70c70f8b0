"""Why is a job not running? This and other questions about jobs and workers are answered from the leader's state.

No function here changes that state. Each reason is a sentence for a person; the decisive one comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from wakugumi.core.ids import JobId, Verdict, parse_job_id, show_job_id
from wakugumi.core.leader.admin import overview
from wakugumi.core.leader.answer_records import (
    Answer,
    AttemptRow,
    DeadAnswer,
    DeadRow,
    ExplainAnswer,
    JobRow,
    JobsAnswer,
    LetterAnswer,
    StoryAnswer,
    StoryLine,
    WorkersAnswer,
)
from wakugumi.core.leader.jobs.broadcast import PARTS, owner_of, read_list
from wakugumi.core.leader.jobs.dead_letters import last_outcome
from wakugumi.core.leader.jobs.states import DONE, JobState
from wakugumi.core.leader.questions import (
    AskCache,
    AskCaches,
    AskCancel,
    AskDead,
    AskDrain,
    AskDrop,
    AskDropCache,
    AskExplain,
    AskJob,
    AskJobs,
    AskLetter,
    AskPin,
    AskRequeue,
    AskResume,
    AskStatus,
    AskStory,
    AskTop,
    AskWorkers,
    Question,
)
from wakugumi.core.leader.records import ClientRecord, JobRecord, Lane, WorkerRecord
from wakugumi.core.leader.scheduling.roster import can_run, has_room, members_of
from wakugumi.core.leader.scheduling.turn_jobs import in_order, slots_of
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, SubjectError, matches, parse_pattern
from wakugumi.errors import Refused
from wakugumi.limits.leader import JOBS_LOOKED_AT_MAX, LIST_ROWS_MAX, UNDELIVERED_BYTES_PER_CLIENT_MAX

_NOTHING = Requirements()
STATES = ("queued", "backoff", "running", "ok", "failed")
"""Names of states for people: the first three in the order of JobState, then DONE as two."""


def answer(leader: LeaderState, question: Question, now: float) -> Answer:
    """Raises Refused if there is no such job or worker."""
    match question:
        case AskStatus():
            return overview.status(leader, now)
        case AskTop():
            return overview.top(leader, question, now)
        case AskJobs():
            return jobs(leader, question, now)
        case AskJob():
            return job_row(_job_called(leader, question.job), now)
        case AskStory():
            return story(_job_called(leader, question.job), now)
        case AskExplain():
            return explain(leader, _job_called(leader, question.job), now)
        case AskWorkers():
            return WorkersAnswer([overview.worker_row(worker, now) for worker in leader.roster])
        case AskDead():
            return dead(leader, question, now)
        case AskLetter():
            return letter(leader, question.job, now)
        case AskCancel() | AskDrain() | AskResume() | AskRequeue() | AskDrop():
            raise AssertionError("these change something, and are not answered here")
        case AskCaches() | AskCache() | AskPin() | AskDropCache():
            raise Refused("not-supported", "this leader keeps no caches")  # Else the files machine had answered.


def jobs(leader: LeaderState, question: AskJobs, now: float) -> JobsAnswer:
    """The newest jobs, the newest last, and how many match. A search by state ends after JOBS_LOOKED_AT_MAX jobs."""
    limit = max(1, min(question.limit, LIST_ROWS_MAX))
    if question.state and question.state not in STATES:
        raise Refused("bad-request", f"{question.state!r} is no state: {', '.join(STATES)}")
    if not (question.state or question.client or question.pattern):
        newest = list(islice(reversed(leader.jobs.values()), limit))
        return JobsAnswer([job_row(job, now) for job in reversed(newest)], len(leader.jobs))
    wanted = parse_wanted(question.pattern)
    found = leader.jobs.newest_first(question.client, wanted)
    if not question.state:
        newest = list(islice(found, limit))
        return JobsAnswer([job_row(job, now) for job in reversed(newest)], leader.jobs.count(question.client, wanted))
    if not (question.client or question.pattern):
        found = reversed(leader.jobs.values())
    newest, total, looked = [], 0, 0
    for looked, job in enumerate(found, start=1):
        if _state(job) == question.state:
            total += 1
            if total <= limit:
                newest.append(job)
        if looked == JOBS_LOOKED_AT_MAX:
            break
    return JobsAnswer([job_row(job, now) for job in reversed(newest)], total, looked == JOBS_LOOKED_AT_MAX)


def parse_wanted(pattern: str) -> Pattern | None:
    """None, which means any, for an empty pattern. Raises Refused."""
    try:
        return parse_pattern(pattern) if pattern else None
    except SubjectError as error:
        raise Refused("bad-subject", str(error)) from None


def is_wanted(job: JobRecord, client: str, wanted: Pattern | None) -> bool:
    """Is this a job of this client, with a subject that the pattern matches? An empty client and None mean any."""
    return (not client or job.client.id == client) and (wanted is None or matches(wanted, job.subject))


def job_row(job: JobRecord, now: float) -> JobRow:
    requirements = job.requirements or _NOTHING
    return JobRow(
        job=show_job_id(job.id),
        state=_state(job),
        client=job.client.id,
        program=job.program,
        subject=job.subject,
        attempts=job.attempts,
        age_s=now - job.submitted_at,
        worker=_last_worker(job),
        reason=_reason(job),
        key=requirements.key,
        priority=requirements.priority,
        slots=requirements.slots,
    )


def story(job: JobRecord, now: float) -> StoryAnswer:
    """Events of a job, from its record."""
    lines = [StoryLine(now - job.submitted_at, f"submitted by {job.client.id} to {job.subject}")]
    for attempt in job.history:
        lines.append(StoryLine(now - attempt.started_at, f"attempt {attempt.number} began on worker {attempt.worker}"))
        lines.append(StoryLine(now - attempt.ended_at, f"attempt {attempt.number} ended: {attempt.outcome}"))
    match job.state:
        case JobState.QUEUED if job.attempts:
            lines.append(StoryLine(now - job.since, "queued again, at the head of its queue"))
        case JobState.BACKOFF:
            lines.append(StoryLine(0.0, f"will be queued again in {job.since - now:.1f} s"))
        case JobState.RUNNING:
            lines.append(
                StoryLine(now - job.since, f"attempt {job.attempts} began on worker {_last_worker(job)}, still running")
            )
        case JobState.DONE:
            how = "OK" if job.ok else "FAILED"
            why = f" ({job.result.code})" if isinstance(job.result, Verdict) else ""
            where = "delivered" if job.delivered else "not yet delivered"
            # `since` of a result is the leader's last start, if that was later.
            at = min(job.since, job.history[-1].ended_at) if job.history else job.since
            lines.append(StoryLine(now - at, f"finished {how}{why}, {where}"))
        case _:
            pass
    return StoryAnswer(show_job_id(job.id), lines)


def explain(leader: LeaderState, job: JobRecord, now: float) -> ExplainAnswer:
    """Why is a job not running, or not done?"""
    match job.state:
        case JobState.QUEUED:
            reasons = _why_queued(leader, job, now)
        case JobState.BACKOFF:
            last = job.history[-1] if job.history else None
            how = f": the last one ended by {last.outcome} on worker {last.worker}" if last else ""
            reasons = [f"backing off for another {job.since - now:.1f} s before attempt {job.attempts + 1}{how}"]
        case JobState.RUNNING:
            where = job.worker
            assert where is not None
            away = ""
            if where.conn is None:
                away = "; its connection is lost, and it may still come back"
                if where.away_until is not None:
                    away += f" within {max(0.0, where.away_until - now):.1f} s"
            reasons = [f"runs on worker {where.label} for {now - job.since:.1f} s (attempt {job.attempts}){away}"]
        case _:
            how = "OK" if job.ok else "FAILED"
            why = ""
            if isinstance(job.result, Verdict):
                parts = job.result.code == PARTS
                why = f": a broadcast to {len(read_list(job.result.text))} workers" if parts else f": {job.result.text}"
            if not why and not job.ok:
                why = f": {_reason(job)}"
            taken = "delivered" if job.delivered else f"waiting to be fetched by {job.client.id}"
            reasons = [f"finished {how} {now - job.since:.1f} s ago{why}; its result is {taken}"]
    return ExplainAnswer(show_job_id(job.id), _state(job), reasons)


def dead(leader: LeaderState, question: AskDead, now: float) -> DeadAnswer:
    found, _ = letters(leader, question.jobs, question.pattern, question.reason)
    limit = max(1, min(question.limit, LIST_ROWS_MAX))
    return DeadAnswer([_dead_row(job, now) for job in found[-limit:]], len(found))


def letters(leader: LeaderState, jobs: Sequence[str], pattern: str, reason: str) -> tuple[list[JobRecord], list[str]]:
    """Dead letters that pass all filters, and named ids that are no dead letters. Raises Refused."""
    all_letters = leader.clients.dead.letters
    found, unknown = named(all_letters, jobs) if jobs else (list(all_letters.values()), [])
    wanted = parse_wanted(pattern)
    found = [job for job in found if is_wanted(job, "", wanted)]
    return [job for job in found if not reason or last_outcome(job) == reason], unknown


def named(known: Mapping[JobId, JobRecord], jobs: Sequence[str]) -> tuple[list[JobRecord], list[str]]:
    """The known jobs among these ids, each once, and the unknown ids."""
    found: dict[JobId, JobRecord] = {}
    unknown: list[str] = []
    for text in jobs:
        try:
            job = known.get(parse_job_id(text))
        except ValueError:
            job = None
        if job is None:
            unknown.append(text)
        else:
            found[job.id] = job
    return list(found.values()), unknown


def letter(leader: LeaderState, text: str, now: float) -> LetterAnswer:
    """A dead letter and its attempts. Raises Refused if the job is not dead."""
    job = _job_called(leader, text)
    if job not in leader.clients.dead:
        raise Refused("not-dead", f"job {text} is {_state(job)}, and not among the dead letters")
    attempts = [
        AttemptRow(
            attempt.number,
            attempt.worker,
            now - attempt.started_at,
            now - attempt.ended_at,
            attempt.outcome,
            attempt.output,
        )
        for attempt in job.history
    ]
    return LetterAnswer(_dead_row(job, now), attempts)


def _dead_row(job: JobRecord, now: float) -> DeadRow:
    return DeadRow(
        job=show_job_id(job.id),
        client=job.client.id,
        program=job.program,
        subject=job.subject,
        attempts=job.attempts,
        reason=last_outcome(job),
        worker=_last_worker(job),
        dead_s=now - job.since,
    )


def worker_called(leader: LeaderState, text: str) -> WorkerRecord:
    worker = leader.roster.find(text)
    if worker is None:
        raise Refused("unknown-worker", f"no worker is called {text!r}")
    return worker


def _why_queued(leader: LeaderState, job: JobRecord, now: float) -> list[str]:
    lane = leader.lanes.lane(job.subject)
    assert lane is not None
    workers = _matching(lane)
    reasons = ["the leader is shutting down and assigns nothing more"] if leader.stopping else []
    reasons += _why_elsewhere(leader, job)
    if not workers and owner_of(job.subject) is not None:
        due = leader.lifecycle.deadlines.by_job.get(job.id, now)
        reasons.append(f"it is a broadcast's part for a worker that is away; it is given up in {due - now:.0f} s")
    elif not workers:
        total = len(leader.roster)
        others = f"{_count(total, 'worker')} with other patterns" if total else "no worker at all"
        reasons.append(f"no worker matches {job.subject}; connected: {others}")
    elif not (able := [worker for worker in workers if can_run(worker, job.requirements or _NOTHING)]):
        if why := _why_unable(leader, job, workers):  # Workers that could not start it are named already.
            reasons.append(why)
    elif all(worker.rests for worker in able):
        first = able[0]
        reasons.append(f"{_count(len(able), 'matching worker')}, all resting: {first.label} because {first.rests}")
    elif slots_of(job) > 1:
        reasons += _why_no_room(lane, job, able)
    elif not any(worker.usable_credit for worker in able):
        reasons.append(_why_no_credit(able))
    elif not any(worker.usable_credit and worker.kept_for is None for worker in able):
        kept = _count(sum(worker.kept_for is not None for worker in able), "matching worker")
        reasons.append(f"{kept} with free slots, kept free for jobs that need several")
    elif job.requirements is not None and job.requirements.blobs and _waits_for_blobs(able):
        reasons.append("it names blobs: those that have credit do not know them, and it waits for one that does")
    home = leader.lanes.picker.known_home(lane, job)
    if home is not None and not has_room(home, slots_of(job)):
        how = "away" if home.conn is None else "busy"
        reasons.append(f"it waits for the home of its key, worker {home.label}, which is {how}")
    reasons += _why_client_waits(job.client)
    if leader.clients.is_swamped():
        results = leader.clients.results
        held = f"{_count(len(results.undelivered), 'result')} of {results.undelivered_bytes} bytes"
        reasons.append(f"nothing is assigned while {held} wait to be fetched by their clients")
    ahead, above = _ahead(lane, job)
    if ahead:
        higher = f", {above} of them of higher priority" if above else ""
        reasons.append(f"it stands behind {_count(ahead, 'job')} of the same client and subject{higher}")
    return reasons or ["it is next: it will be assigned at once"]


def _why_elsewhere(leader: LeaderState, job: JobRecord) -> list[str]:
    """The job waits for another worker than those that could not start it (W9)."""
    shuns = () if job.requirements is None else job.requirements.shuns
    known = [worker for it in shuns if (worker := leader.roster.by_id.get(it)) is not None]
    if not shuns:
        return []
    whose = "; ".join(f"{worker.label} could not start it: {worker.fault}" for worker in known[:3])
    more = f"; nor could {len(shuns) - min(len(known), 3)} more" if len(shuns) > min(len(known), 3) else ""
    return [f"it waits for another worker: {whose}{more}"]


def _why_unable(leader: LeaderState, job: JobRecord, workers: list[WorkerRecord]) -> str:
    if job.requirements is not None and job.requirements.env and not any(worker.env for worker in workers):
        count = _count(len(workers), "matching worker")
        return f"it sets variables (--env), and of {count} none knows of them: it waits for one of a newer version"
    nodes = [worker for worker in workers if worker.simple_only]
    plain = len(workers) - len(nodes)
    reasons = []
    if nodes:
        why = leader.why_not_simple(job.payload) if job.payload is not None else ""
        why = why or "they take only jobs with one file and a program's arguments"
        reasons.append(f"{_count(len(nodes), 'matching node')} known by address cannot be told it: {why}")
    requirements = job.requirements or _NOTHING
    old = sum(not (worker.env or worker.simple_only) for worker in workers)
    if old and requirements.env and not requirements.unnamed:
        reasons.append(f"it sets variables (--env), which {_count(old, 'matching worker')} cannot do")
    elif plain and requirements.unnamed:
        reasons.append(f"it names no program, and of {_count(plain, 'matching worker')} none has one for such jobs")
    return "; ".join(reasons)


def _why_no_credit(workers: list[WorkerRecord]) -> str:
    count = _count(len(workers), "matching worker")
    running = sum(len(worker.jobs) for worker in workers)
    held_back = [worker for worker in workers if worker.draining or worker.leaving]
    if len(held_back) == len(workers):
        return f"{count}, all draining or leaving"
    also = f", {len(held_back)} of them draining or leaving" if held_back else ""
    if resting := sum(bool(worker.rests) for worker in workers):
        also += f", {resting} of them resting"
    if held := [worker for worker in workers if worker.held_by]:
        share = max(worker.held_by for worker in held)
        also += f", {len(held)} of them held back because others use {share:.0%} of its CPU (--cpu-cap)"
    if written_to := sum(worker.credit > 0 and worker.is_congested for worker in workers):
        also += f", {written_to} of them still being sent what it was given before"
    cpu = max(worker.cpu for worker in workers)
    busy = f", CPU at {cpu:.0%}" if cpu else ""
    return f"{count} without free credit{also}, busy with {_count(running, 'job')}{busy}"


def _waits_for_blobs(workers: list[WorkerRecord]) -> bool:
    knowing = [worker for worker in workers if worker.blobs and worker.serves]
    return bool(knowing) and not any(worker.usable_credit for worker in knowing)


def _why_client_waits(client: ClientRecord) -> list[str]:
    if client.in_flight >= client.cap:
        return [f"client {client.id} is at its cap: {client.in_flight} of {client.cap} jobs in flight"]
    if not client.may_run:
        held, most = client.undelivered_bytes, UNDELIVERED_BYTES_PER_CLIENT_MAX
        return [f"client {client.id} has not taken {held} bytes of results; beyond {most} its jobs wait"]
    return []


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _why_no_room(lane: Lane, job: JobRecord, workers: list[WorkerRecord]) -> list[str]:
    slots = slots_of(job)
    needs = f"it needs {slots} slots at once"
    largest = max(worker.slots for worker in workers)
    if largest < slots:
        most = f"the largest has {largest}" if largest else "none of them says how many it has"
        return [f"{needs}, and no worker that serves {job.subject} has so many: {most}"]
    turn = lane.by_client[job.client.id]
    kept = turn.needs.kept if turn.needs is not None and turn.needs.large is job else None
    if kept is not None:
        return [f"{needs}: worker {kept.label} is being kept free for it, {kept.usable_credit} of them are free"]
    if any(has_room(worker, slots) for worker in workers):
        return []
    free = max(worker.usable_credit for worker in workers if worker.slots >= slots)
    return [f"{needs}, and no worker has so many free: at most {free}"]


def _ahead(lane: Lane, job: JobRecord) -> tuple[int, int]:
    """Number of jobs before this one in its turn, and number of these with a higher priority."""
    turn = lane.by_client.get(job.client.id)
    priority = (job.requirements or _NOTHING).priority
    count = above = 0
    for other in in_order(turn) if turn else ():
        if other is job:
            break
        count += 1
        above += other.requirements is not None and other.requirements.priority > priority
    return count, above


def _matching(lane: Lane) -> list[WorkerRecord]:
    return members_of(lane.all_pools)


def _state(job: JobRecord) -> str:
    if job.state is DONE:
        return "ok" if job.ok else "failed"
    return STATES[job.state]


def _reason(job: JobRecord) -> str:
    """Why a job failed, as a code of the error table: from its verdict, or else from its last attempt."""
    if job.state is not DONE or job.ok:
        return ""
    if isinstance(job.result, Verdict):
        return job.result.code
    return job.history[-1].outcome if job.history else ""


def _last_worker(job: JobRecord) -> str:
    if job.worker is not None:
        return job.worker.label
    return job.history[-1].worker if job.history else ""


def _job_called(leader: LeaderState, text: str) -> JobRecord:
    try:
        job = leader.jobs.get(parse_job_id(text))
    except ValueError as error:
        raise Refused("bad-request", str(error)) from None
    if job is None:
        raise Refused("unknown-job", f"the leader does not know job {text}, or no longer")
    return job
