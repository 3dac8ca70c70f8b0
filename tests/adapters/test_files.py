"""Files are written whole, folders are flushed, and the room on a disk is what this user may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakugumi.adapters.files import NEW, free_on_disk, sync_folder, write_all, write_new


@pytest.mark.parametrize("of", [bytes, bytearray, memoryview])
def test_a_write_that_is_cut_short_goes_on_where_it_stopped(
    of: type[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, bytes(data[:3])))
    for content in (b"", b"abc", b"0123456789"):
        path = tmp_path / f"{len(content)}"
        file = os.open(path, NEW, 0o600)
        write_all(file, of(content))
        os.close(file)
        assert path.read_bytes() == content


def test_a_buffer_that_was_written_can_grow_again(tmp_path: Path) -> None:
    data = bytearray(b"one")
    file = os.open(tmp_path / "file", NEW, 0o600)
    write_all(file, data)
    os.close(file)
    data += b"two"


def test_a_file_that_cannot_be_written_in_full_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [3]

    def write(file: int, data: bytes) -> int:
        if not left:
            raise OSError(28, "No space left on device")
        return left.pop()

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space"):
        write_new(f"{tmp_path}/file", b"0123456789", 0o600)
    assert not (tmp_path / "file").exists()


def test_a_folder_is_flushed_and_a_file_in_its_place_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[int, int]] = []

    def fsync(file: int) -> None:
        status = os.fstat(file)
        flushed.append((status.st_dev, status.st_ino))

    monkeypatch.setattr(os, "fsync", fsync)
    before = set(os.listdir("/dev/fd"))
    sync_folder(tmp_path)
    sync_folder(str(tmp_path))
    status = tmp_path.stat()
    assert flushed == [(status.st_dev, status.st_ino)] * 2
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync_folder(tmp_path / "file")
    assert len(os.listdir("/dev/fd")) == len(before)


def test_room_that_is_kept_for_root_is_not_free(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    assert 0 < free_on_disk(tmp_path) <= found.f_bfree * found.f_frsize
    with pytest.raises(FileNotFoundError):
        free_on_disk(tmp_path / "nowhere")
