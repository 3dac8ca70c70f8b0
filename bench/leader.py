"""Wakugumi's leader alone: no-op jobs through the public client API, a worker that answers at once (`noop.py`).

Leader, client and worker are three processes. The leader's CPU time per job is its own, read from the system.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import psutil

import subjects
import wakugumi
from contestant import Answer, Contestant, perform
from wakugumi.adapters.loop import run

HERE = Path(__file__).resolve().parent
WINDOW = 2_000
QUEUED = 100_000
GRIDS = 20
ARGUMENT = "x" * 120
"""Makes a request of some 200 bytes."""


class Leader(Contestant):
    def __init__(self) -> None:
        self.versions = {"Wakugumi": wakugumi.__version__}

    def throughput(self, jobs: int) -> Answer:
        rate = run(_noop(jobs, workers=1, credit=1_000))
        return {
            "jobs": jobs,
            "seconds": rate["seconds"],
            "leader_cpu_us": rate["leader_cpu_us"],
            "noop_per_s": jobs / rate["seconds"],
        }

    def figures(self) -> Answer:
        matching = subjects.measure()
        return {
            "leader_cpu_us_500_workers": run(_noop(100_000, workers=500, credit=4))["leader_cpu_us"],
            "queued_100k_mib": run(_growth(QUEUED)),
            "match_100k_us": matching["match_100k_us"],
            "match_ratio_100k_100": matching["match_100k_us"] / matching["match_100_us"],
            "join_ms": matching["join_us"] / 1e3,
        }


async def _noop(jobs: int, *, workers: int, credit: int) -> Answer:
    with _leader() as (process, address), _apart_from(process), _crew(address, workers, credit):
        async with wakugumi.connect(address, client_id="bench", cap=WINDOW) as grid:
            await _all(grid, 5_000)
            used = _cpu_s(process)
            start = time.perf_counter()
            await _all(grid, jobs)
            seconds = time.perf_counter() - start
            return {"seconds": seconds, "leader_cpu_us": (_cpu_s(process) - used) / jobs * 1e6}


async def _all(grid: wakugumi.Grid, jobs: int) -> None:
    done = 0
    async for result in grid.map("calcA", ([ARGUMENT] for _ in range(jobs)), window=WINDOW):
        done += result.ok
    if done != jobs:
        raise RuntimeError(f"{jobs - done} of {jobs} jobs failed")


async def _growth(jobs: int) -> float:
    """MiB that the leader's resident memory grows by while jobs queue that no worker will take."""
    with _leader() as (process, address):
        async with AsyncExitStack() as open_grids:
            # A client has a bounded number of unfinished jobs, so several share the load.
            grids = [
                await open_grids.enter_async_context(wakugumi.connect(address, client_id=f"bench-{number}"))
                for number in range(GRIDS)
            ]
            for grid in grids:
                await (await grid.submit("calcA", args=[ARGUMENT])).accepted()
            before = process.memory_info().rss
            for grid in grids:
                for _ in range(jobs // GRIDS):
                    job = await grid.submit("calcA", args=[ARGUMENT])
                await job.accepted()
            return (process.memory_info().rss - before) / 2**20


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def _leader() -> Iterator[tuple[psutil.Process, str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "wakugumi", "leader", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield psutil.Process(process.pid), process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def _apart_from(leader: psutil.Process) -> Iterator[None]:
    """The leader on one CPU, client and crew on the other: the scheduler packs short work onto one of them."""
    ours = psutil.Process()
    cpus = ours.cpu_affinity() or []
    if len(cpus) >= 2:
        leader.cpu_affinity(cpus[:1])
        ours.cpu_affinity(cpus[1:])
    try:
        yield
    finally:
        ours.cpu_affinity(cpus)


@contextmanager
def _crew(address: str, workers: int, credit: int) -> Iterator[None]:
    port = address.rsplit(":", 1)[1]
    with subprocess.Popen(
        [sys.executable, str(HERE / "noop.py"), port, str(workers), str(credit)], stdout=subprocess.PIPE, text=True
    ) as crew:
        try:
            assert crew.stdout is not None
            crew.stdout.readline()
            yield
        finally:
            crew.terminate()


@contextmanager
def opened() -> Iterator[Leader]:
    yield Leader()


if __name__ == "__main__":
    perform(opened())
