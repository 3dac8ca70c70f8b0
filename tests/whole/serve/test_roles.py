"""Leader, worker, client and up as processes: the old forms, and how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest
from tests.kit.eventually import eventually_blocking

from wakugumi.errors import EXIT_NO_LEADER
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import JobResult
from wakugumi.wire.messages.payload import encode

"""Looks at something that takes a moment; each costs a process, so this is far more than enough."""


@pytest.mark.spec("K7")
def test_the_old_forms_run_three_samples(grid, waku) -> None:
    done = waku("client", grid.host, grid.port, "desk-1", "8")
    assert done.returncode == 0, done.stderr
    assert [line.split()[-2:] for line in done.stdout.splitlines()[1:]] == [["calcA", str(n)] for n in (1, 2, 3)]
    assert "client joined client=desk-1 " in grid.leader.until(lambda text: "desk-1" in text)
    assert "cap=8" in grid.leader.until(lambda text: "cap" in text)


@pytest.mark.spec("K7", "F8")
@pytest.mark.parametrize(("program", "subject"), [("calcA", "job.submit.calcA"), ("calc.v2", "job.submit.calc_v2")])
def test_the_old_forms_say_the_subject_as_old_clients_do(waku, program: str, subject: str) -> None:
    submits = []

    def old_leader() -> None:
        """Reads the hello and one submit, and answers it."""
        connection, _ = listener.accept()
        decoder = fr.Decoder()
        with connection:
            while not submits and (data := connection.recv(65_536)):
                submits.extend(frame for frame in decoder.feed(data) if frame.type == fr.SUBMIT_JOB)
            job = submits[0].msg_id
            result = JobResult(str(UUID(bytes_le=job)), exec_name=program, exit_code=0)
            connection.sendall(fr.encode(fr.RESULT, job, job, payload=encode(result)))
            connection.recv(65_536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        leader = Thread(target=old_leader)
        leader.start()
        words = ["client", *map(str, listener.getsockname()), "me", "--program", program, "--count", "1"]
        done = waku(*words, "--old-leader")
        leader.join()
    assert done.returncode == 0, done.stderr
    assert [frame.subject for frame in submits] == [subject]


@pytest.mark.spec("O6")
@pytest.mark.parametrize(
    "words", [["run", "calcA"], ["submit", "calcA"], ["client", "me"], ["status"]], ids=lambda words: words[0]
)
def test_who_listens_and_says_nothing_is_sent_no_job_by_any_command(waku, words: list[str]) -> None:
    heard = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        host, port = map(str, listener.getsockname())
        at = [words[0], host, port, words[1]] if words[0] == "client" else [*words, "--leader", f"{host}:{port}"]
        done = waku(*at)
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(65_536):
                heard += data
    assert done.returncode == EXIT_NO_LEADER
    assert "it takes connections and says nothing" in done.stderr
    assert "--old-leader" in done.stderr
    assert [frame.type for frame in fr.Decoder().feed(heard)] == [fr.HELLO_CLIENT]


@pytest.mark.spec("K7")
def test_the_clients_cap_comes_from_its_old_variable(grid, waku) -> None:
    done = waku("client", grid.host, grid.port, "desk-1", env={**os.environ, "CLIENT_DESIRED_PAR": "7"})
    assert done.returncode == 0, done.stderr
    assert "cap=7" in grid.leader.until(lambda text: "cap" in text)
    done = waku("client", grid.host, grid.port, "desk-2")
    assert done.returncode == 0, done.stderr
    assert "client joined client=desk-2 " in grid.leader.until(lambda text: "cap=4" in text)


@pytest.mark.spec("K7")
def test_options_choose_program_files_and_number(grid, waku, inputs: Path) -> None:
    words = ["client", grid.host, grid.port, "me", "--program", "letters", "--file", inputs / "12.txt", "--count", "2"]
    done = waku(*words, "-o", "json", "--", "12.txt")
    assert done.returncode == 0, done.stderr
    assert [(row["stdout"], row["files"]) for row in json.loads(done.stdout)] == 2 * [
        ("read 12.txt\n", ["letters.txt"])
    ]


@pytest.mark.spec("K7")
def test_clientx_takes_one_leader_too(grid, waku) -> None:
    done = waku("clientx", "me", grid.address, "12", "-o", "quiet")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3
    assert "cap=12" in grid.leader.until(lambda text: "cap" in text)


def test_a_failing_sample_is_exit_code_1(grid, waku) -> None:
    done = waku("client", grid.host, grid.port, "me", "--program", "fail", "--count", "1")
    assert done.returncode == 1
    assert "it went wrong" in done.stdout


@pytest.mark.spec("O1")
@pytest.mark.parametrize("command", ["leader", "up"])
def test_a_wide_port_without_a_folder_for_keys_is_refused(command: str, waku, programs: Path) -> None:
    more = ["--programs", programs] if command == "up" else []
    done = waku(command, "0", "--host", "0.0.0.0", *more)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "a leader on 0.0.0.0 needs a folder for its keys" in done.stderr
    assert "hint: name one with --state DIR" in done.stderr


@pytest.mark.spec("O1")
def test_with_the_word_it_listens(start) -> None:
    leader = start("leader", "0", "--host", "0.0.0.0", "--allow-open")
    assert leader.line().startswith("0.0.0.0:")


def test_a_port_that_is_taken_is_told(grid, waku) -> None:
    done = waku("leader", grid.port)
    assert done.returncode == 2
    assert f"port {grid.port} on 127.0.0.1 is taken" in done.stderr


def test_a_worker_without_its_folder_does_not_start(waku) -> None:
    done = waku("worker", "127.0.0.1", "5000", "--programs", "nowhere")
    assert done.returncode == 2
    assert "nowhere, does not exist" in done.stderr


@pytest.mark.spec("W2")
def test_a_worker_takes_its_limits_from_the_old_variables(grid, start, waku, programs: Path) -> None:
    env = {**os.environ, "WORKER_MAX_PAR": "3"}
    folders = ["--programs", programs, "--jobs", programs.parent / "jobs2"]
    other = start("worker", grid.host, grid.port, *folders, "--name", "w2", env=env)
    other.until(lambda text: "the leader speaks version" in text)
    rows = json.loads(waku("workers", "list", "-o", "json").stdout)["workers"]
    assert {row["name"]: row["credit"] for row in rows} == {"w1": 8, "w2": 3}
    wrong = waku("worker", grid.host, grid.port, *folders, env={**os.environ, "WORKER_CPU_CAP": "7"})
    assert wrong.returncode == 2
    assert "WORKER_CPU_CAP is 7, and must be 0.1 to 0.95" in wrong.stderr


def states(waku) -> list[str]:
    return [row["state"] for row in json.loads(waku("jobs", "list", "-o", "json").stdout)["jobs"]]


@pytest.mark.spec("O3", "L10")
def test_a_worker_told_to_stop_finishes_what_it_runs(grid, waku, home: Path) -> None:
    began, go = home / "began", home / "go"
    waku("submit", "stay", "--id", "one", "--", began, go)
    eventually_blocking(lambda: states(waku) == ["running"])
    grid.worker.signal(signal.SIGTERM)
    grid.worker.until(lambda text: "draining" in text)
    go.touch()
    code, _, _ = grid.worker.end()
    assert code == 0
    done = waku("jobs", "wait", "one")
    assert done.returncode == 0, done.stderr
    assert "ended" in done.stdout


@pytest.mark.spec("W3")
def test_a_second_signal_ends_a_worker_at_once_and_its_programs_with_it(grid, waku, home: Path) -> None:
    waku("submit", "forever")
    eventually_blocking(lambda: states(waku) == ["running"])
    grid.worker.signal(signal.SIGINT)
    grid.worker.until(lambda text: "draining" in text)
    grid.worker.signal(signal.SIGINT)
    code, _, _ = grid.worker.end()
    assert code == 0
    eventually_blocking(lambda: states(waku) == ["queued"] or states(waku) == ["backoff"])


def test_a_leader_told_to_stop_lets_running_jobs_finish(grid, waku, home: Path) -> None:
    began, go = home / "began", home / "go"
    waku("submit", "stay", "--id", "one", "--", began, go)
    eventually_blocking(lambda: states(waku) == ["running"])
    grid.leader.signal()
    grid.leader.until(lambda text: "draining" in text)
    go.touch()
    code, _, _ = grid.leader.end()
    assert code == 0


def test_up_is_a_whole_grid_that_tells_how_to_use_it(start, waku, programs: Path, home: Path) -> None:
    up = start("up", "0", "--programs", programs, "--jobs", home.parent / "jobs")
    address = up.line()
    said = up.until(lambda text: "waku status" in text)
    assert f"export WAKU_LEADER={address}" in said
    assert "programs: calcA, fail, forever, letters, odd, …" in said
    done = waku("run", "calcA", "--leader", address, "--", "hello")
    assert (done.returncode, done.stdout) == (0, "calcA hello\n"), done.stderr
    up.signal()
    code, _, said = up.end()
    assert code == 0
    assert "Traceback" not in said


def test_up_ends_at_once_if_told_twice_and_leaves_no_program(start, waku, programs: Path, home: Path) -> None:
    up = start("up", "0", "--programs", programs, "--jobs", home.parent / "jobs")
    address = up.line()
    waku("submit", "forever", "--leader", address)
    eventually_blocking(lambda: states(lambda *words: waku(*words, "--leader", address)) == ["running"])
    up.signal()
    up.signal(signal.SIGINT)
    code, _, said = up.end()
    assert code == 0, said


def test_log_lines_are_json_if_wanted(start) -> None:
    leader = start("leader", "0", "--log-json")
    address = leader.line()
    lines = [json.loads(line) for line in leader.until(lambda text: "leader ready" in text).splitlines()]
    assert lines
    assert ("info", "app", f"leader ready at {address}") == tuple(lines[-1][key] for key in ("level", "from", "msg"))
