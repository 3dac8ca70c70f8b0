"""Is an error below a guardian told once, with its exit code?"""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
from wakugumi.app.serve.guarded import guarded
from wakugumi.errors import ConfigError, Refused
def work():
    {}
print("guarded", guarded(work))
"""


@pytest.mark.parametrize(
    ("work", "exit_code", "told"),
    [
        ("return 0", 0, ""),
        ("return 7", 7, ""),
        ("raise ConfigError('no such folder', 'make it')", 2, "error: no such folder\n\nhint: make it\n"),
        ("raise Refused('unknown-job', 'no such job', '')", 3, "error: no such job\n"),
    ],
)
def test_the_exit_code_is_that_of_the_work_or_of_its_error(work: str, exit_code: int, told: str) -> None:
    words = [sys.executable, "-c", CODE.format(work)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"guarded {exit_code}\n", told)


def test_nothing_that_was_started_is_left() -> None:
    work = "import os, subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); return 0"
    done = subprocess.run([sys.executable, "-c", CODE.format(work)], capture_output=True, text=True, timeout=60)
    started, guarded = done.stdout.splitlines()
    assert guarded == "guarded 0"
    assert subprocess.run(["kill", "-0", started], capture_output=True).returncode != 0
