"""A worker is killed together with its guardian: what it left running ends before the same job starts again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.kit.eventually import eventually_blocking
from tests.kit.form import FORM_HEADERS, form
from tests.kit.processes import has_ended, kill_together
from tests.whole.conftest import WITHIN_S, Running

from wakugumi.adapters.programs.process_tree import children_of

TANGLE = """#!/bin/sh
# Starts, with its first run, what does not want to end; its second run tells which of these live still.
cd "$1"
if [ -e first ]; then
  for pid in $(cat pids); do grep -qs '^State:.[^ZX]' "/proc/$pid/status" && echo "$pid" >> alive; done
  echo second >> runs
  exit 0
fi
touch first
echo $$ >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
setsid sh -c 'trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 0.05; done' &
setsid env -i "PATH=$PATH" sh -c 'echo $$ >> pids; cd /; exec sleep 1000 > /dev/null 2>&1' &
setsid env -i "PATH=$PATH" sh -c '(setsid sh -c "echo \\$\\$ >> pids; exec sleep 1000" &)' &
wait
"""
COUNT = 5
"""Processes of a tangle that tell their ids."""


@pytest.fixture
def place(programs: Path) -> Iterator[Path]:
    """Where the program keeps its notes. What a failed test leaves running is ended."""
    program = programs / "tangle"
    program.write_text(TANGLE)
    program.chmod(0o755)
    notes = programs.parent / "notes"
    notes.mkdir()
    yield notes
    for pid in pids_in(notes):
        if not has_ended(pid):
            os.kill(pid, signal.SIGKILL)


def pids_in(notes: Path) -> list[int]:
    file = notes / "pids"
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def began(notes: Path) -> list[int]:
    """The ids of all that the first run has started."""
    eventually_blocking(lambda: len(pids_in(notes)) == COUNT)
    return pids_in(notes)


def nothing_lived_on(notes: Path, pids: Sequence[int]) -> None:
    """Seen by the second run of the job itself."""
    eventually_blocking((notes / "runs").exists)
    assert not (notes / "alive").exists(), (notes / "alive").read_text()
    assert all(map(has_ended, pids))


@pytest.mark.spec("W3")
@pytest.mark.user_dependent
def test_the_next_worker_on_the_folder_ends_what_was_left_before_the_job_starts_again(
    start, waku, programs: Path, place: Path
) -> None:
    leader = start("leader", "0")
    address = leader.line()
    words = ["worker", *address.split(":"), "--programs", programs, "--jobs", programs.parent / "jobs"]
    first = start(*words)
    done = waku("submit", "tangle", "--leader", address, "--", place)
    assert done.returncode == 0, done.stderr
    pids = began(place)
    stranger = subprocess.Popen(["sleep", "1000"], cwd=programs.parent / "jobs")
    try:
        kill_together(first.process.pid)
        assert not any(map(has_ended, pids)), "nobody was left to end them"
        second = start(*words)
        nothing_lived_on(place, pids)
        assert "processes from before this worker was restarted" in second.until(lambda text: "restarted" in text)
        assert stranger.poll() is None, "whoever merely works in the folder is none of ours"
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.spec("W3", "N4")
def test_the_next_node_on_the_folder_does_so_too(start, programs: Path, place: Path) -> None:
    def node() -> tuple[Running, str]:
        command = f"tangle {place}"
        folders = ["--programs", programs, "--jobs", programs.parent / "jobs"]
        running = start("node", "--http", "0", "--lines", "off", "--command", command, *folders)
        return running, f"{running.line()}/run/one"

    body = form(b"a")
    first, url = node()
    caller = HTTPConnection(url.split("/")[2], timeout=WITHIN_S)
    caller.request("POST", "/run/one", body, FORM_HEADERS)
    pids = began(place)
    kill_together(first.process.pid)
    caller.close()
    assert not any(map(has_ended, pids))
    _, url = node()
    with urlopen(Request(url, body, FORM_HEADERS), timeout=WITHIN_S) as answer:
        assert answer.headers["Waku-Status"] == "OK"
    nothing_lived_on(place, pids)


EMBEDDED = """
import os, sys
import wakugumi
with wakugumi.local(slots=1, programs=sys.argv[1]) as grid:
    if sys.argv[2] == "tangle":
        job = grid.submit("tangle", args=[sys.argv[3]])
        print("begun", flush=True)
        sys.stdin.readline()
        os._exit(0) if sys.argv[4] == "dies" else None
    else:
        print(grid.run("calcA").stdout, flush=True)
        sys.stdin.readline()
"""


@pytest.mark.spec("W3")
@pytest.mark.parametrize("parent", ["lives", "dies"])
def test_what_an_embedded_grid_left_is_ended_by_its_parent_or_by_the_next_one(
    home: Path, programs: Path, place: Path, parent: str
) -> None:
    def script(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", EMBEDDED, str(programs), *words]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def folders() -> list[Path]:
        return list(home.parent.glob("waku-*"))

    with script("tangle", str(place), parent) as first:
        pids = began(place)
        (guardian,) = children_of(first.pid)
        assert len(folders()) == 1
        kill_together(guardian)
        assert not any(map(has_ended, pids))
        if parent == "dies":
            first.kill()
        first.communicate("\n", timeout=WITHIN_S)
    if parent == "dies":
        with script("calcA") as second:
            eventually_blocking(lambda: all(map(has_ended, pids)) and len(folders()) == 1)
            second.communicate("\n", timeout=WITHIN_S)
    assert all(map(has_ended, pids))
    assert folders() == []
