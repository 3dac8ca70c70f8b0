"""A program that takes too long: it runs once, and that is its job's answer, whoever asked for it (SPEC W6)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.form import FORM_HEADERS, form

import wakugumi

pytestmark = pytest.mark.spec("W6")

Runs = Callable[[], int]


@pytest.fixture
def runs(grid, programs: Path, home: Path) -> Runs:
    """A program `hang` that leaves a mark and hangs. Tells how often it began."""
    marks = home / "marks"
    (programs / "hang").write_text(f"#!/bin/sh\necho began >> {marks}\nexec sleep 1000\n")
    (programs / "hang").chmod(0o755)
    return lambda: marks.read_text().count("began") if marks.exists() else 0


def test_run_ends_with_6_and_the_program_ran_once(waku, runs: Runs) -> None:
    done = waku("run", "hang", "--timeout", "0.3")
    assert (done.returncode, runs()) == (6, 1), done.stderr
    assert "took longer than its timeout of 0.3 s\n" in done.stderr
    assert "the job failed: timeout" in done.stderr
    assert json.loads(waku("dead", "list", "-o", "json").stdout)["dead"] == []


def test_with_retries_it_runs_again_and_then_that_is_its_answer(waku, runs: Runs) -> None:
    done = waku("run", "hang", "--timeout", "0.3", "--retries", "1")
    assert (done.returncode, runs()) == (6, 2), done.stderr
    assert "the job failed: timeout" in done.stderr


def test_map_names_the_reason(waku, runs: Runs, inputs: Path) -> None:
    done = waku("map", "hang", inputs / "1.txt", inputs / "2.txt", "--timeout", "0.3")
    assert (done.returncode, runs()) == (1, 2), done.stderr
    assert "failed: 1.txt (timeout)" in done.stderr
    assert "2 inputs failed by timeout: give the job more time" in done.stderr


def test_who_waits_for_a_job_hears_it(waku, runs: Runs) -> None:
    job = waku("submit", "hang", "--timeout", "0.3").stdout.strip()
    done = waku("jobs", "wait", job, "-o", "json")
    (row,) = json.loads(done.stdout)
    assert (done.returncode, row["status"], row["reason"], runs()) == (1, "FAILED", "timeout", 1)


def test_a_part_of_a_broadcast_is_answered_so(waku, runs: Runs) -> None:
    done = waku("broadcast", "hang", "--timeout", "0.3")
    assert (done.returncode, runs()) == (1, 1), done.stderr
    assert done.stdout.startswith("w1: timeout")
    assert done.stderr == "1 worker: 0 ok, 1 failed, 0 silent\n"


def test_python_and_http_tell_it(grid, runs: Runs) -> None:
    with wakugumi.Client(grid.address) as client:
        result = client.run("hang", timeout_s=0.3)
    assert (result.ok, result.reason, runs()) == (False, "timeout", 1)
    ask = urllib.request.Request(
        f"http://{grid.address}/dispatch/hanging?program=hang&timeout=0.3",
        form(b"in"),
        FORM_HEADERS,
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(ask, timeout=60)
    with caught.value as problem:
        assert (problem.code, json.load(problem)["code"], runs()) == (504, "timeout", 2)
