"""A leader with a journal, through the command line: it dies and goes on, and on bad days it says what is wrong."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.kit.answering_leader import AnsweringLeader
from tests.kit.eventually import eventually_blocking
from tests.whole.conftest import Running, Waku

from wakugumi.app.serve.free_ports import free_port

Start = Callable[..., Running]

pytestmark = pytest.mark.spec("L7")


@pytest.fixture
def state(home: Path) -> Path:
    return home / "state"


@pytest.mark.spec("L4", "F9", "W4")
def test_running_programs_outlive_their_leader_and_nothing_runs_twice(
    start: Start, waku: Waku, programs: Path, home: Path, state: Path
) -> None:
    port = str(free_port())
    leader = start("leader", port, "--state", state)
    address = leader.line()
    host, _ = address.split(":")
    worker = start("worker", host, port, "--programs", programs, "--jobs", home / "jobs", "--slots", "1")
    worker.until(lambda text: "speaks version" in text)
    began, go_on = home / "began", home / "go-on"
    for job, program in (("runs", "stay"), ("waits", "calcA")):
        words = [began, go_on] if program == "stay" else ["x"]
        done = waku("submit", program, "--id", job, "--leader", address, "--", *words)
        assert done.returncode == 0, done.stderr
    eventually_blocking(began.exists)
    began.unlink()
    leader.process.kill()
    leader.end()
    again = start("leader", port, "--state", state)
    assert again.line() == address
    assert "recovered" in again.until(lambda text: "worker joined worker=- " in text)
    go_on.touch()
    done = waku("jobs", "wait", "runs", "waits", "--leader", address)
    assert done.returncode == 0, done.stderr
    assert "ended" in done.stdout
    assert "calcA x" in done.stdout
    assert not began.exists(), "it was run a second time"
    story = waku("jobs", "story", "runs", "--leader", address, "-o", "quiet").stdout
    assert story.count("began") == 1


def test_a_leader_that_is_asked_to_stop_leaves_its_queue_to_the_next(
    start: Start, waku: Waku, home: Path, state: Path
) -> None:
    leader = start("leader", "0", "--state", state)
    address = leader.line()
    assert waku("submit", "calcA", "--id", "later", "--leader", address).returncode == 0
    leader.signal(signal.SIGTERM)
    code, _, _ = leader.end()
    assert code == 0
    again = start("leader", "0", "--state", state)
    shown = waku("jobs", "show", "later", "--leader", again.line(), "-o", "json")
    assert json.loads(shown.stdout)["state"] == "queued"


def test_by_default_a_leader_keeps_a_journal_and_says_where(start: Start, waku: Waku, tmp_path: Path) -> None:
    port = free_port()
    leader = start("leader", str(port))
    status = json.loads(waku("status", "--leader", leader.line(), "-o", "json").stdout)
    assert status["durable"]
    folder = tmp_path / "state" / "wakugumi" / f"leader-{port}"
    assert (folder / "journal.sqlite").is_file()
    leader.until(lambda text: f"journal in {folder}: accepted jobs outlive this process" in text)


def test_a_leader_and_its_worker_in_one_say_where_the_journal_is(start: Start, programs: Path, home: Path) -> None:
    up = start("up", "0", "--programs", programs, "--jobs", home / "jobs", "--state", "kept")
    up.until(lambda text: f"journal in {home / 'kept'}: " in text)


@pytest.mark.parametrize(
    ("words", "why"),
    [(("--memory",), "--memory: no journal"), ((), "port 0 and no --state: no journal")],
    ids=["memory", "any port"],
)
def test_a_leader_without_a_journal_says_so_and_inherits_nothing(
    words: tuple[str, ...], why: str, start: Start, waku: Waku, tmp_path: Path
) -> None:
    first, second = start("leader", "0", *words), start("leader", "0", *words)
    first.until(lambda text: why in text)
    address = second.line()
    assert first.line() != address
    assert not json.loads(waku("status", "--leader", address, "-o", "json").stdout)["durable"]
    assert "in memory only" in waku("status", "--leader", address).stdout
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("run", "calcA"), "disk-full", "the leader's disk is nearly full"),
        (("submit", "calcA"), "full", "the leader's queue is full"),
        (("map", "calcA", "in"), "disk-full", "the leader's disk is nearly full"),
    ],
    ids=["run", "submit", "map"],
)
@pytest.mark.spec("L9")
def test_a_leader_that_takes_no_jobs_is_waited_for_aloud(
    words: tuple[str, ...], code: str, text: str, start: Start, inputs: Path
) -> None:
    with closing(AnsweringLeader()) as leader:
        leader.refusal = code, text
        client = start(*words, "--leader", leader.address)
        client.until(lambda said: f"the leader takes no jobs now: {text}; waiting" in said)
        leader.refusal = None
        ended, _, said = client.end()
    assert ended == 0, said
    assert said.count("takes no jobs now") == said.count("the leader takes jobs again") == 1


# Bad days: one sentence and a hint.


def test_the_second_leader_on_one_state_refuses_to_start(start: Start, waku: Waku, state: Path) -> None:
    first = start("leader", "0", "--state", state)
    first.line()
    second = waku("leader", "0", "--state", state)
    assert second.returncode == 2
    assert str(first.process.pid) in second.stderr
    assert "hint:" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_journal_of_a_newer_version_is_refused(start: Start, waku: Waku, state: Path) -> None:
    _stopped_leader(start, state)
    base = sqlite3.connect(state / "journal.sqlite")
    base.execute("PRAGMA user_version = 999")
    base.close()
    _refused(waku("leader", "0", "--state", state).stderr, "newer", "hint:")


def test_a_foreign_file_is_refused_and_left_alone(waku: Waku, state: Path) -> None:
    state.mkdir()
    (state / "journal.sqlite").write_bytes(b"my diary, not yours\n" * 300)
    _refused(waku("leader", "0", "--state", state).stderr, "journal.sqlite", "hint:")
    assert (state / "journal.sqlite").read_bytes().startswith(b"my diary")


def test_a_state_that_is_no_folder_is_refused(waku: Waku, state: Path) -> None:
    state.write_text("a file")
    _refused(waku("leader", "0", "--state", state).stderr, str(state), "hint:")


def test_a_damaged_journal_is_refused_with_a_way_out_that_works(start: Start, waku: Waku, state: Path) -> None:
    leader = start("leader", "0", "--state", state)
    address = leader.line()
    for letter in "abcd":
        words = "--id", f"job-{letter}", "--leader", address, "--", letter * 3000
        assert waku("submit", "calcA", *words).returncode == 0
    leader.signal(signal.SIGTERM)
    leader.end()
    path = state / "journal.sqlite"
    path.write_bytes(path.read_bytes().replace(b"b" * 100, b"b" * 99 + b"?"))
    _refused(waku("leader", "0", "--state", state).stderr, "damaged", "waku store")
    repaired = waku("store", "repair", state)
    assert repaired.returncode == 0, repaired.stderr
    again = start("leader", "0", "--state", state)
    listed = json.loads(waku("jobs", "list", "--leader", again.line(), "-o", "json").stdout)
    assert listed["total"] == 3


def test_memory_and_state_together_are_a_mistake(waku: Waku, state: Path) -> None:
    _refused(waku("leader", "0", "--memory", "--state", state).stderr, "--memory", "hint:")


def _stopped_leader(start: Start, state: Path) -> None:
    leader = start("leader", "0", "--state", state)
    leader.line()
    leader.signal(signal.SIGTERM)
    assert leader.end()[0] == 0


def _refused(text: str, *words: str) -> None:
    assert "Traceback" not in text
    for word in words:
        assert word in text, text
    assert len([line for line in text.splitlines() if line.startswith("error:")]) == 1, text
