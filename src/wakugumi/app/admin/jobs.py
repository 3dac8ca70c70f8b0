"""`waku jobs …`: how are a leader's jobs listed, explained, cancelled and awaited?"""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import reduce
from typing import Annotated, Final

from cyclopts import Parameter

from wakugumi.app.admin.ask import answers, ask, ask_each, id_of, show_each
from wakugumi.app.flags import with_settings
from wakugumi.app.options import UNPACKING, Asking, JobArgument, Unpacking
from wakugumi.app.show.downloads import ShownTransfer
from wakugumi.app.show.output import ago, colour, duration, json_out, lines_out, one, say, show, table_out
from wakugumi.app.show.results import show_results
from wakugumi.app.stoppable import run
from wakugumi.app.work.map.output import OutFolder, Record, say_left_out
from wakugumi.app.work.target import connected
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.errors import EXIT_JOB_FAILED, EXIT_NOT_FOUND, ConfigError, Refused, hint_for
from wakugumi.limits.leader import JOBS_LOOKED_AT_MAX, LIST_ROWS_DEFAULT
from wakugumi.roles.client.result import Result

IDS_AT_ONCE: Final = 10_000
"""Ids in one question: they fit a frame, and the leader handles them in one step."""


State = Annotated[
    str, Parameter(show_default=False, help="Only jobs in this state: queued, backoff, running, ok or failed.")
]


Client = Annotated[str, Parameter(show_default=False, help="Only jobs of this client.")]


Pattern = Annotated[
    str, Parameter(show_default=False, help="Only jobs whose subject matches, such as 'job.assign.calcA.>'.")
]


@with_settings
def jobs_list(
    *,
    state: State = "",
    client: Client = "",
    pattern: Pattern = "",
    limit: Annotated[int, Parameter(help="Number of jobs to show, the newest ones.")] = LIST_ROWS_DEFAULT,
    asking: Asking,
) -> int:
    """waku jobs list [--state STATE] [--client ID] [--pattern PATTERN] [--limit N] [OPTIONS]

    Examples:
      waku jobs list --state running
      waku jobs list --client desk-1 -o quiet
    """
    told = ask_each(qu.AskJobs(state, client, pattern, limit), an.JobsAnswer, asking)
    show_each(told, asking, _show_newest_jobs, lambda answer: [row.job for row in answer.jobs])
    return 0


@with_settings
def jobs_show(job: JobArgument, /, *, asking: Asking) -> int:
    """waku jobs show ID [OPTIONS]

    Example:
      waku jobs show monday-run
    """
    row = ask(qu.AskJob(id_of(job)), an.JobRow, asking)
    show(asking.output, row, [row.state], lambda: _show_jobs([row]))
    return 0


@with_settings
def jobs_story(job: JobArgument, /, *, asking: Asking) -> int:
    """waku jobs story ID [OPTIONS]

    Example:
      waku jobs story monday-run
    """
    answer = ask(qu.AskStory(id_of(job)), an.StoryAnswer, asking)
    show(
        asking.output,
        answer,
        [line.what for line in answer.story],
        lambda: table_out(("#when", "what"), [(ago(line.ago_s), line.what) for line in answer.story]),
    )
    return 0


@with_settings
def jobs_explain(job: JobArgument, /, *, asking: Asking) -> int:
    """waku jobs explain ID [OPTIONS]

    Example:
      waku jobs explain monday-run
    """
    answer = ask(qu.AskExplain(id_of(job)), an.ExplainAnswer, asking)
    show(
        asking.output,
        answer,
        answer.reasons[:1],
        [f"{answer.state}: {answer.reasons[0]}", *(f"  also: {reason}" for reason in answer.reasons[1:])],
    )
    return 0


@with_settings
def jobs_cancel(
    *jobs: JobArgument,
    client: Client = "",
    pattern: Pattern = "",
    forget: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Delete results too, also of ended jobs: for a client that will not return.",
        ),
    ] = False,
    asking: Asking,
) -> int:
    """waku jobs cancel [ID…] [--client ID] [--pattern PATTERN] [--forget] [OPTIONS]

    Running programs are ended, with all processes that they started. The result of a cancelled job is `cancelled`, and
    is kept for its client, also for one that connects later; with --forget it is not kept.

    Examples:
      waku jobs cancel monday-run
      waku jobs cancel --client desk-1
      waku jobs cancel --client gone-for-good --forget
      waku jobs cancel --pattern 'job.assign.calcA.>'
    """
    if not jobs and not client and not pattern:
        raise ConfigError("no jobs to cancel are named", "name ids, --client or --pattern")
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
    job: JobArgument,
    /,
    *more: JobArgument,
    out: Annotated[str | None, Parameter(help="Folder for the programs' files, with a folder for each job.")] = None,
    wait: Annotated[float | None, Parameter(help="Wait at most so many seconds.")] = None,
    unpacking: Unpacking = UNPACKING,
    asking: Asking,
) -> int:
    """waku jobs wait ID… [--out DIR] [--wait S] [OPTIONS]

    Exit code 1 if a job failed, 6 if not all are done after --wait seconds.

    Examples:
      waku jobs wait monday-run
      waku jobs wait monday-run --out results --wait 60
    """
    how = asking.output
    results = run(_wait(asking, [job, *more], wait))
    kept = [True]
    if out is not None:
        with closing(OutFolder(out, unpacking.bytes_max(), dot_files=unpacking.dot_files)) as folder:
            kept = [_keep(folder, result) for result in results]
            say_left_out(folder.left_out)
    show_results(results, how)
    return 0 if all(result.ok for result in results) and all(kept) else EXIT_JOB_FAILED


def _cancel(ids: list[str], client: str, pattern: str, forget: bool, asking: Asking) -> an.CancelAnswer:
    """Cancels in as many questions as needed."""
    whole = an.CancelAnswer(0, 0, [])
    for at in range(0, len(ids) or 1, IDS_AT_ONCE):
        question = qu.AskCancel(ids[at : at + IDS_AT_ONCE], client, pattern, forget)
        later = len(ids[at + IDS_AT_ONCE :])
        while True:
            part = reduce(an.CancelAnswer.beside, answers(ask_each(question, an.CancelAnswer, asking)))
            whole = an.CancelAnswer(
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
    """False if its files could not be written; error.txt says why."""
    name = result.job_id
    folder.check_free(name)
    transfer = ShownTransfer(result.archive_bytes)
    with closing(transfer):
        done = folder.put(name, result, Record.of(result), transfer.on_bytes)
    if done.status != result.status or done.reason != result.reason:
        hint = hint_for(done.reason) or f"see {folder.path}/{name}/error.txt"
        say(colour("failed:", "red"), f"the files of {name} were not written ({done.reason}): {hint}")
        return False
    return True


def _show_newest_jobs(answer: an.JobsAnswer) -> None:
    _show_jobs(answer.jobs)
    if answer.total > len(answer.jobs):
        least = "at least " if answer.at_least else ""
        say(f"the newest {len(answer.jobs)} of {least}{one(answer.total, 'job')}: --limit shows more")
    elif answer.at_least:
        say(f"only the newest {JOBS_LOOKED_AT_MAX:,} jobs were searched. hint: choose with --client or --pattern")


def _show_jobs(rows: list[an.JobRow]) -> None:
    """Rarely used options have a column only if one of these jobs uses them."""
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
