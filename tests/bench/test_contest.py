"""A contestant may do what it likes: the contest gets an answer or a reason, and nothing of it is left running."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import contest
from contest import Entry, Failed, Player

BENCH = contest.BENCH
START_S = 30.0  # far beyond what a start takes: reached only by a bug
NEVER_S = 0.3  # how long to wait for what will never come

Start = Callable[..., Player]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a contestant from its source, with arguments, and ends it when the test is over."""
    monkeypatch.setattr(contest, "BENCH", f"{BENCH}:{tmp_path}")
    monkeypatch.setattr(contest, "QUIT_LIMIT_S", NEVER_S)
    monkeypatch.setattr(contest, "TERMINATE_LIMIT_S", 1.0)
    players: list[Player] = []

    def start_from(source: str, *arguments: str) -> Player:
        (tmp_path / "stub.py").write_text(textwrap.dedent(source))
        entry = Entry("stub", "Stub", "stub", "nothing", arguments, ours=True)
        players.append(Player(entry, Path(sys.executable), tmp_path / "contestants"))
        return players[-1]

    yield start_from
    for player in players:
        player.end()


GOOD = """
    import contextlib, subprocess
    from contestant import Contestant, one_by_one, perform

    class Good(Contestant):
        versions = {"Good": "1.0"}

        def throughput(self, jobs):
            print("not an answer", flush=True)
            subprocess.run(["echo", "nor this"])
            return {"jobs": jobs, "seconds": 2.0}

        def latency(self, jobs):
            return one_by_one(lambda: None, jobs)

        def figures(self):
            raise ValueError("none today")

    perform(contextlib.nullcontext(Good()))
"""


def test_turns_are_answered_whatever_else_is_printed(start: Start) -> None:
    player = start(GOOD)
    player.wait_until_ready(START_S)
    assert player.versions == {"Good": "1.0"}
    assert player.ask("throughput 7", START_S) == {"jobs": 7, "seconds": 2.0}
    latency = player.ask("latency 5", START_S)
    assert latency.keys() == {"p50_ms", "p99_ms", "n"}
    assert latency["n"] == 5


def test_one_script_takes_part_in_several_ways_by_its_arguments(start: Start) -> None:
    source = """
        import json, sys
        print(json.dumps({"ready": {"way": sys.argv[1]}}), flush=True)
        input()
    """
    durable, memory = start(source, "durable"), start(source, "memory")
    for player in (durable, memory):
        player.wait_until_ready(START_S)
    assert (durable.versions["way"], memory.versions["way"]) == ("durable", "memory")


def test_a_contestant_knows_no_home_and_no_settings_but_its_own(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAKU_STATE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    player = start("""
        import json, os
        told = {name: os.environ.get(name, "-") for name in ("WAKU_STATE", "XDG_STATE_HOME", "HOME")}
        print(json.dumps({"ready": told | {"cwd": os.getcwd()}}), flush=True)
        input()
    """)
    player.wait_until_ready(START_S)
    own = Path(player.versions["cwd"])
    assert own.parent == tmp_path / "contestants"
    assert player.versions == {"WAKU_STATE": "-", "XDG_STATE_HOME": "-", "HOME": str(own), "cwd": str(own)}
    player.end()
    assert not own.exists()


def test_a_turn_that_fails_is_lost_alone(start: Start) -> None:
    player = start(GOOD)
    player.wait_until_ready(START_S)
    with pytest.raises(Failed, match="ValueError: none today") as failure:
        player.ask("figures", START_S)
    assert not failure.value.ended
    assert player.ask("throughput 1", START_S)["jobs"] == 1


def test_a_contestant_that_cannot_take_part_says_why(start: Start) -> None:
    player = start("""
        import contextlib
        from contestant import Absent, perform

        @contextlib.contextmanager
        def opened():
            raise Absent("not installed")
            yield

        perform(opened())
    """)
    with pytest.raises(Failed, match=r"^not installed$") as failure:
        player.wait_until_ready(START_S)
    assert failure.value.ended


def test_the_last_words_of_one_that_dies_are_its_reason(start: Start) -> None:
    player = start("raise SystemExit('no such broker')")
    with pytest.raises(Failed, match="exit code 1: no such broker") as failure:
        player.wait_until_ready(START_S)
    assert failure.value.ended


def test_an_answer_that_is_no_object_ends_its_part(start: Start) -> None:
    player = start("print('[1, 2]', flush=True); input()")
    with pytest.raises(Failed, match="no JSON object"):
        player.wait_until_ready(START_S)


def test_one_that_hangs_is_ended_with_all_that_it_started(start: Start) -> None:
    player = start("""
        import signal, subprocess, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # and so does the server, which inherits it
        server = subprocess.Popen(["sleep", "1000"])
        print('{"ready": {"pid": %d}}' % server.pid, flush=True)
        signal.pause()
    """)
    player.wait_until_ready(START_S)
    server = psutil.Process(int(player.versions["pid"]))
    with pytest.raises(Failed, match="no answer within") as failure:
        player.ask("throughput 1", NEVER_S)
    assert failure.value.ended
    player.end()
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
