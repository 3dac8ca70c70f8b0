"""The command line with several leaders: real leaders, each with a worker, one of them killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.kit.eventually import eventually_blocking
from tests.whole.conftest import WITHIN_S, Running

NOBODY = "127.0.0.1:1"
"""Looks at something that takes a moment; each costs a process, so this is far more than enough."""


class Fleet:
    """Leaders with a worker each."""

    def __init__(self, leaders: list[Running], workers: list[Running], addresses: list[str]) -> None:
        self.leaders = leaders
        self.workers = workers
        self.addresses = addresses
        self.url = ",".join(addresses)


@pytest.fixture
def fleet(start: Callable[..., Running], programs: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Two leaders, unless the test asks for another number."""
    leaders = [
        start("leader", "0", "--state", programs.parent / f"s{at}") for at in range(getattr(request, "param", 2))
    ]
    addresses = [leader.line() for leader in leaders]
    workers = [
        start(
            *("worker", *address.rsplit(":", 1), "job.assign.>", "--programs", programs, "--cpu-cap", "0.95"),
            *("--slots", "4", "--name", f"w{at}", "--jobs", programs.parent / f"jobs{at}"),
        )
        for at, address in enumerate(addresses)
    ]
    for worker in workers:
        worker.until(lambda text: "the leader speaks version" in text)
    yield Fleet(leaders, workers, addresses)
    for running in (*workers, *leaders):
        if running.process.poll() is None:
            running.signal(signal.SIGKILL)


@pytest.mark.spec("K2", "K7")
def test_clientx_spreads_its_jobs_and_names_the_leaders(fleet: Fleet, waku) -> None:
    done = waku("clientx", "me", *fleet.addresses, "6", "--count", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["job", "status", "exit", "time", "leader", "output"]
    for address in fleet.addresses:
        assert 1 <= done.stdout.count(address) <= 7
    rows = json.loads(waku("clientx", "me", *fleet.addresses, "-o", "json").stdout)
    assert len(rows) == 3
    assert {row["leader"] for row in rows} == set(fleet.addresses)


@pytest.mark.spec("K2")
def test_each_leader_is_told_its_share(fleet: Fleet, waku) -> None:
    assert waku("clientx", "me", *fleet.addresses, "7").returncode == 0
    for leader, cap in zip(fleet.leaders, (4, 3)):
        assert f"cap={cap}" in leader.until(lambda text: "client joined client=me " in text)


def test_lists_have_a_section_for_each_leader_and_json_is_a_list(fleet: Fleet, waku, monkeypatch) -> None:
    monkeypatch.setenv("WAKU_LEADER", fleet.url)
    for words, key in ((["status"], "workers"), (["workers", "list"], "workers"), (["jobs", "list"], "jobs")):
        shown = waku(*words)
        assert shown.returncode == 0, shown.stderr
        assert [line for line in shown.stdout.splitlines() if line.startswith("leader ")] == [
            f"leader {address}" for address in fleet.addresses
        ]
        rows = json.loads(waku(*words, "-o", "json").stdout)
        assert [row["leader"] for row in rows] == fleet.addresses
        assert all(key in row for row in rows)
    assert waku("dead", "list", "-o", "quiet").stdout == ""


def test_a_leader_that_cannot_be_reached_is_named_and_the_other_answers(fleet: Fleet, waku) -> None:
    some = f"{NOBODY},{fleet.addresses[0]}"
    shown = waku("status", "--leader", some)
    assert shown.returncode == 0
    assert f"leader {NOBODY}: cannot connect to {NOBODY}: nobody listens there" in shown.stdout
    lost, there = json.loads(waku("status", "--leader", some, "-o", "json").stdout)
    assert lost == {"leader": NOBODY, "trouble": f"cannot connect to {NOBODY}: nobody listens there"}
    assert there["workers"] == 1
    done = waku("run", "calcA", "--leader", some, "--", "x")
    assert (done.returncode, done.stdout) == (0, "calcA x\n")
    assert NOBODY in done.stderr


def test_a_job_is_found_waited_for_and_cancelled_wherever_it_is(fleet: Fleet, waku, monkeypatch) -> None:
    monkeypatch.setenv("WAKU_LEADER", fleet.url)
    for at, address in enumerate(fleet.addresses):
        waku("submit", "calcA", "--id", f"at-{at}", "--leader", address, "--", str(at))
        waku("submit", "forever", "--id", f"long-{at}", "--leader", address)
    done = waku("jobs", "wait", "at-0", "at-1", "-o", "json")
    assert [row["stdout"] for row in json.loads(done.stdout)] == ["calcA 0\n", "calcA 1\n"]
    for at in range(2):
        assert json.loads(waku("jobs", "show", f"at-{at}", "-o", "json").stdout)["state"] == "ok"
    assert waku("jobs", "cancel", "long-0", "long-1").stdout == "2 jobs cancelled\n"
    nobodys = waku("jobs", "cancel", "nobodys")
    assert (nobodys.returncode, nobodys.stdout) == (3, "0 jobs cancelled\n")
    for words in (("jobs", "wait", "nobodys"), ("jobs", "show", "nobodys"), ("workers", "drain", "nobody")):
        assert waku(*words).returncode == 3
    for at in range(2):
        assert json.loads(waku("workers", "drain", f"w{at}", "-o", "json").stdout)["state"] == "draining"


@pytest.mark.spec("K5")
def test_a_map_ends_well_though_one_of_its_leaders_is_killed(
    fleet: Fleet, start: Callable[..., Running], waku, programs: Path, inputs: Path, home: Path, monkeypatch
) -> None:
    monkeypatch.setenv("WAKU_LEADER", fleet.url)
    monkeypatch.setenv("WAKU_GRACE", "0.5")
    gate = home / "gate"
    (programs / "held").write_text(f'#!/bin/sh\nwhile [ ! -e "{gate}" ]; do sleep 0.02; done\ncat "$1"\n')
    (programs / "held").chmod(0o755)
    running = start("map", "held", inputs, "--cap", "8")
    status = ("status", "--leader", fleet.addresses[0], "-o", "json")
    eventually_blocking(lambda: json.loads(waku(*status).stdout)["running"])
    fleet.leaders[0].signal(signal.SIGKILL)
    fleet.workers[0].signal(signal.SIGKILL)
    running.until(lambda text: f"no leader at {fleet.addresses[0]}" in text)
    gate.write_text("open")
    code, _out, err = running.end()
    assert code == 0, err
    for number in range(1, 13):
        assert (home / "waku-out" / f"{number}.txt" / "stdout.txt").read_text() == f"{number}\n"


CLIENT = """
import asyncio, random, sys
from wakugumi import connect

async def main(url: str, seed: str) -> None:
    ids = [f"job-{number}" for number in range(%d)]
    random.Random(seed).shuffle(ids)
    addresses = url.split(",")
    random.Random(seed).shuffle(addresses)
    async with connect(",".join(addresses), client_id="me", cap=12) as grid:
        tasks = [{"job_id": name, "args": [name]} for name in ids]
        async for result in grid.map("mark", tasks, window=60):
            print("ok" if result.ok else result, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
JOBS = 150


@pytest.mark.spec("K8", "L6")
@pytest.mark.parametrize("fleet", [3], indirect=True)
def test_a_client_that_is_killed_and_comes_back_with_the_same_ids_runs_nothing_again(
    fleet: Fleet, programs: Path, home: Path
) -> None:
    marks = home / "marks"
    marks.mkdir()
    (programs / "mark").write_text(f'#!/bin/sh\necho x >> "{marks}/$1"\nsleep 0.05\n')
    (programs / "mark").chmod(0o755)
    script = home / "client.py"
    script.write_text(CLIENT % JOBS)

    def client(seed: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, script, fleet.url, seed], stdout=subprocess.PIPE, text=True)

    for life, results in enumerate((20, 60, 100)):
        with client(f"life {life}") as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(results)] == results * ["ok\n"]
            process.kill()
    with client("the last") as process:
        out, _ = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out) == (0, JOBS * "ok\n")
    runs = [len((marks / f"job-{number}").read_text().split()) for number in range(JOBS)]
    assert sum(runs) - JOBS == 0, "executions beyond one"
    assert min(runs) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "--leader", f"{NOBODY},{NOBODY}"), "named twice"),
        (("map", "calcA", "in", "--leader", "a:5000,"), "names no leader beside a comma"),
        (("clientx", "me", "a:5000", "a:5000"), "named twice"),
        (("clientx", "me", "a:5000", "b:5000", "0"), "must be 1 to 100000"),
        (("clientx", "me", "a:5000", "http://b:5000"), "is not a leader's address"),
        (("map", "calcA", "in", "--leader", "a:5000,b:5000", "--cap", "-1"), "must be 1 to 100000"),
    ],
)
def test_a_mistake_in_naming_leaders_is_exit_code_2(waku, inputs: Path, words: tuple[str, ...], said: str) -> None:
    done = waku(*words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(("name", "value"), [("WAKU_GRACE", "0"), ("WAKU_GRACE", "-1"), ("WAKU_CHOICE", "random")])
def test_a_setting_for_several_leaders_that_cannot_be_is_exit_code_2(waku, monkeypatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    done = waku("status", "--leader", f"{NOBODY},127.0.0.1:2")
    assert done.returncode == 2
    assert f"{name} is {value!r}" in done.stderr or f"{name} is {value}" in done.stderr


def test_none_that_can_be_reached_is_exit_code_5_with_a_reason_for_each(waku) -> None:
    done = waku("run", "calcA", "--leader", f"{NOBODY},127.0.0.1:2")
    assert done.returncode == 5
    error = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert error.count("nobody listens there") == 2


@pytest.mark.parametrize("command", ["run", "map"])
def test_when_all_leaders_are_gone_a_command_waits_no_longer_than_it_was_told(
    command: str, grid, start: Callable[..., Running], home: Path
) -> None:
    (home / "one.txt").write_text("1\n")
    inputs = [home / "one.txt"] if command == "map" else []
    args = [home / "began", home / "end", *(["{}"] if command == "map" else [])]
    running = start(command, "stay", *inputs, "--patience", "0.3", "--", *args)
    until = monotonic() + WITHIN_S
    while not (home / "began").exists():
        assert monotonic() < until
        sleep(0.01)
    grid.leader.signal(signal.SIGKILL)
    code, _, said = running.end()
    assert code == 5, said
    assert "for 0.3 s" in said
    (home / "end").touch()
