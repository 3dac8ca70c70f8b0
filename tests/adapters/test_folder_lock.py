"""Which process uses this folder? One at a time, and the next one learns which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wakugumi.adapters.folder_lock import FolderInUse, FolderLock, holder

NAME = ".lock"


def test_a_folder_is_one_processs_until_it_is_released(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert holder(folder, NAME) is None
    lock = FolderLock(folder, NAME)
    held = [lock.is_held]
    assert lock.is_on(os.stat(folder))
    assert not lock.is_on(os.stat("/"))
    assert holder(folder, NAME) == os.getpid()
    with pytest.raises(FolderInUse) as told:
        FolderLock(folder, NAME)
    assert told.value.pid == os.getpid()
    lock.release()
    held.append(lock.is_held)
    assert held == [True, False]
    assert holder(folder, NAME) is None
    FolderLock(folder, NAME).release()


def test_a_removed_file_does_not_free_the_folder(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path), NAME)
    (tmp_path / NAME).unlink()
    assert holder(str(tmp_path), NAME) == 0, "in use, and it is not known by which process"
    with pytest.raises(FolderInUse):
        FolderLock(str(tmp_path), NAME)
    lock.release()


def test_a_process_that_ends_frees_its_folder(tmp_path: Path) -> None:
    code = "import sys; from wakugumi.adapters.folder_lock import FolderLock; FolderLock(sys.argv[1], '.lock')"
    code += "; print('held', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert holder(str(tmp_path), NAME) == other.pid
        with pytest.raises(FolderInUse) as told:
            FolderLock(str(tmp_path), NAME, patient=True)
        assert told.value.pid == other.pid
        other.kill()
    FolderLock(str(tmp_path), NAME).release()


def test_a_link_is_no_folder_of_our_own(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    FolderLock(str(tmp_path / "link"), NAME).release()
    with pytest.raises(OSError, match=r"link|directory"):
        FolderLock(str(tmp_path / "link"), NAME, own=True)
    FolderLock(str(tmp_path / "real"), NAME, own=True).release()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to("elsewhere")
    with pytest.raises(OSError, match="link"):
        FolderLock(str(tmp_path), NAME)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_is_not_there_is_held_by_nobody(tmp_path: Path) -> None:
    assert holder(str(tmp_path / "gone"), NAME) is None
    with pytest.raises(FileNotFoundError):
        FolderLock(str(tmp_path / "gone"), NAME)
