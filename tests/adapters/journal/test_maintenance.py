"""What is sound is counted, what is damaged is found, a copy is what was there, and mending loses nothing more."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.kit.a_journal import WORKER, job_id, kept, leaves_in, opened, records_in, whole

from wakugumi.adapters.journal import maintenance
from wakugumi.adapters.journal.file import open_to_read, read_leaves
from wakugumi.adapters.journal.journal import Journal
from wakugumi.core.ids import Verdict, show_job_id
from wakugumi.core.leader.journal.entries import (
    ForgetJob,
    KeepAttempt,
    KeepDelivered,
    KeepOutcome,
    KeepResult,
    LeaderKeep,
)
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.anyio

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
