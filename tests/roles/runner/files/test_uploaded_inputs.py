"""Inputs that came as files, and the job's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.roles.runner.files.place_inputs import NotLinked
from wakugumi.roles.runner.files.uploaded_inputs import UploadedInputs


@pytest.fixture
def upload(tmp_path: Path) -> Path:
    path = tmp_path / "upload"
    path.write_bytes(b"content")
    return path


def no_link(*_: object, **__: object) -> None:
    raise OSError(18, "Invalid cross-device link")


def test_a_file_is_linked_and_then_has_one_name(tmp_path: Path, upload: Path) -> None:
    brought, there = UploadedInputs({"in": upload}), tmp_path / "there"
    brought.place(None, at_once=True)("in", str(there), None)
    assert there.stat().st_ino == upload.stat().st_ino
    brought.remove()
    brought.remove()
    assert (upload.exists(), there.read_bytes(), there.stat().st_nlink) == (False, b"content", 1)


def test_where_no_link_can_be_made_a_copy_is_and_that_takes_a_thread(
    tmp_path: Path, upload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.link", no_link)
    brought, there = UploadedInputs({"in": upload}), tmp_path / "there"
    with pytest.raises(NotLinked):
        brought.place(None, at_once=True)("in", str(there), None)
    assert not there.exists()
    brought.place(None)("in", str(there), None)
    assert there.read_bytes() == b"content"
    assert there.stat().st_ino != upload.stat().st_ino


def test_what_was_not_brought_is_placed_by_others(upload: Path) -> None:
    placed: list[tuple[str, str]] = []

    def others(name: str, path: str, _: int | None) -> None:
        placed.append((name, path))

    brought = UploadedInputs({"in": upload})
    brought.place(others)("one", "/there/one", None)
    brought.place(others, at_once=True)("two", "/there/two", None)
    assert placed == [("one", "/there/one"), ("two", "/there/two")]


def test_a_file_that_is_gone_is_an_error_of_the_disk(tmp_path: Path) -> None:
    brought = UploadedInputs({"in": tmp_path / "gone"})
    with pytest.raises(OSError, match="No such file"):
        brought.place(None)("in", str(tmp_path / "there"), None)
