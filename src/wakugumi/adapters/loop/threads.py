"""How does long work leave the loop, without holding up the end of the program?

In a thread of its own, which does not delay the end of the program. `asyncio.to_thread` shares few threads with the
look-up of names, which must never wait behind gigabytes, and Python ends only when all of those threads are done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def beside(work: Callable[[], T], name: str) -> T:
    """The result of `work`, or its exception. A cancelled call leaves the thread to itself."""
    return await begin(work, name)


def begin(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Starts `work` in a thread; the returned future has its result."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(call: Callable[[], None]) -> None:
        if not done.done():
            call()

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            failure = error
            ended: Callable[[], None] = lambda: done.set_exception(failure)  # noqa: E731 - one of two
        else:
            ended = lambda: done.set_result(result)  # noqa: E731
        with suppress(RuntimeError):  # The loop is closed: the result is not needed.
            loop.call_soon_threadsafe(tell, ended)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


async def ended(work: asyncio.Future[T]) -> T:
    """The result of work in a thread. A cancelled call waits for the work, however often it is cancelled: a file must
    not be closed while a thread uses it."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        raise


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool that has started all its threads, so that it needs no new one when the machine has none left. Raises
    RuntimeError if they cannot be started."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    together = threading.Barrier(threads)  # The pool starts a thread only if no other one is idle.
    try:
        for _ in range(threads):
            pool.submit(together.wait)
    except RuntimeError:
        together.abort()
        pool.shutdown(cancel_futures=True)
        raise
    return pool


def is_no_thread(error: BaseException) -> bool:
    """Does the error mean that the machine can start no further thread? Python has no class of its own for it."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)
