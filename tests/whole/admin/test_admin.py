"""Submitting, asking, cancelling, draining, from the command line; in three forms of output."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.kit.eventually import eventually_blocking

"""Looks at something that takes a moment; each costs a process, so this is far more than enough."""


def show(waku, job: str) -> dict[str, object]:
    return json.loads(waku("jobs", "show", job, "-o", "json").stdout)


def wait_for_state(waku, job: str, state: str) -> None:
    eventually_blocking(lambda: show(waku, job)["state"] == state)


@pytest.mark.spec("K1")
def test_a_submitted_job_is_waited_for_by_another_process(grid, waku, inputs: Path, home: Path) -> None:
    handed_in = waku("submit", "letters", "--file", inputs / "12.txt", "--id", "monday-run", "--", "12.txt")
    assert (handed_in.returncode, handed_in.stdout) == (0, "monday-run\n"), handed_in.stderr
    done = waku("jobs", "wait", "monday-run", "--out", "kept", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["stdout"] == "read 12.txt\n"
    assert (home / "kept" / "monday-run" / "letters.txt").read_text() == "bc\n"


@pytest.mark.spec("L6")
def test_the_same_id_is_the_same_job_and_another_request_is_refused(grid, waku) -> None:
    assert waku("submit", "calcA", "--id", "one", "--", "x").returncode == 0
    assert waku("jobs", "wait", "one").returncode == 0
    assert waku("submit", "calcA", "--id", "one", "--", "x").returncode == 0
    assert show(waku, "one")["attempts"] == 1
    other = waku("submit", "calcA", "--id", "one", "--", "y")
    assert other.returncode == 2
    assert "this job id was used for another request" in other.stderr
    assert "hint: one job id is one request" in other.stderr


def test_many_jobs_are_handed_in_at_once(grid, waku) -> None:
    done = waku("submit", "calcA", "--count", "1500", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert len(set(json.loads(done.stdout)["jobs"])) == 1500
    assert json.loads(waku("status", "-o", "json").stdout)["submitted"] == 1500


def test_a_failed_job_is_exit_code_1(grid, waku) -> None:
    job = waku("submit", "fail").stdout.strip()
    done = waku("jobs", "wait", job)
    assert done.returncode == 1
    assert "it went wrong" in done.stdout


def test_waiting_has_an_end_with_exit_code_6(grid, waku) -> None:
    waku("submit", "forever", "--id", "one")
    done = waku("jobs", "wait", "one", "--wait", "0.1")
    assert done.returncode == 6
    assert "hint: wait longer, or ask `waku jobs explain ID`" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "show", "nobody"),
        ("jobs", "story", "nobody"),
        ("jobs", "explain", "nobody"),
        ("jobs", "wait", "nobody"),
        ("workers", "drain", "nobody"),
        ("workers", "resume", "nobody"),
    ],
)
def test_what_is_not_there_is_exit_code_3(grid, waku, words: tuple[str, ...]) -> None:
    done = waku(*words)
    assert done.returncode == 3
    assert done.stdout == ""
    assert "hint: list " in done.stderr


def test_nobody_there_is_exit_code_5(start) -> None:
    commands = (("status",), ("jobs", "list"), ("submit", "calcA"), ("run", "calcA"))
    # All at once, because each waits a while for a leader to come.
    for words, running in [(words, start(*words, "--leader", "127.0.0.1:1")) for words in commands]:
        code, _, said = running.end()
        assert code == 5, words
        assert "127.0.0.1:1" in said
        assert "hint: start one with `waku up`" in said


def test_an_address_that_is_none_is_exit_code_2(waku) -> None:
    done = waku("status", "--leader", "http://grid/")
    assert done.returncode == 2
    assert "hint: write host:port" in done.stderr


@pytest.mark.spec("L10")
def test_jobs_are_cancelled_by_id_client_and_pattern(grid, waku) -> None:
    waku("submit", "forever", "--id", "one")
    waku("submit", "forever", "--id", "two", "--client-id", "other")
    waku("submit", "calcA", "--id", "three", "--subject", "nowhere.special")
    wait_for_state(waku, "two", "running")
    assert waku("jobs", "cancel", "one").stdout == "1 job cancelled\n"
    assert waku("jobs", "cancel", "--client", "other", "-o", "quiet").stdout == "1\n"
    answer = json.loads(waku("jobs", "cancel", "--pattern", "job.assign.nowhere.>", "-o", "json").stdout)
    assert answer["unknown"] == []
    for job in ("one", "two"):
        wait_for_state(waku, job, "failed")
    unknown = waku("jobs", "cancel", "nobody")
    assert unknown.returncode == 3
    assert "nobody" in unknown.stderr


@pytest.mark.spec("L10")
def test_a_drained_worker_gets_nothing_until_it_is_resumed(grid, waku) -> None:
    assert json.loads(waku("workers", "drain", "w1", "-o", "json").stdout)["state"] == "draining"
    job = waku("submit", "calcA").stdout.strip()
    assert show(waku, job)["state"] == "queued"
    why = waku("jobs", "explain", job)
    assert why.stdout.startswith("queued: ")
    assert "drain" in why.stdout
    assert waku("workers", "resume", "w1").returncode == 0
    assert waku("jobs", "wait", job).returncode == 0


def test_explain_says_that_nobody_listens(grid, waku) -> None:
    grid.worker.signal(signal.SIGKILL)
    grid.worker.end()
    job = waku("submit", "calcA").stdout.strip()
    assert "no worker" in waku("jobs", "explain", job).stdout


def test_the_story_tells_what_happened(grid, waku) -> None:
    job = waku("submit", "calcA").stdout.strip()
    waku("jobs", "wait", job)
    story = json.loads(waku("jobs", "story", job, "-o", "json").stdout)["story"]
    assert len(story) >= 3
    assert "submitted" in story[0]["what"]
    assert len(waku("jobs", "story", job, "-o", "quiet").stdout.splitlines()) == len(story)


def test_lists_come_as_table_json_and_ids(grid, waku) -> None:
    ids = waku("submit", "calcA", "--count", "3").stdout.split()
    waku("jobs", "wait", *ids)
    table = waku("jobs", "list").stdout.splitlines()
    assert table[0].split() == ["job", "state", "program", "client", "tries", "age", "worker", "reason"]
    assert [line.split()[:3] for line in table[1:]] == [[job, "ok", "calcA"] for job in ids]
    assert waku("jobs", "list", "-o", "quiet").stdout.split() == ids
    answer = json.loads(waku("jobs", "list", "--limit", "2", "-o", "json").stdout)
    assert [row["job"] for row in answer["jobs"]] == ids[1:]
    assert answer["total"] == 3
    assert waku("jobs", "list", "--state", "failed", "-o", "quiet").stdout == ""
    wrong = waku("jobs", "list", "--state", "happy")
    assert wrong.returncode == 2
    workers = waku("workers", "list").stdout.splitlines()
    assert workers[1].split()[1:3] == ["w1", "ready"]
    assert waku("workers", "list", "-o", "quiet").stdout.split() == [workers[1].split()[0]]
    assert waku("status").stdout.startswith("up ")
    assert waku("status", "-o", "quiet").stdout == "ok\n"
    by_environment = waku("status", env={**os.environ, "WAKU_OUTPUT": "json"})
    assert json.loads(by_environment.stdout)["workers"] == 1


def test_a_reader_that_has_had_enough_is_no_error(grid, waku, start) -> None:
    waku("submit", "calcA", "--count", "100")
    listing = start("jobs", "list")
    assert listing.process.stdout is not None
    listing.process.stdout.close()
    listing.process.stdout = open(os.devnull, "rb")  # noqa: SIM115 -- closed with the process
    _, _, said = listing.end()
    assert said == ""
