"""Where does a job live on disk, and what is left of it?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.kit.job_directories import listed, listed_jobs, result_of, seal

from wakugumi.adapters.folder_lock import FolderInUse, FolderLock
from wakugumi.adapters.jobdir.done_record import DONE
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.jobdir.folder_claim import LOCK
from wakugumi.adapters.jobdir.large_parts import ARCHIVE
from wakugumi.wire.messages.job import JobResult
from wakugumi.wire.messages.payload import encode

# A directory for a job.


def test_what_an_interrupted_run_left_is_removed_first(jobs: JobsFolder, job: str) -> None:
    old = jobs.make(job)
    Path(old.path, "sub").mkdir()
    Path(old.path, "sub/file").write_text("x")
    assert listed(jobs.make(job)) == []


def test_a_jobs_folder_that_someone_removed_is_made_again(jobs: JobsFolder, job: str) -> None:
    os.unlink(f"{jobs.path}/.lock")
    os.rmdir(jobs.path)
    assert listed(jobs.make(job)) == []


# After a restart.


@pytest.mark.spec("W4")
def test_finished_jobs_are_found_again_and_interrupted_ones_removed(jobs: JobsFolder) -> None:
    done, interrupted = str(uuid4()), str(uuid4())
    seal(jobs.make(done), done)
    then = time.time() - 100
    os.utime(f"{jobs.path}/{done}/{DONE}", (then, then))
    Path(jobs.make(interrupted).path, "half").write_text("x")
    Path(jobs.path, "not-a-job").mkdir()
    Path(jobs.path, f"{uuid4()}.bak").mkdir()
    Path(jobs.path, str(uuid4())).symlink_to("/etc")

    [(job_id, age_s)] = jobs.finished()
    assert job_id == UUID(done).bytes_le
    assert 99 < age_s < 200
    assert not os.path.exists(f"{jobs.path}/{interrupted}")
    assert len(listed_jobs(jobs)) == 4, "the finished one, and three things that are none of ours"


@pytest.mark.spec("N4")
def test_what_was_interrupted_lately_stays_if_it_is_to(jobs: JobsFolder) -> None:
    lately, earlier = str(uuid4()), str(uuid4())
    for name, age_s in ((lately, 50), (earlier, 150)):
        path = jobs.make(name).path
        Path(path, "half").write_text("x")
        os.utime(path, (time.time() - age_s,) * 2)
    assert jobs.finished(100.0) == []
    [(job_id, age)] = jobs.interrupted
    assert job_id == UUID(lately).bytes_le
    assert 49 < age < 100
    assert listed_jobs(jobs) == [lately]


def test_a_job_that_never_ran_is_recorded_too(jobs: JobsFolder, job: str) -> None:
    Path(jobs.make(job).path, "half").write_text("x")
    jobs.record(job, encode(result_of(job)))
    assert jobs.load(job) == encode(result_of(job))
    assert listed(Path(jobs.path, job)) == [DONE]


def test_a_large_archive_is_removed_in_a_thread(jobs: JobsFolder, job: str) -> None:
    seal(jobs.make(job), job)
    with Path(jobs.path, job, ARCHIVE).open("wb") as file:
        file.truncate(17 << 20)
    assert not jobs.remove(job), "to give up its blocks takes longer than the loop may wait"
    assert listed_jobs(jobs) == [job]


def test_forgetting_removes_the_directory(jobs: JobsFolder) -> None:
    plain, kept = str(uuid4()), str(uuid4())
    seal(jobs.make(plain), plain)
    assert jobs.remove(plain)
    assert jobs.remove(plain), "gone is gone"
    seal(jobs.make(kept), kept)
    Path(jobs.path, kept, "big").write_text("x")
    assert not jobs.remove(kept), "there is more than the usual two files"
    assert jobs.load(kept) is None
    assert listed_jobs(jobs) == [kept]


# Used again.


def test_a_directory_whose_time_is_over_serves_another_job(jobs: JobsFolder) -> None:
    old, new = str(uuid4()), str(uuid4())
    seal(jobs.make(old), old)
    inode = os.stat(f"{jobs.path}/{old}").st_ino
    assert jobs.retire(old)
    assert jobs.load(old) is not None, "as long as nobody needs it"

    directory = jobs.make(new)
    assert os.stat(directory.path).st_ino == inode
    assert listed(directory) == [], "nothing of the old job is to be seen"
    assert jobs.load(old) is None
    assert jobs.load(new) is None
    payload = seal(directory, new)
    assert jobs.load(new) == payload
    assert listed_jobs(jobs) == [new]


def test_a_shorter_result_does_not_end_with_the_rest_of_a_longer_one(jobs: JobsFolder) -> None:
    old, new = str(uuid4()), str(uuid4())
    jobs.record(old, encode(JobResult(old, stdout="long" * 1_000)))
    jobs.retire(old)
    jobs.record(new, encode(JobResult(new)))
    assert jobs.load(new) == encode(JobResult(new))


@pytest.mark.parametrize("what", ["archive", "more"])
def test_a_directory_with_anything_in_it_is_not_used_again(jobs: JobsFolder, what: str) -> None:
    old, new = str(uuid4()), str(uuid4())
    directory = jobs.make(old)
    if what == "archive":
        Path(directory.path, "out").write_text("x")
    seal(directory, old)
    inode = os.stat(directory.path).st_ino
    if what == "more":
        Path(directory.path, "x").write_text("x")
    assert jobs.retire(old) == (what != "more")
    assert listed(jobs.make(new)) == []
    if what == "more":
        assert os.stat(f"{jobs.path}/{new}").st_ino != inode


def test_what_a_program_did_to_its_directory_does_not_show_in_the_next(jobs: JobsFolder) -> None:
    old, new = str(uuid4()), str(uuid4())
    directory = jobs.make(old)
    Path(directory.path).chmod(0o1777)
    seal(directory, old)
    assert jobs.retire(old)
    assert os.stat(jobs.make(new).path).st_mode & 0o7777 == 0o700


def test_a_retired_job_that_runs_again_keeps_its_new_result(jobs: JobsFolder) -> None:
    first, again = str(uuid4()), str(uuid4())
    for job in (first, again):
        seal(jobs.make(job), job)
        jobs.retire(job)
    payload = seal(jobs.make(again), again)
    for _ in range(3):
        jobs.make(str(uuid4()))
    assert jobs.load(again) == payload


@pytest.mark.spec("L3", "L6")
def test_a_result_that_is_unmarked_answers_for_nothing_and_what_is_beside_it_stays(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    Path(directory.path, "made").write_text("x")
    seal(directory, job)
    jobs.unmark(job)
    jobs.unmark(job)
    assert jobs.load(job) is None
    assert listed(directory) == ["result.zip"]
    assert jobs.remove(job)
    assert listed_jobs(jobs) == []


def test_a_folder_that_vanished_is_claimed_again(jobs: JobsFolder, job: str) -> None:
    shutil.rmtree(jobs.path)
    assert listed(jobs.make(job)) == []
    with pytest.raises(FolderInUse):
        FolderLock(jobs.path, LOCK)


NO_PROC = """
import os, sys
from wakugumi.adapters.files import remove_tree

os.chroot(sys.argv[1])
os.makedirs("/job/a/b/c")
os.chmod("/job/a/b", 0)
remove_tree("/job")
print(os.listdir("/"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its root")
def test_a_directory_with_folders_is_removed_where_there_is_no_proc(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", NO_PROC, tmp_path], capture_output=True, text=True, check=False)
    assert run.stdout == "[]\n", run.stderr


# A full disk.

FULL_DISK = """
import errno, os, sys
from pathlib import Path
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.errors import Refused
from wakugumi.wire.messages.job import InputFile, JobResult
from wakugumi.wire.messages.payload import encode

job = "00000000-0000-0000-0000-000000000001"
jobs = JobsFolder(Path(sys.argv[1]))
def fill():
    with open(jobs.path + "/filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError as error:
            assert error.errno == errno.ENOSPC
def code(work):
    try:
        work()
    except Refused as refused:
        return refused.code
    return "no error"

directory = jobs.make(job)
big = [InputFile("small", content=b"x"), InputFile("big", content=bytes(4_000_000))]
print("inputs", code(lambda: directory.place(big)), os.listdir(directory.path))

directory = jobs.make(job)
directory.reopen()
result = JobResult(job, stdout="x" * 10_000)
fill()
print("mark", code(lambda: directory.seal(result, encode(result), None)), os.listdir(directory.path))
print("archive", code(lambda: directory.seal(result, encode(result), b"x" * 10_000)), os.listdir(directory.path))
print("load", jobs.load(job))
print("captures", code(lambda: os.write(jobs.captures.take().out, b"x" * 10_000)))
"""


@pytest.mark.spec("W4")
def test_a_full_disk_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=1m,mode=700 none {tmp_path}"
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*private, "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("no private mounts allowed here: a full disk cannot be had")
    done = subprocess.run(
        [*private, "sh", "-c", f'{mount} && exec "$0" "$@"', sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[:4] == [
        "inputs disk ['small']",
        "mark disk []",
        "archive disk []",
        "load None",
    ], done.stderr
