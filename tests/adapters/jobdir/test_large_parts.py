"""Which files of a finished job does its result name, and are they what it says?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT, copy_hashed, parts_of
from wakugumi.wire.messages.job import JobResult


def test_the_parts_of_a_result_are_the_files_that_it_names(tmp_path: Path) -> None:
    contents = {ARCHIVE: b"zip", STDOUT: b"out", STDERR: b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    refs = {name: ref_of_bytes(content) for name, content in contents.items()}
    result = JobResult("j", archive_blob=refs[ARCHIVE], stdout_blob=refs[STDOUT], stderr_blob=refs[STDERR])
    assert {part.path.name: part.ref for part in parts_of(result, str(tmp_path))} == refs
    assert parts_of(JobResult("j"), str(tmp_path)) == []


def test_a_part_that_is_gone_or_has_another_size_is_an_error(tmp_path: Path) -> None:
    result = JobResult("j", archive_blob=ref_of_bytes(b"zip"))
    with pytest.raises(FileNotFoundError):
        parts_of(result, str(tmp_path))
    (tmp_path / ARCHIVE).write_bytes(b"longer")
    with pytest.raises(ValueError, match="another size"):
        parts_of(result, str(tmp_path))
    (tmp_path / ARCHIVE).unlink()
    (tmp_path / "zip").write_bytes(b"zip")
    (tmp_path / ARCHIVE).symlink_to("zip-elsewhere")
    with pytest.raises(ValueError, match="another size"):
        parts_of(result, str(tmp_path))


def test_a_copy_is_hashed_on_its_way_and_never_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"said")
    source = os.open(tmp_path / "source", os.O_RDONLY)
    folder = os.open(tmp_path, os.O_RDONLY)
    assert copy_hashed(source, b" and noted", "copy", folder) == ref_of_bytes(b"said and noted")
    assert (tmp_path / "copy").read_bytes() == b"said and noted"
    with pytest.raises(FileExistsError):
        copy_hashed(source, b"", "copy", folder)
    os.close(source)
    os.close(folder)
