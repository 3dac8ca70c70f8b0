"""How do a thousand jobs a second each get a `.done` of their own?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from wakugumi.adapters.files import READ_FOLDER, Closing
from wakugumi.adapters.jobdir import done_marks as module
from wakugumi.adapters.jobdir.done_marks import LINE_BYTES_MAX, PAGE_BYTES_MAX, DoneMarks, read_entry


class Jobs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = DoneMarks(str(folder))

    def put(self, content: bytes, job: str = "") -> str:
        job = job or str(uuid4())
        (self.folder / job).mkdir(exist_ok=True)
        with Closing(os.open(self.folder / job, READ_FOLDER)) as folder:
            self.ledger.put(job, content, ".done", folder)
        return job

    def read(self, job: str) -> bytes | None:
        with Closing(os.open(self.folder / job, READ_FOLDER)) as folder:
            return read_entry(job, ".done", folder)

    def inode(self, job: str) -> int:
        return (self.folder / job / ".done").stat().st_ino


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(module, "PAGE_S", 1_000.0)
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.ledger.close()


def test_results_of_the_same_second_share_a_file_and_each_finds_its_own(jobs: Jobs) -> None:
    first, second = jobs.put(b'{"a":1}'), jobs.put(b'{"b":2}')
    assert jobs.inode(first) == jobs.inode(second)
    assert (jobs.read(first), jobs.read(second)) == (b'{"a":1}', b'{"b":2}')


def test_one_that_goes_does_not_take_others_with_it(jobs: Jobs) -> None:
    first, second = jobs.put(b"{1}"), jobs.put(b"{2}")
    (jobs.folder / first / ".done").unlink()
    jobs.ledger.close()
    assert jobs.read(second) == b"{2}"
    assert not (jobs.folder / ".ledger").exists()


def test_a_job_that_ran_twice_within_a_page_has_its_last_result(jobs: Jobs) -> None:
    job = jobs.put(b"{1}")
    (jobs.folder / job / ".done").unlink()
    jobs.put(b"{2}", job)
    assert jobs.read(job) == b"{2}"


def test_a_long_result_has_a_file_of_its_own(jobs: Jobs) -> None:
    short, long = jobs.put(b"{" + b"x" * (LINE_BYTES_MAX - 1)), jobs.put(b"{" + b"x" * LINE_BYTES_MAX)
    assert jobs.inode(short) != jobs.inode(long)
    assert jobs.read(long) == b"{" + b"x" * LINE_BYTES_MAX


def test_a_page_ends_when_it_is_full(jobs: Jobs) -> None:
    line = b"{" + b"x" * (LINE_BYTES_MAX - 1)
    inodes = {jobs.inode(jobs.put(line)) for _ in range(PAGE_BYTES_MAX // LINE_BYTES_MAX + 1)}
    assert len(inodes) > 1


def test_a_page_ends_after_its_time(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_S", 0.0)
    assert jobs.inode(jobs.put(b"{}")) != jobs.inode(jobs.put(b"{}"))


def test_what_an_earlier_life_left_is_not_written_to(jobs: Jobs) -> None:
    old = jobs.put(b"{old}")
    again = DoneMarks(str(jobs.folder))
    jobs.ledger, before = again, jobs.ledger
    new = jobs.put(b"{new}")
    assert jobs.inode(new) != jobs.inode(old)
    assert (jobs.read(new), jobs.read(old)) == (b"{new}", b"{old}")
    before.close()


def test_where_files_cannot_be_linked_each_has_its_own(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(1, "this file system has no links")

    monkeypatch.setattr(os, "link", no_links)
    first, second = jobs.put(b"{1}"), jobs.put(b"{2}")
    assert jobs.inode(first) != jobs.inode(second)
    assert (jobs.read(first), jobs.read(second)) == (b"{1}", b"{2}")


def test_someone_who_cleans_up_does_not_stop_it(jobs: Jobs) -> None:
    jobs.put(b"{}")
    (jobs.folder / ".ledger").unlink()
    assert jobs.read(jobs.put(b"{1}")) == b"{1}"
    assert jobs.read(jobs.put(b"{2}")) == b"{2}"


def test_one_that_is_there_already_is_not_replaced(jobs: Jobs) -> None:
    job = jobs.put(b"{1}")
    with pytest.raises(FileExistsError):
        jobs.put(b"{2}", job)


def test_a_page_that_lost_its_end_has_only_what_is_whole(jobs: Jobs) -> None:
    first, second = jobs.put(b"{1}"), jobs.put(b"{2}")
    size = (jobs.folder / second / ".done").stat().st_size
    os.truncate(jobs.folder / second / ".done", size - 30)
    assert jobs.read(first) == b"{1}"
    assert jobs.read(second) is None
