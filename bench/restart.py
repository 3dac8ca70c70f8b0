"""How long is a leader away that finds a million queued jobs in its journal, and how much memory does it need?

The journal is filled through its own code, in commits of the size that a leader makes: a million jobs through clients
would take longer than all else together, and leave the same records. What the leader says afterwards is the proof.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import wakugumi
from contestant import Answer, Contestant, perform
from processes import end, start_leader
from wakugumi.adapters.journal.journal import Journal
from wakugumi.adapters.loop.event_loop import run
from wakugumi.core.ids import ClientId, JobId
from wakugumi.core.leader.answer_records import StatusAnswer
from wakugumi.core.leader.journal.entries import KeepJob
from wakugumi.core.leader.questions import AskStatus
from wakugumi.core.subject import parse_subject
from wakugumi.limits.wire import READ_EVENTS_MAX

JOBS = 1_000_000
CLIENTS = 100
"""A client has at most 10 000 unfinished jobs."""
REQUEST_BYTES = 200
MIB = 2**20


class Restarted(Contestant):
    versions = {"Wakugumi": wakugumi.__version__}  # noqa: RUF012

    def figures(self) -> Answer:
        state = Path("state").absolute()
        try:
            run(_fill(state))
            return _restart(state)
        finally:
            shutil.rmtree(state, ignore_errors=True)


async def _fill(state: Path) -> None:
    journal = Journal.open(state)
    loop = asyncio.get_running_loop()
    kept: asyncio.Future[None] = loop.create_future()

    def fail(error: Exception) -> None:
        kept.set_exception(error)  # whichever is waited for then

    journal.begin(loop, fail, lambda _low: None)
    try:
        for first in range(0, JOBS, READ_EVENTS_MAX):
            kept = loop.create_future()
            jobs = [_job(number) for number in range(first, min(first + READ_EVENTS_MAX, JOBS))]
            journal.commit(jobs, partial(kept.set_result, None))
            await kept
    finally:
        await journal.close()


def _job(number: int) -> KeepJob:
    return KeepJob(
        job=JobId(os.urandom(16)),
        client=ClientId(f"desk-{number % CLIENTS}"),
        cap=64,
        subject=parse_subject("job.assign.calcA"),
        program="calcA",
        timeout_s=900.0,
        retries=0,
        payload=os.urandom(REQUEST_BYTES),
    )


def _restart(state: Path) -> Answer:
    start = time.perf_counter()
    leader, address = start_leader("0", "--state", str(state))
    seconds = time.perf_counter() - start
    try:
        memory = _memory_kib(leader.pid)
        queued = run(_queued(address))
    finally:
        end(leader)
    if queued != JOBS:
        raise RuntimeError(f"the restarted leader has {queued} jobs of {JOBS}")
    return {
        "restart_s": seconds,
        "restart_mib": memory["VmRSS"] * 1024 / MIB,
        "restart_peak_mib": memory["VmHWM"] * 1024 / MIB,
    }


def _memory_kib(pid: int) -> dict[str, int]:
    lines = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return {words[0].rstrip(":"): int(words[1]) for words in lines if words[-1] == "kB"}


async def _queued(address: str) -> int:
    async with wakugumi.connect(address, client_id="bench") as grid:
        status = await grid.ask(AskStatus())
        assert isinstance(status, StatusAnswer)
        return status.queued


@contextmanager
def opened() -> Iterator[Restarted]:
    yield Restarted()


if __name__ == "__main__":
    perform(opened())
