"""What does Prometheus' own tool say about metrics?"""

from __future__ import annotations

import subprocess

from tests.kit.tools import tool


def promtool_says(metrics: bytes) -> str:
    """Empty if it is content. Skips where it is not installed."""
    said = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=metrics,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=20,
    )
    return said.stdout.decode() + (f"exit code {said.returncode}" if said.returncode else "")
