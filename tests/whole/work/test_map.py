"""`waku map`: one job per input, here and on a grid, and again."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

NAMES = [f"{number}.txt" for number in range(1, 13)]


def record(folder: Path) -> dict[str, object]:
    return json.loads((folder / ".waku.json").read_text())


def jobs_of(out: Path) -> dict[str, object]:
    return {path.parent.name: json.loads(path.read_text())["job"] for path in out.rglob(".waku.json")}


@pytest.mark.parametrize("where", ["here", "grid"])
def test_each_input_is_a_job_and_each_result_a_folder(where: str, request, waku, inputs, programs, home: Path) -> None:
    if where == "grid":
        request.getfixturevalue("grid")
    program = "letters" if where == "grid" else programs / "letters"
    done = waku("map", program, inputs, "--out", "out")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "12 of 12 inputs done, in " in done.stderr
    assert sorted(path.name for path in (home / "out").iterdir()) == sorted(NAMES)
    result = home / "out" / "12.txt"
    assert sorted(path.name for path in result.iterdir()) == [".waku.json", "letters.txt", "stderr.txt", "stdout.txt"]
    assert (result / "letters.txt").read_text() == "bc\n"
    assert (result / "stdout.txt").read_text() == "read 12.txt\n"
    told = record(result)
    assert (told["status"], told["exit_code"], told["input"]) == ("OK", 0, str(inputs / "12.txt"))
    assert isinstance(told["run_s"], float)


@pytest.mark.parametrize("where", ["here", "grid"])
def test_run_again_it_does_only_what_is_missing_or_failed(where: str, request, waku, inputs, programs, home) -> None:
    if where == "grid":
        request.getfixturevalue("grid")
    program = "odd" if where == "grid" else programs / "odd"
    first = waku("map", program, inputs, "--out", "out")
    assert first.returncode == 1
    assert "6 of 12 inputs done, 6 failed" in first.stderr
    assert first.stderr.count("is odd") == 3
    assert "failed: 1.txt (exit code 9)\n    1 is odd\n" in first.stderr
    assert "further failures are only counted" in first.stderr
    assert record(home / "out" / "3.txt")["exit_code"] == 9
    assert (home / "out" / "3.txt" / "stderr.txt").read_text() == "3 is odd\n"
    again = waku("map", program, inputs, "--out", "out")
    assert again.returncode == 1
    assert "6 of 12 inputs done (6 before), 6 failed" in again.stderr
    for number in (1, 3, 5, 7, 9, 11):
        (inputs / f"{number}.txt").write_text(f"{number + 1}\n")
    (inputs / "2.txt").write_text("20\n")
    mended = waku("map", program, inputs, "--out", "out")
    assert mended.returncode == 0
    assert "12 of 12 inputs done (5 before)" in mended.stderr
    assert (home / "out" / "2.txt" / "stdout.txt").read_text() == "20\n"
    nothing = waku("map", program, inputs, "--out", "out")
    assert (nothing.returncode, nothing.stderr) == (0, "12 of 12 inputs done (12 before); results are in out\n")


def test_other_arguments_or_another_program_are_other_jobs(waku, inputs, programs, home: Path) -> None:
    program = programs / "calcA"
    assert waku("map", program, inputs, "--", "a").returncode == 0
    assert "(12 before)" in waku("map", program, inputs, "--", "a").stderr
    assert "before" not in waku("map", program, inputs, "--", "b").stderr
    assert (home / "waku-out" / "1.txt" / "stdout.txt").read_text() == "calcA b 1.txt\n"
    program.write_text(program.read_text() + "# changed\n")
    assert "before" not in waku("map", program, inputs, "--", "b").stderr


def test_a_longer_timeout_keeps_what_is_done(waku, inputs, programs) -> None:
    assert waku("map", programs / "calcA", inputs, "--timeout", "50").returncode == 0
    assert "(12 before)" in waku("map", programs / "calcA", inputs, "--timeout", "60").stderr


@pytest.mark.spec("L6")
def test_a_leader_that_still_has_the_results_gives_them_again(grid, waku, inputs, home: Path) -> None:
    assert waku("map", "calcA", inputs, "--out", "one").returncode == 0
    other = ("--timeout", "60", "--retries", "2", "--priority", "3", "--key", "k", "--subject", "calcA")
    assert waku("map", "calcA", inputs, "--out", "two", *other).returncode == 0
    assert jobs_of(home / "one") == jobs_of(home / "two")
    assert json.loads(waku("status", "-o", "json").stdout)["submitted"] == 12
    assert waku("map", "calcA", inputs, "--out", "two", "--fresh").returncode == 0
    assert json.loads(waku("status", "-o", "json").stdout)["submitted"] == 24
    assert not set(jobs_of(home / "one").values()) & set(jobs_of(home / "two").values())
    assert "(12 before)" in waku("map", "calcA", inputs, "--out", "two").stderr


def test_braces_stand_for_the_name(waku, inputs, programs, home: Path) -> None:
    waku("map", programs / "calcA", inputs / "5.txt", "--", "--in={}", "x", "{}.out")
    assert (home / "waku-out" / "5.txt" / "stdout.txt").read_text() == "calcA --in=5.txt x 5.txt.out\n"


def test_equal_names_and_equal_contents_stay_apart(waku, programs, home: Path) -> None:
    for folder in ("a", "b", "c"):
        (home / folder).mkdir()
        (home / folder / "same.txt").write_text("same")
    (home / "c" / "other.txt").write_text("same")
    done = waku("map", programs / "calcA", "a", "b", "c", "--out", "out")
    assert done.returncode == 0, done.stderr
    found = sorted(str(path.parent.relative_to(home / "out")) for path in (home / "out").rglob(".waku.json"))
    assert found == ["a/same.txt", "b/same.txt", "c/same.txt", "other.txt"]
    assert len({json.loads(path.read_text())["job"] for path in (home / "out").rglob(".waku.json")}) == 4
    assert "(4 before)" in waku("map", programs / "calcA", "a", "b", "c", "--out", "out").stderr


def test_inputs_come_from_a_list_too(waku, inputs, programs, home: Path) -> None:
    names = "".join(f"{path}\n" for path in sorted(inputs.iterdir())[:4])
    done = waku("map", programs / "calcA", "--inputs-from", "-", stdin=names)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 inputs done" in done.stderr
    (home / "list").write_text(names)
    again = waku("map", programs / "calcA", inputs / "9.txt", "--inputs-from", "list")
    assert "5 of 5 inputs done (4 before)" in again.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nowhere"], "the input nowhere does not exist"),
        ([], "there are no inputs"),
        (["empty"], "there are no inputs in empty"),
        (["in", "--slots", "0"], "--slots is 0, and must be 1 to 4096"),
        (["in", "--timeout", "-1"], "--timeout is -1"),
        (["in", "--out", "in"], "is there already, and is no result of a map"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(waku, inputs, programs, home, words: list[str], complaint: str) -> None:
    (home / "empty").mkdir()
    done = waku("map", programs / "calcA", *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(home.rglob(".waku.json"))


def test_an_input_that_can_be_no_job_fails_and_the_others_do_not(waku, programs, home: Path) -> None:
    folder = home / "in"
    folder.mkdir()
    (folder / "good").write_text("1")
    (folder / "bad:name").write_text("1")
    (folder / os.fsdecode(b"no-t\xe9xt")).write_text("1")
    (folder / "unreadable").symlink_to("/proc/self/mem")
    done = waku("map", programs / "calcA", folder)
    assert done.returncode == 1
    assert "1 of 4 inputs done, 3 failed" in done.stderr
    assert "bad-name" in done.stderr
    assert "Traceback" not in done.stderr
    assert record(home / "waku-out" / "unreadable")["reason"] == "bad-request"
    assert record(home / "waku-out" / "good")["status"] == "OK"


def test_a_program_the_workers_lack_is_told_clearly(grid, waku, inputs) -> None:
    done = waku("map", "pricer9", inputs)
    assert done.returncode == 1
    assert "12 inputs failed by unknown-program: install the program in the exec directory" in done.stderr
    path = waku("map", "./pricer9", inputs)
    assert path.returncode == 2
    assert "with a leader, PROGRAM is the name of a program that is installed on the workers" in path.stderr


def test_jobs_that_nobody_takes_are_explained(grid, start, inputs) -> None:
    running = start("map", "calcA", inputs, "--subject", "elsewhere")
    grid.worker.signal(signal.SIGKILL)
    grid.worker.end()
    said = running.until(lambda text: "waiting: " in text)
    assert "no worker" in said
    running.signal(signal.SIGINT)
    assert running.end()[0] == 130


def test_two_maps_do_not_write_to_one_folder(start, waku, inputs, programs, home: Path) -> None:
    began, go = home / "began", home / "go"
    first = start("map", programs / "stay", inputs / "1.txt", "--", began, go, "{}")
    while not began.exists():
        assert first.process.poll() is None, first.end()
    second = waku("map", programs / "calcA", inputs)
    assert second.returncode == 2
    assert "another map is writing to waku-out" in second.stderr
    go.touch()
    assert first.end()[0] == 0


def interrupt_in_the_middle(start, inputs: Path, programs: Path, home: Path, number: int) -> tuple[int, str]:
    """A map whose inputs 1 to 9 end at once and whose others wait; it is told to stop when it is known to wait."""
    program = home / "half"
    program.write_text('#!/bin/sh\ncase $1 in ??.txt) touch "$2/$1"; exec sleep 1000;; esac\necho "$1"\n')
    program.chmod(0o755)
    marks = home / "marks"
    marks.mkdir(exist_ok=True)
    for old in marks.iterdir():
        old.unlink()
    running = start("map", program, inputs, "--slots", "2", "--", "{}", marks)
    out = home / "waku-out"
    while len(list(marks.iterdir())) < 2:
        assert running.process.poll() is None, running.end()
    running.signal(number)
    code, _, said = running.end()
    assert not (out / ".waku-tmp").exists() or number == signal.SIGKILL
    return code, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_says_how_far_it_came_and_how_to_go_on(
    start, waku, inputs, programs, home: Path, number: int
) -> None:
    code, said = interrupt_in_the_middle(start, inputs, programs, home, number)
    assert code == 130
    assert re.search(r"stopped: \d of 12 inputs done", said)
    assert "run the same command again to go on" in said
    assert "Traceback" not in said


@pytest.mark.spec("L6")
def test_a_map_on_a_leader_that_was_stopped_goes_on_when_it_is_run_again(grid, start, waku, inputs, home: Path) -> None:
    """What it cancelled on its way out is FAILED and was fetched by nobody; submitted again, it runs again."""
    began, go = home / "began", home / "go"
    words = ("map", "stay", inputs / "1.txt", inputs / "2.txt", "--", began, go, "{}")
    first = start(*words)
    while not began.exists():
        assert first.process.poll() is None, first.end()
    first.signal(signal.SIGTERM)
    assert first.end()[0] == 130
    go.touch()
    again = waku(*words)
    assert again.returncode == 0, again.stderr
    assert "2 of 2 inputs done" in again.stderr


def test_killed_in_the_middle_it_leaves_only_finished_folders(start, waku, inputs, programs, home: Path) -> None:
    interrupt_in_the_middle(start, inputs, programs, home, signal.SIGKILL)
    out = home / "waku-out"
    done = [path for path in out.iterdir() if path.name != ".waku-tmp"]
    for folder in done:
        assert record(folder)["status"] == "OK"
        assert (folder / "stdout.txt").read_text() == f"{folder.name}\n"
    (home / "half").write_text('#!/bin/sh\necho "$1"\n')
    again = waku("map", home / "half", inputs, "--", "{}", home / "marks")
    assert again.returncode == 0, again.stderr
    assert sorted(path.name for path in out.iterdir()) == sorted(NAMES)


def test_plain_lines_where_no_terminal_is(waku, inputs, programs) -> None:
    done = waku("map", programs / "calcA", inputs, env={})
    assert done.returncode == 0
    assert "\x1b" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("12 of 12 inputs done, in ")


def on_a_terminal(words: list[str], home: Path, columns: int = 100) -> tuple[int, str]:
    """What a person sees: stderr and stdin are a terminal, stdout too."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "30"}
    process = subprocess.Popen(
        [Path(sys.executable).parent / "waku", *words],
        cwd=home,
        env=env,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    seen = b""
    until = monotonic() + 60
    while select.select([leader], [], [], max(0.0, until - monotonic()))[0]:
        try:
            data = os.read(leader, 65536)
        except OSError:  # how a terminal says that nobody is left on the other side
            break
        if not data:
            break
        seen += data
    else:
        process.kill()
    os.close(leader)
    return process.wait(), seen.decode()


def test_a_bar_on_a_terminal(inputs, programs, home: Path) -> None:
    (programs / "odd").write_text((programs / "odd").read_text().replace("read n", "sleep 0.1; read n"))
    code, seen = on_a_terminal(["map", str(programs / "odd"), "in"], home)
    assert code == 1
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert re.search(r"━+.* \d+/12 .*running", plain)
    assert re.search(r"\d+ failed +\d running +\d+\.\d/s +\d+\.\d+ s left", plain)
    assert "failed: 1.txt (exit code 9)" in plain
    assert "6 of 12 inputs done, 6 failed" in plain
    assert "\x1b[?25h" in seen, "the cursor is back"


def test_a_table_on_a_terminal_fits_and_has_colour(grid, waku, home: Path) -> None:
    ids = waku("submit", "calcA", "--count", "2").stdout.split()
    waku("jobs", "wait", *ids)
    code, seen = on_a_terminal(["jobs", "list"], home, columns=120)
    assert code == 0
    assert "\x1b[" in seen
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert all(len(line) <= 120 for line in plain.splitlines())
    assert all(job in plain for job in ids)


def test_the_demo_prices_and_checks_and_has_nothing_to_do_again(waku, home: Path) -> None:
    done = waku("demo")
    assert done.returncode == 0, done.stderr
    assert "240 of 240 inputs done" in done.stderr
    assert "all 240 prices are within 4 standard errors of Black-Scholes" in done.stderr
    assert len(done.stdout.splitlines()) == 9
    again = waku("demo")
    assert again.returncode == 0
    assert "(240 before)" in again.stderr
    wrong = json.loads((home / "demo-out" / "prices" / "call-100-12m-25v.json" / "result.json").read_text())
    wrong["price"] += 10 * wrong["standard_error"]
    (home / "demo-out" / "prices" / "call-100-12m-25v.json" / "result.json").write_text(json.dumps(wrong))
    found = waku("demo")
    assert found.returncode == 1
    assert "1 of 240 prices are off by more than 4 standard errors" in found.stderr


@pytest.mark.spec("W1")
def test_a_map_writes_no_more_of_a_job_than_was_allowed(waku, programs: Path, home: Path) -> None:
    (programs / "many").write_text('#!/bin/sh\nread n < "$1"\nhead -c "$n" /dev/zero > zeros\n')
    (programs / "many").chmod(0o755)
    (home / "in").mkdir()
    for number in (1_000, 200_000):
        (home / "in" / str(number)).write_text(f"{number}\n")
    done = waku("map", programs / "many", "in", "--out", "out", "--max-bytes", "100kB")
    assert done.returncode == 1
    assert "failed: 200000 (too-many-bytes)" in done.stderr
    assert "1 input failed by too-many-bytes: if you trust the worker, allow more: --max-bytes" in done.stderr
    assert (home / "out/1000/zeros").stat().st_size == 1_000
    assert sorted(path.name for path in (home / "out/200000").iterdir()) == [
        *(".waku.json", "error.txt", "stderr.txt", "stdout.txt")
    ]
    done = waku("map", programs / "many", "in", "--out", "out", "--max-bytes", "1MB")
    assert done.returncode == 0, done.stderr
    assert (home / "out/200000/zeros").stat().st_size == 200_000
