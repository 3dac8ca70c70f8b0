"""The same client for programs without a loop of their own: each method calls the one of `Grid` that it is named after.

The Grid lives in a loop of its own, in a thread of its own. Any number of threads may use one Client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Any, Final, TypeVar

from wakugumi.adapters.loop.event_loop import new_loop
from wakugumi.core.client.leaders import Choice
from wakugumi.core.leader.admin.questions import Answer, CacheAnswer, CacheRow, CancelAnswer, Question
from wakugumi.errors import Refused
from wakugumi.limits.client import ADOPT_GRACE_S, CONNECT_DEADLINE_S, UNFINISHED_PER_CLIENT_MAX
from wakugumi.limits.files import PUT_DEADLINE_S
from wakugumi.limits.leader import BROADCAST_DEADLINE_S, CLIENT_CAP_DEFAULT, LIST_ROWS_DEFAULT
from wakugumi.roles.client.broadcast import Summary
from wakugumi.roles.client.files.inputs import NO_FILES, Content
from wakugumi.roles.client.files.uploads import Transfer
from wakugumi.roles.client.grid import Grid, connect
from wakugumi.roles.client.job import Job
from wakugumi.roles.client.leader_status import Status
from wakugumi.roles.client.map_window import FILL_S, Entry, Window, entry_for
from wakugumi.roles.client.put_cache import ALL_WORKERS, CacheFiles, CacheSummary
from wakugumi.roles.client.request import Arg, JobName, Plan, Requests
from wakugumi.roles.client.result import Result
from wakugumi.wire.message import JobLimits

T = TypeVar("T")

log = logging.getLogger("wakugumi.client")

_SHARES: Final = 8
"""A window is refilled in so many parts: each crossing into the loop's thread costs as much as several jobs."""


class Handle:
    """A job that was submitted. `result()` waits for its end."""

    def __init__(self, client: Client, job: Job) -> None:
        self._client = client
        self._job = job

    @property
    def id(self) -> str:
        return self._job.id

    def result(self, timeout_s: float | None = None) -> Result:
        """Raises Refused: what the system refused, or "timed-out"; the job goes on then, and may be asked again."""
        return self._client.call(_within(lambda: self._job, timeout_s))

    def accepted(self) -> None:
        """Returns once the leader has the job for good. Raises Refused if it will not have it."""
        self._client.call(self._job.accepted())

    def cancel(self) -> None:
        self._client.call(self._job.cancel())

    def done(self) -> bool:
        return self._job.done()

    def __repr__(self) -> str:
        return repr(self._job)


class Client:
    """A Grid without async. Close it, or use it in a `with`."""

    grid: Grid
    """Lives in the client's own thread."""
    _loop: asyncio.AbstractEventLoop
    _thread: threading.Thread
    _leave: asyncio.Event
    _closing: bool

    def __init__(
        self,
        url: str,
        *,
        client_id: str | None = None,
        cap: int = CLIENT_CAP_DEFAULT,
        choice: Choice = "least",
        grace_s: float = ADOPT_GRACE_S,
        connect_timeout_s: float = CONNECT_DEADLINE_S,
        patience_s: float | None = None,
        unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
        old_leader: bool = False,
    ) -> None:
        self._open(
            lambda: connect(
                url,
                client_id=client_id,
                cap=cap,
                choice=choice,
                grace_s=grace_s,
                connect_timeout_s=connect_timeout_s,
                patience_s=patience_s,
                unfinished_max=unfinished_max,
                old_leader=old_leader,
            )
        )

    @classmethod
    def over(cls, make_grid: Callable[[], AbstractAsyncContextManager[Grid]]) -> Client:
        """A Client over a Grid that is made some other way. It is entered in the loop's thread, and left there."""
        client = cls.__new__(cls)
        client._open(make_grid)
        return client

    def submit(
        self,
        program: str,
        *,
        args: Sequence[Arg] = (),
        files: Mapping[str, Content] | None = None,
        job_id: JobName | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: JobLimits | None = None,
        retries: int = 0,
        key: str | None = None,
        priority: int = 0,
        slots: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> Handle:
        """Hand in a job; waits while the leader can take none. Raises Refused for what can be no job."""
        submitting = self.grid.submit(
            program,
            args=args,
            files=files,
            job_id=job_id,
            subject=subject,
            timeout_s=timeout_s,
            limits=limits,
            retries=retries,
            key=key,
            priority=priority,
            slots=slots,
            env=env,
        )
        return Handle(self, self.call(submitting))

    def run(
        self,
        program: str,
        *,
        args: Sequence[Arg] = (),
        files: Mapping[str, Content] | None = None,
        job_id: JobName | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: JobLimits | None = None,
        retries: int = 0,
        key: str | None = None,
        priority: int = 0,
        slots: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """`submit`, and its result. Interrupted while it waits, it cancels the job."""
        return self.call(
            self.grid.run(
                program,
                args=args,
                files=files,
                job_id=job_id,
                subject=subject,
                timeout_s=timeout_s,
                limits=limits,
                retries=retries,
                key=key,
                priority=priority,
                slots=slots,
                env=env,
            )
        )

    def map(
        self,
        program: str,
        items: Iterable[object],
        *,
        args: Sequence[Arg] = (),
        files: Mapping[str, Content] | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: JobLimits | None = None,
        retries: int = 0,
        key: str | None = None,
        priority: int = 0,
        slots: int = 1,
        env: Mapping[str, str] | None = None,
        window: int | None = None,
    ) -> Iterator[Result]:
        """One job per item, results as they finish: see `Grid.map`. Items are taken in the caller's own thread."""
        contents = self.grid.contents
        common = contents.load(files) if files else NO_FILES
        requests = Requests(self.grid.client_id)
        plan = Plan(
            requests, program, args, common, subject, timeout_s, limits, retries, key, priority, slots, contents, env
        )
        return self._map(plan, iter(items), window)

    def broadcast(
        self,
        program: str,
        *,
        args: Sequence[Arg] = (),
        files: Mapping[str, Content] | None = None,
        job_id: JobName | None = None,
        subject: str = "",
        timeout_s: float | None = None,
        limits: JobLimits | None = None,
        retries: int = 0,
        env: Mapping[str, str] | None = None,
        within_s: float = BROADCAST_DEADLINE_S,
    ) -> tuple[list[Result], Summary]:
        """Have every worker that matches run the program once; all their results, in the order in which they came, and
        how many there were of each kind: see `Grid.broadcast`."""
        return self.call(
            self.grid.broadcast(
                program,
                args=args,
                files=files,
                job_id=job_id,
                subject=subject,
                timeout_s=timeout_s,
                limits=limits,
                retries=retries,
                env=env,
                within_s=within_s,
            ).gather()
        )

    def put_cache(
        self,
        cache: str,
        files: CacheFiles,
        *,
        target: str = ALL_WORKERS,
        within_s: float = PUT_DEADLINE_S,
        share: float = 1.0,
        pinned: bool = False,
        on_progress: Callable[[CacheSummary], None] | None = None,
    ) -> CacheSummary:
        """Have workers keep these files beforehand: see `Grid.put_cache`. `on_progress` is called in another thread."""
        return self.call(
            self.grid.put_cache(
                cache,
                files,
                target=target,
                within_s=within_s,
                share=share,
                pinned=pinned,
                on_progress=on_progress,
            )
        )

    def caches(self, limit: int = LIST_ROWS_DEFAULT) -> list[CacheRow]:
        """What all leaders keep for their workers."""
        return self.call(self.grid.caches(limit))

    def cache(self, cache: str) -> CacheAnswer:
        """What is in it, and which workers have it. Raises Refused("no-cache")."""
        return self.call(self.grid.cache(cache))

    def pin_cache(self, cache: str, *, pinned: bool = True) -> list[CacheRow]:
        """Keep it for ever, or no longer than others. Raises Refused("no-cache")."""
        return self.call(self.grid.pin_cache(cache, pinned=pinned))

    def drop_cache(self, cache: str) -> list[CacheRow]:
        """Forget it, everywhere. Raises Refused("no-cache")."""
        return self.call(self.grid.drop_cache(cache))

    def transfers(self) -> list[Transfer]:
        """The files that are just being read, or sent to a leader."""
        return self.call(_transfers(self.grid))

    def wait(self, job_id: JobName, timeout_s: float | None = None) -> Result:
        """The result of a job that someone submitted before. Raises Refused: "unknown-job", "timed-out"."""
        return self.call(_within(lambda: self.grid.wait(job_id), timeout_s))

    def cancel(self, *job_ids: JobName) -> CancelAnswer:
        """Cancel jobs, whoever submitted them, and tell what became of them."""
        return self.call(self.grid.cancel(*job_ids))

    def ask(self, question: Question, leader: str | None = None) -> Answer:
        """Ask this leader something, or else whoever serves. Waits if it is away. Raises Refused."""
        return self.call(self.grid.ask(question, leader))

    def ask_each(self, question: Question) -> dict[str, Answer | Refused]:
        """Ask every leader that serves, by its address."""
        return self.call(self.grid.ask_each(question))

    def add_leader(self, url: str) -> None:
        """One more leader: it gets its share as soon as it serves. Raises ConfigError if it is one of them already."""
        self.call(_add_leader(self.grid, url))

    def remove_leader(self, url: str) -> None:
        """Give a leader no further jobs, wait for those that it has, and leave it. Raises ConfigError."""
        self.call(self.grid.remove_leader(url))

    def status(self) -> Status:
        return self.grid.status()

    def close(self) -> None:
        """Leave. What the leader has, it keeps and does; its results wait for whoever asks with `wait`."""
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
        with self._lock:  # What is begun before the client closes is told that it does; nothing is begun after.
            if self._closing:
                work.close()
                raise Refused("closed", "the client is closed")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this in the loop and wait for its end; interrupted, cancel it."""
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
        except BaseException:  # an interrupt too: whatever happens here, no thread is left behind
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
                log.exception("the client ended badly")
            else:
                opened.set_exception(error)

    def _give_up(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _map(self, plan: Plan, items: Iterator[object], size: int | None) -> Iterator[Result]:
        window = self.call(_new_window(self.grid, size))
        share = max(1, window.size // _SHARES)
        more, ahead = True, 0
        try:
            while True:
                if more:
                    more, ahead = self._fill(window, plan, items, ahead)
                results = self.call(window.some())
                if not results and not more:
                    return
                for result in results:
                    ahead -= 1
                    yield result
                    if more and window.size - ahead >= share:
                        more, ahead = self._fill(window, plan, items, ahead)
        finally:
            window.close_from_anywhere()

    def _fill(self, window: Window, plan: Plan, items: Iterator[object], ahead: int) -> tuple[bool, int]:
        """Take what the window has room for, but not for long. Are there more items, and how many are ahead now?"""
        room = window.size - ahead
        entries: list[Entry] = []
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

    def _push(self, window: Window, entries: list[Entry]) -> None:
        def push() -> None:
            for entry in entries:
                window.push(entry)

        with self._lock:
            if not self._closing:
                self._loop.call_soon_threadsafe(push)


async def _add_leader(grid: Grid, url: str) -> None:
    grid.add_leader(url)


async def _transfers(grid: Grid) -> list[Transfer]:
    return grid.transfers()


async def _new_window(grid: Grid, size: int | None) -> Window:
    return grid.new_window(size)


async def _within(result: Callable[[], Awaitable[Result]], timeout_s: float | None) -> Result:
    try:
        async with asyncio.timeout(timeout_s):
            return await result()
    except TimeoutError:
        raise Refused("timed-out", f"the job was not done within {timeout_s:g} s") from None
