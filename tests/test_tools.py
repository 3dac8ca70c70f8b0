"""The tests run for everybody: who misses a tool is told, and signals that are ignored here are none to the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]


def test_the_summary_counts_what_was_skipped_for_a_missing_tool() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/roles/test_wayside.py",
            "-k",
            "promtool",
        ],
        cwd=TOP,
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stdout
    assert "1 skipped for missing tools (promtool): `make tools` installs them" in said.stdout


@pytest.mark.parametrize("processes", ["0", "1"])
def test_under_nohup_and_in_the_background_of_a_script_signals_are_tested_all_the_same(processes: str) -> None:
    words = ["-q", "-p", "no:cacheprovider", "-n", processes, "tests/adapters/test_signals.py"]
    said = subprocess.run(
        ["/bin/sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh", sys.executable, "-m", "pytest", *words],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stdout
    assert "2 passed" in said.stdout
