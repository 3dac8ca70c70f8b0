"""HyperQueue, by its Python API: a server and a worker with two cores, both threads of this process.

Each task has what is nearest to a Wakugumi job: a directory of its own, and stdout and stderr in files. The API's own
wait looks once a second; an exception from its progress callback ends that wait after one look, so we look more often.
"""

import importlib.metadata
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hyperqueue import Job, LocalCluster
from hyperqueue.client import Client
from hyperqueue.cluster import WorkerConfig
from hyperqueue.job import SubmittedJob

from contestant import Answer, Contestant, one_by_one, perform

LOOK_ONE_S = 0.001  # under 2 % of the time one job takes here
LOOK_MANY_S = 0.01  # under 1 % of a throughput turn, and too rare to take the tasks' CPU


class HyperQueue(Contestant):
    def __init__(self, client: Client, folder: Path) -> None:
        self.versions = {"HyperQueue": importlib.metadata.version("hyperqueue")}
        self._client = client
        self._folder = folder

    def throughput(self, jobs: int) -> Answer:
        job = self._job(tasks=jobs)
        start = time.perf_counter()
        submitted = self._client.submit(job)
        self._wait(submitted, LOOK_MANY_S)
        seconds = time.perf_counter() - start
        self._forget(submitted)
        return {"jobs": jobs, "seconds": seconds}

    def latency(self, jobs: int) -> Answer:
        finished: list[SubmittedJob] = []

        def run_one() -> None:
            submitted = self._client.submit(self._job(tasks=1))
            self._wait(submitted, LOOK_ONE_S)
            finished.append(submitted)

        answer = one_by_one(run_one, jobs)
        for submitted in finished:
            self._forget(submitted)
        return answer

    def _job(self, tasks: int) -> Job:
        job = Job(default_workdir=self._folder)
        for _ in range(tasks):
            job.program(["/bin/true"], task_dir=True)
        return job

    def _wait(self, job: SubmittedJob, look_s: float) -> None:
        def look(jobs: dict[int, dict[str, object]]) -> None:
            if not all(state["completed"] for state in jobs.values()):
                raise _NotYet

        while True:
            try:
                failed = self._client.connection.wait_for_jobs((job.id,), look)
            except _NotYet:
                time.sleep(look_s)
            else:
                break
        if failed:
            raise RuntimeError(f"jobs failed: {failed}")

    def _forget(self, job: SubmittedJob) -> None:
        self._client.forget(job)
        shutil.rmtree(self._folder, ignore_errors=True)


class _NotYet(Exception):
    pass


@contextmanager
def opened() -> Iterator[HyperQueue]:
    with LocalCluster(worker_config=WorkerConfig(cores=2)) as cluster:
        hyperqueue = HyperQueue(cluster.client(), Path.cwd() / "out")
        hyperqueue.throughput(100)
        yield hyperqueue


if __name__ == "__main__":
    perform(opened())
