"""How can a job at a gateway end, as far as one forwarding of it goes?"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from wakugumi.core.gateway.rows import FAILED, Content, GatewayJob
from wakugumi.limits.gateway import GATEWAY_RETRY_AFTER_S


class ForwardAnswer(NamedTuple):
    """A group's answer."""

    status: int
    head: dict[str, str]
    size: int | None
    body: Content | int
    """The kept content; or the number of the try that receives the answer now, to be read while it grows."""


class Problem(NamedTuple):
    """A group's refusal of the job, or its end without a result."""

    status: int
    code: str
    detail: str
    hint: str = ""


class NoGroup(NamedTuple):
    """Every group is full or gone."""

    detail: str
    again_s: float = GATEWAY_RETRY_AFTER_S
    """`Retry-After`: the shortest that any group named."""


class NoBody(NamedTuple):
    """The body is not there: no group is at fault."""

    detail: str


class FlightGone(NamedTuple):
    """The flight ended without any outcome: requests that still want the job begin anew."""


Outcome: TypeAlias = ForwardAnswer | Problem | NoGroup | FlightGone
GONE: Final = FlightGone()


def outcome_of(row: GatewayJob) -> Outcome:
    """The outcome in the row of an ended job."""
    if not row.is_final:
        return GONE
    if row.answer is None:
        return Problem(row.status, row.head.get("code", ""), row.head.get("detail", ""), row.head.get("hint", ""))
    return ForwardAnswer(row.status, row.head, row.answer.size, row.answer)


def failed_row(row: GatewayJob, problem: Problem) -> GatewayJob:
    head = {"code": problem.code, "detail": problem.detail, "hint": problem.hint}
    return replace(row, state=FAILED, status=problem.status, head=head, body=None)


def outcome_word(outcome: Outcome) -> str:
    """For the metric of outcomes."""
    match outcome:
        case ForwardAnswer():
            return "failed" if outcome.head.get("Waku-Status") == "FAILED" else "ok"
        case Problem():
            return outcome.code
        case NoGroup():
            return "no-group"
        case FlightGone():
            return "gone"
