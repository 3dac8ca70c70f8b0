"""Which programs does an embedded grid run by their plain names?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.errors import Refused
from wakugumi.roles.local.child import ProgramsOfPath


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In `one`: a file that cannot be run, and a folder; in `two` programs of the same names."""
    for name, mode in (("one", 0o644), ("two", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("#!/bin/sh\n")
        (tmp_path / name / "tool").chmod(mode)
    (tmp_path / "one" / "dir").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"two:{tmp_path / 'one'}::{tmp_path / 'two'}")
    return tmp_path


def test_the_first_program_on_the_path_that_can_be_run_is_taken(folders: Path) -> None:
    assert ProgramsOfPath().resolve("tool") == str(folders / "two" / "tool")


@pytest.mark.parametrize("name", ["dir", "none"])
def test_a_folder_or_nothing_is_no_program(folders: Path, name: str) -> None:
    with pytest.raises(Refused) as refused:
        ProgramsOfPath().resolve(name)
    assert refused.value.code == "unknown-program"
    assert name in refused.value.message


def test_a_folder_of_the_path_that_is_not_absolute_is_not_searched(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "two:.")
    with pytest.raises(Refused, match="no program"):
        ProgramsOfPath().resolve("tool")


@pytest.mark.parametrize("name", ["../two/tool", "/bin/sh", "", ".."])
def test_a_path_is_no_name(folders: Path, name: str) -> None:
    with pytest.raises(Refused) as refused:
        ProgramsOfPath().resolve(name)
    assert refused.value.code == "bad-name"
