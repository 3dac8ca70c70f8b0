"""The same job on every worker, from the command line and from Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import wakugumi
from wakugumi.errors import Refused

pytestmark = pytest.mark.spec("S5")


@pytest.fixture
def two_more(grid, start: Callable[..., object], programs: Path) -> None:
    """Beside w1, which has a slot for everything: w2, and w3, which only knows another subject."""
    for name, pattern in (("w2", "job.assign.>"), ("w3", "job.assign.risk")):
        jobs = programs.parent / f"jobs-{name}"
        words = ["--programs", programs, "--jobs", jobs, "--slots", "2", "--cpu-cap", "0.95", "--name", name]
        worker = start("worker", grid.host, grid.port, pattern, *words)
        worker.until(lambda text: "the leader speaks version" in text)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("two_more")
def test_every_worker_that_matches_answers_once(waku, programs: Path) -> None:
    (programs / "who").write_text('#!/bin/sh\necho "hello $1"\n')
    (programs / "who").chmod(0o755)
    done = waku("broadcast", "who", "--", "there")
    assert done.returncode == 0, done.stderr
    assert sorted(line.partition(" in ")[0] for line in done.stdout.splitlines() if not line.startswith(" ")) == [
        "w1: ok",
        "w2: ok",
    ]
    assert done.stdout.count("    hello there\n") == 2
    assert done.stderr == "2 workers: 2 ok, 0 failed, 0 silent\n"

    shown = json.loads(waku("broadcast", "who", "-o", "json", "--subject", "risk").stdout)
    assert shown["summary"] == {"sent": 3, "ok": 3, "failed": 0, "silent": 0, "unasked": []}
    assert {row["worker"] for row in shown["results"]} == {"w1", "w2", "w3"}
    assert sorted(waku("broadcast", "who", "-o", "quiet").stdout.split()) == ["w1", "w2"]


def test_of_a_long_output_the_end_is_shown_and_told_as_such(grid, waku, programs: Path) -> None:
    (programs / "shout").write_text("#!/bin/sh\nyes 0123456 | head -c 5000000; echo; echo the end; echo but >&2\n")
    (programs / "shout").chmod(0o755)
    done = waku("broadcast", "shout")
    assert done.returncode == 0, done.stderr
    head, note, *rest = done.stdout.splitlines()
    assert head.startswith("w1: ok")
    assert note == "    … the last 64.0 KiB of 5,000,009 bytes of stdout; -o json has all"
    assert rest[-2:] == ["    the end", "    but"], "what is whole needs no word"
    assert done.stdout.count("…") == 1
    (row,) = json.loads(waku("broadcast", "shout", "-o", "json").stdout)["results"]
    assert len(row["stdout"]) == 5_000_009


@pytest.mark.usefixtures("two_more")
def test_failures_and_silence_are_told_apart_and_make_the_exit_code(waku, programs: Path) -> None:
    (programs / "sleeps").write_text("#!/bin/sh\nexec sleep 600\n")
    (programs / "fails").write_text("#!/bin/sh\necho no >&2\nexit 7\n")
    for name in ("sleeps", "fails"):
        (programs / name).chmod(0o755)
    silent = waku("broadcast", "sleeps", "--within", "0.5")
    assert silent.returncode == 1
    assert silent.stderr == "2 workers: 0 ok, 0 failed, 2 silent\n"
    failed = waku("broadcast", "fails")
    assert failed.returncode == 1
    assert "w2: exit (exit code 7)" in failed.stdout
    assert failed.stderr == "2 workers: 0 ok, 2 failed, 0 silent\n"
    running = json.loads(waku("jobs", "list", "--state", "running", "-o", "json").stdout)
    assert running["jobs"] == [], "the silent need not go on"


def test_with_nobody_to_ask_that_is_said(grid, waku) -> None:
    waku("workers", "drain", "w1")
    done = waku("broadcast", "calcA")
    assert done.returncode == 1
    assert "no worker matches" in done.stderr


@pytest.mark.parametrize("within", ["0", "-1", "1e9", "soon"])
def test_a_time_that_is_none_is_refused(grid, waku, within: str) -> None:
    assert waku("broadcast", "calcA", "--within", within).returncode == 2


def test_each_of_several_leaders_asks_its_own_workers(grid, start: Callable[..., object], programs: Path, waku) -> None:
    other = start("leader", "0", "--memory")
    address = other.line()  # type: ignore[attr-defined]
    words = ["--programs", programs, "--jobs", programs.parent / "jobs-x", "--cpu-cap", "0.95", "--name", "far"]
    worker = start("worker", *address.rsplit(":", 1), *words)
    worker.until(lambda text: "the leader speaks version" in text)  # type: ignore[attr-defined]
    done = waku("broadcast", "calcA", "--leader", f"{grid.address},{address}", "-o", "quiet")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["far", "w1"]
    away = waku("broadcast", "calcA", "--leader", f"{grid.address},127.0.0.1:1")
    assert away.returncode == 1
    assert "not asked: the workers of 127.0.0.1:1" in away.stderr
    with wakugumi.Client(f"{grid.address},{address}") as client:
        for _ in range(2):
            results, summary = client.broadcast("calcA", job_id="both")
            assert (summary.sent, summary.ok) == (2, 2)
            assert {result.item for result in results} == {"far", "w1"}


@pytest.mark.usefixtures("two_more")
def test_python_gets_each_result_and_the_summary(grid) -> None:
    with wakugumi.Client(grid.address) as client:
        results, summary = client.broadcast("calcA", args=["x"])
        assert (summary.sent, summary.ok, summary.waiting) == (2, 2, 0)
        assert {result.item for result in results} == {"w1", "w2"} == {result.worker for result in results}
        with pytest.raises(Refused, match="within_s"):
            client.broadcast("calcA", within_s=0)


@pytest.mark.usefixtures("two_more")
def test_a_broadcast_under_an_id_of_its_own_runs_once_however_often_it_is_made(grid, waku, programs: Path) -> None:
    marks = programs.parent / "marks"
    (programs / "marks").write_text(f"#!/bin/sh\necho x >> {marks}\n")
    (programs / "marks").chmod(0o755)
    for _ in range(3):
        with wakugumi.Client(grid.address) as client:
            results, summary = client.broadcast("marks", job_id="once")
            assert summary.ok == len(results) == 2
    assert marks.read_text() == "x\nx\n"
