"""How is a finished job's result read back, and when does it count as none?"""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest
from tests.kit.job_directories import result_of, seal

from wakugumi.adapters.jobdir.done_record import DONE
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.jobdir.large_parts import ARCHIVE
from wakugumi.wire.messages.payload import encode


@pytest.mark.spec("W4")
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_torn_mark_counts_as_none(jobs: JobsFolder, job: str, keep: float) -> None:
    payload = seal(jobs.make(job), job)
    os.truncate(f"{jobs.path}/{job}/{DONE}", int(len(payload) * keep))
    assert jobs.load(job) is None


@pytest.mark.spec("W4")
@pytest.mark.parametrize("harm", ["missing", "shorter", "zeros"])
def test_an_archive_that_is_not_what_it_was_counts_as_none(jobs: JobsFolder, job: str, harm: str) -> None:
    directory = jobs.make(job)
    Path(directory.path, "out").write_text("x")
    payload = seal(directory, job)
    assert jobs.load(job) == payload
    archive = Path(directory.path, ARCHIVE)
    if harm == "missing":
        archive.unlink()
    elif harm == "shorter":
        os.truncate(archive, 10)
    else:
        archive.write_bytes(bytes(archive.stat().st_size))
    assert jobs.load(job) is None


def test_the_mark_of_another_job_counts_as_none(jobs: JobsFolder, job: str) -> None:
    other = str(uuid4())
    seal(jobs.make(other), other)
    Path(jobs.path, other).rename(f"{jobs.path}/{job}")
    assert jobs.load(job) is None


def test_a_mark_that_leads_elsewhere_is_not_followed(jobs: JobsFolder, job: str, tmp_path: Path) -> None:
    (tmp_path / "forged").write_bytes(encode(result_of(job)))
    Path(jobs.make(job).path, DONE).symlink_to(tmp_path / "forged")
    assert jobs.load(job) is None
    os.unlink(f"{jobs.path}/{job}/{DONE}")
    os.mkfifo(f"{jobs.path}/{job}/{DONE}")
    assert jobs.load(job) is None
