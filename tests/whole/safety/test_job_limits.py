"""Limits that a worker, a node and `up` have for every job, and the degree of separation: as a user sees both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.whole.conftest import Running, Waku

PROGRAMS = {
    "spin": "#!/bin/sh\nwhile :; do :; done\n",
    "fork": "#!/bin/sh\ni=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; wait\n",
    "hold": "#!/bin/sh\nexec head -c 500M /dev/zero | tail -c 500M\n",
    "fine": "#!/bin/sh\necho fine\n",
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def a_worker(start, leader: str, programs: Path, *words: str) -> Running:
    folders = ["--programs", programs, "--jobs", programs.parent / "jobs"]
    worker = start("worker", *leader.split(":"), *folders, "--slots", "2", "--cpu-cap", "off", *words)
    worker.until(lambda text: "the leader speaks version" in text)
    return worker


@pytest.mark.spec("W8")
def test_a_workers_limits_hold_for_every_job_and_the_message_says_whose_they_are(
    start, waku: Waku, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = start("leader", "0", "--memory").line()
    monkeypatch.setenv("WAKU_LEADER", leader)
    monkeypatch.setenv("WAKU_JOB_CPU", "0.5")
    worker = a_worker(start, leader, programs, "--job-memory", "100MB", "--job-processes", "9")
    first = worker.until(lambda text: "\n" in text).splitlines()[0]
    assert "job-memory=100000000 job-processes=9 job-cpu=0.5" in first
    for program, reason, flag in (
        ("spin", "cpu-limit", "--job-cpu"),
        ("fork", "process-limit", "--job-processes"),
        ("hold", "memory-limit", "--job-memory"),
    ):
        done = waku("run", program)
        assert done.returncode != 0
        assert f"this machine's limit for every job ({flag})" in done.stderr, (reason, done.stderr)
    assert waku("run", "fine").stdout == "fine\n"


@pytest.mark.spec("O1")
def test_a_chosen_degree_of_separation_is_in_the_first_line(start, programs: Path) -> None:
    leader = start("leader", "0", "--memory").line()
    flag, words = (
        ("--as-root", "run-as=root: whoever may send jobs is root on this machine (--as-root)")
        if os.geteuid() == 0
        else ("--same-user", "run-as=same-user: programs reach all that this user can (--same-user)")
    )
    worker = a_worker(start, leader, programs, flag)
    assert words in worker.until(lambda text: "\n" in text).splitlines()[0]


@pytest.mark.spec("W8")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--job-memory", "much"], "--job-memory is 'much', which is no size"),
        (["--job-memory", "0"], "--job-memory is '0', and must be more than nothing"),
        (["--job-processes", "0"], "--job-processes is 0, and must be 1 to"),
        (["--job-cpu", "0"], "--job-cpu is 0, and must be 0.1 to"),
    ],
)
@pytest.mark.parametrize("role", ["worker", "node", "up"])
def test_a_limit_that_makes_no_sense_is_refused(
    waku: Waku, programs: Path, role: str, words: list[str], complaint: str
) -> None:
    where = ["127.0.0.1", "1"] if role == "worker" else []
    done = waku(role, *where, "--programs", programs, *words)
    assert done.returncode == 2
    assert complaint in done.stderr
