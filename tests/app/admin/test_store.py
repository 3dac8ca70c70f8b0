"""`waku store …`: how is a journal's state shown, sound or damaged?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.kit.damaged_journal import FILE, change, write_ten

from wakugumi.app.cli import call
from wakugumi.errors import EXIT_JOB_FAILED, EXIT_USAGE


@pytest.fixture
def folder(tmp_path: Path) -> str:
    write_ten(tmp_path)
    return str(tmp_path)


def damage(folder: str) -> None:
    change(Path(folder), b"payload of 005", b"payload of XXX")


def test_a_sound_journal_is_shown_in_three_forms(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["store", "check", folder]) == 0
    rows = dict(line.rstrip().split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert (rows["leaves"].strip(), rows["leader"].strip()) == ("10", "none runs")
    assert call(["store", "check", "--state", folder, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["leaves"] == 10
    assert call(["store", "check", folder, "-o", "quiet"]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_damage_is_told_with_the_way_out_and_an_exit_code(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage(folder)
    assert call(["store", "check", folder]) == EXIT_JOB_FAILED
    err = capsys.readouterr().err
    assert err.startswith("damaged: ")
    assert f"waku store repair {folder}" in err
    assert call(["store", "check", folder, "-o", "quiet"]) == EXIT_JOB_FAILED
    assert capsys.readouterr().out == "damaged\n"


def test_a_repair_keeps_what_is_readable_and_names_what_is_lost(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(folder)
    assert call(["store", "repair", folder]) == 0
    told = capsys.readouterr()
    kept, jobs, *ids = told.out.splitlines()
    assert kept == "kept 9 leaves, lost 1 leaf (5)"
    assert jobs.endswith("lost that other leaves mention:")
    assert "00000000-0000-0000-0000-000000000005" in ids
    aside = told.err.partition("the damaged journal is now ")[2].partition("\n")[0]
    assert Path(aside).exists()
    assert call(["store", "repair", folder]) == 0
    assert "is sound" in capsys.readouterr().out
    assert len(list(Path(folder).glob(f"{FILE}*"))) >= 2, "the damaged one stays"


def test_a_copy_is_made_once(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy.sqlite"
    assert call(["store", "backup", folder, str(copy), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(copy), "bytes": copy.stat().st_size}
    before = copy.read_bytes()
    assert call(["store", "backup", folder, str(copy)]) == EXIT_USAGE
    assert copy.read_bytes() == before


def test_a_folder_is_named_once(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["store", "check", folder, "--state", folder]) == EXIT_USAGE
    assert "named twice" in capsys.readouterr().err
