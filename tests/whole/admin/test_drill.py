"""`waku drill`: processes are killed for real, and what is counted is true."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.kit.processes import has_ended

from wakugumi.adapters.programs.process_tree import children_of, with_all_below

# Many slots, because each waits up to 2 s for a CPU that others keep busy (SPEC W2).
SMALL = ("--workers", "2", "--slots", "16", "--job-ms", "10", "--away", "0.3")


def folders(home: Path) -> list[Path]:
    """What drills have left; the fixture has them work beside its own folder."""
    return list(home.parent.glob("waku-drill-*"))


@pytest.mark.spec("O4", "L4", "L7", "W7")
def test_a_small_drill_of_everyone_is_passed(waku, home: Path) -> None:
    done = waku("drill", "--jobs", "60", "--times", "4", "--stops", "1", "--seed", "11", *SMALL)
    assert done.returncode == 0, done.stderr + done.stdout
    table = {
        cells[0]: cells[1] for line in done.stdout.splitlines() if len(cells := re.split(r"\s{2,}", line.strip())) > 1
    }
    assert (table["accepted"], table["finished"], table["lost"]) == ("60", "60", "0")
    assert (table["results delivered twice"], table["kills"], table["stops"]) == ("0", "4", "1")
    assert table["a leader was killed"] == "0"
    assert "--seed 11" in done.stderr
    assert "passed: nothing was lost" in done.stderr
    assert folders(home) == []


@pytest.mark.spec("O4", "L4")
def test_killed_workers_and_clients_cost_no_more_than_what_ran(waku, home: Path) -> None:
    words = ("--kill", "worker,client", "--times", "3", "--stops", "0", "--seed", "5", "--keep", "-o", "json")
    done = waku("drill", "--jobs", "40", *words, *SMALL)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    counted = report["count"]
    assert report["passed"]
    assert (counted["finished"], counted["lost"], counted["delivered_twice"]) == (40, [], [])
    assert sum(counted["kills"].values()) == 3
    assert 1 <= counted["kills_with_work"] <= 3
    assert counted["beyond_one"] <= counted["running_on_killed"]
    assert [Path(report["folder"])] == folders(home)
    assert (folders(home)[0] / "marks").read_text().count(" start worker-") == counted["executions"]


def test_a_leader_without_a_journal_is_found_out(waku, home: Path) -> None:
    words = ("--leader-memory", "--kill", "leader", "--times", "2", "--stops", "0", "--seed", "3", "-o", "json")
    done = waku("drill", "--jobs", "60", *words, *SMALL)
    assert done.returncode == 1, done.stderr + done.stdout
    report = json.loads(done.stdout)
    assert not report["passed"]
    assert report["count"]["lost"]
    assert re.search(r"wrong: \d+ accepted jobs? lost", done.stderr)
    assert f"marks, logs and the leader's state are in {folders(home)[0]}" in done.stderr
    assert (folders(home)[0] / "logs" / "leader.2.log").exists()


@pytest.mark.parametrize("how", ["Ctrl-C", "the drill itself is killed"])
def test_a_drill_that_is_stopped_leaves_no_process_and_no_folder(how: str, start: Callable, home: Path) -> None:
    drill = start("drill", "--jobs", "2000", "--times", "400", "--kill", "client", *SMALL)
    drill.until(lambda said: said.count(" killed ") >= 3)
    started = with_all_below([drill.process.pid])
    assert len(started) >= 7  # the drill, a leader and two workers; all but the leader below a guardian
    if how == "Ctrl-C":
        drill.signal(signal.SIGINT)
    else:
        os.kill(children_of(drill.process.pid)[0], signal.SIGKILL)
    code, out, said = drill.end()
    assert (code, out) == (130 if how == "Ctrl-C" else 137, "")
    assert "Traceback" not in said
    until = monotonic() + 10
    while not all(has_ended(pid) for pid in started):
        assert monotonic() < until, "processes are left"
        sleep(0.01)
    assert folders(home) == []
