"""What is sound is counted, what is damaged is found, a copy is what was there, and mending loses nothing more."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.kit.a_journal import job_id, kept, leaves_in, opened, records_in, whole
from tests.kit.damaged_journal import FILE, attempt, change, result, ruin_page, write, write_ten

from wakugumi.adapters.journal import maintenance
from wakugumi.adapters.journal.journal import Journal
from wakugumi.core.ids import Verdict, show_job_id
from wakugumi.core.leader.journal.entries import (
    ForgetJob,
    KeepDelivered,
    KeepOutcome,
)
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.anyio


def test_a_sound_journal_is_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        [*(kept(n) for n in range(1, 10))],
        [*(attempt(n) for n in range(2, 9)), KeepOutcome(job_id(3), "worker-lost", "")],
        [result(4), result(5), KeepDelivered(job_id(5)), result(6, Verdict("dead", "why")), result(7)],
        [ForgetJob(job_id(7)), result(8, Verdict("cancelled", "why")), whole(20, b"x"), kept(8)],
    )
    report = maintenance.check(tmp_path)
    assert report.jobs == maintenance.JobCounts(queued=4, running=1, finished=4, undelivered=2, dead=2)
    assert (report.leaves, report.lost_leaves, report.lost_jobs, report.damage) == (4, [], [], "")
    assert report.leader == 0
    assert report.file_bytes == (tmp_path / FILE).stat().st_size
    assert 0 < report.free_bytes < report.file_bytes


async def test_looking_disturbs_no_leader_and_sees_what_it_committed(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.commit(kept(1))
        report = maintenance.check(tmp_path)
        assert (report.leaves, report.jobs.queued, report.leader) == (1, 1, os.getpid())
        await world.commit(kept(2))
        assert maintenance.check(tmp_path).leaves == 2
    assert maintenance.check(tmp_path).leader == 0


@pytest.mark.parametrize("look", [maintenance.check, maintenance.repair])
def test_a_folder_without_a_journal_is_told(tmp_path: Path, look) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match="there is no journal in"):
        look(tmp_path)
    with pytest.raises(ConfigError, match="there is no"):
        look(tmp_path / "nowhere")
    (tmp_path / FILE).write_text("a diary")
    with pytest.raises(ConfigError, match="is not a journal of Wakugumi"):
        look(tmp_path)
    assert (tmp_path / FILE).read_text() == "a diary"


def test_a_changed_byte_is_found_and_the_job_named(tmp_path: Path) -> None:
    write_ten(tmp_path)
    change(tmp_path, b"payload of 003", b"payload of 00X")
    before = (tmp_path / FILE).read_bytes()
    report = maintenance.check(tmp_path)
    assert report.damage == "leaf 3 is not what was written"
    assert (report.leaves, report.lost_leaves) == (9, [3])
    assert report.lost_jobs == [show_job_id(job_id(0)), show_job_id(job_id(3))]
    assert (report.jobs.running, report.jobs.queued) == (7, 2)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_ruined_page_is_found(tmp_path: Path) -> None:
    write(tmp_path, *([kept(n, b"payload of %03d" % n + bytes(1000))] for n in range(1, 61)))
    ruin_page(tmp_path, b"payload of 030")
    report = maintenance.check(tmp_path)
    assert report.damage
    assert 30 in report.lost_leaves
    assert len(report.lost_leaves) <= 4
    assert report.leaves == 60 - len(report.lost_leaves)


@pytest.mark.spec("L7")
async def test_a_backup_is_one_moment_of_a_leader_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    async with opened(tmp_path / "state") as world:
        for number in range(1, 101):
            await world.commit(kept(number, bytes(20_000)))
        copying = asyncio.get_running_loop().run_in_executor(
            None, maintenance.backup, tmp_path / "state", tmp_path / "copies" / FILE
        )
        number = 100
        while not copying.done():
            number += 1
            await world.commit(kept(number, bytes(20_000)))
        size = await copying
    assert size == (tmp_path / "copies" / FILE).stat().st_size
    assert [path.name for path in (tmp_path / "copies").iterdir()] == [FILE]
    found = leaves_in(tmp_path / "copies")
    assert 100 <= len(found) <= number
    assert found == leaves_in(tmp_path / "state")[: len(found)]


def test_a_backup_takes_nobodys_place(tmp_path: Path) -> None:
    write_ten(tmp_path / "state")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        maintenance.backup(tmp_path / "state", tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        maintenance.backup(tmp_path / "state", tmp_path / "nowhere" / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "there"]


def test_a_sound_journal_is_not_repaired(tmp_path: Path) -> None:
    write_ten(tmp_path)
    before = (tmp_path / FILE).read_bytes()
    done = maintenance.repair(tmp_path)
    assert (done.aside, done.found.leaves) == ("", 10)
    assert (tmp_path / FILE).read_bytes() == before


async def test_nothing_is_repaired_under_a_leader(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.commit(kept(1))
        with pytest.raises(ConfigError, match="another leader"):
            maintenance.repair(tmp_path)


def test_a_repair_that_was_interrupted_is_finished_before_a_leader_starts(tmp_path: Path) -> None:
    write_ten(tmp_path)
    change(tmp_path, b"payload of 003", b"payload of 00X")
    shutil.copytree(tmp_path, tmp_path / "early")
    first = maintenance.repair(tmp_path)
    good = records_in(tmp_path)
    # As if it had been killed when the damaged file was aside, and what belongs to it was not yet.
    (tmp_path / FILE).rename(tmp_path / f"{FILE}.new")
    (tmp_path / f"{FILE}-wal").write_bytes(b"of the damaged one")
    with pytest.raises(ConfigError, match="was interrupted") as told:
        Journal.open(tmp_path)
    assert "waku store repair" in told.value.hint
    second = maintenance.repair(tmp_path)
    assert second.found.emptied_leaves == 1
    assert Path(second.aside + "-wal").read_bytes() == b"of the damaged one"
    assert Path(first.aside).exists()
    assert records_in(tmp_path) == good
    # As if it had been killed before.
    shutil.copyfile(tmp_path / FILE, tmp_path / "early" / f"{FILE}.new")
    (tmp_path / "early" / f"{FILE}.part").write_bytes(b"half of it")
    assert maintenance.repair(tmp_path / "early").found.lost_leaves == [3]
    assert records_in(tmp_path / "early") == good
