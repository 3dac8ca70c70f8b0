"""What does a leader answer to questions about jobs and workers?

No function here changes the leader's state. `explain` has the reasons why a job does not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import JobId, Verdict, parse_job_id, show_job_id
from wakugumi.core.leader.admin import overview
from wakugumi.core.leader.admin.explain import STATES, explain, reason_of, state_of
from wakugumi.core.leader.answer_records import (
    Answer,
    AttemptRow,
    DeadAnswer,
    DeadRow,
    JobRow,
    JobsAnswer,
    LetterAnswer,
    StoryAnswer,
    StoryLine,
    WorkersAnswer,
)
from wakugumi.core.leader.jobs.dead_letters import last_outcome
from wakugumi.core.leader.jobs.job_table import Seen
from wakugumi.core.leader.jobs.states import JobState
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
from wakugumi.core.leader.records import JobRecord, WorkerRecord
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import Pattern, SubjectError, matches, parse_pattern
from wakugumi.errors import Refused
from wakugumi.limits.leader import JOBS_LOOKED_AT_MAX, LIST_ROWS_MAX

_NOTHING = Requirements()


def answer(leader: LeaderState, question: Question, now: float, sight: Sight | None = None) -> Answer:
    """Raises Refused if there is no such job or worker, or the sight hides it."""
    match question:
        case AskStatus():
            return overview.status(leader, now, sight=sight)
        case AskTop():
            return overview.top(leader, question, now, sight)
        case AskJobs():
            return jobs(leader, question, now, seen_by(sight))
        case AskJob():
            return job_row(job_called(leader, question.job, sight), now)
        case AskStory():
            return story(job_called(leader, question.job, sight), now)
        case AskExplain():
            return explain(leader, job_called(leader, question.job, sight), now)
        case AskWorkers():
            return WorkersAnswer([overview.worker_row(worker, now, sight) for worker in leader.roster])
        case AskDead():
            return dead(leader, question, now, seen_by(sight))
        case AskLetter():
            return letter(leader, question.job, now, sight)
        case AskCancel() | AskDrain() | AskResume() | AskRequeue() | AskDrop():
            raise AssertionError("these change something, and are not answered here")
        case AskCaches() | AskCache() | AskPin() | AskDropCache():
            raise Refused("not-supported", "this leader keeps no caches")  # Else the files machine had answered.
        case _:
            raise Refused("not-supported", "this leader keeps no keys")  # Else the ring of keys had answered.


def seen_by(sight: Sight | None) -> Seen:
    return None if sight is None or sight.sees_all else sight.sees


def jobs(leader: LeaderState, question: AskJobs, now: float, is_seen: Seen = None) -> JobsAnswer:
    """The newest jobs, the newest last, and how many match. A search by state ends after JOBS_LOOKED_AT_MAX jobs."""
    limit = max(1, min(question.limit, LIST_ROWS_MAX))
    if question.state and question.state not in STATES:
        raise Refused("bad-request", f"{question.state!r} is no state: {', '.join(STATES)}")
    if not (question.state or question.client or question.pattern or is_seen):
        newest = list(islice(reversed(leader.jobs.values()), limit))
        return JobsAnswer([job_row(job, now) for job in reversed(newest)], len(leader.jobs))
    wanted = parse_wanted(question.pattern)
    found = leader.jobs.newest_first(question.client, wanted, is_seen)
    if not question.state:
        newest = list(islice(found, limit))
        return JobsAnswer(
            [job_row(job, now) for job in reversed(newest)], leader.jobs.count(question.client, wanted, is_seen)
        )
    if not (question.client or question.pattern or is_seen):
        found = reversed(leader.jobs.values())
    newest, total, looked = [], 0, 0
    for looked, job in enumerate(found, start=1):
        if state_of(job) == question.state:
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
        state=state_of(job),
        client=job.client.id,
        program=job.program,
        subject=job.subject,
        attempts=job.attempts,
        age_s=now - job.submitted_at,
        worker=_last_worker(job),
        reason=reason_of(job),
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


def dead(leader: LeaderState, question: AskDead, now: float, is_seen: Seen = None) -> DeadAnswer:
    found, _ = letters(leader, question.jobs, question.pattern, question.reason, is_seen)
    limit = max(1, min(question.limit, LIST_ROWS_MAX))
    return DeadAnswer([_dead_row(job, now) for job in found[-limit:]], len(found))


def letters(
    leader: LeaderState, jobs: Sequence[str], pattern: str, reason: str, is_seen: Seen = None
) -> tuple[list[JobRecord], list[str]]:
    """Dead letters that pass all filters, and named ids that are no dead letters in sight. Raises Refused."""
    all_letters = leader.clients.dead.letters
    if jobs:
        found, unknown = named(all_letters, jobs, is_seen)
    else:
        found, unknown = [job for job in all_letters.values() if is_seen is None or is_seen(job.client.id)], []
    wanted = parse_wanted(pattern)
    found = [job for job in found if is_wanted(job, "", wanted)]
    return [job for job in found if not reason or last_outcome(job) == reason], unknown


def named(
    known: Mapping[JobId, JobRecord], jobs: Sequence[str], is_seen: Seen = None
) -> tuple[list[JobRecord], list[str]]:
    """The known jobs in sight among these ids, each once, and the other ids."""
    found: dict[JobId, JobRecord] = {}
    unknown: list[str] = []
    for text in jobs:
        try:
            job = known.get(parse_job_id(text))
        except ValueError:
            job = None
        if job is None or not (is_seen is None or is_seen(job.client.id)):
            unknown.append(text)
        else:
            found[job.id] = job
    return list(found.values()), unknown


def letter(leader: LeaderState, text: str, now: float, sight: Sight | None = None) -> LetterAnswer:
    """A dead letter and its attempts. Raises Refused if the job is not dead."""
    job = job_called(leader, text, sight)
    if job not in leader.clients.dead:
        raise Refused("not-dead", f"job {text} is {state_of(job)}, and not among the dead letters")
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


def _last_worker(job: JobRecord) -> str:
    if job.worker is not None:
        return job.worker.label
    return job.history[-1].worker if job.history else ""


def job_called(leader: LeaderState, text: str, sight: Sight | None) -> JobRecord:
    """The job of this id. A job out of sight is as unknown as any other. Raises Refused."""
    try:
        job = leader.jobs.get(parse_job_id(text))
    except ValueError as error:
        raise Refused("bad-request", str(error)) from None
    if job is None or not (sight is None or sight.sees(job.client.id)):
        raise Refused("unknown-job", f"the leader does not know job {text}, or no longer")
    return job
