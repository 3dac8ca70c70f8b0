"""Why is a job not running, or not done?

No function here changes the leader's state. Each reason is a sentence for a person; the decisive one comes first.
"""

from __future__ import annotations

from wakugumi.core.ids import Verdict, show_job_id
from wakugumi.core.leader.answer_records import ExplainAnswer
from wakugumi.core.leader.jobs.broadcast import PARTS, owner_of, read_list
from wakugumi.core.leader.jobs.states import DONE, JobState
from wakugumi.core.leader.records import ClientRecord, JobRecord, Lane, WorkerRecord
from wakugumi.core.leader.scheduling.roster import can_run, has_room, members_of
from wakugumi.core.leader.scheduling.turn_jobs import in_order, slots_of
from wakugumi.core.leader.state import LeaderState
from wakugumi.core.requirements import Requirements
from wakugumi.limits.leader import UNDELIVERED_BYTES_PER_CLIENT_MAX

_NOTHING = Requirements()
STATES = ("queued", "backoff", "running", "ok", "failed")
"""Names of states for people: the first three in the order of JobState, then DONE as two."""


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
                why = f": {reason_of(job)}"
            taken = "delivered" if job.delivered else f"waiting to be fetched by {job.client.id}"
            reasons = [f"finished {how} {now - job.since:.1f} s ago{why}; its result is {taken}"]
    return ExplainAnswer(show_job_id(job.id), state_of(job), reasons)


def state_of(job: JobRecord) -> str:
    if job.state is DONE:
        return "ok" if job.ok else "failed"
    return STATES[job.state]


def reason_of(job: JobRecord) -> str:
    """Why a job failed, as a code of the error table: from its verdict, or else from its last attempt."""
    if job.state is not DONE or job.ok:
        return ""
    if isinstance(job.result, Verdict):
        return job.result.code
    return job.history[-1].outcome if job.history else ""


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
