"""Wakugumi with whole jobs: leader, worker with two slots and client as three processes, over loopback.

Each job is all that a job is: a directory of its own, captured stdout and stderr, result kept until confirmed.

python -m ours memory|durable
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import wakugumi
from contestant import Answer, Contestant, one_by_one, perform
from processes import WAKU, Keeping, keeping_from, leading, working
from wakugumi.adapters.loop.event_loop import run

RUN_TRIES = 7


class Ours(Contestant):
    def __init__(self, leader: str) -> None:
        self.versions = {"Wakugumi": wakugumi.__version__}
        self._leader = leader

    def throughput(self, jobs: int) -> Answer:
        return run(self._throughput(jobs))

    async def _throughput(self, jobs: int) -> Answer:
        async with wakugumi.connect(self._leader, client_id="bench") as grid:
            start = time.perf_counter()
            done = 0
            async for result in grid.map("true", ([] for _ in range(jobs))):
                result.check()
                done += 1
            return {"jobs": done, "seconds": time.perf_counter() - start}

    def latency(self, jobs: int) -> Answer:
        with wakugumi.Client(self._leader, client_id="bench") as grid:
            return one_by_one(lambda: grid.run("true").check(), jobs)

    def figures(self) -> Answer:
        """`waku run` of a program that does nothing, from typing to exit: the median of several."""
        taken = []
        for _ in range(RUN_TRIES):
            start = time.perf_counter()
            subprocess.run([*WAKU, "run", "/bin/true"], check=True)
            taken.append(time.perf_counter() - start)
        return {"waku_run_s": sorted(taken)[RUN_TRIES // 2]}


@contextmanager
def opened(keeping: Keeping) -> Iterator[Ours]:
    programs = Path("programs")
    programs.mkdir()
    # A copy: what is started must lie in the exec directory itself.
    (programs / "true").write_bytes(Path("/bin/true").read_bytes())
    (programs / "true").chmod(0o755)
    with leading(keeping) as (_, address), working(address, programs):
        contestant = Ours(address)
        contestant.throughput(200)
        yield contestant


if __name__ == "__main__":
    perform(opened(keeping_from(sys.argv[1:])))
