"""The journal: what was reported as safe is there, whatever happened; what is not safe is not reported."""

from __future__ import annotations

import fcntl
import os
import stat
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from tests.kit.a_journal import DEADLINE_S, WORKER, job_id, kept, leaves_in, opened, records_in, whole
from tests.kit.journal_processes import child, refusal

from wakugumi.adapters.journal.maintenance import check
from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader.journal.entries import (
    DropLeaves,
    ForgetJob,
    KeepAttempt,
    KeepDelivered,
    KeepOutcome,
    KeepResult,
    LeaderKeep,
)

pytestmark = pytest.mark.anyio


@pytest.mark.spec("L7")
async def test_what_was_committed_is_there_after_a_restart_in_order_and_numbered_without_gaps(tmp_path: Path) -> None:
    records: list[list[LeaderKeep]] = [
        [kept(1), kept(2, b"\0" * 100_000)],
        [KeepAttempt(job_id(1), WORKER, "rack1-7"), KeepOutcome(job_id(1), "worker-lost", "almost…")],
        [KeepResult(job_id(1), True, "ok", b"bytes"), KeepResult(job_id(2), False, "", Verdict("dead", "why"))],
        [KeepDelivered(job_id(1)), ForgetJob(job_id(1)), whole(2, b"its request"), whole(3, None)],
    ]
    async with opened(tmp_path / "deep" / "state") as world:
        assert world.journal.next_leaf == 1
        assert list(world.journal.leaves()) == []
        for leaf in records:
            await world.commit(*leaf)
        assert world.journal.next_leaf == 5
    found = leaves_in(tmp_path / "deep" / "state")
    assert [leaf.records for leaf in found] == records
    assert [leaf.number for leaf in found] == [1, 2, 3, 4]
    assert all(0 <= later.written_at - leaf.written_at < 3600 for leaf, later in pairwise(found))
    async with opened(tmp_path / "deep" / "state") as world:
        assert world.journal.next_leaf == 5
        await world.commit(kept(4))
        assert [leaf.number for leaf in world.journal.leaves()] == [1, 2, 3, 4, 5]


async def test_the_folder_and_what_is_in_it_belong_to_the_user_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as world:
        await world.commit(kept(1))
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
        for name in ("journal.sqlite", "journal.sqlite-wal", "lock"):
            assert stat.S_IMODE((tmp_path / "state" / name).stat().st_mode) == 0o600


async def test_dropped_leaves_are_gone_and_the_numbers_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(1, 201):
            world.journal.commit([kept(number)], None)
        await world.commit(whole(7, 7), DropLeaves(201))
        await world.commit(kept(300))
    assert [leaf.number for leaf in leaves_in(tmp_path)] == [201, 202]
    assert records_in(tmp_path)[0][0] == whole(7, b"job 7")
    async with opened(tmp_path) as world:
        assert world.journal.next_leaf == 203


async def test_a_leaf_is_not_dropped_while_someone_waits_for_what_is_in_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(1, 20):
            await world.commit(kept(number))
        answers: dict[JobId, bytes] = {}
        # As the drive does it: what was decided before the drop is performed when it is safe, which is when it asks.
        for number in range(1, 20):
            world.journal.commit(
                [KeepDelivered(job_id(99))],
                lambda number=number: world.journal.load(number, [job_id(number)], answers.update),
            )
        await world.commit(DropLeaves(39))
        await world.look_until(lambda: len(answers) == 19)
    assert answers == {job_id(number): b"job %d" % number for number in range(1, 20)}
    assert [leaf.number for leaf in leaves_in(tmp_path)] == [39]


async def test_reading_all_leaves_holds_one_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        for number in range(100):
            world.journal.commit([kept(number, bytes(200_000))], None)
        await world.commit()
        tracemalloc.start()
        count = sum(1 for _ in world.journal.leaves())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == 100
        assert peak < 3_000_000


async def test_the_second_leader_on_a_folder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        told = refusal(tmp_path)
        assert str(told) == f"another leader (process {os.getpid()}) uses the state folder {tmp_path}"
        await world.commit(kept(1))
    assert len(records_in(tmp_path)) == 1


async def test_also_if_a_cleaner_removed_what_tells_who_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        (tmp_path / "lock").unlink()
        assert check(tmp_path).leader == -1
        assert str(refusal(tmp_path)) == f"another leader (process unknown) uses the state folder {tmp_path}"
        await world.commit(kept(1))
    assert check(tmp_path).leader == 0
    assert len(records_in(tmp_path)) == 1


async def test_a_leader_of_an_earlier_version_that_locks_the_file_alone_is_seen(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print(4711, file=file, flush=True)
        assert "(process 4711)" in str(refusal(tmp_path))
    async with opened(tmp_path) as world:
        await world.commit(kept(1))


def test_a_leader_in_another_process_is_seen_as_well(tmp_path: Path) -> None:
    process = child(tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        assert f"(process {process.pid})" in str(refusal(tmp_path))
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def test_a_place_that_cannot_be_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "where it must not be" in str(refusal(tmp_path / "file"))
    assert "where it must not be" in str(refusal(tmp_path / "file" / "state"))
    (tmp_path / "state" / "journal.sqlite").mkdir(parents=True)
    assert "where it must not be" in str(refusal(tmp_path / "state"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "this user may not read and write" in str(refusal(tmp_path))
    assert "this user may not read and write" in str(refusal(tmp_path / "state"))
    tmp_path.chmod(0o700)


def read_only_folders() -> Sequence[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(words[1]) for words in mounts if "ro" in words[3].split(",") and Path(words[1]).is_dir()]


@pytest.mark.skipif(not read_only_folders(), reason="no disk here is read-only")
def test_a_disk_that_can_only_be_read_is_told(tmp_path: Path) -> None:
    assert "on a disk that can only be read" in str(refusal(read_only_folders()[0] / "state"))
