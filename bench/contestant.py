"""The contestant's side of the contest: how a script takes its turns.

`run.py` starts every contestant once, then gives it turns, each a line on stdin answered by a line of JSON on stdout:

    (once, when warm)  {"ready": {"Ray": "2.60.0"}}           its parts and their versions; or {"absent": "why"}
    throughput N       {"jobs": n, "seconds": s}              n jobs handed in at once, until the last result is seen
    latency N          {"p50_ms": …, "p99_ms": …, "n": n}     one job at a time, from submit to result seen
    figures            {"name": number, …}                    what only this contestant can tell
    quit               nothing: it ends all that it started, and itself (the end of stdin means the same)

A turn that fails is answered by {"error": "why"}. Further numbers in an answer are shown beside it. The current
directory is the contestant's own and is removed afterwards. Standard library only: rivals live without Wakugumi.
"""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

Answer = dict[str, float]

LATENCY_LIMIT_S = 5.0  # a slow contestant's one-by-one turn ends here: 60 ms a job would otherwise take half the run
SERVER_START_S = 20.0
SERVER_STOP_S = 5.0


class Absent(Exception):
    """This contestant cannot take part here, for a reason worth a row in the table."""


class Contestant:
    """What takes the turns. A contestant leaves out the turns it has no answer to."""

    versions: dict[str, str] = {}  # noqa: RUF012  (each contestant replaces it, none changes it)

    def throughput(self, jobs: int) -> Answer:
        raise NotImplementedError(f"no throughput of {jobs} jobs")

    def latency(self, jobs: int) -> Answer:
        raise NotImplementedError(f"no latency of {jobs} jobs")

    def figures(self) -> Answer:
        return {}


def perform(opening: AbstractContextManager[Contestant]) -> None:
    """Open the contestant and take turns until told to quit."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # Servers and libraries print, and read what they inherit: from here on they get the log and nothing.
    turns, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)

    def answer(value: object) -> None:
        with suppress(BrokenPipeError):  # nobody listens any more: the end of stdin is next
            answers.write(json.dumps(value) + "\n")

    try:
        with opening as contestant:
            answer({"ready": contestant.versions})
            for line in turns:
                if line.strip() == "quit":
                    break
                answer(_take_turn(contestant, line.split()))
    except Absent as reason:
        answer({"absent": str(reason)})


def one_by_one(run_one: Callable[[], object], jobs: int) -> Answer:
    """The answer to a `latency` turn: up to `jobs` calls, each timed on its own, within LATENCY_LIMIT_S."""
    taken_ms: list[float] = []
    end = time.perf_counter() + LATENCY_LIMIT_S
    while len(taken_ms) < jobs and time.perf_counter() < end:
        start = time.perf_counter()
        run_one()
        taken_ms.append((time.perf_counter() - start) * 1e3)
    return _latency(taken_ms)


async def one_by_one_awaited(run_one: Callable[[], Awaitable[object]], jobs: int) -> Answer:
    """The same within a loop."""
    taken_ms: list[float] = []
    end = time.perf_counter() + LATENCY_LIMIT_S
    while len(taken_ms) < jobs and time.perf_counter() < end:
        start = time.perf_counter()
        await run_one()
        taken_ms.append((time.perf_counter() - start) * 1e3)
    return _latency(taken_ms)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank: a value that really occurred, none interpolated."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@contextmanager
def running(
    *argv: str, env: dict[str, str] | None = None, stdout: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server or worker that lives as long as the block, and is ended by its process id."""
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout, env={**os.environ, **(env or {})})
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(SERVER_STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SERVER_START_S
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"{server.args!r} ended at once with exit code {server.returncode}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{server.args!r} did not listen within {SERVER_START_S:.0f} s")


def _latency(taken_ms: list[float]) -> Answer:
    taken_ms.sort()
    return {"p50_ms": percentile(taken_ms, 0.50), "p99_ms": percentile(taken_ms, 0.99), "n": len(taken_ms)}


def _take_turn(contestant: Contestant, words: list[str]) -> object:
    try:
        match words:
            case ["throughput", jobs]:
                return contestant.throughput(int(jobs))
            case ["latency", jobs]:
                return contestant.latency(int(jobs))
            case ["figures"]:
                return contestant.figures()
            case _:
                return {"error": f"unknown turn {' '.join(words)!r}"}
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}
