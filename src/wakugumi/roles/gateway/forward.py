"""To which groups is a job sent, one after the other, and with which outcome? (SPEC G2)

    200                            an answer, also of a program that failed: it is passed on
    4xx, 504 `timeout`             the job's own end: it is passed on
    423                            the job runs there already: the same group is asked again
    503, 507                       the group is full: the next one
    other 5xx, refused, silent     the group failed: the next one; after a broken connection the same group once more
    no workers for long, late      the job is cancelled there, and sent to the next one

Each try reads the body from its beginning; the client sends it once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from wakugumi.core.metric_table import GATEWAY_FAILOVERS
from wakugumi.core.metrics import Counter
from wakugumi.errors import CODES, Lost, Refused, hint_for
from wakugumi.limits.gateway import GATEWAY_RETRY_AFTER_MAX_S, GATEWAY_RETRY_AFTER_S
from wakugumi.limits.units import KIB
from wakugumi.roles.gateway.group_calls import GroupAnswer, GroupCalls
from wakugumi.wire.problem import read_problem

T = TypeVar("T")

_PROBLEM_BYTES_MAX: Final = 64 * KIB
_FULL: Final = frozenset({503, 507})
_AGAIN_MAX_S: Final = 5.0
"""Longest pause before the same group is asked again, whatever its `Retry-After`."""


class Parcel(NamedTuple):
    """A job as sent to a group."""

    name: str
    key: str
    """The key by which a group is chosen, where the choice is by hash."""
    query: str
    headers: Mapping[str, str]
    job_s: float
    """Time that the job may run."""
    size: int | None
    body: Callable[[], bytes | AsyncIterator[bytes]]
    """The body from its beginning, once per try."""


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


class Forwarder:
    """Sends parcels."""

    def __init__(self, calls: GroupCalls) -> None:
        self._calls = calls
        self.failovers = Counter(GATEWAY_FAILOVERS)

    async def forward(
        self,
        parcel: Parcel,
        first: str,
        went: Callable[[str], Awaitable[bool]],
        take: Callable[[str, GroupAnswer], Awaitable[T]],
    ) -> T | Problem | NoGroup | NoBody | None:
        """Sends the parcel to group after group. `first` is the group to begin with, if it is there. `went` is called
        for each try, and returns False if the job is not wanted any more: then the outcome is None. `take` reads an
        answer; if it raises Lost, that try failed."""
        why: dict[str, str] = {}
        """The tried groups, and the reason of each failure."""
        last: Problem | None = None
        named_s: list[float] = []
        asked_again: set[str] = set()
        groups = self._calls.groups
        while (name := self._next(parcel, first, why)) is not None:
            if not await went(name):
                return None
            path = f"/dispatch/{parcel.name}" + (f"?{parcel.query}" if parcel.query else "")
            headers = dict(parcel.headers)
            if parcel.size is not None:
                headers["Content-Length"] = str(parcel.size)
            body = _Body(parcel.body())
            refused: tuple[Problem, float | None] | None = None
            try:
                async with self._calls.dispatch(name, path, headers, body.data or aiter(body), parcel.job_s) as answer:
                    if answer.status == 200:
                        taken = await take(name, answer)
                        self._calls.answered(name)
                        return taken
                    refused = _problem(answer.status, await answer.read(_PROBLEM_BYTES_MAX)), _named_s(answer)
            except Lost as error:
                if body.failure is not None:
                    return NoBody(str(body.failure))
                if error.why == "left":
                    await self._calls.cancel(name, parcel.name)
                    why = {name: "no workers"}
                    last = None
                elif error.why == "dead" and name not in asked_again:
                    asked_again.add(name)
                    first = name
                    continue
                else:
                    if error.why == "late":
                        await self._calls.cancel(name, parcel.name)
                    self._calls.failed(name, error)
                    why[name] = error.why or "lost"
            finally:
                await body.aclose()
            if refused is not None:
                problem, said_s = refused
                again_s = min(max(GATEWAY_RETRY_AFTER_S if said_s is None else said_s, 0.05), _AGAIN_MAX_S)
                if problem.status == 423:
                    first = name
                    await asyncio.sleep(again_s)
                    continue
                if problem.status < 500 or problem.code == "timeout":
                    self._calls.answered(name)
                    return problem
                why[name] = problem.code
                if problem.status in _FULL:
                    named_s += [] if said_s is None else [said_s]
                    self._calls.was_full(name, again_s)
                else:
                    self._calls.failed(name, f"{problem.status} {problem.detail}")
                    last = problem
            self.failovers.add(name, why[name])
        if last is not None and all(group in why for group in groups.by_name) and not _is_hopeful(why):
            return last
        tried = ", ".join(f"{group}: {what}" for group, what in why.items())
        again_s = min(max(min(named_s, default=GATEWAY_RETRY_AFTER_S), 1.0), GATEWAY_RETRY_AFTER_MAX_S)
        return NoGroup(f"no group took the job ({tried or 'all are gone'})", again_s)

    def _next(self, parcel: Parcel, first: str, tried: Mapping[str, str]) -> str | None:
        names = [name for name in self._calls.order(parcel.key) if name not in tried]
        return first if first in names else next(iter(names), None)


class _Body:
    """A body on its way; keeps the error if reading it failed."""

    def __init__(self, body: bytes | AsyncIterator[bytes]) -> None:
        self.data = body if isinstance(body, bytes) else b""
        self._pieces = None if isinstance(body, bytes) else body
        self.failure: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert self._pieces is not None
        try:
            async for piece in self._pieces:
                yield piece
        except (Lost, Refused) as error:
            self.failure = error
            raise

    async def aclose(self) -> None:
        if (close := getattr(self._pieces, "aclose", None)) is not None:
            await close()


def _problem(status: int, data: bytes) -> Problem:
    if status < 400:
        return Problem(502, "bad-result", f"the group answered {status}, which is no answer to a job")
    said = read_problem(data)
    code = said.code if said.code in CODES else "bad-request" if status < 500 else "worker-error"
    return Problem(status, code, said.detail or f"the group answered {status}", said.hint or hint_for(code))


def _named_s(answer: GroupAnswer) -> float | None:
    """The group's `Retry-After`."""
    try:
        seconds = float(answer.header("Retry-After") or "nan")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _is_hopeful(why: Mapping[str, str]) -> bool:
    """May one of the groups take the job later? All others have given a final answer."""
    return any(what not in CODES or CODES[what].http_status in _FULL for what in why.values())
