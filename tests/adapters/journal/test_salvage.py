"""What can still be read of a damaged journal?"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.kit.a_journal import job_id, kept, leaves_in, opened, records_in
from tests.kit.damaged_journal import FILE, PAGE, attempt, change, result, ruin_page, write, write_ten

from wakugumi.adapters.journal import maintenance
from wakugumi.adapters.journal.file import open_to_read, read_leaves
from wakugumi.core.ids import show_job_id
from wakugumi.core.leader.journal.entries import (
    KeepDelivered,
)
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.anyio


@pytest.mark.spec("L7")
def test_a_repair_keeps_what_is_readable_under_its_number_and_the_damaged_file(tmp_path: Path) -> None:
    write_ten(tmp_path)
    sound = records_in(tmp_path)
    change(tmp_path, b"payload of 003", b"payload of 00X")
    damaged = (tmp_path / FILE).read_bytes()
    done = maintenance.repair(tmp_path)
    assert done.found.lost_leaves == [3]
    assert show_job_id(job_id(3)) in done.found.lost_jobs
    assert Path(done.aside).read_bytes() == damaged
    assert Path(done.aside).parent == tmp_path
    assert [leaf.number for leaf in leaves_in(tmp_path)] == list(range(1, 11))
    assert records_in(tmp_path) == [*sound[:2], [], *sound[3:]]
    report = maintenance.check(tmp_path)
    assert (report.damage, report.leaves, report.emptied_leaves) == ("", 10, 1)
    write(tmp_path, [kept(11)])
    assert [leaf.number for leaf in leaves_in(tmp_path)] == list(range(1, 12))


def test_a_repair_keeps_what_stands_in_the_write_ahead_log_alone(tmp_path: Path) -> None:
    write(tmp_path / "state", *([kept(n, b"payload of %03d" % n + bytes(1000))] for n in range(1, 61)))

    async def crash() -> None:
        async with opened(tmp_path / "state") as world:
            await world.commit(kept(61))
            shutil.copytree(tmp_path / "state", tmp_path / "crashed", ignore=shutil.ignore_patterns("*-shm", "lock"))

    asyncio.run(crash())
    change(tmp_path / "crashed", b"payload of 030", b"payload of 03X")
    assert maintenance.repair(tmp_path / "crashed").found.lost_leaves == [30]
    found = records_in(tmp_path / "crashed")
    assert found[29] == []
    assert found[60:] == [[kept(61)]]


def test_a_journal_of_which_nothing_can_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, [kept(1, b"payload of 001")])
    ruin_page(tmp_path, b"payload of 001")
    before = (tmp_path / FILE).read_bytes()
    assert maintenance.check(tmp_path).damage
    with pytest.raises(ConfigError, match=r"nothing in .* can be read"):
        maintenance.repair(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_wherever_bytes_change_what_is_kept_was_written(tmp_path: Path) -> None:
    write(
        tmp_path / "sound",
        *([kept(n, b"payload of %03d" % n + bytes(n * 97)), attempt(n)] for n in range(1, 101)),
        *([result(n), KeepDelivered(job_id(n))] for n in range(1, 51)),
    )
    sound = records_in(tmp_path / "sound")
    with closing(sqlite3.connect(tmp_path / "sound" / FILE, isolation_level=None)) as base:
        base.execute("VACUUM")  # so that every page is used
    content = (tmp_path / "sound" / FILE).read_bytes()
    outcomes = {"sound": 0, "repaired": 0, "refused": 0}
    for seed in range(60):
        chance = random.Random(seed)
        spoilt = bytearray(content)
        for _ in range(chance.choice([1, 1, 3, 20])):
            page = chance.choice([0, PAGE, *[chance.randrange(0, len(content), PAGE)] * 6])
            at = page + chance.choice([chance.randrange(PAGE), chance.randrange(64)])
            spoilt[at] = chance.randrange(256)
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / FILE).write_bytes(spoilt)
        try:
            done = maintenance.repair(folder)
            with closing(open_to_read(folder / FILE)) as base:
                found = list(read_leaves(base, folder / FILE))
        except ConfigError:
            outcomes["refused"] += 1
            continue
        outcomes["repaired" if done.aside else "sound"] += 1
        for leaf in found:
            assert leaf.records in ([], sound[leaf.number - 1]), seed
        if done.aside:
            assert Path(done.aside).read_bytes() == spoilt
            assert [leaf.number for leaf in found if not leaf.records] == done.found.lost_leaves
            assert len(found) == done.found.leaves + len(done.found.lost_leaves)
        else:
            assert [leaf.records for leaf in found] == sound
        shutil.rmtree(folder)
    assert min(outcomes.values()) > 0, outcomes
