"""Files are written whole, folders are flushed, and the room on a disk is what this user may use."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from wakugumi.adapters.files import (
    NEW,
    READ,
    Closing,
    Refusing,
    free_on_disk,
    free_range,
    sync_folder,
    write_all,
    write_new,
)
from wakugumi.errors import Refused, Sick


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


def test_a_part_of_a_file_is_given_back_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3 * 65536)
    with path.open("r+b") as file:
        assert free_range(file.fileno(), 65536, 2 * 65536)
    assert path.read_bytes() == b"x" * 65536 + bytes(65536) + b"x" * 65536
    with path.open("rb") as file:
        assert not free_range(file.fileno(), 0, 65536), "a file that is open for reading stays whole"


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.ENOSPC, Sick, "disk"),
        (errno.EMFILE, Sick, "worker-error"),
        (errno.ENOENT, Refused, "worker-error"),
    ],
)
def test_an_error_of_the_disk_is_a_refusal_and_another_one_passes(number: int, kind: type, code: str) -> None:
    with pytest.raises(Refused, match="it cannot be kept: the reason") as caught, Refusing("it cannot be kept"):
        raise OSError(number, "the reason")
    assert (type(caught.value), caught.value.code) == (kind, code)
    assert isinstance(caught.value.__context__, OSError)
    with pytest.raises(KeyError), Refusing("it cannot be kept"):
        raise KeyError


def test_an_open_file_is_closed_after_an_error_as_well(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with Closing(os.open(tmp_path / "file", READ)) as file:
        assert os.read(file, 10) == b"content"
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(file)
    with pytest.raises(KeyError), Closing(os.open(tmp_path / "file", READ)) as file:
        raise KeyError
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(file)
