"""`waku dead …`: which jobs used up their attempts, what became of each attempt, and what shall be done with them?

A dead job stays with the leader, request and all, until a person requeues or drops it (SPEC L3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from wakugumi.app import logs
from wakugumi.app.admin.ask import answers, ask, ask_each, id_of, show_each
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Asking
from wakugumi.app.show.output import ago, duration, json_out, line_out, lines_out, one, say, table_out
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.errors import EXIT_NOT_FOUND, ConfigError
from wakugumi.limits.leader import LIST_ROWS_DEFAULT

Pattern = Annotated[str, Parameter(show_default=False, help="Only those whose subject matches, as job.assign.calcA.>")]
Reason = Annotated[
    str, Parameter(show_default=False, help="Only those whose last attempt ended so: worker-lost, worker-error, disk …")
]
All = Annotated[bool, Parameter(name="--all", negative="", show_default=False, help="Every dead job.")]


@with_settings
def dead_list(
    *jobs: str,
    pattern: Pattern = "",
    reason: Reason = "",
    limit: Annotated[int, Parameter(help="At most so many, the newest.")] = LIST_ROWS_DEFAULT,
    asking: Asking,
) -> int:
    """waku dead list [ID…] [--pattern PATTERN] [--reason REASON] [--limit N] [OPTIONS]

    A job dies when its worker is lost, does not answer or fails it time after time; a program's own non-zero exit is an
    answer, and no death, and so is a timeout. The leader keeps 10,000 dead jobs or 256 MiB of them; then the oldest go.
    Exit code 3 if an ID is not among the dead.

    Examples:
      waku dead list
      waku dead list --reason worker-lost -o quiet
      waku dead list --pattern 'job.assign.calcA.>'
    """
    logs.start(asking, quiet=True)
    ids = {id_of(job): job for job in jobs}
    question = qu.AskDead(list(ids), pattern, reason, max(limit, len(ids)))
    told = ask_each(question, an.DeadAnswer, asking)
    show_each(told, asking, _show_newest_dead, lambda answer: [row.job for row in answer.dead])
    if any(answer.total > len(answer.dead) for answer in answers(told)):
        return 0  # One that is not shown may be there all the same.
    shown = {row.job for answer in answers(told) for row in answer.dead}
    return _say_unknown([name for job, name in ids.items() if job not in shown])


@with_settings
def dead_show(
    job: str,
    /,
    *,
    asking: Asking,
) -> int:
    """waku dead show ID [OPTIONS]

    Example:
      waku dead show monday-run
    """
    logs.start(asking, quiet=True)
    answer = ask(qu.AskLetter(id_of(job)), an.LetterAnswer, asking)
    match asking.output:
        case "json":
            json_out(answer)
        case "quiet":
            lines_out([attempt.outcome for attempt in answer.attempts])
        case _:
            _show_letter(answer)
    return 0


@with_settings
def dead_requeue(
    *jobs: str,
    pattern: Pattern = "",
    reason: Reason = "",
    every: All = False,
    asking: Asking,
) -> int:
    """waku dead requeue [ID…] [--pattern PATTERN] [--reason REASON] [--all] [OPTIONS]

    All given conditions must hold for a job. Later requests for it, such as `waku jobs wait`, get the new result. Exit
    code 3 if an ID is not among the dead.

    Examples:
      waku dead requeue monday-run
      waku dead requeue --reason worker-lost
      waku dead requeue --all
    """
    logs.start(asking, quiet=True)
    ids = _chosen(jobs, pattern, reason, every, "requeue")
    answer = _do(qu.AskRequeue(list(ids), pattern, reason), "requeued", asking)
    return _show_done(answer, ids, "requeued", asking)


@with_settings
def dead_drop(
    *jobs: str,
    pattern: Pattern = "",
    reason: Reason = "",
    every: All = False,
    asking: Asking,
) -> int:
    """waku dead drop [ID…] [--pattern PATTERN] [--reason REASON] [--all] [OPTIONS]

    Examples:
      waku dead drop monday-run
      waku dead drop --pattern 'job.assign.calcA.>' --reason disk
    """
    logs.start(asking, quiet=True)
    ids = _chosen(jobs, pattern, reason, every, "drop")
    answer = _do(qu.AskDrop(list(ids), pattern, reason), "dropped", asking)
    return _show_done(answer, ids, "dropped", asking)


def _chosen(jobs: Sequence[str], pattern: str, reason: str, every: bool, what: str) -> dict[str, str]:
    """The ids that were named, as the leader knows them and as they were typed. Raises ConfigError.

    To the leader no filter means all of them: nobody shall say that by saying nothing.
    """
    some = bool(jobs or pattern or reason)
    if every and some:
        raise ConfigError(f"--all is every dead job, and something else says which to {what}", "leave one of them out")
    if not every and not some:
        raise ConfigError(
            f"nothing says which dead jobs to {what}", "name ids, --pattern or --reason; --all means every one"
        )
    return {id_of(job): job for job in jobs}


def _do(question: qu.AskRequeue | qu.AskDrop, done: str, asking: Asking) -> an.DeadDoneAnswer:
    """Ask until nothing is left of it: the leader does only so much at once."""
    answer = _together(answers(ask_each(question, an.DeadDoneAnswer, asking)))
    while answer.left:
        say(f"{one(answer.done, 'job')} {done}, {answer.left:,} to go")
        more = _together(answers(ask_each(question, an.DeadDoneAnswer, asking)))
        # The first answer names all that are unknown; to the others those that are done are unknown, too.
        answer = an.DeadDoneAnswer(answer.done + more.done, answer.unknown, more.left)
    return answer


def _together(said: Sequence[an.DeadDoneAnswer]) -> an.DeadDoneAnswer:
    """The sum of several leaders' answers: a job is unknown if none of them knows it."""
    unknown = [job for job in said[0].unknown if all(job in set(each.unknown) for each in said)]
    return an.DeadDoneAnswer(sum(each.done for each in said), unknown, sum(each.left for each in said))


def _show_done(answer: an.DeadDoneAnswer, ids: dict[str, str], done: str, asking: Asking) -> int:
    match asking.output:
        case "json":
            json_out(answer)
        case "quiet":
            lines_out([str(answer.done)])
        case _:
            lines_out([f"{one(answer.done, 'job')} {done}"])
    return _say_unknown([ids.get(job, job) for job in answer.unknown])


def _say_unknown(names: Sequence[str]) -> int:
    """Returns the exit code."""
    for name in names:
        say(f"not among the dead: {name}")
    return EXIT_NOT_FOUND if names else 0


def _show_newest_dead(answer: an.DeadAnswer) -> None:
    _show_dead(answer.dead)
    if answer.total > len(answer.dead):
        say(f"the newest {len(answer.dead)} of {one(answer.total, 'dead job')}: --limit shows more")


def _show_dead(rows: Sequence[an.DeadRow]) -> None:
    table_out(
        ("job", "reason", "program", "client", "#tries", "worker", "#died"),
        [
            (row.job, row.reason, row.program, row.client, str(row.attempts), row.worker or "-", ago(row.dead_s))
            for row in rows
        ],
    )


def _show_letter(answer: an.LetterAnswer) -> None:
    letter = answer.letter
    rows = [
        ("job", letter.job),
        ("program", letter.program),
        ("subject", letter.subject),
        ("client", letter.client),
        ("died", f"{ago(letter.dead_s)} by {letter.reason}, after {one(letter.attempts, 'attempt')}"),
    ]
    width = max(len(name) for name, _ in rows)
    lines_out([f"{name:<{width}}  {value}" for name, value in rows])
    line_out()
    table_out(
        ("#attempt", "worker", "#began", "#took", "outcome"),
        [
            (str(each.attempt), each.worker, ago(each.began_s), duration(each.began_s - each.ended_s), each.outcome)
            for each in answer.attempts
        ],
    )
    for each in answer.attempts:
        if each.output.strip():
            line_out()
            line_out(f"attempt {each.attempt} said at last:")
            lines_out([f"    {line}" for line in each.output.rstrip().splitlines()])
