"""`waku run`: one job, here and on a grid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def test_its_output_is_the_output_and_its_exit_code_the_exit_code(waku) -> None:
    done = waku("run", "sh", "--", "-c", "echo to stdout; echo to stderr >&2; exit 42")
    assert (done.returncode, done.stdout, done.stderr) == (42, "to stdout\n", "to stderr\n")


def test_what_follows_the_dashes_is_the_programs(waku) -> None:
    done = waku("run", "/bin/echo", "--", "--help", "-o", "json", "--", "--leader=x")
    assert (done.returncode, done.stdout) == (0, "--help -o json -- --leader=x\n")


def test_a_flag_of_ours_gives_the_same_as_none(waku) -> None:
    assert waku("run", "/bin/echo", "--timeout", "60", "--", "hi").stdout == "hi\n"
    assert waku("run", "--timeout", "60", "/bin/echo", "--", "hi").stdout == "hi\n"


def test_bytes_that_are_no_text_do_not_hurt(waku) -> None:
    done = waku("run", "printf", "--", r"a\377b")
    assert (done.returncode, done.stdout) == (0, "a\ufffdb")


@pytest.mark.spec("W1")
def test_it_runs_in_a_directory_of_its_own_with_the_named_files(waku, home: Path) -> None:
    (home / "model.json").write_text("{}")
    (home / "x=y").write_text("odd name")
    files = ["--file", "model.json", "-f", "deep/other.json=model.json", "--file", "x=y"]
    done = waku("run", "sh", *files, "--", "-c", "pwd; find . -type f | sort")
    where, *found = done.stdout.splitlines()
    assert Path(where) != home
    assert found == ["./deep/other.json", "./model.json", "./x=y"]


@pytest.mark.spec("W1")
def test_files_it_makes_are_kept_only_where_one_says(waku, home: Path) -> None:
    make = ["--", "-c", "mkdir deep; echo 1 > one; echo 2 > deep/two"]
    before = set(home.iterdir())
    done = waku("run", "sh", *make)
    assert done.returncode == 0
    assert "2 files made, and not kept: --out DIR writes them to a folder" in done.stderr
    assert set(home.iterdir()) == before
    kept = waku("run", "sh", "--out", "made", *make)
    assert "2 files written to made" in kept.stderr
    assert (home / "made" / "deep" / "two").read_text() == "2\n"


@pytest.mark.parametrize(
    ("program", "complaint", "hint"),
    [
        ("no-such-program", "no program no-such-program on PATH", "write a path"),
        ("./nowhere/program", "the program ./nowhere/program does not exist", ""),
        ("./plain", "./plain cannot be executed", "chmod +x ./plain"),
        ("plain", "no program plain on PATH", "write ./plain"),
        ("/tmp", "/tmp is a folder, not a program", ""),
    ],
)
def test_a_program_that_cannot_be_run_is_told(waku, home: Path, program: str, complaint: str, hint: str) -> None:
    (home / "plain").write_text("no program")
    done = waku("run", program)
    assert done.returncode == 2
    assert f"error: {complaint}\n" in done.stderr
    assert hint in done.stderr


def test_a_missing_file_is_told_before_anything_runs(waku) -> None:
    done = waku("run", "touch", "--file", "nowhere.txt")
    assert done.returncode == 2
    assert "nowhere.txt does not exist" in done.stderr


def test_two_files_of_one_name_are_refused(waku, home: Path) -> None:
    for folder in ("a", "b"):
        (home / folder).mkdir()
        (home / folder / "x").write_text(folder)
    done = waku("run", "ls", "-f", "a/x", "-f", "b/x")
    assert done.returncode == 2
    assert "two files are called 'x'" in done.stderr


def test_an_odd_name_of_a_program_does_not_matter(waku, home: Path) -> None:
    program = home / "my: own program?"
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o755)
    assert waku("run", program).stdout == "it runs\n"


def test_it_needs_no_environment_no_home_and_no_terminal(waku, home: Path) -> None:
    done = waku("run", "/bin/echo", "--", "hi", env={})
    assert (done.returncode, done.stdout, done.stderr) == (0, "hi\n", "")
    nowhere = {"HOME": "/proc/none", "TERM": "xterm", "LC_ALL": "C"}
    done = waku("run", "/bin/echo", "--", "枠組み", env=nowhere)
    assert (done.returncode, done.stdout, done.stderr) == (0, "枠組み\n", "")


def test_closed_streams_do_not_hurt(home: Path) -> None:
    command = f"{Path(sys.executable).parent / 'waku'} run /bin/sh -- -c 'echo a; echo b >&2; exit 5' <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], cwd=home, timeout=60).returncode == 5


@pytest.mark.parametrize("words", ["run /bin/echo -- hi", "--help"])
def test_a_full_disk_is_told_and_not_traced(home: Path, words: str) -> None:
    command = f"{Path(sys.executable).parent / 'waku'} {words} > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=home, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "error: operating system error: [Errno 28] No space left on device\n"


def test_ctrl_c_ends_the_job_and_all_it_started(start, home: Path) -> None:
    began = home / "began"
    running = start("run", "sh", "--", "-c", f"sleep 1000 & echo $! > {began}.new; mv {began}.new {began}; wait")
    child = wait_for_pid(began, running)
    running.signal(signal.SIGINT)
    code, _, said = running.end()
    assert code == 130
    assert "Traceback" not in said
    assert not is_alive(child)


def test_nothing_survives_when_the_command_is_killed(start, home: Path) -> None:
    began = home / "began"
    running = start("run", "sh", "--", "-c", f"sleep 1000 & echo $! > {began}.new; mv {began}.new {began}; wait")
    child = wait_for_pid(began, running)
    pidfd = os.pidfd_open(child)
    running.signal(signal.SIGKILL)
    running.end()
    assert is_gone_soon(pidfd)


@pytest.mark.spec("K1")
def test_on_a_grid_the_program_is_a_name(grid, waku, home: Path) -> None:
    (home / "1.txt").write_text("7\n")
    done = waku("run", "letters", "--file", "1.txt", "--out", ".", "--", "1.txt")
    assert (done.returncode, done.stdout) == (0, "read 1.txt\n"), done.stderr
    assert (home / "letters.txt").read_text() == "h\n"
    assert waku("run", "fail").returncode == 3
    path = waku("run", "./letters")
    assert path.returncode == 2
    assert "hint: with a leader, PROGRAM is the name of a program that is installed on the workers" in path.stderr
    unknown = waku("run", "cat")
    assert unknown.returncode == 1
    assert "unknown-program" in unknown.stderr
    assert "hint: install the program in the exec directory (--programs) of the workers" in unknown.stderr


def wait_for_pid(file: Path, running) -> int:
    """The file appears whole; until then the command must live."""
    while not file.exists():
        assert running.process.poll() is None, running.end()
    return int(file.read_text())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_gone_soon(pidfd: int) -> bool:
    import select

    return bool(select.select([pidfd], [], [], 30)[0])


@pytest.mark.spec("W3")
def test_a_program_that_takes_too_long_is_ended_once_and_told(waku) -> None:
    done = waku("run", "sleep", "--timeout", "0.2", "--", "1000")
    assert done.returncode == 6
    assert "took longer than its timeout of 0.2 s\n" in done.stderr


@pytest.mark.spec("W1")
@pytest.mark.parametrize("where", ["here", "grid"])
def test_no_more_is_written_than_was_allowed(where: str, request, waku, programs: Path, home: Path) -> None:
    (programs / "much").write_text("#!/bin/sh\nhead -c 300000 /dev/zero > zeros\n")
    (programs / "much").chmod(0o755)
    if where == "grid":
        request.getfixturevalue("grid")
    words = ["run", "much" if where == "grid" else programs / "much", "--out", "made"]
    done = waku(*words, "--max-bytes", "100KB")
    assert done.returncode == 1
    assert "error: the result's files have more than 100,000 bytes, and that is the bound" in done.stderr
    assert "hint: if you trust the worker, allow more: --max-bytes" in done.stderr
    assert list((home / "made").iterdir()) == []
    done = waku(*words, "--max-bytes", "1MB")
    assert (done.returncode, done.stderr) == (0, "1 file written to made\n")
    assert (home / "made/zeros").stat().st_size == 300_000
    done = waku(*words, "--max-bytes", "much")
    assert (done.returncode, "--max-bytes is 'much', which is no size" in done.stderr) == (2, True)
