"""`waku dead …`: which jobs used up their attempts, how did each attempt end, and what shall be done with them?

A dead job stays at the leader with its request until a person requeues or drops it (SPEC L3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from wakugumi.app.admin.ask import answers, ask, ask_each, id_of, show_each
from wakugumi.app.flags import with_settings
from wakugumi.app.options import Asking, JobArgument
from wakugumi.app.show.output import ago, duration, fields_out, line_out, lines_out, one, say, show, table_out
from wakugumi.core.leader import answer_records as an
from wakugumi.core.leader import questions as qu
from wakugumi.errors import EXIT_NOT_FOUND, ConfigError
from wakugumi.limits.leader import LIST_ROWS_DEFAULT

Pattern = Annotated[
    str, Parameter(show_default=False, help="Only jobs whose subject matches, such as 'job.assign.calcA.>'.")
]
Reason = Annotated[
    str,
    Parameter(
        show_default=False, help="Only jobs whose last attempt ended with this code: worker-lost, worker-error, disk …"
    ),
]
All = Annotated[bool, Parameter(name="--all", negative="", show_default=False, help="Every dead job.")]


@with_settings
def dead_list(
    *jobs: JobArgument,
    pattern: Pattern = "",
    reason: Reason = "",
    limit: Annotated[int, Parameter(help="Number of jobs to show, the newest ones.")] = LIST_ROWS_DEFAULT,
    asking: Asking,
) -> int:
    """waku dead list [ID…] [--pattern PATTERN] [--reason REASON] [--limit N] [OPTIONS]

    A job is dead when all its attempts ended with a lost or failing worker. A program's non-zero exit code or a timeout
    is a result, and makes no job dead. The leader keeps 10,000 dead jobs, or 256 MiB of them; then the oldest are
    dropped. Exit code 3 if an ID is not dead.

    Examples:
      waku dead list
      waku dead list --reason worker-lost -o quiet
      waku dead list --pattern 'job.assign.calcA.>'
    """
    ids = {id_of(job): job for job in jobs}
    question = qu.AskDead(list(ids), pattern, reason, max(limit, len(ids)))
    told = ask_each(question, an.DeadAnswer, asking)
    show_each(told, asking, _show_newest_dead, lambda answer: [row.job for row in answer.dead])
    if any(answer.total > len(answer.dead) for answer in answers(told)):
        return 0  # An id that is not shown may still be dead.
    shown = {row.job for answer in answers(told) for row in answer.dead}
    return _say_unknown([name for job, name in ids.items() if job not in shown])


@with_settings
def dead_show(job: JobArgument, /, *, asking: Asking) -> int:
    """waku dead show ID [OPTIONS]

    Example:
      waku dead show monday-run
    """
    answer = ask(qu.AskLetter(id_of(job)), an.LetterAnswer, asking)
    show(asking.output, answer, [attempt.outcome for attempt in answer.attempts], lambda: _show_letter(answer))
    return 0


@with_settings
def dead_requeue(
    *jobs: JobArgument,
    pattern: Pattern = "",
    reason: Reason = "",
    every: All = False,
    asking: Asking,
) -> int:
    """waku dead requeue [ID…] [--pattern PATTERN] [--reason REASON] [--all] [OPTIONS]

    A job must match all given conditions. Later requests for it, such as `waku jobs wait`, get the new result. Exit
    code 3 if an ID is not dead.

    Examples:
      waku dead requeue monday-run
      waku dead requeue --reason worker-lost
      waku dead requeue --all
    """
    ids = _chosen(jobs, pattern, reason, every, "requeue")
    answer = _do(qu.AskRequeue(list(ids), pattern, reason), "requeued", asking)
    return _show_done(answer, ids, "requeued", asking)


@with_settings
def dead_drop(
    *jobs: JobArgument,
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
    ids = _chosen(jobs, pattern, reason, every, "drop")
    answer = _do(qu.AskDrop(list(ids), pattern, reason), "dropped", asking)
    return _show_done(answer, ids, "dropped", asking)


def _chosen(jobs: Sequence[str], pattern: str, reason: str, every: bool, what: str) -> dict[str, str]:
    """The typed ids by UUID. Raises ConfigError.

    To the leader no filter means all jobs: the user must say so with --all.
    """
    some = bool(jobs or pattern or reason)
    if every and some:
        raise ConfigError(f"--all and a choice of jobs to {what} exclude each other", "leave out --all or the rest")
    if not every and not some:
        raise ConfigError(f"no dead jobs to {what} are named", "name ids, --pattern or --reason; --all means every one")
    return {id_of(job): job for job in jobs}


def _do(question: qu.AskRequeue | qu.AskDrop, done: str, asking: Asking) -> an.DeadDoneAnswer:
    """Asks until none is left: the leader handles a bounded number per question."""
    answer = _together(answers(ask_each(question, an.DeadDoneAnswer, asking)))
    while answer.left:
        say(f"{one(answer.done, 'job')} {done}, {answer.left:,} to go")
        more = _together(answers(ask_each(question, an.DeadDoneAnswer, asking)))
        # Only the first answer is right about unknown ids: later ones count handled jobs among them.
        answer = an.DeadDoneAnswer(answer.done + more.done, answer.unknown, more.left)
    return answer


def _together(said: Sequence[an.DeadDoneAnswer]) -> an.DeadDoneAnswer:
    """The sum of several leaders' answers. A job is unknown if no leader knows it."""
    unknown = [job for job in said[0].unknown if all(job in set(each.unknown) for each in said)]
    return an.DeadDoneAnswer(sum(each.done for each in said), unknown, sum(each.left for each in said))


def _show_done(answer: an.DeadDoneAnswer, ids: dict[str, str], done: str, asking: Asking) -> int:
    show(asking.output, answer, [str(answer.done)], [f"{one(answer.done, 'job')} {done}"])
    return _say_unknown([ids.get(job, job) for job in answer.unknown])


def _say_unknown(names: Sequence[str]) -> int:
    """Returns the exit code."""
    for name in names:
        say(f"not among the dead letters: {name}")
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
    fields_out(rows)
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
            line_out(f"last output of attempt {each.attempt}:")
            lines_out([f"    {line}" for line in each.output.rstrip().splitlines()])
