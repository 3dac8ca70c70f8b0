"""The tests run for everybody: who misses a tool is told, and the user's settings and signals do not reach them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

TOP = Path(__file__).parents[2]


def test_the_summary_counts_what_was_skipped_for_a_missing_tool_and_says_what_ci_left_out(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("Python 3.99 is not here\n")
    said = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/roles/http/test_status_pages.py",
            "-k",
            "promtool",
        ],
        cwd=TOP,
        env={"PATH": "/nonexistent", "CI_NOTES": str(tmp_path / "notes")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stdout
    assert "1 skipped for missing tools (promtool): `make tools` installs them" in said.stdout
    assert "NOTE: Python 3.99 is not here" in said.stdout


@pytest.mark.parametrize("processes", ["0", "1"])
def test_under_nohup_and_in_the_background_of_a_script_signals_are_tested_all_the_same(processes: str) -> None:
    words = ["-q", "-p", "no:cacheprovider", "-n", processes, "tests/adapters/loop/test_signals.py"]
    said = subprocess.run(
        ["/bin/sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh", sys.executable, "-m", "pytest", *words],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stdout
    assert "2 passed" in said.stdout


def test_settings_of_the_user_are_none_to_the_tests() -> None:
    settings = {"WAKU_LEADER": "nowhere:1", "WAKU_LOG_LEVEL": "debug", "WAKU_CLIENT_ID": "me", "FORCE_COLOR": "1"}
    proxies = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    words = ["-q", "-p", "no:cacheprovider", "-k", "listed", "tests/app/admin/test_dead.py"]
    said = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=TOP,
        env={"PATH": "/usr/bin:/bin", **settings, **proxies},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stdout
    assert "passed" in said.stdout


def test_what_must_run_fails_where_it_is_skipped() -> None:
    words = ["-q", "-p", "no:cacheprovider", "tests/conformance/test_nats_subjects.py"]
    for more, code, told in ([], 0, "skipped"), (["--must-run", "WAKU_CONFORMANCE"], 1, "it must run here, and was"):
        said = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *more], cwd=TOP, env={}, capture_output=True, text=True, timeout=60
        )
        assert said.returncode == code, said.stdout
        assert told in said.stdout


def test_what_ci_leaves_out_is_noted_or_has_failed(tmp_path: Path) -> None:
    """Here: root may start no program as another user."""
    tools, notes = tmp_path / "tools", tmp_path / "notes"
    tools.mkdir()
    for name, text in ("id", "echo 0"), ("setpriv", "exit 1"):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    env = {"PATH": f"{tools}:/usr/bin:/bin", "CI_NOTES": str(notes)}
    why = "root may start no program as another user on this machine"
    for more, code in ({}, 0), ({"CI_MUST_RUN": "1"}, 1):
        said = subprocess.run([TOP / ".ci/as-user"], env=env | more, capture_output=True, text=True, timeout=60)
        assert (said.returncode, why in said.stderr) == (code, True), said
    assert notes.read_text().count(why) == 2


def test_whatever_asks_who_runs_it_is_tried_by_root_and_by_an_ordinary_user() -> None:
    """Also if it does so by a function of its file, and nobody marked it."""
    words = ["-q", "--collect-only", "-p", "no:cacheprovider", "-m", "user_dependent"]
    files = [
        "tests/adapters/journal/test_journal.py",
        "tests/adapters/jobdir/test_folder.py",
        "tests/roles/runner/files/test_place_inputs.py",
    ]
    said = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *files], cwd=TOP, capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0, said.stdout
    for name in (
        "test_a_folder_that_may_not_be_written_is_told",
        "test_a_full_disk_leaves_nothing_that_looks_finished",
        "test_between_two_mounts_of_one_file_system_copies_are_made_in_a_thread",
    ):
        assert name in said.stdout
    assert "test_every_kind_of_record" not in said.stdout


def test_a_machine_may_be_busy() -> None:
    """By the default of hypothesis a property that once takes longer than 0.2 s has failed."""
    assert settings().deadline is None
