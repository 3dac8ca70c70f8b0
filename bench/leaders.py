"""Is one client with three leaders as fast as with each of them alone, added up? (SPEC K2)

    .venv/bin/python bench/leaders.py                  three leaders with 20 slots each, jobs that take 50 ms

Real leaders, each with its journal, and a real client, over loopback. The workers only wait: a machine that ran twelve
hundred programs a second beside all this would be measured itself. What is compared is in the same run, in turns.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from uuid import uuid4

import wakugumi
from contestant import running
from noop import NoopWorker
from processes import end, start_leader
from wakugumi.adapters.loop.event_loop import run
from wakugumi.core.leader.questions import AskStatus
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import write_credit

HERE = str(Path(__file__).absolute())
LEADERS = 3
SLOTS = 20
TAKES_S = 0.05
PATIENCE_S = 30.0


class WaitingWorker(NoopWorker):
    """Answers every job after the time that it takes."""

    def data_received(self, data: bytes) -> None:
        jobs = [frame.msg_id for frame in self._decoder.feed(data) if frame.type == fr.ASSIGN_JOB]
        if jobs:
            asyncio.get_running_loop().call_later(TAKES_S, self._answer, jobs)

    def _answer(self, jobs: list[bytes]) -> None:
        out = [fr.encode(fr.ACK_JOB, fr.NO_ID, job) for job in jobs]
        out.append(fr.encode(fr.CREDIT, payload=write_credit(len(jobs))))
        self._transport.write(b"".join(out))


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput through three leaders, against each alone.")
    parser.add_argument("--jobs", type=int, default=2_000, help="per leader and turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", type=int, metavar="PORT", help="one of its workers")
    asked = parser.parse_args()
    if asked.worker:
        run(_work(asked.worker))
        return
    # Beside the other benchmarks' files: a /tmp in memory would sync for nothing.
    place = Path(__file__).absolute().parents[1] / ".bench"
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="leaders-", dir=place))
    os.chdir(folder)
    try:
        _contest(asked.jobs, asked.rounds)
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def _contest(jobs: int, rounds: int) -> None:
    with ExitStack() as stack:
        addresses = []
        for number in range(LEADERS):
            leader, address = start_leader("0", "--state", f"state-{number}", "--log-level", "warning")
            stack.callback(end, leader)
            stack.enter_context(running(sys.executable, HERE, "--worker", address.rpartition(":")[2]))
            _wait_for_slots(address)
            addresses.append(address)
        ratios, of_given = [], []
        for _ in range(rounds):
            alone = [run(_rate(address, jobs, SLOTS)) for address in addresses]
            together = run(_rate(",".join(addresses), jobs * LEADERS, SLOTS * LEADERS))
            ratios.append(together / sum(alone))
            given = run(_rate(",".join(addresses), jobs * LEADERS, SLOTS * LEADERS, given=True))
            of_given.append(given / together)
            each = " + ".join(f"{rate:.0f}" for rate in alone)
            alike = f"{ratios[-1]:.2f}; ids given {given:.0f}"
            print(f"alone {each} = {sum(alone):.0f} jobs/s, together {together:.0f}: {alike}", flush=True)
    verdict = "met" if median(ratios) >= 0.9 else "NOT MET"
    print(f"{LEADERS} leaders with {SLOTS} slots, jobs of {TAKES_S * 1000:.0f} ms: {median(ratios):.2f} of the sum, "
          f"{min(ratios):.2f}..{max(ratios):.2f}; at least 0.9: {verdict}. "
          f"With ids of the user's {median(of_given):.2f} of that")  # fmt: skip


async def _rate(url: str, jobs: int, cap: int, *, given: bool = False) -> float:
    """With ids that are `given`, every leader is asked first whether it knows them (SPEC K8)."""
    items = ({"job_id": uuid4()} if given else [] for _ in range(jobs))
    async with wakugumi.connect(url, client_id="bench", cap=cap) as grid:
        begun_at = time.perf_counter()
        done = 0
        async for result in grid.map("wait", items, window=4 * cap):
            result.check()
            done += 1
        assert done == jobs
        return jobs / (time.perf_counter() - begun_at)


def _wait_for_slots(address: str) -> None:
    until = time.monotonic() + PATIENCE_S
    with wakugumi.Client(address, client_id="watcher") as client:
        while client.ask(AskStatus()).slots_free < SLOTS:
            if time.monotonic() > until:
                raise RuntimeError(f"no worker came to {address} in time")
            time.sleep(0.05)


async def _work(port: int) -> None:
    _, worker = await asyncio.get_running_loop().create_connection(lambda: WaitingWorker(SLOTS), "127.0.0.1", port)
    while True:
        await asyncio.sleep(5)
        worker.beat()


if __name__ == "__main__":
    main()
