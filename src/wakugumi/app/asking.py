"""How is a question put to a leader from the command line, and how is a job named in it?"""

from __future__ import annotations

from typing import TypeVar

from wakugumi.app.grids import connected
from wakugumi.app.options import Asking
from wakugumi.app.stoppable import run
from wakugumi.core.job import job_id_from_name, show_job_id
from wakugumi.core.questions import Answer, Question
from wakugumi.errors import ConfigError

A = TypeVar("A", bound=Answer)


def ask(question: Question, kind: type[A], asking: Asking) -> A:
    """The leader's answer, which is of this kind. Raises Refused."""

    async def put() -> Answer:
        async with connected(asking.leader) as grid:
            return await grid.ask(question)

    answer = run(put())
    assert isinstance(answer, kind)
    return answer


def id_of(text: str) -> str:
    """A job's id as the leader knows it: names stand for ids only at the edges. Raises ConfigError."""
    try:
        return show_job_id(job_id_from_name(text))
    except ValueError as error:
        raise ConfigError(str(error)) from None
