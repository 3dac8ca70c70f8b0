"""What does a user hold while a job is unfinished? A Job: its id, and an awaitable that becomes its Result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, Protocol

import msgspec

from wakugumi.errors import Refused, WakugumiError
from wakugumi.roles.client.files.inputs import NOTHING
from wakugumi.roles.client.request import Request
from wakugumi.roles.client.result import Result, refused_result

_FRAME_KEPT_BYTES: Final = 1024
"""Larger requests are dropped when the job ends: a program may keep a hundred thousand ended jobs."""


class Canceller(Protocol):
    def cancel(self, jobs: Iterable[Job]) -> None: ...


class Job(msgspec.Struct, eq=False):
    """A submitted job. Await it for its Result, any number of times and by any number of tasks.

    A failing program is a Result; a job that the system refused raises Refused.
    """

    # A Struct because it is made in C: a plain class takes twice as long, and `map` makes one for every item.
    request: Request
    item: object
    _session: Canceller
    _watcher: Callable[[Job], None] | None = None
    """The first watcher; nearly always the only one."""
    _watchers: list[Callable[[Job], None]] | None = None
    _receipts: list[Callable[[Job], None]] | None = None
    _accepted: bool = False
    _outcome: Result | WakugumiError | None = None

    @property
    def id(self) -> str:
        """The id as it was given, or the hyphenated text of a new one."""
        return self.request.id

    def __await__(self) -> Generator[Any, None, Result]:
        return self._ended().__await__()

    async def accepted(self) -> None:
        """Returns once the leader has stored the job. Raises Refused if the leader refuses it.

        An old leader sends no receipts: then this waits for the result.
        """
        if not self._accepted and self._outcome is None:
            if self._receipts is None:
                self._receipts = []
            await _next_call(self._receipts)
        if isinstance(self._outcome, WakugumiError):
            raise self._outcome

    async def cancel(self) -> None:
        """Cancel the job. It still ends with a Result: reason `cancelled`, unless it was done already."""
        if self._outcome is None:
            self._session.cancel((self,))

    def done(self) -> bool:
        return self._outcome is not None

    def __repr__(self) -> str:
        return f"<Job {self.id}>" if self._outcome is None else f"<Job {self.id}: {self._outcome!r}>"

    async def _ended(self) -> Result:
        if self._outcome is None:
            if self._watchers is None:
                self._watchers = []
            await _next_call(self._watchers)
        if isinstance(self._outcome, WakugumiError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    # For the client's own parts.

    def watch(self, watcher: Callable[[Job], None]) -> None:
        """Call this when the job has ended."""
        assert self._outcome is None
        if self._watcher is None:
            self._watcher = watcher
        elif self._watchers is None:
            self._watchers = [watcher]
        else:
            self._watchers.append(watcher)

    def accept(self) -> None:
        self._accepted = True
        if self._receipts is not None:
            _call_all(self, self._receipts)

    def end(self, outcome: Result | WakugumiError) -> None:
        self._outcome = outcome
        if len(self.request.frame) > _FRAME_KEPT_BYTES or self.request.attached:
            self.request = msgspec.structs.replace(self.request, frame=b"", attached=NOTHING)
        if self._watcher is not None:
            self._watcher(self)
            self._watcher = None
        if self._watchers is not None:
            _call_all(self, self._watchers)
        if self._receipts is not None:
            _call_all(self, self._receipts)

    def as_result(self) -> Result:
        """The end of a job as a Result, refusals too: for loops that one refusal must not end."""
        outcome = self._outcome
        if isinstance(outcome, Result):
            return outcome
        assert isinstance(outcome, Refused)
        return refused_result(outcome, self.id, self.request.program, self.item)


async def _next_call(watchers: list[Callable[[Job], None]]) -> None:
    """Wait for the next call of these watchers."""
    called: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watcher(_job: Job) -> None:
        if not called.done():
            called.set_result(None)

    watchers.append(watcher)
    try:
        await called
    finally:
        if watcher in watchers:
            watchers.remove(watcher)


def _call_all(job: Job, watchers: list[Callable[[Job], None]]) -> None:
    called = watchers.copy()
    watchers.clear()
    for watcher in called:
        watcher(job)
