"""A test that misses a tool is skipped where everybody sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
