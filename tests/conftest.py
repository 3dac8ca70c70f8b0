"""What every test may lean on."""

from __future__ import annotations

import pytest
from tests.tools import MISSING


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests could not run here for want of a tool: nobody should take their silence for success."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)]
    missing = [reason for reason in reasons if MISSING in reason]
    if missing:
        names = sorted({reason.partition(f"{MISSING}: ")[2].partition(";")[0] for reason in missing})
        text = f"{len(missing)} skipped for missing tools ({', '.join(names)}): `make tools` installs them"
        terminalreporter.write_sep("=", text, yellow=True, bold=True)
