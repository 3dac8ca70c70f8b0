"""The commands of a page: its blocks fenced as `sh`, run as one script."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

TOP = Path(__file__).parents[2]
WITHIN_S = 100.0


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run(script: str, folder: Path) -> None:
    """As one script: what one block starts in the background is there in the next, and all of it is ended."""
    shell = subprocess.Popen(
        ["bash", "-e", "-u", "-c", script],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=WITHIN_S)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(shell.pid, number)
            except ProcessLookupError:
                break
        shell.wait()
    assert shell.returncode == 0, said
