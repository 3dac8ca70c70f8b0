"""Does a flood of submits hold up a small client?

    .venv/bin/python bench/flood.py                    three rounds, some 20 s
    .venv/bin/python bench/flood.py --memory           a leader without a journal
    .venv/bin/python bench/flood.py --connections 10   so many floods at once

Real processes over loopback. One client runs jobs one after the other, each of them a no-op of a worker that answers at
once. In turns nobody else is there, and other clients submit as fast as they can and read nothing. Both figures are
from the same run, so what else the machine does is in both of them. No worker takes the jobs of the flood: they fill
the queue.
"""

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import wakugumi
from processes import leading
from wakugumi.adapters.loop.event_loop import run
from wakugumi.core.leader.questions import AskStatus
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import WANTS_CLIENT, HelloClient
from wakugumi.wire.messages.payload import encode

HERE = Path(__file__).absolute()
RATIO_MAX = 20.0
FLOOD_JOBS_MAX = 900_000
"""Of all rounds and connections: the leader's queue takes a million."""
PIECE = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description="What a small client waits, alone and beside a flood of submits.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each half of a round")
    parser.add_argument("--connections", type=int, default=1, help="clients that flood")
    parser.add_argument("--memory", action="store_true", help="a leader without a journal")
    parser.add_argument("--flood", nargs=3, metavar=("PORT", "SECONDS", "JOBS"), help="one of its floods")
    asked = parser.parse_args()
    if asked.flood:
        port, seconds, jobs = asked.flood
        _flood(int(port), float(seconds), int(jobs))
        return
    place = HERE.parents[1] / ".bench"
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="flood-", dir=place))
    os.chdir(folder)
    try:
        _measure(asked)
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def _measure(asked: argparse.Namespace) -> None:
    quiet: list[float] = []
    flooded: list[float] = []
    flooding_s = 0.0
    jobs = FLOOD_JOBS_MAX // asked.rounds // asked.connections
    with leading("memory" if asked.memory else "durable") as (_, address), _worker(address) as port:
        run(_one_by_one(address, 1.0))  # warm
        for _ in range(asked.rounds):
            quiet += run(_one_by_one(address, asked.seconds))
            with ExitStack() as stack:
                floods = [
                    stack.enter_context(
                        subprocess.Popen(
                            [sys.executable, str(HERE), "--flood", port, str(2 * asked.seconds), str(jobs)],
                            stdout=subprocess.PIPE,
                            text=True,
                        )
                    )
                    for _ in range(asked.connections)
                ]
                for flood in floods:
                    assert flood.stdout is not None
                    flood.stdout.readline()
                begun_at = time.perf_counter()
                flooded += run(_one_by_one(address, asked.seconds, floods))
                flooding_s += time.perf_counter() - begun_at
                for flood in floods:
                    flood.terminate()
        with wakugumi.Client(address, client_id="small") as client:
            taken = client.ask(AskStatus()).queued
    ratio = _at(flooded, 0.99) / _at(quiet, 0.99)
    print(f"{'':<32}{'jobs':>8}{'p50, ms':>10}{'p99, ms':>10}{'max, ms':>10}")
    for what, times in (("the small client alone", quiet), ("beside the flood", flooded)):
        row = "".join(f"{_at(times, share) * 1e3:>10.2f}" for share in (0.5, 0.99, 1.0))
        print(f"{what:<32}{len(times):>8}{row}")
    print(
        f"the flood: {taken:,} jobs accepted of {asked.connections} connections, some {taken / flooding_s:,.0f} per s"
    )
    verdict = "met" if ratio < RATIO_MAX else "NOT MET"
    print(f"p99 beside the flood / alone: {ratio:.1f}, below {RATIO_MAX:.0f}: {verdict}")


async def _one_by_one(address: str, seconds: float, beside: list[subprocess.Popen[str]] | None = None) -> list[float]:
    """What each job took; only those that began while all floods were going on."""
    times: list[float] = []
    async with wakugumi.connect(address, client_id="small", cap=4) as grid:
        until = time.perf_counter() + seconds
        while (now := time.perf_counter()) < until and not any(flood.poll() is not None for flood in beside or ()):
            (await grid.run("calcA", args=["x" * 120])).check()
            times.append(time.perf_counter() - now)
            await asyncio.sleep(0.001)
    return times


def _at(times: list[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def _worker(address: str) -> Iterator[str]:
    port = address.rsplit(":", 1)[1]
    with subprocess.Popen(
        [sys.executable, str(HERE.with_name("noop.py")), port, "1", "100"], stdout=subprocess.PIPE, text=True
    ) as worker:
        try:
            assert worker.stdout is not None
            worker.stdout.readline()
            yield port
        finally:
            worker.terminate()


def _flood(port: int, seconds: float, jobs: int) -> None:
    """Submit as fast as the leader reads, and read nothing."""
    with socket.create_connection(("127.0.0.1", port)) as leader:
        name = f"flood-{os.getpid()}"
        hello = encode(HelloClient(name, 4, wants=list(WANTS_CLIENT)))
        leader.sendall(fr.encode(fr.HELLO_CLIENT, subject=name, payload=hello))
        print("begins", flush=True)
        payload = encode({"ExecName": "flood", "Args": ["x" * 120]})
        submit = fr.encode(fr.SUBMIT_JOB, subject="flood", payload=payload)
        head, tail = submit[:5], submit[21:]
        sent, until = 0, time.monotonic() + seconds
        while sent < jobs and time.monotonic() < until:
            run_id = os.urandom(8)
            leader.sendall(b"".join(head + run_id + at.to_bytes(8, "little") + tail for at in range(PIECE)))
            sent += PIECE


if __name__ == "__main__":
    main()
