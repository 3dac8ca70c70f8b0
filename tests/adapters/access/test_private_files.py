"""Files with secrets: never readable by others, never half, and no link is followed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from wakugumi.adapters.access.private_files import (
    locked,
    make_private_folder,
    read_private,
    remove_halves,
    write_private,
)
from wakugumi.adapters.folder_lock import FolderLock
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.spec("O1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secret"


def test_a_file_is_made_for_its_owner_alone_and_replaced_whole(path: Path) -> None:
    assert read_private(path) is None
    before = os.umask(0)
    try:
        for data in (b"one", b"", b"three" * 100_000):
            write_private(path, data)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert read_private(path) == data
    finally:
        os.umask(before)
    assert os.listdir(path.parent) == ["secret"]


def test_a_file_is_secret_before_its_first_byte(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    real = os.write

    def write(file: int, data: bytes) -> int:
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    before = os.umask(0)
    try:
        write_private(path, b"x")
    finally:
        os.umask(before)
    assert modes == [0o600]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(path, b"old")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left"):
        write_private(path, b"new")
    assert read_private(path) == b"old"
    assert os.listdir(path.parent) == ["secret"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o644])
def test_a_file_that_others_may_use_is_refused_with_the_remedy(path: Path, mode: int) -> None:
    path.write_bytes(b"x")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:o}") as caught:
        read_private(path)
    assert f"chmod 600 {path}" in caught.value.hint


def test_a_link_is_not_followed_and_is_replaced_by_a_file(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    write_private(target, b"theirs")
    path.symlink_to(target)
    with pytest.raises(ConfigError, match="is a link"):
        read_private(path)
    write_private(path, b"ours")
    assert (read_private(path), read_private(target)) == (b"ours", b"theirs")


def test_what_is_no_file_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigError, match="is not a file"):
        read_private(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_or_folder_of_another_user_is_refused(path: Path, tmp_path: Path) -> None:
    write_private(path, b"x")
    (tmp_path / "folder").mkdir(0o700)
    for one in (path, tmp_path / "folder"):
        os.chown(one, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        read_private(path)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        make_private_folder(tmp_path / "folder")


def test_a_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "access"
    before = os.umask(0)
    try:
        make_private_folder(folder)
        make_private_folder(folder)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700, 0o700]
    folder.chmod(0o750)
    with pytest.raises(ConfigError, match="mode 750") as caught:
        make_private_folder(folder)
    assert "chmod 700" in caught.value.hint


def test_a_link_or_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(ConfigError, match="not a folder"):
            make_private_folder(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be used"):
        make_private_folder(tmp_path / "file" / "below")


ADD = """
import sys
from pathlib import Path
from wakugumi.adapters.access.private_files import locked, read_private, write_private
path = Path(sys.argv[1])
for _ in range(20):
    with locked(path.parent):
        write_private(path, b"%d" % (int(read_private(path) or b"0") + 1))
"""


def test_processes_change_a_folder_one_after_the_other(path: Path) -> None:
    many = [subprocess.Popen([sys.executable, "-c", ADD, str(path)]) for _ in range(3)]
    assert [one.wait(60) for one in many] == [0, 0, 0]
    assert read_private(path) == b"60"


def test_a_lock_that_is_never_given_back_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.adapters.access.private_files.ACCESS_LOCK_S", 0.05)
    lock = FolderLock(str(tmp_path), ".access.lock")
    with pytest.raises(ConfigError, match=f"process {os.getpid()} has changed files"), locked(tmp_path):
        pass
    lock.release()
    with locked(tmp_path):
        pass
    with pytest.raises(ConfigError, match="cannot be locked"), locked(tmp_path / "missing"):
        pass


def test_a_waiting_process_gets_the_lock(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path), ".access.lock")
    timer = threading.Timer(0.05, lock.release)
    timer.start()
    with locked(tmp_path):
        timer.join()


def test_half_files_of_a_killed_process_are_removed(path: Path) -> None:
    write_private(path, b"x")
    (path.parent / ".secret.0123.new").write_bytes(b"half")
    remove_halves(path.parent)
    assert os.listdir(path.parent) == ["secret"]
