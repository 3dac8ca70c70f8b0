"""What a killed grid left is removed, and never what a link points to or another user has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakugumi.adapters.folder_lock import FolderLock
from wakugumi.adapters.jobdir.folder_claim import LOCK
from wakugumi.roles.local.leftovers import end_abandoned


def a_folder(path: Path) -> Path:
    path.mkdir()
    (path / "file").write_bytes(b"content")
    return path


def test_an_abandoned_folder_is_removed(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "waku-0123456789abcdef")
    end_abandoned(str(folder))
    assert not folder.exists()


def test_a_folder_of_a_grid_that_lives_stays(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "waku-0123456789abcdef")
    lock = FolderLock(str(folder), LOCK)
    end_abandoned(str(folder))
    lock.release()
    assert (folder / "file").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = a_folder(tmp_path / "target")
    link = tmp_path / "waku-0123456789abcdef"
    link.symlink_to(target)
    end_abandoned(str(link))
    assert os.listdir(target) == ["file"], "not even a lock was made there"
    assert link.is_symlink()


def test_a_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_folder(tmp_path / "waku-0123456789abcdef")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    end_abandoned(str(folder))
    assert os.listdir(folder) == ["file"]
