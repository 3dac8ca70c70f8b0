"""What becomes of one job's directory: its inputs, what its program makes, and its result?"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.kit.job_directories import archive_of, copied_in, listed, result_of, seal
from tests.kit.swapper import Swapper

from wakugumi.adapters.jobdir.directory import SMALL_BYTES, SMALL_FILES, JobDir
from wakugumi.adapters.jobdir.done_record import DONE
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.jobdir.large_parts import ARCHIVE
from wakugumi.adapters.zip.write import TooBig
from wakugumi.errors import Refused
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.job import InputFile, read_result


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


def test_a_program_is_copied_in_with_its_run_bit_and_is_no_output(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    directory.place([])
    where = copied_in(directory)
    assert subprocess.run([where]).returncode == 0
    assert where == f"{directory.path}/true"
    assert read_result(UUID(job).bytes_le, seal(directory, job)).output_archive is None  # type: ignore[arg-type]


def test_texts_are_packed_behind_files_and_never_alone(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    directory.place([])
    texts = {"stdout.txt": b"said"}
    directory.reopen()
    assert directory.pack(4_000, texts) is None, "the result has them, and an archive is one more file on the disk"
    other = jobs.make(str(uuid4()))
    other.place([])
    Path(other.path, "made").write_bytes(b"file")
    other.reopen()
    packed = other.pack(4_000, texts)
    assert packed is not None
    assert zipfile.ZipFile(BytesIO(packed)).namelist() == ["made", "stdout.txt"]
    other.close()


def test_a_program_that_is_copied_in_does_not_replace_an_input(jobs: JobsFolder, job: str) -> None:
    directory = jobs.make(job)
    directory.place([InputFile("true", content=b"")])
    with pytest.raises(Refused, match="name of the program"):
        copied_in(directory)


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


@pytest.mark.parametrize("fits", [True, False])
def test_a_large_file_is_used_up_only_if_the_result_cannot_be_too_big(
    jobs: JobsFolder, job: str, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    monkeypatch.setattr("wakugumi.adapters.zip.write.USED_UP_BYTES", 8 * MIB)
    directory = jobs.make(job)
    content = os.urandom(10 * MIB)
    (first := Path(directory.path, "a")).write_bytes(content)
    Path(directory.path, "b").write_bytes(b"b")
    directory.reopen()
    if fits:
        directory.pack_large(10 * MIB + 1, lambda: None)
        assert directory.packed()[: 10 * MIB + 100].count(content) == 1
        assert first.stat().st_blocks * 512 < 5 * MIB
    else:
        with pytest.raises(TooBig):
            directory.pack_large(10 * MIB, lambda: None)
        assert first.read_bytes() == content
    directory.close()


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


VICTIMS = (DONE, ARCHIVE, ".stdout", ".stderr", "in", "sub/in", "made")


def swapped(jobs: JobsFolder, job: str, tmp_path: Path, work: Callable[[JobDir], None]) -> None:
    """Do this with a job's directory while a link to a folder outside replaces it again and again."""
    outside = tmp_path / "outside"
    outside.mkdir(0o755)
    for name in VICTIMS:
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_bytes(b"mine")
    with Swapper(Path(jobs.path, job), outside) as swapper:
        for _ in range(500):
            with contextlib.suppress(Refused):
                directory = jobs.make(job)
                with contextlib.closing(directory), contextlib.suppress(Refused):
                    work(directory)
            assert {path.name for path in outside.iterdir()} == {Path(name).parts[0] for name in VICTIMS}
            assert all((outside / name).read_bytes() == b"mine" for name in VICTIMS)
            assert outside.stat().st_mode & 0o777 == 0o755
    assert swapper.swaps


@pytest.mark.spec("W5")
def test_no_input_is_written_elsewhere_while_a_link_replaces_the_directory(
    jobs: JobsFolder, job: str, tmp_path: Path
) -> None:
    inputs = [InputFile("in", content=b"x"), InputFile("sub/in", content=b"x"), InputFile("new/in", content=b"x")]
    swapped(jobs, job, tmp_path, lambda directory: directory.place(inputs))


@pytest.mark.spec("W5")
def test_no_result_is_read_or_written_elsewhere_while_a_link_replaces_the_directory(
    jobs: JobsFolder, job: str, tmp_path: Path
) -> None:
    packed: list[bytes] = []

    def work(directory: JobDir) -> None:
        directory.reopen()
        directory.pack_large(MIB, lambda: None)
        packed.append(directory.packed())
        ref = directory.pack_large(MIB, lambda: None)
        directory.seal(result_of(job), b"{}", ref)

    swapped(jobs, job, tmp_path, work)
    assert packed
    assert not [data for data in packed if b"mine" in data]


@pytest.mark.spec("W5")
def test_a_kept_result_is_looked_for_and_removed_in_its_own_directory_alone(
    jobs: JobsFolder, job: str, tmp_path: Path
) -> None:
    loaded: list[object] = []

    def work(directory: JobDir) -> None:
        directory.reopen()
        directory.mark(b"{}")
        for _ in range(20):
            loaded.append(jobs.load(job))
            jobs.unmark(job)
            jobs.remove(job)

    swapped(jobs, job, tmp_path, work)
    assert b"mine" not in loaded
