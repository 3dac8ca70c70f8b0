"""How does a program without an event loop use a grid? By a Client: each method calls the one of `Grid` with its name.

The Grid lives in a loop of its own, in a thread of its own. Any number of threads may use one Client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from inspect import signature
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

from wakugumi.adapters.loop.event_loop import new_loop
from wakugumi.errors import Refused
from wakugumi.limits.leader import BROADCAST_DEADLINE_S
from wakugumi.roles.client.broadcast import Summary
from wakugumi.roles.client.files.inputs import NO_FILES
from wakugumi.roles.client.files.uploads import FileTransfer
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.roles.client.job import Job
from wakugumi.roles.client.job_spec import (
    BroadcastOptions,
    JobName,
    JobSpec,
    MapOptions,
    SubmitOptions,
    takes,
)
from wakugumi.roles.client.map_window import FILL_S, MapItem, MapWindow, entry_for
from wakugumi.roles.client.request import Plan, Requests
from wakugumi.roles.client.result import Result
from wakugumi.roles.client.session.leader_status import Status

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("wakugumi.client")

_SHARES: Final = 8
"""A window is refilled in this many parts: each call into the loop's thread costs as much as several jobs."""


class Handle:
    """A submitted job. `result()` waits for its end."""

    def __init__(self, client: Client, job: Job) -> None:
        self._client = client
        self._job = job

    @property
    def id(self) -> str:
        return self._job.id

    def result(self, timeout_s: float | None = None) -> Result:
        """Raises Refused: the system's refusal, or "timed-out"; then the job goes on, and `result` may be called
        again."""
        return self._client.call(_within(lambda: self._job, timeout_s))

    def accepted(self) -> None:
        """Returns once the leader has stored the job. Raises Refused if the leader refuses it."""
        self._client.call(self._job.accepted())

    def cancel(self) -> None:
        self._client.call(self._job.cancel())

    def done(self) -> bool:
        return self._job.done()

    def __repr__(self) -> str:
        return repr(self._job)


def _awaited(method: Callable[Concatenate[Grid, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Client, P], T]:
    """The method for a Client: run in the loop and awaited, with the Grid's signature and docstring."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **options: P.kwargs) -> T:
        return self.call(method(self.grid, *args, **options))

    return call


def _takes_those_of(
    other: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Client, P], None]]:
    """Give a constructor the parameters of `other`, also for `help`."""

    def mark(init: Callable[..., None]) -> Callable[Concatenate[Client, P], None]:
        mine, theirs = signature(init), signature(other)
        parameters = [mine.parameters["self"], *theirs.parameters.values()]
        init.__signature__ = mine.replace(parameters=parameters)  # type: ignore[attr-defined]
        return init

    return mark


class Client:
    """A Grid without async. Close it, or use it in a `with`."""

    grid: Grid
    """Lives in the client's own thread."""
    _loop: asyncio.AbstractEventLoop
    _thread: threading.Thread
    _leave: asyncio.Event
    _closing: bool

    @_takes_those_of(connect)
    def __init__(self, *args: Any, **options: Any) -> None:
        """Connect, as `connect` does."""
        self._open(lambda: connect(*args, **options))

    @classmethod
    def over(cls, make_grid: Callable[[], AbstractAsyncContextManager[Grid]]) -> Client:
        """A Client over a Grid that is made some other way, entered and left in the loop's thread."""
        client = cls.__new__(cls)
        client._open(make_grid)
        return client

    @takes(SubmitOptions)
    def submit(self, program: str, **options: Unpack[SubmitOptions]) -> Handle:
        """Submit a job; waits while no leader takes jobs. Raises Refused for an invalid job."""
        return Handle(self, self.call(self.grid.submit(program, **options)))

    @takes(MapOptions)
    def map(
        self, program: str, items: Iterable[object], *, window: int | None = None, **options: Unpack[MapOptions]
    ) -> Iterator[Result]:
        """One job per item, results as they finish: see `Grid.map`. Items are taken in the caller's thread."""
        common, contents = JobSpec.of(program, options, MapOptions), self.grid.contents
        files = contents.load(common.files) if common.files else NO_FILES
        return self._map(Plan(Requests(self.grid.client_id), common, files, contents), iter(items), window)

    @takes(BroadcastOptions)
    def broadcast(
        self, program: str, *, within_s: float = BROADCAST_DEADLINE_S, **options: Unpack[BroadcastOptions]
    ) -> tuple[list[Result], Summary]:
        """Have every matching worker run the program once. Returns all results in the order of their arrival, and the
        counts: see `Grid.broadcast`."""
        return self.call(self.grid.broadcast(program, within_s=within_s, **options).gather())

    def wait(self, job_id: JobName, timeout_s: float | None = None) -> Result:
        """The result of a job that was submitted before. Raises Refused: "unknown-job", "timed-out"."""
        return self.call(_within(lambda: self.grid.wait(job_id), timeout_s))

    run = _awaited(Grid.run)
    put_cache = _awaited(Grid.put_cache)
    caches = _awaited(Grid.caches)
    cache = _awaited(Grid.cache)
    pin_cache = _awaited(Grid.pin_cache)
    drop_cache = _awaited(Grid.drop_cache)
    cancel = _awaited(Grid.cancel)
    ask = _awaited(Grid.ask)
    ask_each = _awaited(Grid.ask_each)
    remove_leader = _awaited(Grid.remove_leader)

    @wraps(Grid.add_leader)
    def add_leader(self, url: str) -> None:
        self.call(_soon(lambda: self.grid.add_leader(url)))

    @wraps(Grid.transfers)
    def transfers(self) -> list[FileTransfer]:
        return self.call(_soon(self.grid.transfers))

    @wraps(Grid.status)
    def status(self) -> Status:
        return self.grid.status()

    def close(self) -> None:
        """Disconnect. The leader keeps and finishes the jobs that it has; `wait` gets their results later."""
        with self._lock:
            if not self._closing:
                self._closing = True
                self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # The thread and its loop. `Executor` calls `begin` too.

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start this in the loop. Raises Refused("closed")."""
        with self._lock:  # Work that begins before the client closes ends with it; no work begins after.
            if self._closing:
                work.close()
                raise Refused("closed", "the client is closed")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this in the loop and wait for its end; cancel it if interrupted."""
        if self.is_own_thread:
            work.close()
            raise RuntimeError("a client cannot be waited for in its own thread, where callbacks of its jobs are run")
        future = self.begin(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Refused("closed", "the client was closed before the job was done") from None
        except BaseException:
            future.cancel()
            raise

    @property
    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _open(self, make_grid: Callable[[], AbstractAsyncContextManager[Grid]]) -> None:
        self._lock = threading.Lock()
        self._closing = False
        self._loop = new_loop()
        opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        # A daemon: a program that forgets to close its client must still be able to end.
        self._thread = threading.Thread(
            target=self._live, args=(make_grid, opened), name="wakugumi client", daemon=True
        )
        self._thread.start()
        try:
            opened.result()
        except BaseException:  # An interrupt too: no thread is left behind.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._give_up)
            self._thread.join()
            raise

    def _live(
        self, make_grid: Callable[[], AbstractAsyncContextManager[Grid]], opened: concurrent.futures.Future[None]
    ) -> None:
        async def live() -> None:
            self._leave = asyncio.Event()
            async with make_grid() as self.grid:
                opened.set_result(None)
                await self._leave.wait()

        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(live())
        except BaseException as error:
            if opened.done():
                log.exception("client failed")
            else:
                opened.set_exception(error)

    def _give_up(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _map(self, plan: Plan, items: Iterator[object], size: int | None) -> Iterator[Result]:
        window = self.call(_soon(lambda: self.grid.new_window(size)))
        share = max(1, window.size // _SHARES)
        more, ahead = True, 0
        try:
            while True:
                if more:
                    more, ahead = self._fill(window, plan, items, ahead)
                results = self.call(window.next_results())
                if not results and not more:
                    return
                for result in results:
                    ahead -= 1
                    yield result
                    if more and window.size - ahead >= share:
                        more, ahead = self._fill(window, plan, items, ahead)
        finally:
            window.close_threadsafe()

    def _fill(self, window: MapWindow, plan: Plan, items: Iterator[object], ahead: int) -> tuple[bool, int]:
        """Take items for the free room, for at most FILL_S. Are there more items, and how many are unfinished now?"""
        room = window.size - ahead
        entries: list[MapItem] = []
        until = monotonic() + FILL_S
        for item in islice(items, room):
            entries.append(entry_for(plan, item))
            if monotonic() > until:
                break
        else:
            if len(entries) < room:
                self._push(window, entries)
                return False, ahead + len(entries)
        self._push(window, entries)
        return True, ahead + len(entries)

    def _push(self, window: MapWindow, entries: list[MapItem]) -> None:
        def push() -> None:
            for entry in entries:
                window.push(entry)

        with self._lock:
            if not self._closing:
                self._loop.call_soon_threadsafe(push)


async def _soon(call: Callable[[], T]) -> T:
    """Run a plain call in the loop."""
    return call()


async def _within(result: Callable[[], Awaitable[Result]], timeout_s: float | None) -> Result:
    try:
        async with asyncio.timeout(timeout_s):
            return await result()
    except TimeoutError:
        raise Refused("timed-out", f"the job was not done within {timeout_s:g} s") from None
