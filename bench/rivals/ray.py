"""Ray on this machine with two CPUs: `subprocess.run` inside a task, its exit code as the result, nothing captured."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Read while it is imported: no telemetry, and no token written to the home directory and checked on every call.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}

import ray

from contestant import Answer, Contestant, one_by_one, perform

OBJECT_STORE_BYTES = 100 * 2**20  # results are single integers; the default takes a third of the machine's memory


@ray.remote
def true() -> int:
    return subprocess.run(["/bin/true"]).returncode


class Ray(Contestant):
    def __init__(self) -> None:
        self.versions = {"Ray": ray.__version__}

    def throughput(self, jobs: int) -> Answer:
        start = time.perf_counter()
        exit_codes = ray.get([true.remote() for _ in range(jobs)])
        seconds = time.perf_counter() - start
        if any(exit_codes):
            raise RuntimeError("a task failed")
        return {"jobs": len(exit_codes), "seconds": seconds}

    def latency(self, jobs: int) -> Answer:
        return one_by_one(lambda: ray.get(true.remote()), jobs)


@contextmanager
def opened() -> Iterator[Ray]:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES,
        # Its sockets live here, and a socket's path has at most 107 bytes: run.py keeps ours short.
        _temp_dir=str(Path.cwd()),
    )
    try:
        contestant = Ray()
        contestant.throughput(200)
        yield contestant
    finally:
        ray.shutdown()


if __name__ == "__main__":
    perform(opened())
