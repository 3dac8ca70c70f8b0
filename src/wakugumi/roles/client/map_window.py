"""How are a million jobs done in fixed memory? Through a window of bounded size.

An item is taken from the user's iterator only while fewer than `size` others are unfinished or not yet taken by the
user. So a slow worker, leader or loop of the user holds back the iterator, and no queue grows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Final, NamedTuple

import msgspec

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.loop.threads import beside
from wakugumi.errors import Refused, WakugumiError
from wakugumi.roles.client.files.inputs import JobFiles, must_wait_for_disk
from wakugumi.roles.client.job import Job
from wakugumi.roles.client.job_spec import JobSpec
from wakugumi.roles.client.request import Plan, Request, task_for
from wakugumi.roles.client.result import Result, refused_result
from wakugumi.roles.client.session.book import JobBook
from wakugumi.roles.client.session.room import Room

FILL_S: Final = 0.005
"""Longest time to take items in a row: other tasks wait meanwhile. Then the items taken so far are sent."""


class MapItem(msgspec.Struct, frozen=True, gc=False):
    """An item on its way: as a request, or as a result if its request was refused."""

    item: object
    request: Request | Result


_WITHOUT_FILES: Final = frozenset({str, list, tuple})
"""Items that need no reading from the disk."""


def entry_for(plan: Plan, item: object) -> MapItem:
    """Raises TypeError for an item that can be no job. A refusal becomes a result."""
    try:
        if type(item) is str:
            return MapItem(item, plan.text_request(item))
        if type(item) is list or type(item) is tuple:
            return MapItem(item, plan.args_request(item))
    except Refused as no:
        return MapItem(item, refused_result(no, "", plan.program, item))
    return _entry(plan, item, task_for(item))


async def entry_in_loop(plan: Plan, item: object) -> MapItem:
    """`entry_for` in an event loop, which must not wait for the disk."""
    task = task_for(item)
    files = task.files
    if not files or not must_wait_for_disk(files):
        return _entry(plan, item, task)
    try:
        loaded = await beside(lambda: plan.contents.load(files), "wakugumi files")
    except Refused as no:
        return MapItem(item, refused_result(no, str(task.job_id or ""), task.program or plan.program, item))
    return _entry(plan, item, task, loaded)


class MapWindow:
    """At most `size` items between the iterator and the user."""

    def __init__(self, jobs: JobBook, room: Room, size: int, on_closed: Callable[[MapWindow], None]) -> None:
        self.size = size
        self.ahead = 0
        """Items taken whose results the user does not have yet. The item source counts them."""
        self.done: deque[Result] = deque()
        self._jobs = jobs
        self._room = room
        self._on_closed = on_closed
        self._backlog: deque[MapItem] = deque()
        self._own: dict[Job, None] = {}
        self._attached = 0
        self._changed: asyncio.Event = asyncio.Event()
        self._error: WakugumiError | None = None
        self._closed = False
        self._in_line = False
        self._loop = asyncio.get_running_loop()

    @property
    def is_idle(self) -> bool:
        return not (self._backlog or self._own or self._attached or self.done)

    def push(self, entry: MapItem) -> None:
        """Start this item as soon as a leader takes jobs."""
        if not self._backlog and self._room.free > 0 and not self._closed:
            self._start(entry)
        else:
            self._backlog.append(entry)
            self._flow()

    async def next_results(self) -> list[Result]:
        """The results so far, after waiting for the first; empty if no job is left. Raises if the session has ended."""
        while not self.done and not self.is_idle:
            await self.changed()
        some = list(self.done)
        self.done.clear()
        return some

    async def changed(self) -> None:
        """Wait for the next result or the end of the items. Raises if the session has ended."""
        if self._error is not None:
            raise self._error
        self._changed.clear()
        await self._changed.wait()
        if self._error is not None:
            raise self._error

    def wake(self) -> None:
        self._changed.set()

    def fail(self, error: WakugumiError) -> None:
        """The session has ended: there will be no more results."""
        self._error = error
        self._backlog.clear()
        self._changed.set()

    def close(self) -> None:
        """Cancel unfinished jobs."""
        if not self._closed:
            self._closed = True
            self._backlog.clear()
            self._jobs.cancel(self._own)
            self._on_closed(self)
            self._changed.set()

    def close_threadsafe(self) -> None:
        """`close` from any thread, whether or not the loop still runs."""
        if not self._closed:
            with suppress(RuntimeError):  # The loop is closed, and everything with it.
                self._loop.call_soon_threadsafe(self.close)

    def _on_room(self) -> int:
        """Starts items at once, so it reserves no room for later."""
        self._in_line = False
        self._flow()
        return 0

    def _flow(self) -> None:
        backlog, room = self._backlog, self._room
        while backlog and not self._closed:
            if room.free <= 0:
                if not self._in_line:
                    self._in_line = True
                    room.on_room(self._on_room)
                return
            self._start(backlog.popleft())

    def _start(self, entry: MapItem) -> None:
        item, request = entry.item, entry.request
        if type(request) is Result:
            self._finish(request)
            return
        assert type(request) is Request
        try:
            job, is_new = self._jobs.start(request, item)
        except Refused as no:
            self._finish(refused_result(no, request.id, request.program, item))
            return
        if is_new:
            self._own[job] = None
            job.watch(self._ended)
        else:  # The same request is unfinished already: one job, and a result for each item.
            self._attached += 1
            job.watch(lambda job: self._ended_for(job, item))

    def _ended(self, job: Job) -> None:
        del self._own[job]
        if not self._closed and self._error is None:
            self._finish(job.as_result())

    def _ended_for(self, job: Job, item: object) -> None:
        self._attached -= 1
        if not self._closed and self._error is None:
            self._finish(job.as_result().for_item(item))

    def _finish(self, result: Result) -> None:
        self.done.append(result)
        self._changed.set()


class Results:
    """The results of `map` as they finish, each with its `item`. Leaving the loop cancels the rest.

    Where the moment of the cancel matters: `async with grid.map(…) as results`.
    """

    def __init__(
        self,
        window: MapWindow,
        make_plan: Callable[[], Awaitable[Plan]],
        items: Iterable[object] | AsyncIterable[object],
        tasks: Tasks,
    ) -> None:
        self._window = window
        self._make_plan = make_plan
        self._plan: Plan | None = None
        self._source: _ItemSource | _AsyncSource
        if isinstance(items, AsyncIterable):
            self._source = _AsyncSource(window, items, tasks)
        else:
            self._source = _ItemSource(window, items)

    def __aiter__(self) -> Results:
        return self

    async def __anext__(self) -> Result:
        window, source = self._window, self._source
        try:
            if self._plan is None:
                self._plan = await self._make_plan()
            while True:
                go_on = source.more and window.ahead < window.size and await source.fill(self._plan)
                if window.done:
                    break
                if not source.more and window.is_idle:
                    raise StopAsyncIteration
                if not go_on:
                    await window.changed()
        except BaseException:
            await self.aclose()
            raise
        window.ahead -= 1
        return window.done.popleft()

    async def aclose(self) -> None:
        """Take no more items, and cancel unfinished jobs."""
        self._window.close()
        self._source.drop()

    async def __aenter__(self) -> Results:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # `break` drops the iterator without any other notice.
        self._window.close_threadsafe()
        self._source.drop()


class _ItemSource:
    """Items of a plain iterator, taken in the loop."""

    def __init__(self, window: MapWindow, items: Iterable[object]) -> None:
        self.more = True
        self._window = window
        self._items = iter(items)

    async def fill(self, plan: Plan) -> bool:
        """Take items while there is room, for at most FILL_S. True if the time is over and there may be more."""
        window = self._window
        until = monotonic() + FILL_S
        while window.ahead < window.size:
            try:
                item = next(self._items)
            except StopIteration:
                self.more = False
                return False
            window.ahead += 1
            entry = entry_for(plan, item) if type(item) in _WITHOUT_FILES else await entry_in_loop(plan, item)
            window.push(entry)
            if monotonic() > until:
                await asyncio.sleep(0)
                return True
        return False

    def drop(self) -> None:
        self.more = False


class _AsyncSource:
    """Items of an asynchronous iterator. A task waits for the next one, so that results need not wait."""

    def __init__(self, window: MapWindow, items: AsyncIterable[object], tasks: Tasks) -> None:
        self.more = True
        self._window = window
        self._items = aiter(items)
        self._tasks = tasks
        self._next: asyncio.Task[_Taken] | None = None
        self._loop = asyncio.get_running_loop()

    async def fill(self, plan: Plan) -> bool:
        """Take items that are ready. Always False: the next one wakes the window."""
        window = self._window
        while window.ahead < window.size:
            if self._next is None:
                self._next = self._tasks.start(_take(self._items), name="the next item of a map")
                self._next.add_done_callback(lambda _task: window.wake())
            if not self._next.done():
                return False
            taken, self._next = self._next.result(), None
            if taken.error is not None:
                raise taken.error
            if taken.at_end:
                self.more = False
                return False
            window.ahead += 1
            window.push(await entry_in_loop(plan, taken.item))
        return False

    def drop(self) -> None:
        self.more = False
        if self._next is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._next.cancel)


class _Taken(NamedTuple):
    item: object = None
    at_end: bool = False
    error: Exception | None = None


async def _take(items: AsyncIterator[object]) -> _Taken:
    """An error of the user's iterator goes to the loop over the results, instead of the log."""
    try:
        return _Taken(await anext(items))
    except StopAsyncIteration:
        return _Taken(at_end=True)
    except Exception as error:
        return _Taken(error=error)


def _entry(plan: Plan, item: object, task: JobSpec, loaded: JobFiles | None = None) -> MapItem:
    try:
        return MapItem(item, plan.request(task, loaded))
    except Refused as no:
        return MapItem(item, refused_result(no, str(task.job_id or ""), task.program or plan.program, item))
