"""To which groups is a job sent, one after the other, and with which outcome? (SPEC G2)

    200                            an answer, also of a program that failed: it is passed on
    4xx, 504 `timeout`             the job's own end: it is passed on
    423                            the job runs there already: the same group is asked again
    503, 507                       the group is full: the next one
    400, 415 to a file as it is    the form as received, to the same group, unless the answer says that files are taken
    other 5xx, refused, silent     the group failed: the next one; after a broken connection the same group once more
    no workers for long, late      the job is cancelled there, and sent to the next one

Each try reads the body from its beginning; the client sends it once. A group that can take it gets the file as it is,
with a head instead of its form; all others get the form as the client sent it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from wakugumi.core.gateway.bodies import Body
from wakugumi.core.gateway.events import Dispatch, GroupReply, NoBodyLost
from wakugumi.core.gateway.outcomes import NoBody, NoGroup, Problem
from wakugumi.core.gateway.rows import Content
from wakugumi.core.gateway.state import GatewayState
from wakugumi.core.gateway.tries import Tries, Try
from wakugumi.core.metric_table import GATEWAY_FAILOVERS
from wakugumi.core.metrics import Counter
from wakugumi.errors import CODES, Lost, hint_for
from wakugumi.limits.gateway import GATEWAY_RETRY_AFTER_MAX_S, GATEWAY_RETRY_AFTER_S

T = TypeVar("T")

_FULL: Final = frozenset({503, 507})
_NOT_UNDERSTOOD: Final = frozenset({400, 415})
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
    body: Body | None
    """The body that is sent, and may be on its way; None if `content` is sent."""
    content: Content | None


class Forwarder:
    """Sends parcels."""

    def __init__(self, state: GatewayState, tries: Tries) -> None:
        self._state = state
        self._tries = tries
        self.failovers = Counter(GATEWAY_FAILOVERS)

    async def forward(
        self,
        parcel: Parcel,
        first: str,
        begin: Callable[[str], Awaitable[bool]],
        take: Callable[[Try, GroupReply], Awaitable[T]],
    ) -> T | Problem | NoGroup | NoBody | None:
        """Sends the parcel to group after group. `first` is the group to begin with, if it is there. `begin` is called
        for each try, and returns False if the job is not wanted any more: then the outcome is None. `take` reads an
        answer; if it raises Lost, that try failed."""
        why: dict[str, str] = {}
        """The tried groups, and the reason of each failure."""
        last: Problem | None = None
        named_s: list[float] = []
        asked_again: set[str] = set()
        by_form: set[str] = set()
        """Groups that did not understand the file as it is."""
        tries, groups = self._tries, self._state.groups
        while (name := self._next(parcel, first, why)) is not None:
            if not await begin(name):
                return None
            one = tries.open(name, parcel.job_s)
            as_file = groups.takes_files(name) and name not in by_form
            reply: GroupReply | Lost
            try:
                reply = await self._dispatch(one, parcel, as_file=as_file)
                tries.head_came(one.number)
                if reply.status == 200:
                    taken = await take(one, reply)
                    tries.answered(name)
                    return taken
            except NoBodyLost as error:
                return NoBody(str(error))
            except Lost as error:
                reply = error
                if error.why == "refused":
                    tries.was_refused(one)
            finally:
                tries.close(one)
            if isinstance(reply, Lost):
                if reply.why == "dead" and name not in asked_again:
                    asked_again.add(name)
                    first = name
                    continue
                if reply.why in {"left", "late"}:
                    await tries.cancel(name, parcel.name)
                if reply.why == "left":
                    why = {name: "no workers"}
                    last = None
                else:
                    tries.failed(name, reply)
                    why[name] = reply.why or "lost"
            else:
                problem, said_s = _problem(reply), reply.retry_after_s
                again_s = min(max(GATEWAY_RETRY_AFTER_S if said_s is None else said_s, 0.05), _AGAIN_MAX_S)
                if problem.status == 423:
                    first = name
                    await self._state.flows.pause(again_s)
                    continue
                if as_file and problem.status in _NOT_UNDERSTOOD and not reply.takes_files:
                    by_form.add(name)
                    groups.refused_file(name)
                    first = name
                    continue
                if problem.status < 500 or problem.code == "timeout":
                    tries.answered(name)
                    return problem
                why[name] = problem.code
                if problem.status in _FULL:
                    named_s += [] if said_s is None else [said_s]
                    groups.was_full(name, self._state.flows.now, again_s)
                else:
                    tries.failed(name, f"{problem.status} {problem.detail}")
                    last = problem
            self.failovers.add(name, why[name])
        if last is not None and all(group in why for group in groups.by_name) and not _is_hopeful(why):
            return last
        tried = ", ".join(f"{group}: {what}" for group, what in why.items())
        again_s = min(max(min(named_s, default=GATEWAY_RETRY_AFTER_S), 1.0), GATEWAY_RETRY_AFTER_MAX_S)
        return NoGroup(f"no group took the job ({tried or 'all are gone'})", again_s)

    async def _dispatch(self, one: Try, parcel: Parcel, *, as_file: bool) -> GroupReply:
        path = f"/dispatch/{parcel.name}" + (f"?{parcel.query}" if parcel.query else "")
        request = 0 if parcel.body is None else parcel.body.request
        headers = dict(parcel.headers)
        reply = await Dispatch(one.number, one.group, path, headers, parcel.size, request, parcel.content, as_file)
        if parcel.body is not None and reply.digest:
            parcel.body.digest = reply.digest
        return reply

    def _next(self, parcel: Parcel, first: str, tried: Mapping[str, str]) -> str | None:
        groups, now = self._state.groups, self._state.flows.now
        if first in groups.by_name and first not in tried and not groups.is_gone(first):
            return first
        return next((name for name in groups.order(parcel.key, now) if name not in tried), None)


def _problem(reply: GroupReply) -> Problem:
    status = reply.status
    if status < 400:
        return Problem(502, "bad-result", f"the group answered {status}, which is no answer to a job")
    code = reply.code if reply.code in CODES else "bad-request" if status < 500 else "worker-error"
    return Problem(status, code, reply.detail or f"the group answered {status}", reply.hint or hint_for(code))


def _is_hopeful(why: Mapping[str, str]) -> bool:
    """May one of the groups take the job later? All others have given a final answer."""
    return any(what not in CODES or CODES[what].http_status in _FULL for what in why.values())
