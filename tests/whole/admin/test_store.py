"""`waku store`: a leader's journal checked, copied and mended from the command line."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

FILE = "journal.sqlite"


@pytest.fixture
def state(home: Path, start, waku) -> Path:  # type: ignore[no-untyped-def]
    """The folder of a leader that took four jobs, one by one, and was killed."""
    folder = home / "state"
    leader = start("leader", "0", "--state", folder)
    address = leader.line()
    for number in range(4):
        done = waku("submit", "calcA", "--id", f"job-{number}", "--leader", address, "--", f"word-{number:03}")
        assert done.returncode == 0, done.stderr
    leader.signal(signal.SIGKILL)
    leader.end()
    return folder


def spoil(state: Path, waku) -> None:  # type: ignore[no-untyped-def]
    """Change a byte of a job's request; a leader writes all back to the one file when it is opened and closed."""
    assert waku("store", "backup", state, "copy.sqlite").returncode == 0
    content = (state.parent / "copy.sqlite").read_bytes()
    assert content.count(b"word-003") == 1
    for name in (f"{FILE}-wal", f"{FILE}-shm"):
        (state / name).unlink(missing_ok=True)
    (state / FILE).write_bytes(content.replace(b"word-003", b"word-00X"))


@pytest.mark.spec("L7")
def test_a_killed_leaders_journal_is_sound_and_has_all_it_took(state: Path, waku) -> None:  # type: ignore[no-untyped-def]
    shown = waku("store", "check", state)
    assert shown.returncode == 0, shown.stderr
    assert "queued" in shown.stdout
    found = json.loads(waku("store", "check", "--state", state, "-o", "json").stdout)
    assert (found["jobs"]["queued"], found["damage"], found["leader"]) == (4, "", 0)
    assert waku("store", "check", state, "-o", "quiet").stdout == "ok\n"


def test_a_journal_is_checked_and_copied_while_its_leader_runs(home: Path, start, waku) -> None:  # type: ignore[no-untyped-def]
    leader = start("leader", "0", "--state", home / "state")
    address = leader.line()
    assert waku("submit", "calcA", "--count", "50", "--leader", address).returncode == 0
    found = json.loads(waku("store", "check", home / "state", "-o", "json").stdout)
    assert (found["jobs"]["queued"], found["leader"]) == (50, leader.process.pid)
    (home / "copy").mkdir()
    assert waku("store", "backup", home / "state", home / "copy" / FILE).returncode == 0
    again = waku("store", "backup", home / "state", home / "copy" / FILE)
    assert again.returncode == 2
    assert "is there already" in again.stderr
    refused = waku("store", "repair", home / "state")
    assert refused.returncode == 2
    assert f"another leader (process {leader.process.pid})" in refused.stderr
    copied = json.loads(waku("store", "check", home / "copy", "-o", "json").stdout)
    assert copied["jobs"]["queued"] == 50


@pytest.mark.spec("L7")
def test_a_damaged_journal_is_refused_then_repaired_and_then_serves(state: Path, waku, start) -> None:  # type: ignore[no-untyped-def]
    spoil(state, waku)
    refused = waku("leader", "0", "--state", state)
    assert refused.returncode == 2
    assert "is damaged" in refused.stderr
    assert f"waku store repair {state}" in refused.stderr
    checked = waku("store", "check", state)
    assert checked.returncode == 1
    assert "is not what was written" in checked.stderr
    mended = waku("store", "repair", state)
    assert mended.returncode == 0, mended.stderr
    assert "lost 1 leaf (" in mended.stdout
    assert "1 job lost" in mended.stdout
    assert len(list(state.glob("damaged-*.sqlite"))) == 1
    assert waku("store", "check", state).returncode == 0
    again = waku("store", "repair", state)
    assert again.returncode == 0
    assert "nothing was changed" in again.stdout
    address = start("leader", "0", "--state", state).line()
    jobs = json.loads(waku("jobs", "list", "--leader", address, "-o", "json").stdout)
    assert jobs["total"] == 3


def test_a_folder_without_a_journal_costs_a_sentence_and_a_hint(home: Path, waku) -> None:  # type: ignore[no-untyped-def]
    for words in (["check", home], ["repair", home], ["backup", home, "copy"]):
        done = waku("store", *words)
        assert done.returncode == 2
        assert f"there is no journal in {home}" in done.stderr
        assert "hint: name the folder" in done.stderr
    twice = waku("store", "check", home, "--state", home)
    assert (twice.returncode, "named twice" in twice.stderr) == (2, True)
