"""A journal that another process writes to, one that is refused, and one whose file is changed by hand."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from wakugumi.adapters.journal.journal import Journal
from wakugumi.errors import ConfigError

CHILD = """
import asyncio, resource, sys
from pathlib import Path
from wakugumi.adapters.journal.journal import Journal
from wakugumi.core.leader.journal.entries import KeepJob

async def main(folder, limit):
    journal = Journal.open(Path(folder))
    failed = asyncio.get_running_loop().create_future()
    journal.begin(asyncio.get_running_loop(), failed.set_result, lambda low: None)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    number = journal.next_leaf
    while not failed.done():
        records = [KeepJob(number.to_bytes(16, "big"), "c", 4, "job.assign.x", "x", 1.0, 0, b"p" * 3000)] * 5
        journal.commit(records, lambda number=number: print(number, flush=True))
        number += 1
        await asyncio.sleep(0 if number % 50 else 0.01)
    print("failed:", failed.result(), flush=True)
    await journal.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def child(folder: Path, limit: int = 0) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CHILD, str(folder), str(limit)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def refusal(folder: Path) -> ConfigError:
    with pytest.raises(ConfigError) as told:
        Journal.open(folder)
    assert told.value.hint
    assert "\n" not in str(told.value)
    return told.value


def edited(folder: Path, *statements: str) -> None:
    folder.mkdir(exist_ok=True)
    base = sqlite3.connect(folder / "journal.sqlite", isolation_level=None)
    for statement in statements:
        base.execute(statement)
    base.close()
