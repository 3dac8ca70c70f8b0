"""Files of any size through the command line and the library: real leaders, workers, sockets and disks."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.eventually import eventually_blocking
from tests.whole.conftest import WAKU, GridHere, Running, Waku

import wakugumi
from wakugumi.app.serve.free_ports import free_port

Start = Callable[..., Running]

MIB = 1024 * 1024


def _content(size: int, seed: int = 1) -> bytes:
    """What no compression makes smaller."""
    return random.Random(seed).randbytes(size)


@pytest.fixture
def bulk_programs(programs: Path) -> Path:
    """`twice IN OUT` writes its input twice, `sum FILE…` tells hashes, `scribble FILE` writes to its input."""
    texts = {
        "twice": '#!/bin/sh\ncat "$1" "$1" > "$2"\n',
        "sum": '#!/bin/sh\nsha256sum "$@"\n',
        "scribble": '#!/bin/sh\nchmod u+w "$1"; printf scribbled >> "$1" && tail -c 9 "$1"\n',
        "shout": "#!/bin/sh\nyes wakugumi | head -c 6000000\n",
    }
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return programs


def _worker(start: Start, address: str, programs: Path, name: str, *words: str | Path) -> Running:
    host, port = address.rsplit(":", 1)
    here = programs.parent
    folders = ["--programs", programs, "--jobs", here / f"jobs-{name}", "--cache", here / f"cache-{name}"]
    running = start("worker", host, port, *folders, "--slots", "4", "--cpu-cap", "0.95", "--name", name, *words)
    running.until(lambda text: "the leader speaks version" in text)
    return running


@pytest.mark.spec("C5", "C7", "F10")
def test_an_input_and_a_result_larger_than_a_frame(bulk_programs: Path, grid: GridHere, waku: Waku, home: Path) -> None:
    content = _content(9 * MIB)
    (home / "big.bin").write_bytes(content)
    done = waku("run", "twice", "--file", "big.bin", "--out", "out", "--", "big.bin", "double.bin")
    assert done.returncode == 0, done.stderr
    assert (home / "out" / "double.bin").read_bytes() == content * 2


@pytest.mark.spec("C5", "C7")
def test_the_same_without_any_set_up(bulk_programs: Path, waku: Waku, home: Path) -> None:
    content = _content(9 * MIB)
    (home / "big.bin").write_bytes(content)
    program = bulk_programs / "twice"
    done = waku("run", program, "--file", "big.bin", "--out", "out", "--", "big.bin", "double.bin")
    assert done.returncode == 0, done.stderr
    assert (home / "out" / "double.bin").read_bytes() == content * 2


@pytest.mark.spec("C7")
def test_map_unpacks_results_larger_than_a_frame(bulk_programs: Path, grid: GridHere, waku: Waku, home: Path) -> None:
    for number in range(3):
        (home / f"{number}.bin").write_bytes(_content(5 * MIB, number))
    done = waku("map", "twice", "0.bin", "1.bin", "2.bin", "--out", "all", "--", "{}", "double.bin")
    assert done.returncode == 0, done.stderr
    for number in range(3):
        assert (home / "all" / f"{number}.bin" / "double.bin").read_bytes() == _content(5 * MIB, number) * 2


@pytest.mark.spec("C7")
def test_output_larger_than_a_frame_is_all_there(bulk_programs: Path, grid: GridHere) -> None:
    with wakugumi.Client(grid.address) as client:
        result = client.run("shout").check()
        assert len(result.stdout) == 6_000_000
        assert set(result.stdout.split()[:-1]) == {"wakugumi"}


@pytest.mark.spec("C4", "C7", "L7")
def test_a_large_result_is_still_there_when_its_leader_was_killed(
    bulk_programs: Path, start: Start, waku: Waku, home: Path
) -> None:
    port, state = str(free_port()), home / "state"
    leader = start("leader", port, "--state", state)
    address = leader.line()
    _worker(start, address, bulk_programs, "w1")
    content = _content(6 * MIB)
    (home / "big.bin").write_bytes(content)
    words = ["--leader", address]
    done = waku("submit", "twice", "--id", "kept", "--file", "big.bin", *words, "--", "big.bin", "double.bin")
    assert done.returncode == 0, done.stderr
    eventually_blocking(
        lambda: '"ok"' in waku("jobs", "show", "kept", *words, "-o", "json").stdout,
        "the job did not end",
    )
    leader.process.kill()
    leader.end()
    assert start("leader", port, "--state", state).line() == address
    done = waku("jobs", "wait", "kept", "--out", "out", *words)
    assert done.returncode == 0, done.stderr
    [found] = list((home / "out").rglob("double.bin"))
    assert found.read_bytes() == content * 2


@pytest.mark.spec("C1", "C2", "C3", "C6")
def test_a_cache_is_put_once_and_used_by_name(bulk_programs: Path, start: Start, waku: Waku, home: Path) -> None:
    leader = start("leader", "0", "--state", home / "state")
    address = leader.line()
    for name in ("w1", "w2", "w3"):
        _worker(start, address, bulk_programs, name)
    env = os.environ | {"WAKU_LEADER": address}
    content = _content(3 * MIB)
    (home / "a.bin").write_bytes(content)
    (home / "名前.txt").write_text("names in any language\n")
    done = waku("caches", "put", "data-v1", "a.bin", "名前.txt", "-o", "json", env=env)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["sent"], summary["ok"], summary["failed"]) == (3, 3, 0)
    assert (bulk_programs.parent / "cache-w2" / "data-v1" / "a.bin").read_bytes() == content

    again = json.loads(waku("caches", "put", "data-v1", "a.bin", "名前.txt", "-o", "json", env=env).stdout)
    assert (again["ok"], again["skipped"]) == (0, 3)

    (home / "a.bin").write_bytes(content[:-1] + b"?")
    other = waku("caches", "put", "data-v1", "a.bin", env=env)
    assert other.returncode == 1, other.stdout
    assert "a.bin" in other.stderr + other.stdout

    digest = hashlib.sha256(content).hexdigest()
    done = waku("run", "sum", "--cached", "data-v1/a.bin", "--", "a.bin", env=env)
    assert done.stdout == f"{digest}  a.bin\n", done.stderr

    _worker(start, address, bulk_programs, "late")
    warmed = bulk_programs.parent / "cache-late" / "data-v1" / "a.bin"
    eventually_blocking(warmed.exists, "a worker that joined later was not warmed")
    assert warmed.read_bytes() == content

    rows = json.loads(waku("caches", "list", "-o", "json", env=env).stdout)["rows"]
    assert [(row["cache"], row["files"]) for row in rows] == [("data-v1", 2)]
    assert waku("caches", "drop", "data-v1", env=env).returncode == 0
    eventually_blocking(lambda: not warmed.exists(), "it was not dropped")
    gone = waku("run", "sum", "--cached", "data-v1/a.bin", "--", "a.bin", env=env)
    assert gone.returncode == 1
    assert "data-v1" in gone.stderr


@pytest.mark.spec("C6", "L7")
def test_a_killed_leader_still_knows_its_caches(bulk_programs: Path, start: Start, waku: Waku, home: Path) -> None:
    port, state = str(free_port()), home / "state"
    leader = start("leader", port, "--state", state)
    address = leader.line()
    _worker(start, address, bulk_programs, "w1")
    env = os.environ | {"WAKU_LEADER": address}
    (home / "a.bin").write_bytes(_content(MIB))
    assert waku("caches", "put", "data-v1", "a.bin", env=env).returncode == 0
    leader.process.kill()
    leader.end()
    start("leader", port, "--state", state).line()
    _worker(start, address, bulk_programs, "w2")
    warmed = bulk_programs.parent / "cache-w2" / "data-v1" / "a.bin"
    eventually_blocking(warmed.exists, "the new leader did not warm a new worker")
    assert warmed.read_bytes() == _content(MIB)


@pytest.mark.spec("C3")
def test_a_program_that_writes_to_its_input_changes_nothing_for_the_next(
    bulk_programs: Path, start: Start, waku: Waku, home: Path
) -> None:
    address = start("leader", "0").line()
    _worker(start, address, bulk_programs, "w1")
    env = os.environ | {"WAKU_LEADER": address}
    content = _content(2 * MIB)
    (home / "a.bin").write_bytes(content)
    assert waku("caches", "put", "data-v1", "a.bin", env=env).returncode == 0
    digest = hashlib.sha256(content).hexdigest()
    for _ in range(2):
        done = waku("run", "scribble", "--cached", "data-v1/a.bin", "--", "a.bin", env=env)
        assert done.stdout == "scribbled", done.stderr
        done = waku("run", "sum", "--cached", "data-v1/a.bin", "--", "a.bin", env=env)
        assert done.stdout == f"{digest}  a.bin\n", done.stderr


@pytest.mark.spec("C1")
def test_one_worker_that_cannot_write_is_told_and_the_others_have_it(
    bulk_programs: Path, start: Start, waku: Waku, home: Path
) -> None:
    address = start("leader", "0").line()
    host, port = address.rsplit(":", 1)
    for number in range(3):
        _worker(start, address, bulk_programs, f"w{number}")
    here = bulk_programs.parent
    command = f'ulimit -f 1024; exec "{WAKU}" worker {host} {port} --name poor --programs "{bulk_programs}" '
    command += f'--jobs "{here}/jobs-poor" --cache "{here}/cache-poor"'
    poor = subprocess.Popen(["/bin/bash", "-c", command], stderr=subprocess.PIPE)
    try:
        env = os.environ | {"WAKU_LEADER": address}
        eventually_blocking(lambda: "poor" in waku("workers", "list", env=env).stdout, "it did not come")
        (home / "a.bin").write_bytes(_content(3 * MIB))
        done = waku("caches", "put", "data-v1", "a.bin", "-o", "json", env=env)
        assert done.returncode == 1
        summary = json.loads(done.stdout)
        assert (summary["sent"], summary["ok"], summary["failed"]) == (4, 3, 1)
        assert [failure["worker"] for failure in summary["failures"]] == ["poor"]
    finally:
        poor.send_signal(signal.SIGTERM)
        poor.communicate()


@pytest.mark.spec("C8")
def test_workers_serve_each_other(bulk_programs: Path, start: Start, waku: Waku, home: Path) -> None:
    address = start("leader", "0").line()
    for number in range(6):
        _worker(start, address, bulk_programs, f"w{number}")
    env = os.environ | {"WAKU_LEADER": address}
    (home / "a.bin").write_bytes(_content(4 * MIB))
    done = waku("caches", "put", "data-v1", "a.bin", "-o", "json", env=env)
    assert json.loads(done.stdout)["ok"] == 6, done.stderr
    sent = json.loads(waku("caches", "list", "-o", "json", env=env).stdout)["blobs"]["leader_sent_bytes"]
    assert 4 * MIB <= sent <= 2 * 4 * MIB
