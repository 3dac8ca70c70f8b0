"""Where results go, and which are there already."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from wakugumi.app.work.map.output import RECORD, OutFolder, Record
from wakugumi.errors import ConfigError, Refused
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import JobResult


def archive(**files: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, text in files.items():
            packed.writestr(name.replace("__", "/").replace("_txt", ".txt"), text)
    return data.getvalue()


def result(status: str = "OK", **files: str) -> Result:
    packed = archive(**files) if files else None
    return Result(JobResult("id", status=status, stdout="said\n", stderr="warned\n", output_archive=packed), "id")


def record(key: str = "k", status: str = "OK") -> Record:
    return Record(key=key, job="id", input="in", args=[], status=status, exit_code=0, reason="", run_s=0.1, worker="w")


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_result_is_a_folder_with_what_was_made_and_said(tmp_path: Path) -> None:
    folder = OutFolder(str(tmp_path / "out"))
    folder.put("a", result(made_txt="1", below__more_txt="2"), record())
    folder.close()
    found = tree(tmp_path / "out")
    assert json.loads(found.pop("a/.waku.json"))["key"] == "k"
    assert found == {"a/made.txt": "1", "a/below/more.txt": "2", "a/stdout.txt": "said\n", "a/stderr.txt": "warned\n"}


def test_a_result_replaces_an_earlier_one_whole(tmp_path: Path) -> None:
    folder = OutFolder(str(tmp_path))
    folder.put("a", result(old_txt="1"), record("k1", "FAILED"))
    assert not folder.is_ok("a", "k1")
    folder.put("a", result(new_txt="2"), record("k2"))
    assert folder.is_ok("a", "k2")
    assert not folder.is_ok("a", "k1")
    folder.close()
    assert "a/old.txt" not in tree(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_results_may_lie_in_folders(tmp_path: Path) -> None:
    folder = OutFolder(str(tmp_path))
    folder.put("x/y/a", result(), record())
    assert folder.is_ok("x/y/a", "k")
    folder.close()


def test_a_program_may_make_a_file_called_like_ours(tmp_path: Path) -> None:
    folder = OutFolder(str(tmp_path))
    folder.put("a", result(stdout_txt="its own"), record())
    folder.close()
    assert (tmp_path / "a" / "stdout.txt").read_text() == "its own"
    assert (tmp_path / "a" / "stdout.captured.txt").read_text() == "said\n"


def test_an_archive_that_cannot_be_trusted_is_a_failure(tmp_path: Path) -> None:
    folder = OutFolder(str(tmp_path / "out"))
    bad = Result(JobResult("id", output_archive=archive(**{"..__evil": "1"})), "id")
    kept = folder.put("a", bad, record())
    assert (kept.status, kept.reason) == ("FAILED", "bad-result")
    assert not folder.is_ok("a", "k")
    folder.close()
    assert not (tmp_path / "evil").exists()


def test_what_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("also mine")
    (tmp_path / "empty").mkdir()
    folder = OutFolder(str(tmp_path))
    for out in ("mine", "file"):
        with pytest.raises(ConfigError, match="is no result of a map"):
            folder.check_free(out)
        with pytest.raises(Refused, match="cannot write the result of"):
            folder.put(out, result(), record())
    folder.check_free("empty")
    folder.put("empty", result(), record())
    with pytest.raises(ConfigError, match="is no result of a map"):
        folder.check_free("empty/inside")
    folder.close()
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "also mine"


def test_a_folder_is_held_by_one_map_at_a_time(tmp_path: Path) -> None:
    first = OutFolder(str(tmp_path))
    with pytest.raises(ConfigError, match="another map is writing"):
        OutFolder(str(tmp_path))
    first.close()
    OutFolder(str(tmp_path)).close()


def test_remains_of_a_killed_map_are_removed(tmp_path: Path) -> None:
    half = tmp_path / ".waku-tmp" / "7"
    half.mkdir(parents=True)
    (half / RECORD).write_text("{}")
    OutFolder(str(tmp_path)).close()
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_cannot_be_read_counts_as_no_result(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / RECORD).write_text("{torn")
    folder = OutFolder(str(tmp_path))
    assert not folder.is_ok("a", "k")
    folder.put("a", result(), record())
    assert folder.is_ok("a", "k")
    folder.close()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write results to"):
        OutFolder(str(tmp_path / "file" / "out"))
