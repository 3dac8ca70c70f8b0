"""What does a node or a group answer to the role that calls it, other than a result? Its capacity, or a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from wakugumi.errors import PeerError
from wakugumi.limits.units import KIB
from wakugumi.roles.http.job_request import seconds_in
from wakugumi.wire.messages.envelope import JOB, TAKES, taken
from wakugumi.wire.problem import PeerProblem, read_problem
from wakugumi.wire.untrusted_json import JsonReader, Unreadable

if TYPE_CHECKING:
    from wakugumi.adapters.http.client import HttpAnswer, HttpClient

ANSWER_BYTES_MAX: Final = 64 * KIB
"""Of such an answer; a longer one is cut off."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class CapacityAnswer(msgspec.Struct, frozen=True):
    """A node has no queue, and sends only `running` and `limit`."""

    running: _Count
    limit: _Count
    queued: _Count = 0
    free: _Count | None = None


_read_capacity: Final = JsonReader(CapacityAnswer).read


class PeerRefusal(NamedTuple):
    problem: PeerProblem
    retry_after_s: float | None
    takes_envelopes: bool


async def ask_capacity(calls: HttpClient, peer: str) -> tuple[CapacityAnswer, HttpAnswer]:
    """The capacity of the peer at this URL, and the answer, for its headers. Raises Lost, or PeerError."""
    url = f"{peer}/capacity"
    async with calls.call("GET", url) as answer:
        body = await answer.read(ANSWER_BYTES_MAX)
    if answer.status != 200:
        raise PeerError(f"{url} answered with status {answer.status}")
    try:
        return _read_capacity(body), answer
    except Unreadable as error:
        raise PeerError(f"{url} answered with no capacity: {error}") from None


async def refusal_in(answer: HttpAnswer) -> PeerRefusal:
    """Raises Lost."""
    problem = read_problem(await answer.read(ANSWER_BYTES_MAX))
    return PeerRefusal(problem, seconds_in(answer.header("Retry-After")), JOB in taken(answer.header(TAKES)))
