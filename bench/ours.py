"""Wakugumi with whole jobs: leader, worker with two slots and client as three processes, over loopback.

Each job is all that a job is: a directory of its own, captured stdout and stderr, result kept until confirmed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import wakugumi
from contestant import Answer, Contestant, one_by_one, perform, running
from wakugumi.adapters.loop import run

WAKU = (sys.executable, "-m", "wakugumi")
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
            subprocess.run([*WAKU, "run", "/bin/true"], check=True, env=_without_leader())
            taken.append(time.perf_counter() - start)
        return {"waku_run_s": sorted(taken)[RUN_TRIES // 2]}


def _without_leader() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("WAKU_")}


@contextmanager
def opened() -> Iterator[Ours]:
    programs = Path("programs")
    programs.mkdir()
    # A copy: what is started must lie in the exec directory itself.
    (programs / "true").write_bytes(Path("/bin/true").read_bytes())
    (programs / "true").chmod(0o755)
    with subprocess.Popen([*WAKU, "leader", "0"], stdout=subprocess.PIPE, text=True) as leader:
        try:
            assert leader.stdout is not None
            address = leader.stdout.readline().strip()
            host, port = address.rsplit(":", 1)
            worker = (
                *WAKU,
                "worker",
                host,
                port,
                "--slots",
                "2",
                "--cpu-cap",
                "0.95",
                "--programs",
                str(programs),
                "--jobs",
                "jobs",
            )
            with running(*worker):
                contestant = Ours(address)
                contestant.throughput(200)
                yield contestant
        finally:
            leader.terminate()


if __name__ == "__main__":
    perform(opened())
