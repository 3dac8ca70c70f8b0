"""Where is work done that would keep the loop from its connections?"""

from __future__ import annotations

import threading

import pytest
from tests.kit.processes import no_new_thread

from wakugumi.errors import ConfigError
from wakugumi.roles.runner.job_threads import THREADS, JobThreads

pytestmark = pytest.mark.anyio


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("waku-")]


async def test_all_threads_are_there_from_the_start_and_go_with_the_pools() -> None:
    before = len(names())
    threads = JobThreads()
    assert len(names()) - before == 2 * THREADS
    assert threads.small.submit(lambda: threading.current_thread().name).result().startswith("waku-jobdir")
    assert threads.large.submit(lambda: threading.current_thread().name).result().startswith("waku-large")
    await threads.close()
    assert len(names()) == before


async def test_a_machine_without_threads_is_told_at_once() -> None:
    before = len(names())
    with no_new_thread(), pytest.raises(ConfigError, match="cannot start its 4 threads"):
        JobThreads()
    assert len(names()) == before
