"""A gateway before real leaders with real workers: answers, failures, and a leader that is killed."""

from __future__ import annotations

import asyncio
import io
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import Caller, call, submit, until_state
from tests.kit.form import FORM, form
from tests.whole.conftest import Running

pytestmark = pytest.mark.anyio

Start = Callable[..., Running]


class Group(NamedTuple):
    leader: Running
    worker: Running
    url: str


def a_group(start: Start, programs: Path, name: str) -> Group:
    leader = start("leader", "0", "--state", programs.parent / name)
    address = leader.line()
    port = address.rpartition(":")[2]
    folders = ["--programs", programs, "--jobs", programs.parent / f"{name}-jobs"]
    worker = start("worker", "127.0.0.1", port, "job.assign.>", *folders, "--slots", "8", "--cpu-cap", "0.95")
    return Group(leader, worker, f"http://{address}")


async def free_slots(port: int) -> int:
    return int((await call(port, "GET", "/capacity")).json["free"])


@pytest.mark.spec("G1", "G2", "G3", "N2")
async def test_jobs_go_through_real_groups_and_survive_one_of_them(home: Path, start: Start, programs: Path) -> None:
    groups = [a_group(start, programs, name) for name in ("one", "two")]
    named = [word for number, group in enumerate(groups) for word in ("--group", f"g{number}={group.url}")]
    gate = start("gateway", "0", *named, "--state", home / "gateway")
    port = int(gate.line().rpartition(":")[2])
    async with asyncio.timeout(60):
        while await free_slots(port) < 16:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)

    heard = await submit(port, "letters", b"0123", query="?program=letters")
    assert heard.status == 200
    made = zipfile.ZipFile(io.BytesIO(heard.body))
    assert made.read("letters.txt") == b"abcd"
    assert made.read("stdout.txt") == b"read in.txt\n"
    assert (await submit(port, "letters", b"0123", query="?program=letters")).body == heard.body

    failed = await submit(port, "fail", query="?program=fail")
    assert (failed.status, failed.head["waku-status"], failed.head["waku-exit-code"]) == (200, "FAILED", "3")
    missing = await submit(port, "missing", query="?program=nothing-of-that-name")
    assert (missing.status, missing.code) == (404, "unknown-program")

    big = bytes(range(48, 58)) * 200_000
    large = await submit(port, "large", big, query="?program=letters")
    assert len(zipfile.ZipFile(io.BytesIO(large.body)).read("letters.txt")) == len(big)

    began, go = home / "began", home / "go"
    query = f"?program=stay&arg={began}&arg={go}"
    assert (await submit(port, "stay", b"1", "Prefer: respond-async", query=query)).status == 202
    await eventually(began.exists)
    where = (await until_state(port, "stay", "running"))["group"]
    async with Caller(port) as caller:
        await caller.head("POST", f"/submit/stay{query}", FORM, f"Content-Length: {len(form(b'1'))}")
        await caller.say(form(b"1"))
        lost = groups[int(where[1:])]
        lost.leader.signal(signal.SIGKILL)
        lost.worker.signal(signal.SIGKILL)
        go.touch()
        waited = await caller.heard()
    assert (waited.status, waited.head["waku-status"]) == (200, "OK")
    told = await until_state(port, "stay", "done")
    assert told["group"] != where
    for number in range(20):
        assert (await submit(port, f"after{number}", b"7", query="?program=letters")).status == 200
