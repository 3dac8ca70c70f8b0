"""The embedded grid: real programs, a real child, and nothing left of either."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.kit.eventually import eventually_blocking
from tests.kit.processes import has_ended

from wakugumi import ConfigError, Refused, local
from wakugumi.adapters.net.connect import adopt
from wakugumi.core.leader.answer_records import ExplainAnswer, StatusAnswer
from wakugumi.core.leader.questions import AskExplain, AskStatus
from wakugumi.roles.client.grid import Grid
from wakugumi.roles.client.request import Task
from wakugumi.roles.client.session.leader_status import Endpoint

DEADLINE_S = 30.0


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "shout").write_text('#!/bin/sh\ntr a-z A-Z <"$1" >"$1.out"\necho "done $1"\n')
    (folder / "fail").write_text("#!/bin/sh\necho oops >&2\nexit 7\n")
    (folder / "linger").write_text('#!/bin/sh\necho $$ >"$1"\nsleep 1000\n')
    for program in folder.iterdir():
        program.chmod(0o755)
    yield folder
    assert not list(tmp_path.glob("tmp/waku-*")), "the temporary folder is gone"


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.spec("K1")
def test_a_folder_of_programs_is_a_grid(programs: Path, tmp_path: Path) -> None:
    inputs = []
    for number in range(20):
        inputs.append(tmp_path / f"in{number}.txt")
        inputs[-1].write_text(f"text {number}")
    with local(slots=3, programs=programs) as grid:
        found = {result.item: result.check() for result in grid.map("shout", inputs)}
        assert set(found) == set(inputs)
        for path, result in found.items():
            assert isinstance(path, Path)
            assert result.stdout == f"done {path.name}\n"
            assert dict(result.files) == {f"{path.name}.out": path.read_bytes().upper()}
        failed = grid.run("fail")
        assert (failed.ok, failed.exit_code, failed.stderr) == (False, 7, "oops\n")
        missing = grid.run("sort")
        assert (missing.ok, missing.reason) == (False, "unknown-program")
        status = grid.ask(AskStatus())
        assert isinstance(status, StatusAnswer)
        assert (status.workers, status.finished_ok) == (1, 20)


@pytest.mark.anyio
async def test_the_same_with_async(programs: Path) -> None:
    async with local(slots=2, programs={"loud": programs / "shout"}) as grid:
        job = await grid.submit("loud", args=["x"], files={"x": "hello"})
        await job.accepted()
        assert (await job).files["x.out"] == b"HELLO"
        assert [result.ok async for result in grid.map("loud", ["y"], files={"y": b"1"})] == [True]


def test_without_programs_it_runs_what_a_shell_would_find() -> None:
    with local(1) as grid:
        assert grid.run("echo", args=["hello"]).stdout == "hello\n"
        assert grid.run("no-such-program").reason == "unknown-program"


@pytest.mark.spec("F7", "L2")
def test_a_job_of_several_slots_runs_alone_where_there_are_no_more(tmp_path: Path) -> None:
    """Each program writes its name down while it runs, and says who else did."""
    folder = tmp_path / "running"
    folder.mkdir()
    program = tmp_path / "alone"
    program.write_text(
        f"#!/bin/sh\ntouch {folder}/$1\ni=0\nwhile [ $i -lt 2000 ]; do i=$((i+1)); done\nls {folder}\nrm {folder}/$1\n"
    )
    program.chmod(0o755)
    with local(3, programs={"alone": program}) as grid:
        items = [Task(args=[str(number)], slots=3 if number % 4 == 0 else 1) for number in range(24)]
        results = list(grid.map("alone", items))
        assert all(result.ok for result in results)
        for result in results:
            assert isinstance(result.item, Task)
            if result.item.slots == 3:
                assert result.stdout.split() == list(result.item.args), "it had all the slots"
        grid.submit("alone", args=["x"], job_id="too-large", slots=4).accepted()
        told = grid.ask(AskExplain("too-large"))
        assert isinstance(told, ExplainAnswer)
        assert "it needs 4 slots at once, and no worker" in told.reasons[0]


def test_jobs_may_have_a_folder_of_their_own_that_stays(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    with local(1, programs=programs, jobs=folder) as grid:
        assert grid.run("shout", args=["x"], files={"x": "a"}).ok
    assert folder.is_dir()


def test_what_cannot_be_is_said_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        local(programs=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is no file"):
        local(programs={"x": tmp_path / "nowhere"})
    with pytest.raises(ConfigError, match="not 0"):
        local(0)


def test_it_may_begin_before_it_is_wanted_or_not_be_wanted_after_all(programs: Path, own_tmp: Path) -> None:
    early = local(1, programs=programs)
    early.begin()
    (folder,) = own_tmp.iterdir()
    assert early.is_like(local(1, programs=programs))
    assert not early.is_like(local(2, programs=programs))
    with early as grid:
        assert grid.run("shout", args=["x"], files={"x": b"a"}).ok
        assert list(own_tmp.iterdir()) == [folder], "it is the one that had begun"
    early.begin()
    eventually_blocking(lambda: len(list(own_tmp.iterdir())) == 1, within_s=DEADLINE_S)
    early.drop()
    eventually_blocking(lambda: not list(own_tmp.iterdir()), within_s=DEADLINE_S)
    early.drop()


def test_it_needs_neither_terminal_nor_home_nor_main_thread(programs: Path) -> None:
    script = """
        import threading, wakugumi
        def work():
            with wakugumi.local(1, programs=PROGRAMS) as grid:
                print(grid.run("shout", args=["x"], files={"x": "a"}).files["x.out"].decode())
        thread = threading.Thread(target=work)
        thread.start(); thread.join()
    """
    ran = run_script(script, programs, HOME="/nowhere", LOGNAME=None, USER=None)
    output, _ = ran.communicate(timeout=DEADLINE_S)
    assert (output, ran.returncode) == ("A\n", 0)


def run_script(script: str, programs: Path, **environment: str | None) -> subprocess.Popen[str]:
    env = {**os.environ, **environment}
    return subprocess.Popen(
        [sys.executable, "-c", f"PROGRAMS = {str(programs)!r}\n{textwrap.dedent(script)}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in env.items() if value is not None},
        start_new_session=True,
    )


LINGER = """
    import sys, wakugumi
    with wakugumi.local(2, programs=PROGRAMS) as grid:
        try:
            grid.run("linger", args=[MARK])
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def lingering(programs: Path, tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """A script with a job that does not end, and the job's process."""
    mark = tmp_path / "mark"
    script = run_script(f"MARK = {str(mark)!r}\n{textwrap.dedent(LINGER)}", programs)
    eventually_blocking(lambda: mark.exists() and mark.read_text().endswith("\n"), within_s=DEADLINE_S)
    return script, int(mark.read_text())


@pytest.mark.spec("W3")
def test_kill_9_of_the_parent_ends_the_child_and_its_programs(programs: Path, tmp_path: Path, own_tmp: Path) -> None:
    script, job = lingering(programs, tmp_path)
    family = descendants(script.pid)
    assert job in family
    assert len(family) >= 3, "guardian, leader with worker, program"
    script.kill()
    script.communicate()
    eventually_blocking(lambda: all(has_ended(pid) for pid in family), within_s=DEADLINE_S)
    eventually_blocking(lambda: not list(own_tmp.iterdir()), within_s=DEADLINE_S)


def test_an_interrupt_is_the_parents_to_decide_about(programs: Path, tmp_path: Path) -> None:
    script, job = lingering(programs, tmp_path)
    family = descendants(script.pid)
    os.killpg(script.pid, signal.SIGINT)  # As a terminal does it: to the whole group.
    output, _ = script.communicate(timeout=DEADLINE_S)
    assert output == "interrupted\n"
    assert script.returncode == 0
    eventually_blocking(lambda: all(has_ended(pid) for pid in [job, *family]), within_s=DEADLINE_S)


def descendants(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def test_a_child_that_dies_fails_the_jobs_with_its_last_words(programs: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with local(2, programs=programs) as grid:
        handle = grid.submit("linger", args=[mark])
        eventually_blocking(lambda: mark.exists() and mark.read_text().endswith("\n"), within_s=DEADLINE_S)
        family = descendants(os.getpid())
        for pid in family:
            with suppress(ProcessLookupError):  # Some end with those before them.
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(Refused, match="the embedded grid died") as caught:
            handle.result(DEADLINE_S)
        assert caught.value.code == "no-leader"
        with pytest.raises(Refused, match="the embedded grid died"):
            grid.run("shout")
        with pytest.raises(Refused, match="the embedded grid died"):
            next(grid.map("shout", ["x"]))


def test_a_child_that_cannot_start_says_why(tmp_path: Path, programs: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    grid = local(1, programs=programs, jobs=blocked / "jobs")
    with pytest.raises(Refused, match="the embedded grid died") as caught, grid:
        pass
    assert "blocked" in str(caught.value)


def test_a_suspended_parent_is_not_taken_for_dead(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:

        async def hello() -> bytes:
            here = Endpoint("x", lambda owner, _access: adopt(theirs, owner, trusted=True))
            grid = Grid([here], client_id="me", cap=1, embedded=True)
            data = await asyncio.to_thread(ours.recv, 4096)
            await grid.close()
            return data

        assert json.loads(asyncio.run(hello())[45:])["Wants"] == ["receipts", "blobs", "digests"]


def test_large_jobs_flow_both_ways_at_once(programs: Path) -> None:
    """Each side writes more than any buffer holds while the other does: nobody may wait for the other to read."""
    content = os.urandom(250_000)
    files = {str(number): content for number in range(8)}
    items = [{"args": [str(number % 8)], "files": files} for number in range(24)]
    with local(4, programs=programs) as grid:
        watchdog = threading.Timer(DEADLINE_S, grid.close)
        watchdog.start()
        sizes = [len(result.check().files[f"{result.item['args'][0]}.out"]) for result in grid.map("shout", items)]  # type: ignore[index]
        watchdog.cancel()
    assert sizes == [len(content)] * 24


def test_several_grids_and_threads_do_not_meet(programs: Path) -> None:
    seen: list[bool] = []

    def work() -> None:
        with local(1, programs=programs) as grid:
            seen.extend(result.ok for result in grid.map("shout", ["x"] * 5, files={"x": b"a"}))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert seen == [True] * 15


def test_nothing_is_left_open(programs: Path) -> None:
    def once() -> None:
        with local(1, programs=programs) as grid:
            assert grid.run("shout", args=["x"], files={"x": b""}).ok

    once()
    before = len(list(Path("/proc/self/fd").iterdir()))
    threads = threading.active_count()
    for _ in range(3):
        once()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert threading.active_count() == threads
