"""How is a question sent to a leader from the command line, and how is a job named in it?

With several leaders, a question about one job is answered by the leader that knows it; lists are requested from each,
and shown one below the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from wakugumi.app.options import Asking
from wakugumi.app.show.output import json_out, lines_out
from wakugumi.app.stoppable import run
from wakugumi.app.work.target import connected
from wakugumi.core.ids import job_id_from_name, show_job_id
from wakugumi.core.leader.answer_records import Answer
from wakugumi.core.leader.questions import Question
from wakugumi.errors import ConfigError, Refused

A = TypeVar("A", bound=Answer)


class LeaderAnswer(NamedTuple, Generic[A]):
    """The answer of one leader, or the reason why there is none."""

    leader: str
    answer: A | None
    trouble: str


def ask(question: Question, kind: type[A], asking: Asking) -> A:
    """The leader's answer, which is of this kind. Raises Refused."""

    async def put() -> Answer:
        async with connected(asking) as grid:
            return await grid.ask(question)

    answer = run(put())
    assert isinstance(answer, kind)
    return answer


def ask_each(question: Question, kind: type[A], asking: Asking) -> list[LeaderAnswer[A]]:
    """The answers of all leaders, in the order of their names on the command line. Raises Refused if none answers."""

    async def put() -> list[LeaderAnswer[A]]:
        async with connected(asking) as grid:
            answers = await grid.ask_each(question)
            rows = grid.status().leaders
        if all(isinstance(answer, Refused) for answer in answers.values()):
            raise next(answer for answer in answers.values() if isinstance(answer, Refused))
        told: list[LeaderAnswer[A]] = []
        for row in rows:
            answer = answers.get(row.leader)
            assert answer is None or isinstance(answer, Refused | kind)
            if isinstance(answer, Refused):
                told.append(LeaderAnswer(row.leader, None, str(answer)))
            else:
                told.append(LeaderAnswer(row.leader, answer, "" if answer is not None else row.trouble))
        return told

    return run(put())


def answers(told: Sequence[LeaderAnswer[A]]) -> list[A]:
    return [each.answer for each in told if each.answer is not None]


def show_each(
    told: Sequence[LeaderAnswer[A]],
    asking: Asking,
    table: Callable[[A], None],
    quiet: Callable[[A], Sequence[str]],
    beside: Mapping[str, Mapping[str, object]] = {},
) -> None:
    """Shows the answers in the chosen form, with a section for each of several leaders.

    JSON has the further fields of `beside`, by leader.
    """
    how = asking.output
    several = len(told) > 1
    if how == "quiet":
        for answer in answers(told):
            lines_out(quiet(answer))
    elif how == "json":
        rows = [_fields(each, named=several) | dict(beside.get(each.leader, {})) for each in told]
        json_out(rows if several else rows[0])
    else:
        for at, each in enumerate(told):
            if several:
                lines_out(
                    [*([""] if at else []), f"leader {each.leader}" + (f": {each.trouble}" if each.trouble else "")]
                )
            if each.answer is not None:
                table(each.answer)


def _fields(told: LeaderAnswer[A], *, named: bool) -> dict[str, object]:
    import msgspec

    leader = {"leader": told.leader} if named else {}
    if told.answer is None:
        return {**leader, "trouble": told.trouble}
    fields = msgspec.to_builtins(told.answer)
    assert isinstance(fields, dict)
    return {**leader, **fields}


def id_of(text: str) -> str:
    """The UUID of a job from its id or name. Raises ConfigError."""
    try:
        return show_job_id(job_id_from_name(text))
    except ValueError as error:
        raise ConfigError(str(error)) from None
