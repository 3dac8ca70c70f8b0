"""Which program does a job's name mean? One of the exec directory or one that was named, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.errors import Refused


@pytest.fixture
def exe(tmp_path: Path) -> Path:
    folder = tmp_path / "exe"
    folder.mkdir()
    for name in ("calcA", "calcB.exe", "both", "both.exe"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.spec("W1")
def test_programs_are_those_of_the_exec_directory(exe: Path) -> None:
    programs = Programs(exe)
    for _ in range(2):
        assert programs.resolve("calcA") == f"{exe}/calcA"
        assert programs.resolve("calcB") == f"{exe}/calcB.exe"
        assert programs.resolve("both") == f"{exe}/both"
    (exe / "calcA").unlink()
    with pytest.raises(Refused, match="no program 'calcA'"):
        programs.resolve("calcA")


@pytest.mark.spec("W1")
@pytest.mark.parametrize("name", ["../x", "/bin/sh", "", ".", "..", "sub/x", "a\\b", ".hidden", "c:calcA", "calcA\0"])
def test_no_trick_with_a_name_starts_anything_else(exe: Path, name: str) -> None:
    with pytest.raises(Refused) as refused:
        Programs(exe).resolve(name)
    assert refused.value.code == "bad-name"


@pytest.mark.spec("W1")
def test_what_is_not_there_or_no_file_is_unknown(exe: Path) -> None:
    (exe / "folder").mkdir()
    (exe / "dangling").symlink_to("nowhere")
    for name in ("nothing", "folder", "dangling"):
        with pytest.raises(Refused) as refused:
            Programs(exe).resolve(name)
        assert refused.value.code == "unknown-program"


@pytest.mark.spec("W1")
def test_a_link_may_lead_about_but_not_out(exe: Path, tmp_path: Path) -> None:
    (exe / "calcA-2.1").write_text("")
    (exe / "current").symlink_to("calcA-2.1")
    (exe / "out").symlink_to("/bin/sh")
    (tmp_path / "exe-other").write_text("")
    (exe / "beside").symlink_to("../exe-other")
    programs = Programs(exe)
    assert programs.resolve("current") == f"{exe}/current"
    for name in ("out", "beside"):
        with pytest.raises(Refused, match="leads out") as refused:
            programs.resolve(name)
        assert refused.value.code == "unknown-program"


def test_an_exec_directory_that_is_a_link_itself_is_followed(exe: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(exe)
    (exe / "current").symlink_to("calcA")
    assert Programs(tmp_path / "link").resolve("current") == f"{exe}/current"


def test_a_program_may_be_named_wherever_it_is(exe: Path) -> None:
    programs = Programs(None, {"sh": Path("/bin/sh")})
    assert programs.resolve("sh") == "/bin/sh"
    with pytest.raises(Refused):
        programs.resolve("calcA")
    assert Programs(exe, {"calcA": Path("/bin/sh")}).resolve("calcA") == "/bin/sh"
