"""Jobs that used up their attempts, from the command line: found, looked at, requeued, dropped."""

from __future__ import annotations

import json
import os
import socket

import pytest
from tests.kit.eventually import eventually_blocking

from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import JobResult, write_credit
from wakugumi.wire.messages.payload import encode

ATTEMPTS = 5
DEADLINE_S = 60.0


def one_attempt(grid, result: JobResult | None = None) -> None:
    """An old worker that takes one job and is lost with it, or answers with this result."""
    with socket.create_connection((grid.host, int(grid.port)), timeout=DEADLINE_S) as peer:
        peer.sendall(fr.encode(fr.HELLO_WORKER, os.urandom(16)) + fr.encode(fr.CREDIT, payload=write_credit(1)))
        decoder = fr.Decoder()
        decoder.trust()
        frames: list[fr.Frame] = []
        while not frames:
            frames = list(decoder.feed(peer.recv(65536)))
        (assigned,) = frames
        assert assigned.type == fr.ASSIGN_JOB
        if result is not None:
            peer.sendall(fr.encode(fr.ACK_JOB, corr_id=assigned.msg_id, payload=encode(result)))
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(65536) == b""


def dead(waku) -> dict[str, str]:
    """Their ids and why."""
    return {row["job"]: row["reason"] for row in json.loads(waku("dead", "list", "-o", "json").stdout)["dead"]}


def submitted(waku, *words: str) -> str:
    done = waku("submit", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.spec("L3")
def test_a_dead_job_is_listed_shown_requeued_and_then_done(grid, waku) -> None:
    waku("workers", "drain", "w1")
    job = submitted(waku, "calcA", "--", "again")
    for _ in range(ATTEMPTS - 1):
        one_attempt(grid)
    one_attempt(grid, JobResult(job, status="FAILED", reason="disk", stderr="no room\nat all\n"))
    waited = waku("jobs", "wait", job)
    assert waited.returncode == 1
    assert dead(waku) == {job: "disk"}

    shown = json.loads(waku("dead", "show", job, "-o", "json").stdout)
    assert shown["letter"]["program"] == "calcA"
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["worker-lost"] * (ATTEMPTS - 1) + ["disk"]
    assert [attempt["output"] for attempt in shown["attempts"]] == [""] * (ATTEMPTS - 1) + ["no room\nat all\n"]
    assert all(0 <= attempt["ended_s"] <= attempt["began_s"] for attempt in shown["attempts"])
    assert "    at all" in waku("dead", "show", job).stdout

    waku("workers", "resume", "w1")
    assert waku("dead", "requeue", "--reason", "ack-late", "-o", "quiet").stdout == "0\n"
    requeued = waku("dead", "requeue", job)
    assert (requeued.returncode, requeued.stdout) == (0, "1 job requeued\n"), requeued.stderr
    done = waku("jobs", "wait", job, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["stdout"] == "calcA again\n"
    assert dead(waku) == {}
    assert waku("dead", "show", job).returncode == 3


@pytest.mark.spec("L3")
def test_dead_jobs_are_chosen_by_pattern_and_reason_and_dropped(grid, waku) -> None:
    waku("workers", "drain", "w1")
    jobs = []
    for subject in ("eu.one", "us.two"):
        jobs.append(submitted(waku, "calcA", "--subject", subject))
        for _ in range(ATTEMPTS):
            one_attempt(grid)
    eu, us = jobs
    eventually_blocking(lambda: len(dead(waku)) == 2)
    assert set(dead(waku).values()) == {"worker-lost"}
    assert waku("dead", "list", "--pattern", "job.assign.eu.>", "-o", "quiet").stdout == f"{eu}\n"
    assert waku("dead", "drop", "--pattern", "job.assign.eu.>", "--reason", "ack-late").stdout == "0 jobs dropped\n"
    assert waku("dead", "drop", "--pattern", "job.assign.eu.>").stdout == "1 job dropped\n"
    assert dead(waku).keys() == {us}
    gone = waku("dead", "drop", eu, us)
    assert (gone.returncode, gone.stdout) == (3, "1 job dropped\n")
    assert f"not among the dead letters: {eu}" in gone.stderr
    assert dead(waku) == {}


@pytest.mark.parametrize("words", [("show",), ("list",), ("requeue",), ("drop",)])
def test_an_unknown_id_is_exit_code_3(grid, waku, words: tuple[str, ...]) -> None:
    done = waku("dead", *words, "nobody")
    assert done.returncode == 3
    assert "nobody" in done.stderr or "unknown" in done.stderr or "does not know" in done.stderr


@pytest.mark.spec("W6")
def test_a_program_that_fails_is_run_again_as_often_as_the_job_asks(grid, waku, programs, home) -> None:
    (programs / "flaky").write_text(f'#!/bin/sh\necho run >> "{home}/runs"\n[ "$(wc -l < "{home}/runs")" -ge "$1" ]\n')
    (programs / "flaky").chmod(0o755)
    runs = home / "runs"
    assert waku("run", "flaky", "--retries", "1", "--", "2").returncode == 0
    assert len(runs.read_text().splitlines()) == 2
    runs.unlink()
    assert waku("run", "flaky", "--", "2").returncode == 1
    assert len(runs.read_text().splitlines()) == 1
    runs.unlink()
    job = submitted(waku, "flaky", "--retries", "1", "--", "3")
    assert waku("jobs", "wait", job).returncode == 1
    assert len(runs.read_text().splitlines()) == 2, "then its exit is the answer"
    assert dead(waku) == {}
