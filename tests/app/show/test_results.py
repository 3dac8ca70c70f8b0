"""How are the results of a few jobs shown, as rows, ids or JSON?"""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from wakugumi.app.show.results import show_results
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import FAILED, JobResult
from wakugumi.wire.messages.references import BlobRef


def archive(*names: str) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as file:
        for name in names:
            file.writestr(name, "x")
    return raw.getvalue()


FILES = archive("b", "a")
FINE = Result(
    JobResult("1", stdout="first\nsecond\n", exit_code=0, run_s=1.5, worker="mill", output_archive=FILES),
    "one",
    leader="a:1",
)
BAD = Result(
    JobResult("2", status=FAILED, stderr="broken\n", exit_code=7, reason="exit", run_s=0.25), "two", leader="b:1"
)
DEAD = Result(JobResult("3", status=FAILED, reason="dead"), "three")


def shown(capsys: pytest.CaptureFixture[str], how: str, *results: Result, with_leader: bool = False) -> str:
    show_results(results, how, with_leader=with_leader)
    return capsys.readouterr().out


def test_a_row_has_the_first_line_of_what_explains_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    titles, *rows = [line.split() for line in shown(capsys, "table", FINE, BAD, DEAD).splitlines()]
    assert titles == ["job", "status", "exit", "time", "output"]
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        ("one", "ok", "0", "first"),
        ("two", "failed", "7", "broken"),
        ("three", "failed", "-", "dead"),
    ]
    assert rows[2][3] == "-", "the job never ran"


def test_a_long_line_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "table", Result(JobResult("1", stdout="x" * 1000, exit_code=0), "one"))
    assert out.count("x") <= 201, "with the one of `exit`"


def test_with_several_leaders_each_result_names_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    titles, *rows = [line.split() for line in shown(capsys, "table", FINE, BAD, DEAD, with_leader=True).splitlines()]
    assert titles[-2:] == ["leader", "output"]
    assert [row[-2] for row in rows] == ["a:1", "b:1", "-"]
    records = json.loads(shown(capsys, "json", FINE, DEAD, with_leader=True))
    assert [record["leader"] for record in records] == ["a:1", ""]


def test_quiet_is_the_ids_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "quiet", FINE, BAD) == "one\ntwo\n"
    assert shown(capsys, "quiet") == ""


def test_json_has_all_of_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    fine, bad = json.loads(shown(capsys, "json", FINE, BAD))
    assert fine == {
        "job": "one",
        "status": "OK",
        "exit_code": 0,
        "reason": "",
        "run_s": 1.5,
        "worker": "mill",
        "stdout": "first\nsecond\n",
        "stderr": "",
        "files": ["a", "b"],
        "archive_bytes": len(FILES),
    }
    assert (bad["reason"], bad["files"], bad["stderr"]) == ("exit", [], "broken\n")


def test_files_that_are_elsewhere_are_not_fetched_to_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = Result(
        JobResult("1", exit_code=0, archive_blob=BlobRef("0" * 64, 10**9)), "one", place="http://127.0.0.1:1"
    )
    (record,) = json.loads(shown(capsys, "json", elsewhere))
    assert (record["files"], record["archive_bytes"]) == (None, 10**9)
