"""How does code for a `concurrent.futures.Executor` run programs on a fleet? By this executor.

    with Executor("waku://localhost:5000") as pool:
        for future in as_completed(pool.submit("calcA", f"--seed={n}") for n in range(1000)): ...

A Future's result is a Result, also if the program failed; it raises Refused if the system refused the job. Cancelling a
Future cancels its job, wherever it runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor as BaseExecutor
from concurrent.futures import Future, wait
from time import monotonic
from typing import Any, Unpack

from wakugumi.errors import Refused
from wakugumi.limits.client import UNFINISHED_PER_CLIENT_MAX
from wakugumi.roles.client.blocking import Client
from wakugumi.roles.client.job_spec import FutureOptions, JobSpec, takes
from wakugumi.roles.client.put_cache import CacheFiles, CacheSummary
from wakugumi.roles.client.result import Result
from wakugumi.wire.job_options import JobOptions


class Executor(BaseExecutor):
    """Runs programs. Given an address, it opens and closes its own Client; given a Client, it leaves it open."""

    def __init__(self, grid: str | Client, **options: Any) -> None:
        self._is_guest = not isinstance(grid, str)
        if self._is_guest and options:
            raise TypeError("options are for a client of the executor's own, not for one that is there already")
        self._client = Client(grid, **options) if isinstance(grid, str) else grid
        self._lock = threading.Lock()
        self._futures: set[Future[Result]] = set()
        self._shut_down = False
        self._room = threading.BoundedSemaphore(UNFINISHED_PER_CLIENT_MAX)

    @takes(FutureOptions)
    def submit(self, program: str, /, *args: Any, **options: Unpack[FutureOptions]) -> Future[Result]:  # type: ignore[override]
        """Run a program with these arguments.

        Waits while too many futures are unfinished: back pressure for the caller.
        """
        if not isinstance(program, str):
            raise Refused("not-supported", "an executor runs programs by their name, not Python functions")
        waits = not self._client.is_own_thread  # A callback in the client's thread would wait for itself.
        if waits:
            self._room.acquire()
        try:
            with self._lock:
                if self._shut_down:
                    raise RuntimeError("cannot schedule new futures after shutdown")
                future = self._client.begin(self._client.grid.run(program, args=args, **options))
                self._futures.add(future)
        except BaseException:
            if waits:
                self._room.release()
            raise

        def ended(future: Future[Result]) -> None:
            with self._lock:
                self._futures.discard(future)
            if waits:
                self._room.release()

        future.add_done_callback(ended)
        return future

    @takes(JobOptions)
    def map(  # type: ignore[override]
        self,
        program: str,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,  # noqa: ARG002 - part of the base class's signature; jobs are sent together anyway
        **options: Unpack[JobOptions],
    ) -> Iterator[Result]:
        """The results in the order of the arguments. Jobs are submitted a few ahead of the results taken."""
        JobSpec.of(program, options, JobOptions)  # Raises for unknown options at once.
        until = None if timeout is None else monotonic() + timeout
        rows = zip(*iterables)
        ahead: deque[Future[Result]] = deque()
        size = max(2 * self._client.grid.cap, 16)

        def fill() -> None:
            while len(ahead) < size and (row := next(rows, None)) is not None:
                ahead.append(self.submit(program, *row, **options))

        def results() -> Iterator[Result]:
            try:
                while ahead:
                    yield ahead[0].result(None if until is None else until - monotonic())
                    ahead.popleft()
                    fill()
            finally:
                for future in ahead:
                    future.cancel()

        fill()
        return results()

    def put_cache(self, cache: str, files: CacheFiles, **options: Any) -> CacheSummary:
        """Have workers keep these files beforehand. `options` are those of `Client.put_cache`: target, share …"""
        return self._client.put_cache(cache, files, **options)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs. With `wait`, return when all are done; without, running ones end by themselves."""
        with self._lock:
            self._shut_down = True
            futures = list(self._futures)
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            self._finish(futures)
        else:
            threading.Thread(target=self._finish, args=(futures,), name="wakugumi executor").start()

    def _finish(self, futures: list[Future[Result]]) -> None:
        wait(futures)
        if not self._is_guest:
            self._client.close()
