"""Does a small client wait for a large one, a quiet subject for a busy one, a key for another worker?

    .venv/bin/python bench/fairness.py                 100 000 jobs against 100, eight slots, programs that sleep 50 ms
    .venv/bin/python bench/fairness.py --many 5000     quicker

Real processes over loopback, a leader in memory. What is compared is the time from handing in the small client's jobs
until its last result: alone at half the slots, and at all of them beside somebody who has filled the queue before. The
workers do not look at the CPU: on a busy machine they would hold their credit back for two seconds (SPEC W2), and
nothing else would be seen.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import wakugumi
from contestant import running
from processes import WAKU, end, start_leader
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.loop.signals import on_stop_signals
from wakugumi.adapters.net.address import parse_address
from wakugumi.core.leader.questions import AskStatus, AskWorkers
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker

HERE = str(Path(__file__).absolute())
SLEEP_S = 0.05
KEYS = 1_000
WORKERS = 8
PATIENCE_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Fairness between clients and subjects, and homes of keys, in numbers."
    )
    parser.add_argument("--many", type=int, default=100_000, help="jobs that are queued before the few come")
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument(
        "--worker", nargs=4, metavar=("ADDRESS", "SLOTS", "NAME", "PROGRAMS"), help="one of its workers"
    )
    asked = parser.parse_args()
    if asked.worker:
        run(_work(*asked.worker))
        return
    folder = Path(tempfile.mkdtemp(prefix="fairness-"))
    os.chdir(folder)
    try:
        programs = _programs(folder)
        rows = [*_between("clients", asked, programs), *_between("subjects", asked, programs), *_homes(programs)]
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"\n{asked.many:,} jobs against {asked.few}, {asked.slots} slots, programs that sleep {SLEEP_S * 1000:.0f} ms"
    )
    for row in rows:
        print("{:<58} {:>10} {:>12}  {}".format(*row))


def _programs(folder: Path) -> Path:
    programs = folder / "programs"
    programs.mkdir()
    # Copies: what is started must lie in the exec directory itself.
    for name in ("sleep", "true"):
        shutil.copy(shutil.which(name) or f"/bin/{name}", programs / name)
    return programs


@contextmanager
def _grid(
    programs: Path, *slots: int, policy: str = "most-credit"
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A leader and a worker for each of these numbers of slots. All of it is there when this begins."""
    leader, address = start_leader("0", "--memory", "--policy", policy, "--log-level", "warning")
    try:
        with ExitStack() as stack:
            workers = [
                stack.enter_context(
                    running(sys.executable, HERE, "--worker", address, str(count), f"w{at}", str(programs))
                )
                for at, count in enumerate(slots)
            ]
            _wait_for_workers(address, len(slots))
            yield address, workers
    finally:
        end(leader)


async def _work(address: str, slots: str, name: str, programs: str) -> None:
    jobs = Path(f"jobs-{name}")
    where = parse_address(address, 0)
    worker = Worker(
        WorkerSettings(leader=where, programs=Path(programs), jobs=jobs, name=name, slots=int(slots), cpu_cap=None)
    )
    on_stop_signals(asyncio.get_running_loop(), worker.request_stop)
    await worker.run()


def _wait_for_workers(address: str, count: int) -> None:
    until = time.monotonic() + PATIENCE_S
    with wakugumi.Client(address, client_id="watcher") as client:
        while True:
            status = client.ask(AskWorkers())
            if sum(row.credit == row.slots for row in status.workers) >= count:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"{count} workers did not come in time")
            time.sleep(0.05)


# Between clients, and between subjects.


def _between(what: str, asked: argparse.Namespace, programs: Path) -> list[tuple[str, str, str, str]]:
    with _grid(programs, asked.slots // 2) as (address, _):
        alone_s = _few_take_s(address, asked.few, "few", "one")
    with _grid(programs, asked.slots) as (address, _):
        many = (*WAKU, "submit", "sleep", "--leader", address, "--count", str(asked.many), "--subject", "one")
        begun_at = time.monotonic()
        subprocess.run(
            [*many, "--client-id", "many", "-o", "quiet", "--", str(SLEEP_S)], check=True, stdout=subprocess.DEVNULL
        )
        queued_s = time.monotonic() - begun_at
        client, subject = ("few", "one") if what == "clients" else ("many", "two")
        beside_s = _few_take_s(address, asked.few, client, subject)
        left = _queued(address)
    ratio = beside_s / alone_s
    verdict = _verdict(ratio <= 2) if left else "no jobs were left to compete with"
    return [
        (f"{what}: the few alone at half the slots", f"{alone_s:.2f} s", "", ""),
        (f"{what}: the few beside the many ({queued_s:.0f} s to queue)", f"{beside_s:.2f} s", f"{left:,} left", ""),
        (f"{what}: ratio, at most 2", f"{ratio:.2f}", "", verdict),
    ]


def _few_take_s(address: str, few: int, client_id: str, subject: str) -> float:
    async def take() -> float:
        async with wakugumi.connect(address, client_id=client_id, cap=1_000) as grid:
            begun_at = time.perf_counter()
            jobs = [await grid.submit("sleep", args=[SLEEP_S], subject=subject) for _ in range(few)]
            for job in jobs:
                (await job).check()
            return time.perf_counter() - begun_at

    return run(take())


def _queued(address: str) -> int:
    with wakugumi.Client(address, client_id="watcher") as client:
        return client.ask(AskStatus()).queued


def _verdict(met: bool) -> str:
    return "met" if met else "NOT MET"


# Homes.


def _homes(programs: Path) -> list[tuple[str, str, str, str]]:
    with _grid(programs, *[2] * WORKERS, policy="sticky") as (address, workers):
        first, first_s = _where(address)
        again, _ = _where(address)
        workers[0].kill()
        workers[0].wait()
        after, _ = _where(address)
    same = sum(first[key] == again[key] for key in first) / KEYS
    most = max(Counter(first.values()).values()) / (KEYS / WORKERS)
    lost = "w0"
    moved = sum(again[key] != after[key] for key in again) / KEYS
    needless = sum(again[key] not in {lost, after[key]} for key in again) / KEYS
    return [
        (f"keys: {KEYS:,} of them on {WORKERS} workers, one job each", f"{first_s:.1f} s", "", ""),
        ("keys: jobs of the busiest worker, in means, at most 1.25", f"{most:.2f}", "", _verdict(most <= 1.25)),
        ("keys: at the same worker the second time", f"{same:.1%}", "", ""),
        ("keys: elsewhere after a worker was killed, at most 17.5 %", f"{moved:.1%}", "", _verdict(moved <= 0.175)),
        ("keys: of them not from the lost worker", f"{needless:.1%}", "", ""),
        ("keys: median of jobs per worker after that", f"{median(Counter(after.values()).values()):.0f}", "", ""),
    ]  # fmt: skip


def _where(address: str) -> tuple[dict[str, str], float]:
    """Which worker ran the job of each key, and how long all of them took."""

    async def ask() -> tuple[dict[str, str], float]:
        begun_at = time.perf_counter()
        found: dict[str, str] = {}
        async with wakugumi.connect(address, client_id="keys", cap=1_000) as grid:
            items = ({"key": f"key {number}"} for number in range(KEYS))
            async for result in grid.map("true", items, window=KEYS):
                result.check()
                found[result.item["key"]] = result.worker
        return found, time.perf_counter() - begun_at

    return run(ask())


if __name__ == "__main__":
    main()
