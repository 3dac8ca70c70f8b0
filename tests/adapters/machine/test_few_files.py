"""Does a thread with few open files start programs as usual?"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from wakugumi.adapters.machine.few_files import FewFiles
from wakugumi.adapters.programs.spawn import Spawner


@pytest.fixture
def few_files() -> Iterator[FewFiles]:
    try:
        few_files = FewFiles()
    except OSError as error:
        pytest.skip(f"no thread has files of its own here: {error}")
    yield few_files
    few_files.close()


def test_the_files_of_a_call_are_open_in_the_thread_and_no_others(few_files: FewFiles, tmp_path: Path) -> None:
    with open(tmp_path / "one", "w+b") as one, open(tmp_path / "two", "ab") as two, socket.socket() as other:
        seen: list[str] = []

        def spawn(files: Sequence[int]) -> int:
            for file in files:
                os.write(file, b"%d" % len(seen))
                seen.append(str(Path(f"/proc/thread-self/fd/{file}").readlink()))
            assert len(set(files)) == 2
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(other.fileno())
            return 7

        assert few_files.start(spawn, (one.fileno(), two.fileno(), one.fileno())) == 7
        assert seen == [str(tmp_path / name) for name in ("one", "two", "one")]
        assert ((tmp_path / "one").read_bytes(), (tmp_path / "two").read_bytes()) == (b"02", b"1")
        assert other.fileno() >= 0
        os.fstat(other.fileno())


def test_a_failure_is_raised_and_the_thread_goes_on(few_files: FewFiles, tmp_path: Path) -> None:
    def spawn(_files: Sequence[int]) -> int:
        raise ValueError("no program")

    with pytest.raises(ValueError, match="no program"):
        few_files.start(spawn, ())
    assert few_files.start(lambda _: 3, ()) == 3


def test_a_file_that_cannot_be_opened_anew_is_no_failure(few_files: FewFiles) -> None:
    with socket.socket() as one:
        assert few_files.start(lambda _: 3, (one.fileno(),)) is None


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_program_starts_the_same_among_many_files(
    tmp_path: Path, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_allowed:
        monkeypatch.setattr("wakugumi.adapters.machine.few_files.CLONE_FILES", 0xFFFF)
    monkeypatch.setattr("wakugumi.adapters.programs.spawn.MANY_FILES", 3)
    spawner = Spawner({b"PATH": os.environb[b"PATH"]})
    program = b"pwd; echo $WAKU_JOB_ID; ls /proc/self/fd | wc -l; echo oh >&2"
    for job in ("one", "two"):
        with open(tmp_path / job, "wb") as out:
            words = [b"/bin/sh", b"-c", program]
            pid = spawner.start(words, os.fsencode(tmp_path), out.fileno(), out.fileno(), job)
            assert os.waitpid(pid, 0)[1] == 0
            with pytest.raises(FileNotFoundError):
                spawner.start([b"/no/such"], os.fsencode(tmp_path), out.fileno(), out.fileno(), "three")
        assert (tmp_path / job).read_text() == f"{tmp_path}\n{job}\n4\noh\n"
    spawner.close()
