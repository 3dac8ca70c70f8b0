"""What every test may lean on."""

from __future__ import annotations

import signal
from typing import Final

import pytest
from tests.tools import MISSING

_OFTEN_IGNORED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""By `nohup`, and in the background of a script."""


def pytest_configure(config: pytest.Config) -> None:
    """A signal that is ignored here would be ignored in all that the tests start. One that is handled is not handed on,
    and we are as deaf to it as before. The process that only hands out tests to others leaves this to them."""
    hands_out = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
    for number in _OFTEN_IGNORED:
        if not hands_out and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


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
