"""`waku top` as a person has it: a real leader, a real terminal, and the terminal as it was afterwards."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from tests.whole.conftest import WAKU, WITHIN_S

from wakugumi.app.serve.free_ports import free_port

pytestmark = pytest.mark.spec("L8")

LOGIN = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
ALTERNATE, BACK, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """A command on a terminal of its own, which it controls as a shell's command does."""

    def __init__(self, words: list[str], home: Path, columns: int, rows: int) -> None:
        self._ours, self._its = self._open = pty.openpty()
        termios.tcsetwinsize(self._its, (rows, columns))
        self.before = termios.tcgetattr(self._its)
        self._seen = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOGIN, WAKU, *words],
            cwd=home,
            env={**{key: value for key, value in os.environ.items() if key != "COLUMNS"}, "TERM": "xterm-256color"},
            stdin=self._its,
            stdout=self._its,
            stderr=self._its,
        )

    def until(self, said: Callable[[str], bool]) -> str:
        """All that it has drawn, once this holds of it."""
        until = monotonic() + WITHIN_S
        while not said(self._seen.decode(errors="replace")):
            ready, _, _ = select.select([self._ours], [], [], max(0.0, until - monotonic()))
            assert ready, f"it did not show what was waited for, but {self._seen[-2000:]!r}"
            self._seen += os.read(self._ours, 65536)
        return self._seen.decode(errors="replace")

    def forget(self) -> None:
        self._seen = b""

    def types(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def ends(self) -> int:
        """Its exit code; the terminal is as it was."""
        self.until(lambda text: BACK in text and CURSOR in text)
        code = self.process.wait(WITHIN_S)
        assert termios.tcgetattr(self._its) == self.before
        return code

    def hang_up(self) -> None:
        """As if its window were closed."""
        for number in self._open:
            os.close(number)
        self._open = ()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


@pytest.fixture
def terminal(home: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*words: str, columns: int = 100, rows: int = 30) -> Terminal:
        opened.append(Terminal(list(words), home, columns, rows))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def without_styles(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize("how", ["q", "ctrl-c", "sigterm"])
def test_it_is_left_by_q_and_by_ctrl_c_and_the_terminal_is_as_it_was(grid, waku, terminal, how: str) -> None:
    ids = waku("submit", "fail", "--count", "2").stdout.split()
    waku("jobs", "wait", *ids)
    view = terminal("top", "--every", "0.1")
    # A slot is free again once others leave it the CPU, at the latest after 2 s (SPEC W2).
    is_free = re.compile(r"w1 +·* +0/\d ")
    seen = view.until(lambda text: all(job in text for job in ids) and bool(is_free.search(without_styles(text))))
    assert ALTERNATE in seen
    plain = without_styles(seen)
    assert f"waku top  {grid.address}" in plain
    assert re.search(r"s ago  exit    fail     w1 ", plain)
    if how == "q":
        view.types(b"xyz q")
    elif how == "ctrl-c":
        view.types(b"\x03")
    else:
        view.process.send_signal(signal.SIGTERM)
    assert view.ends() == 0


def test_a_leader_that_goes_away_is_waited_for(start, terminal) -> None:
    port = str(free_port())
    first = start("leader", port, "--memory")
    address = first.line()
    view = terminal("top", "--every", "0.1", "--leader", address)
    view.until(lambda text: "queued" in text)
    first.signal(signal.SIGKILL)
    first.end()
    view.until(lambda text: "waiting for the leader" in without_styles(text))
    start("leader", port, "--memory").line()
    view.forget()
    # A whole picture without the complaint: between two beginnings of one.
    view.until(lambda text: any("waku top" in it and "waiting" not in it for it in text.split("\x1b[H")[1:-1]))
    view.types(b"q")
    assert view.ends() == 0


def test_a_terminal_that_is_closed_ends_it(grid, terminal) -> None:
    view = terminal("top", "--every", "0.1")
    view.until(lambda text: "w1" in text)
    view.hang_up()
    view.process.wait(WITHIN_S)


def test_nobody_there_is_exit_code_5_and_the_terminal_was_never_touched(terminal) -> None:
    view = terminal("top", "--leader", "127.0.0.1:1")
    seen = view.until(lambda text: "hint:" in text)
    assert view.process.wait(WITHIN_S) == 5
    assert ALTERNATE not in seen


def test_a_small_terminal_is_filled_and_not_passed(grid, terminal) -> None:
    view = terminal("top", "--every", "0.1", columns=60, rows=12)
    seen = view.until(lambda text: "w1" in text)
    lines = without_styles(seen).splitlines()
    assert max(map(len, lines)) <= 60
    view.types(b"q")
    assert view.ends() == 0


def test_into_a_pipe_it_is_one_picture(grid, waku) -> None:
    waku("jobs", "wait", waku("submit", "calcA").stdout.strip())
    done = waku("top")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith(f"waku top  {grid.address}   up ")
    assert re.search(r"^calca +0 +0 ", done.stdout, re.MULTILINE)
    once = waku("top", "--once", "-o", "json")
    answer = json.loads(once.stdout)
    assert answer["status"]["finished_ok"] == 1
    assert answer["status"]["groups"][0]["group"] == "*"
    (row,) = answer["status"]["subjects"]
    assert (row["subject"], row["figures"]["run_time"]["count"]) == ("job.assign.calca", 1)
    assert [row["name"] for row in answer["workers"]] == ["w1"]


def test_as_json_it_is_one_line_after_the_other_until_it_is_stopped(grid, start) -> None:
    stream = start("top", "-o", "json", "--every", "0.1")
    stream.until(lambda text: text.count("\n") >= 3, stream.process.stdout)
    stream.signal(signal.SIGINT)
    code, out, err = stream.end()
    assert (code, err) == (0, "")
    ups = [json.loads(line)["status"]["up_s"] for line in out.splitlines()]
    assert ups == sorted(set(ups))
