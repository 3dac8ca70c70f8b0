"""`waku status`, `waku jobs …`, `waku workers …`: what does a leader know, and what may be asked of it?

Each command is one question of `core.questions` and one way to show its answer; lists are asked of each leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from functools import reduce
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from wakugumi.app import logs
from wakugumi.app.admin.ask import answers, ask, ask_each, id_of, show_each
from wakugumi.app.flags import with_settings
from wakugumi.app.options import UNPACKING, Asking, Unpacking
from wakugumi.app.show.downloads import ShownTransfer
from wakugumi.app.show.output import (
    ago,
    colour,
    duration,
    json_out,
    line_out,
    lines_out,
    one,
    say,
    size,
    spread,
    table_out,
)
from wakugumi.app.show.results import show_results
from wakugumi.app.stoppable import run
from wakugumi.app.work.map_output import OutFolder, Record, say_left_out
from wakugumi.app.work.target import connected
from wakugumi.core.leader.admin import questions as qu
from wakugumi.errors import EXIT_JOB_FAILED, EXIT_NOT_FOUND, ConfigError, PeerError, Refused, hint_for
from wakugumi.limits.leader import JOBS_LOOKED_AT_MAX, LIST_ROWS_DEFAULT, LIST_ROWS_MAX
from wakugumi.roles.client.result import Result

IDS_AT_ONCE: Final = 10_000
"""Ids in one question: it fits a frame, and the leader does all of it in one step."""

State = Annotated[str, Parameter(show_default=False, help="Only those: queued, backoff, running, ok or failed.")]
Client = Annotated[str, Parameter(show_default=False, help="Only those of this client.")]
Pattern = Annotated[str, Parameter(show_default=False, help="Only those whose subject matches, as job.assign.calcA.>")]


@with_settings
def status(*, asking: Asking) -> int:
    logs.start(asking, quiet=True)
    how = asking.output
    told = ask_each(qu.AskStatus(), qu.StatusAnswer, asking)
    kept = {} if how == "quiet" else _kept(asking)
    beside = {each.leader: {"caches": kept.get(each.leader)} for each in told if each.answer is not None}
    show_each(told, asking, _show_status, lambda answer: ["full" if answer.full else "ok"], beside)
    if how == "table":
        _show_kept(kept, len(told) > 1)
    return 0


@with_settings
def jobs_list(
    *,
    state: State = "",
    client: Client = "",
    pattern: Pattern = "",
    limit: Annotated[int, Parameter(help="At most so many, the newest.")] = LIST_ROWS_DEFAULT,
    asking: Asking,
) -> int:
    logs.start(asking, quiet=True)
    told = ask_each(qu.AskJobs(state, client, pattern, limit), qu.JobsAnswer, asking)
    show_each(told, asking, _show_newest_jobs, lambda answer: [row.job for row in answer.jobs])
    return 0


@with_settings
def jobs_show(
    job: str,
    /,
    *,
    asking: Asking,
) -> int:
    logs.start(asking, quiet=True)
    row = ask(qu.AskJob(id_of(job)), qu.JobRow, asking)
    match asking.output:
        case "json":
            json_out(row)
        case "quiet":
            lines_out([row.state])
        case _:
            _show_jobs([row])
    return 0


@with_settings
def jobs_story(
    job: str,
    /,
    *,
    asking: Asking,
) -> int:
    logs.start(asking, quiet=True)
    answer = ask(qu.AskStory(id_of(job)), qu.StoryAnswer, asking)
    match asking.output:
        case "json":
            json_out(answer)
        case "quiet":
            lines_out([line.what for line in answer.story])
        case _:
            table_out(("#when", "what"), [(ago(line.ago_s), line.what) for line in answer.story])
    return 0


@with_settings
def jobs_explain(
    job: str,
    /,
    *,
    asking: Asking,
) -> int:
    logs.start(asking, quiet=True)
    answer = ask(qu.AskExplain(id_of(job)), qu.ExplainAnswer, asking)
    match asking.output:
        case "json":
            json_out(answer)
        case "quiet":
            lines_out(answer.reasons[:1])
        case _:
            lines_out([f"{answer.state}: {answer.reasons[0]}", *(f"  also: {reason}" for reason in answer.reasons[1:])])
    return 0


@with_settings
def jobs_cancel(
    *jobs: str,
    client: Client = "",
    pattern: Pattern = "",
    forget: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Forget their results, too, also of those that had ended: for a client that will not come back.",
        ),
    ] = False,
    asking: Asking,
) -> int:
    logs.start(asking, quiet=True)
    if not jobs and not client and not pattern:
        raise ConfigError("nothing says which jobs to cancel", "name ids, --client or --pattern")
    ids = {id_of(job): job for job in jobs}
    answer = _cancel(list(ids), client, pattern, forget, asking)
    match asking.output:
        case "json":
            json_out(answer)
        case "quiet":
            lines_out([str(answer.cancelled)])
        case _:
            done = f", {one(answer.finished, 'job')} had ended before" if answer.finished else ""
            gone = f", {one(answer.forgotten, 'result')} forgotten" if forget else ""
            lines_out([f"{one(answer.cancelled, 'job')} cancelled{done}{gone}"])
            for job in answer.unknown:
                say(f"unknown: {ids.get(job, job)}")
    return EXIT_NOT_FOUND if answer.unknown else 0


@with_settings
def jobs_wait(
    job: str,
    /,
    *more: str,
    out: Annotated[str | None, Parameter(help="A folder for what the jobs made, a folder for each in it.")] = None,
    wait: Annotated[float | None, Parameter(help="Wait at most so many seconds.")] = None,
    unpacking: Unpacking = UNPACKING,
    asking: Asking,
) -> int:
    logs.start(asking, quiet=True)
    how = asking.output
    results = run(_wait(asking, [job, *more], wait))
    kept = [True]
    if out is not None:
        with closing(OutFolder(out, unpacking.bytes_max(), dot_files=unpacking.dot_files)) as folder:
            kept = [_keep(folder, result) for result in results]
            say_left_out(folder.left_out)
    show_results(results, how)
    return 0 if all(result.ok for result in results) and all(kept) else EXIT_JOB_FAILED


@with_settings
def workers_list(*, asking: Asking) -> int:
    logs.start(asking, quiet=True)
    told = ask_each(qu.AskWorkers(), qu.WorkersAnswer, asking)
    show_each(
        told,
        asking,
        lambda answer: _show_workers(answer.workers),
        lambda answer: [row.worker for row in answer.workers],
    )
    return 0


@with_settings
def workers_drain(
    worker: str,
    /,
    *,
    asking: Asking,
) -> int:
    logs.start(asking, quiet=True)
    return _show_worker(ask(qu.AskDrain(worker), qu.WorkerRow, asking), asking)


@with_settings
def workers_resume(
    worker: str,
    /,
    *,
    asking: Asking,
) -> int:
    logs.start(asking, quiet=True)
    return _show_worker(ask(qu.AskResume(worker), qu.WorkerRow, asking), asking)


def _cancel(ids: list[str], client: str, pattern: str, forget: bool, asking: Asking) -> qu.CancelAnswer:
    """All of it, in as many questions as it takes."""
    whole = qu.CancelAnswer(0, 0, [])
    for at in range(0, len(ids) or 1, IDS_AT_ONCE):
        question = qu.AskCancel(ids[at : at + IDS_AT_ONCE], client, pattern, forget)
        later = len(ids[at + IDS_AT_ONCE :])
        while True:
            part = reduce(qu.CancelAnswer.beside, answers(ask_each(question, qu.CancelAnswer, asking)))
            whole = qu.CancelAnswer(
                whole.cancelled + part.cancelled,
                whole.finished + part.finished,
                [*whole.unknown, *part.unknown],
                whole.forgotten + part.forgotten,
            )
            if part.left or later:
                say(f"{one(whole.cancelled, 'job')} cancelled, {part.left + later:,} to go")
            if not part.left:
                break
    return whole


async def _wait(asking: Asking, jobs: list[str], wait_s: float | None) -> list[Result]:
    async with connected(asking) as grid:
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.gather(*(grid.wait(job) for job in jobs))
        except TimeoutError:
            raise Refused("timed-out", f"not all are done after {duration(wait_s or 0)}") from None


def _keep(folder: OutFolder, result: Result) -> bool:
    """False if its files could not be had, or are not to be written; error.txt says why."""
    name = result.job_id
    folder.check_free(name)
    record = Record(
        key="",
        job=result.job_id,
        input="",
        args=[],
        status=result.status,
        exit_code=result.exit_code,
        reason=result.reason,
        run_s=result.run_s,
        worker=result.worker,
    )
    transfer = ShownTransfer(result.archive_bytes)
    with closing(transfer):
        done = folder.put(name, result, record, transfer.on_bytes)
    if done.status != result.status or done.reason != result.reason:
        hint = hint_for(done.reason) or f"see {folder.path}/{name}/error.txt"
        say(colour("failed:", "red"), f"the files of {name} were not written ({done.reason}): {hint}")
        return False
    return True


def _show_status(answer: qu.StatusAnswer) -> None:
    rows = [
        ("up", f"{duration(answer.up_s)}, {_how_durable(answer)}"),
        ("workers", f"{answer.workers}, {one(answer.slots_free, 'slot')} free"),
        ("last minute", f"{answer.submitted_per_s:.1f} jobs/s in, {answer.finished_per_s:.1f} jobs/s out"),
        ("clients", str(answer.clients)),
        ("queued", f"{one(answer.queued, 'job')}, {size(answer.queued_bytes)}{', full' if answer.full else ''}"),
        ("backing off", one(answer.backing_off, "job")),
        ("running", one(answer.running, "job")),
        ("finished", f"{answer.finished_ok:,} ok, {answer.finished_failed:,} failed, {answer.dead:,} of them dead"),
        ("redelivered", str(answer.redelivered)),
        ("not fetched", one(answer.undelivered, "result")),
    ]
    if answer.letters:
        rows.append(("dead letters", f"{answer.letters:,}: see `waku dead list`"))
    width = max(len(name) for name, _ in rows)
    lines_out([f"{name:<{width}}  {value}" for name, value in rows])
    if answer.subjects:
        line_out()
        rows_by_subject = [
            (row.subject, f"{row.queued:,}", f"{row.figures.running:,}", str(row.workers), *_counted(row.figures))
            for row in answer.subjects
        ]
        table_out(("subject", "#queued", "#running", "#workers", *_COUNTED), rows_by_subject)
    if answer.groups:
        line_out()
        rows_by_group = [
            (
                row.group,
                f"{row.queued:,}",
                f"{row.figures.running:,}",
                str(row.workers),
                *_counted(row.figures),
            )
            for row in answer.groups
        ]
        table_out(("group", "#queued", "#running", "#workers", *_COUNTED), rows_by_group)
    if answer.busiest:
        line_out()
        rows_by_client = [
            (
                row.client,
                "here" if row.connected else "away",
                f"{row.unfinished:,}",
                f"{row.running} of {row.cap}",
                size(row.unfetched_bytes),
            )
            for row in answer.busiest
        ]
        table_out(("client", "is", "#unfinished", "#running", "#not fetched"), rows_by_client)


class KeptByLeader(msgspec.Struct, frozen=True):
    """What a leader keeps for its workers."""

    total: int
    """Caches."""
    bytes: int
    """Of all their files."""
    hits: int
    """How often a job or a worker asked for one of them."""
    blobs: qu.BlobCounters


def _kept(asking: Asking) -> dict[str, KeptByLeader]:
    """By leader; those of a version that keeps no caches, or keeps them otherwise, are left out."""
    try:
        told = ask_each(qu.AskCaches(LIST_ROWS_MAX), qu.CachesAnswer, asking)
    except (Refused, PeerError):
        return {}
    answers = {each.leader: each.answer for each in told if each.answer is not None}
    return {
        leader: KeptByLeader(answer.total, answer.bytes, sum(row.hits for row in answer.rows), answer.blobs)
        for leader, answer in answers.items()
    }


def _show_kept(kept: Mapping[str, KeptByLeader], several: bool) -> None:
    for leader, what in kept.items():
        sent = what.blobs
        if what.total or sent.blobs:
            title = f"caches of {leader}" if several else "caches"
            fetched = (
                f"{size(sent.from_leader_bytes)} from the leader and {size(sent.from_workers_bytes)} from each other"
            )
            line_out()
            line_out(f"{title}: {what.total:,}, {size(what.bytes)}, {one(what.hits, 'hit')}; workers fetched {fetched}")
            if sent.store_budget_bytes:
                budget = size(sent.store_budget_bytes)
                held = size(sent.store_bytes)
                line_out(f"content with the leader, when it last looked: {held} (--blob-bytes {budget})")


_COUNTED: Final = ("#ok", "#failed", "#redelivered", "#dead", "#delay p50/p95/p99", "#run time p50/p95/p99")


def _counted(figures: qu.Figures) -> tuple[str, ...]:
    """What a subject's and a group's row have in common."""
    return (
        f"{figures.finished_ok:,}",
        f"{figures.finished_failed:,}",
        f"{figures.redelivered:,}",
        f"{figures.dead:,}",
        spread(figures.dispatch_delay),
        spread(figures.run_time),
    )


def _how_durable(answer: qu.StatusAnswer) -> str:
    if not answer.durable:
        return "in memory only"
    if answer.stalled:
        return f"nothing is committed: {answer.stalled}"
    return "its disk is nearly full: nothing is accepted" if answer.disk_low else "with a journal"


def _show_newest_jobs(answer: qu.JobsAnswer) -> None:
    _show_jobs(answer.jobs)
    if answer.total > len(answer.jobs):
        least = "at least " if answer.at_least else ""
        say(f"the newest {len(answer.jobs)} of {least}{one(answer.total, 'job')}: --limit shows more")
    elif answer.at_least:
        say(f"only the newest {JOBS_LOOKED_AT_MAX:,} jobs were looked at. hint: choose with --client or --pattern")


def _show_jobs(rows: list[qu.JobRow]) -> None:
    """What hardly any job asks for has a column only if one of these does."""
    asked = {
        "#slots": [str(row.slots) for row in rows] if any(row.slots > 1 for row in rows) else [],
        "#priority": [str(row.priority) for row in rows] if any(row.priority for row in rows) else [],
        "key": [row.key or "-" for row in rows] if any(row.key for row in rows) else [],
    }
    more = {name: column for name, column in asked.items() if column}
    table_out(
        ("job", "state", "program", "client", "#tries", "#age", "worker", "reason", *more),
        [
            (
                row.job,
                row.state,
                row.program,
                row.client,
                str(row.attempts),
                duration(row.age_s),
                row.worker or "-",
                row.reason or "-",
                *(column[at] for column in more.values()),
            )
            for at, row in enumerate(rows)
        ],
    )


def _show_worker(row: qu.WorkerRow, asking: Asking) -> int:
    match asking.output:
        case "json":
            json_out(row)
        case "quiet":
            lines_out([row.worker])
        case _:
            _show_workers([row])
    return 0


def _show_workers(rows: list[qu.WorkerRow]) -> None:
    table_out(
        ("worker", "name", "state", "#running", "#free", "#slots", "#cpu", "#seen", "patterns"),
        [
            (
                row.worker,
                row.name or "-",
                "kept free" if row.kept_for else row.state,
                str(row.running),
                str(row.credit),
                str(row.slots) if row.slots else "-",
                f"{row.cpu:.0%}",
                ago(row.seen_s),
                " ".join(row.patterns),
            )
            for row in rows
        ],
    )
    as_root = [row.name or row.worker for row in rows if row.as_root]
    if as_root:
        say(f"{', '.join(as_root)}: programs run as root, so whoever may send jobs is root there (see --run-as)")
    for row in rows:
        if row.rests:
            say(f"{row.name or row.worker} rests: {row.rests}")
        elif row.held_by:
            say(f"{row.name or row.worker} is held back: {row.why} (its limit: --cpu-cap, or off)")
