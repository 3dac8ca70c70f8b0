"""A journal that is written, and then damaged at a chosen place."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.kit.a_journal import WORKER, job_id, kept, opened

from wakugumi.core.ids import Verdict
from wakugumi.core.leader.journal.entries import (
    KeepAttempt,
    KeepResult,
    LeaderKeep,
)

FILE = "journal.sqlite"


PAGE = 4096


def attempt(number: int) -> KeepAttempt:
    return KeepAttempt(job_id(number), WORKER, "rack1-7")


def result(number: int, value: bytes | Verdict = b"42") -> KeepResult:
    return KeepResult(job_id(number), isinstance(value, bytes), "ok", value)


def write(folder: Path, *leaves: list[LeaderKeep]) -> None:
    async def commit() -> None:
        async with opened(folder) as world:
            for leaf in leaves:
                await world.commit(*leaf)

    asyncio.run(commit())


def write_ten(folder: Path) -> None:
    """Ten leaves; in each a job, and the attempt of the job before it."""
    write(folder, *([kept(n, b"payload of %03d" % n), attempt(n - 1)] for n in range(1, 11)))


def change(folder: Path, find: bytes, replace: bytes) -> None:
    content = (folder / FILE).read_bytes()
    assert content.count(find) == 1
    (folder / FILE).write_bytes(content.replace(find, replace))


def ruin_page(folder: Path, find: bytes) -> None:
    """The page in which this stands is no page any more."""
    content = bytearray((folder / FILE).read_bytes())
    at = content.index(find) // PAGE * PAGE
    content[at : at + 100] = b"\xff" * 100
    (folder / FILE).write_bytes(content)
