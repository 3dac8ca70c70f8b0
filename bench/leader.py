"""Wakugumi's leader alone: no-op jobs through the public client API, a worker that answers at once (`noop.py`).

Leader, client and worker are three processes. The leader's CPU time per job is its own, that of all its threads, read
from the system. Each turn has a leader of its own, with a journal of its own if it keeps one.

python -m leader memory|durable
"""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import psutil

import subjects
import wakugumi
from contestant import Answer, Contestant, one_by_one_awaited, perform
from processes import Keeping, keeping_from, leading
from wakugumi.adapters.loop.event_loop import run

HERE = Path(__file__).resolve().parent
WINDOW = 2_000
QUEUED = 100_000
GRIDS = 20
ARGUMENT = "x" * 120
"""Makes a request of some 200 bytes."""


class Leader(Contestant):
    def __init__(self, keeping: Keeping) -> None:
        self.versions = {"Wakugumi": wakugumi.__version__}
        self._keeping = keeping

    def throughput(self, jobs: int) -> Answer:
        return run(_noop(self._keeping, jobs, workers=1, credit=1_000))

    def latency(self, jobs: int) -> Answer:
        return run(_one_by_one(self._keeping, jobs))

    def figures(self) -> Answer:
        matching = subjects.measure()
        return {
            "leader_cpu_us_500_workers": run(_noop(self._keeping, 100_000, workers=500, credit=4))["leader_cpu_us"],
            "queued_100k_mib": run(_growth(self._keeping, QUEUED)),
            "match_100k_us": matching["match_100k_us"],
            "match_ratio_100k_100": matching["match_100k_us"] / matching["match_100_us"],
            "join_ms": matching["join_us"] / 1e3,
        }


async def _noop(keeping: Keeping, jobs: int, *, workers: int, credit: int) -> Answer:
    async with _grid(keeping, workers, credit) as (leader, grid):
        await _all(grid, 5_000)
        used = _cpu_s(leader)
        start = time.perf_counter()
        await _all(grid, jobs)
        seconds = time.perf_counter() - start
        return {"jobs": jobs, "seconds": seconds, "leader_cpu_us": (_cpu_s(leader) - used) / jobs * 1e6}


async def _one_by_one(keeping: Keeping, jobs: int) -> Answer:
    async with _grid(keeping, workers=1, credit=1_000) as (_, grid):

        async def run_one() -> None:
            (await grid.run("calcA", args=[ARGUMENT])).check()

        await one_by_one_awaited(run_one, 200)
        return await one_by_one_awaited(run_one, jobs)


@asynccontextmanager
async def _grid(keeping: Keeping, workers: int, credit: int) -> AsyncIterator[tuple[psutil.Process, wakugumi.Grid]]:
    with leading(keeping) as (process, address):
        leader = psutil.Process(process.pid)
        with _apart_from(leader), _crew(address, workers, credit):
            async with wakugumi.connect(address, client_id="bench", cap=WINDOW) as grid:
                yield leader, grid


async def _all(grid: wakugumi.Grid, jobs: int) -> None:
    done = 0
    async for result in grid.map("calcA", ([ARGUMENT] for _ in range(jobs)), window=WINDOW):
        done += result.ok
    if done != jobs:
        raise RuntimeError(f"{jobs - done} of {jobs} jobs failed")


async def _growth(keeping: Keeping, jobs: int) -> float:
    """MiB that the leader's resident memory grows by while jobs queue that no worker will take."""
    with leading(keeping) as (leader, address):
        process = psutil.Process(leader.pid)
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
def _apart_from(leader: psutil.Process) -> Iterator[None]:
    """The leader's loop on one CPU, client and crew on the other: the scheduler packs short work onto one of them.

    The threads of its journal stay where there is room: this binds the first thread alone.
    """
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
def _crew(address: str, workers: int, credit: int, access: Path | None = None) -> Iterator[None]:
    """`access`: the file with the key that they show."""
    port = address.rsplit(":", 1)[1]
    with subprocess.Popen(
        [sys.executable, str(HERE / "noop.py"), port, str(workers), str(credit)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ({} if access is None else {"WAKU_ACCESS": str(access)}),
    ) as crew:
        try:
            assert crew.stdout is not None
            crew.stdout.readline()
            yield
        finally:
            crew.terminate()


@contextmanager
def opened(keeping: Keeping) -> Iterator[Leader]:
    yield Leader(keeping)


if __name__ == "__main__":
    perform(opened(keeping_from(sys.argv[1:])))
