"""Which file a user means by a program, and what it is called in a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.work.programs import exec_name, find
from wakugumi.errors import ConfigError


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the second folder of the PATH; in the first is a file of that name that cannot be run."""
    for folder, mode in (("one", 0o644), ("two", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text("#!/bin/sh\n")
        (tmp_path / folder / "tool").chmod(mode)
    monkeypatch.setenv("PATH", f"{tmp_path / 'one'}:{tmp_path / 'two'}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "two" / "tool"


def test_a_name_is_looked_for_on_the_path(tool: Path) -> None:
    assert find("tool") == str(tool)


def test_a_path_is_taken_as_it_is_and_links_are_not_followed(tool: Path, tmp_path: Path) -> None:
    assert find("two/tool") == str(tool)
    (tmp_path / "link").symlink_to(tool)
    assert find("./link") == str(tmp_path / "link")


@pytest.mark.parametrize("program", ["one/tool", "none", "./none", "two", "one"])
def test_what_cannot_be_run_is_refused(tool: Path, program: str) -> None:
    with pytest.raises(ConfigError):
        find(program)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/x/calcA", "calcA"),
        ("/x/price.py", "price.py"),
        ("/x/.hidden", "hidden"),
        ("/x/a:b c", "a_b_c"),
        ("/x/:", "program"),
    ],
)
def test_a_program_is_called_by_its_name_made_fit(path: str, name: str) -> None:
    assert exec_name(path) == name
