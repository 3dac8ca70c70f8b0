"""Where does a job live on disk, and what is left of it?"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from wakugumi.adapters.folder_lock import FolderInUse, FolderLock
from wakugumi.adapters.jobdir.folder import DONE, SMALL_BYTES, SMALL_FILES, JobDir, JobsFolder
from wakugumi.adapters.jobdir.folder_claim import LOCK
from wakugumi.adapters.jobdir.large_parts import ARCHIVE
from wakugumi.adapters.zip.write_memory import TooBig
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.job import InputFile, JobResult, read_result
from wakugumi.wire.messages.payload import encode

ROOM = 1_000_000


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobsFolder]:
    folder = JobsFolder(tmp_path / "jobs")
    yield folder
    folder.close()


@pytest.fixture
def job() -> str:
    return str(uuid4())


def result_of(job: str, **fields: object) -> JobResult:
    return JobResult(job, "client", "calcA", stdout="out", exit_code=0, **fields)  # type: ignore[arg-type]


def seal(directory: JobDir, job: str, bytes_max: int = ROOM) -> bytes:
    directory.reopen()
    result = result_of(job)
    payload = directory.seal(result, encode(result), directory.pack(bytes_max))
    directory.close()
    return payload


def copied_in(directory: JobDir) -> str:
    with open("/bin/true", "rb") as file:
        return directory.place_program("/bin/true", file.fileno())


def listed(directory: JobDir | Path) -> list[str]:
    return sorted(os.listdir(directory.path if isinstance(directory, JobDir) else directory))


def listed_jobs(jobs: JobsFolder) -> list[str]:
    return [name for name in listed(Path(jobs.path)) if not name.startswith(".")]


def archive_of(job: str, payload: bytes) -> zipfile.ZipFile:
    archive = read_result(UUID(job).bytes_le, payload).output_archive  # type: ignore[arg-type]
    assert archive is not None
    return zipfile.ZipFile(io.BytesIO(archive))


# Inputs.


@pytest.mark.spec("W1")
def test_a_job_gets_a_directory_of_its_own_with_its_inputs(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    assert directory.path == f"{jobs.path}/{job}"
    directory.place(
        [InputFile("a.txt", content=b"A"), InputFile("sub/deep/ü.bin", content=b"\0"), InputFile("e", content=b"")]
    )
    assert Path(directory.path, "a.txt").read_bytes() == b"A"
    assert Path(directory.path, "sub/deep/ü.bin").read_bytes() == b"\0"
    assert Path(directory.path, "e").read_bytes() == b""


@pytest.mark.spec("W5")
def test_an_input_is_never_written_through_a_link(jobs: JobsFolder, job: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    directory = jobs.make(job)
    Path(directory.path, "a.txt").symlink_to(victim)
    with pytest.raises(Refused):
        directory.place([InputFile("a.txt", content=b"theirs")])
    assert victim.read_text() == "mine"


def test_what_an_interrupted_run_left_is_removed_first(jobs: JobsFolder, job: str) -> None:
    old = jobs.make(job)
    Path(old.path, "sub").mkdir()
    Path(old.path, "sub/file").write_text("x")
    assert listed(jobs.make(job)) == []


def test_a_jobs_folder_that_someone_removed_is_made_again(jobs: JobsFolder, job: str) -> None:
    os.unlink(f"{jobs.path}/.lock")
    os.rmdir(jobs.path)
    assert listed(jobs.make(job)) == []


def test_a_program_is_copied_in_with_its_run_bit_and_is_no_output(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    directory.place([])
    where = copied_in(directory)
    assert subprocess.run([where]).returncode == 0
    assert where == f"{directory.path}/true"
    assert read_result(UUID(job).bytes_le, seal(directory, job)).output_archive is None  # type: ignore[arg-type]


def test_a_program_that_is_copied_in_does_not_replace_an_input(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    directory.place([InputFile("true", content=b"")])
    with pytest.raises(Refused, match="name of the program"):
        copied_in(directory)


# What is left.


@pytest.mark.spec("W1", "W4")
def test_a_job_that_made_nothing_leaves_only_its_mark(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    directory.place([InputFile("in/a.txt", content=b"A")])
    Path(directory.path, ".hidden").write_text("x")
    payload = seal(directory, job)
    assert read_result(UUID(job).bytes_le, payload) == result_of(job)  # type: ignore[arg-type]
    assert listed(directory) == [DONE]
    assert jobs.load(job) == payload


@pytest.mark.spec("W1", "W4")
def test_what_a_job_made_is_its_archive_and_then_gone(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    directory.place([InputFile("in.txt", content=b"in")])
    Path(directory.path, "out/deep").mkdir(parents=True)
    Path(directory.path, "out/deep/r.txt").write_text("r")
    Path(directory.path, "in.txt").write_text("changed by the program")
    payload = seal(directory, job)
    assert archive_of(job, payload).namelist() == ["out/deep/r.txt"]
    assert listed(directory) == [DONE, ARCHIVE]
    assert zipfile.ZipFile(Path(directory.path, ARCHIVE)).read("out/deep/r.txt") == b"r"
    assert jobs.load(job) == payload


def test_a_program_may_use_the_names_that_we_use(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    Path(directory.path, ARCHIVE).write_text("the program's own")
    Path(directory.path, DONE).mkdir()
    Path(directory.path, DONE, "x").write_text("x")
    payload = seal(directory, job)
    assert archive_of(job, payload).read(ARCHIVE) == b"the program's own"
    assert jobs.load(job) == payload


@pytest.mark.spec("W5")
def test_a_program_that_puts_a_link_in_place_of_its_directory_harms_nobody(
    jobs: JobsFolder, job: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("x")
    directory = jobs.make(job)
    os.rmdir(directory.path)
    Path(directory.path).symlink_to(other)
    payload = seal(directory, job)
    assert listed(other) == ["precious"]
    assert not os.path.islink(directory.path)
    assert jobs.load(job) == payload


@pytest.mark.user_dependent
@pytest.mark.parametrize("spoil", ["rmdir", "chmod", "file"])
def test_a_program_that_spoils_its_directory_still_has_a_result(jobs: JobsFolder, job: str, spoil: str) -> None:
    directory = jobs.make(job)
    if spoil == "chmod":
        Path(directory.path).chmod(0)
    else:
        os.rmdir(directory.path)
    if spoil == "file":
        Path(directory.path).write_text("x")
    assert jobs.load(job) is None
    assert seal(directory, job) == jobs.load(job)


@pytest.mark.user_dependent
def test_a_folder_that_the_program_locked_is_removed_too(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    Path(directory.path, "a/b/c").mkdir(parents=True)
    Path(directory.path, "a/b/c/file").write_text("x")
    Path(directory.path, "a/b/c").chmod(0o500)
    Path(directory.path, "a").chmod(0)
    seal(directory, job)
    assert set(listed(directory)) <= {DONE, ARCHIVE}


def test_little_is_done_at_once_and_much_takes_a_thread(jobs: JobsFolder) -> None:
    def reopened(make: dict[str, int]) -> bool:
        directory = jobs.make(str(uuid4()))
        for name, size in make.items():
            Path(directory.path, name).write_bytes(b"x" * size)
        small = directory.reopen()
        directory.close()
        return small

    assert reopened({})
    assert reopened({"a": SMALL_BYTES})
    assert not reopened({"a": SMALL_BYTES + 1})
    assert reopened({str(number): 1 for number in range(SMALL_FILES)})
    assert not reopened({str(number): 1 for number in range(SMALL_FILES + 1)})


def test_what_takes_long_to_remove_takes_a_thread_though_it_is_no_output(jobs: JobsFolder, tmp_path: Path) -> None:
    content = str(tmp_path / "content")
    Path(content).touch()
    os.truncate(content, 17 * MIB)

    def reopened(name: str, bring: Callable[[str, str], object]) -> bool:
        directory = jobs.make(str(uuid4()))
        files = [InputFile("small", content=b"x"), InputFile(name)]
        directory.place(files, lambda _, path, __: bring(content, path) and None)
        small = directory.reopen()
        directory.close()
        return small

    assert reopened("a", os.link), "a link is removed at once"
    assert reopened("sub/a", os.link)
    assert not reopened("a", shutil.copy)
    assert not reopened("sub/a", shutil.copy)
    assert reopened("a", lambda _, path: Path(path).touch())
    os.truncate(content, 15 * MIB)
    assert reopened("a", shutil.copy)
    many = jobs.make(str(uuid4()))
    many.place([InputFile(f"sub/{number}", content=b"") for number in range(SMALL_FILES + 1)])
    assert not many.reopen()
    many.close()
    hidden = jobs.make(str(uuid4()))
    Path(hidden.path, ".hidden").touch()
    assert hidden.reopen()
    hidden.close()
    os.truncate(Path(hidden.path, ".hidden"), 17 * MIB)
    assert not hidden.reopen()
    hidden.close()


def test_inputs_that_the_program_took_away_are_not_missed(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    directory.place([InputFile("a", content=b"x"), InputFile("sub/b", content=b"x"), InputFile("c", content=b"x")])
    shutil.rmtree(Path(directory.path, "sub"))
    Path(directory.path, "sub").touch()
    Path(directory.path, "a").unlink()
    assert directory.reopen()
    directory.close()


def test_a_thousand_small_files_come_back_and_are_gone(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    for number in range(1_000):
        Path(directory.path, f"{number}.txt").write_text(str(number))
    archive = archive_of(job, seal(directory, job))
    assert {name: archive.read(name).decode() for name in archive.namelist()} == {
        f"{n}.txt": str(n) for n in range(1_000)
    }
    assert listed(directory) == [DONE, ARCHIVE]


def test_what_does_not_fit_stays_where_it_is_with_stdout_and_stderr(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    Path(directory.path, "big").write_bytes(os.urandom(5_000))
    Path(directory.path, ".stdout").symlink_to("/etc/passwd")
    capture = jobs.captures.take()
    os.write(capture.out, b"out")
    os.write(capture.err, b"err")
    directory.reopen()
    with pytest.raises(TooBig):
        directory.pack(4_000)
    assert directory.produced_bytes() == 5_000
    payload = directory.keep(result_of(job), capture)
    directory.close()
    capture.close()
    assert listed(directory) == [DONE, ".stderr", ".stdout", "big"]
    assert Path(directory.path, ".stdout").read_text() == "out"
    assert Path(directory.path, ".stderr").read_text() == "err"
    assert jobs.load(job) == payload


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


# The folder itself.


def test_workers_that_share_a_folder_do_not_meet(tmp_path: Path, job: str) -> None:
    first, second = JobsFolder(tmp_path), JobsFolder(tmp_path)
    assert second.path == f"{first.path}/worker-2"
    running = first.make(job)
    Path(running.path, "half").write_text("x")
    second.make(job)
    assert second.finished() == []
    assert listed(running) == ["half"], "what the other one runs is no interrupted job"
    first.close()
    third = JobsFolder(tmp_path)
    assert third.path == first.path
    second.close()
    third.close()


def test_a_folder_in_use_stays_so_if_a_cleaner_removes_its_lock_file(tmp_path: Path) -> None:
    first = JobsFolder(tmp_path)
    (tmp_path / ".lock").unlink()
    second = JobsFolder(tmp_path)
    assert second.path == f"{first.path}/worker-2"
    second.close()
    first.close()


@pytest.mark.spec("L4")
def test_a_worker_keeps_its_id_as_long_as_it_has_the_same_folder(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        folder, beside = JobsFolder(tmp_path / "jobs"), JobsFolder(tmp_path / "jobs")
        ids.append((folder.worker_id(), beside.worker_id()))
        assert folder.worker_id() == ids[-1][0]
        folder.close()
        beside.close()
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2
    assert len(ids[0][0]) == 16


@pytest.mark.parametrize("spoil", ["node", "inode", "zeros", "torn", "link", "folder", "gone"])
def test_an_id_that_may_be_anothers_or_cannot_be_read_makes_room_for_a_new_one(
    jobs: JobsFolder, tmp_path: Path, spoil: str
) -> None:
    first = jobs.worker_id()
    file = Path(jobs.path, ".worker")
    owner = json.loads(file.read_text())
    assert UUID(owner["WorkerId"]).bytes_le == first
    file.unlink()
    if spoil == "node":
        file.write_text(json.dumps({**owner, "Node": "the-machine-it-was-cloned-from"}))
    elif spoil == "inode":
        file.write_text(json.dumps({**owner, "Inode": owner["Inode"] + 1}))
    elif spoil == "zeros":
        file.write_text(json.dumps({**owner, "WorkerId": str(UUID(int=0))}))
    elif spoil == "torn":
        file.write_text(json.dumps(owner)[:-9])
    elif spoil == "link":
        (tmp_path / "elsewhere").write_text(json.dumps(owner))
        file.symlink_to(tmp_path / "elsewhere")
    elif spoil == "folder":
        file.mkdir()
    second = jobs.worker_id()
    assert second != first
    if spoil != "folder":  # that cannot be replaced: the new id is good for this life
        assert jobs.worker_id() == second
    assert "elsewhere" not in listed(tmp_path) or json.loads((tmp_path / "elsewhere").read_text()) == owner


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


def test_a_folder_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        JobsFolder(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        JobsFolder(tmp_path)


@pytest.mark.spec("O1")
@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o757])
def test_a_folder_that_everybody_may_write_to_is_not_trusted(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    with pytest.raises(ConfigError, match="other users may write") as caught:
        JobsFolder(tmp_path / "shared")
    assert "a folder inside" in caught.value.hint
    JobsFolder(tmp_path / "shared" / "own").close()


@pytest.mark.spec("O1")
def test_a_folder_of_our_own_may_be_open_to_its_group(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    JobsFolder(tmp_path).close()


CLAIM_AS_ANOTHER = """
import os, sys
from pathlib import Path
from wakugumi.adapters.jobdir.folder_claim import claim

os.setgroups([])
os.setgid(12345)
os.setuid(12345)
claim(Path(sys.argv[1]), what="jobs folder", inside="worker-", hint="")
"""


@pytest.mark.spec("O1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_folder_of_root_that_its_group_may_write_to_is_not_trusted_by_others() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, 0, 12345)
        Path(name).chmod(0o2775)
        run = subprocess.run(
            [sys.executable, "-c", CLAIM_AS_ANOTHER, name], capture_output=True, text=True, check=False
        )
    assert "other users may write" in run.stderr


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
