"""What every test may lean on."""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from tests.kit.tools import MISSING

# How long something takes says more of the machine and its other work than of our code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

_OFTEN_IGNORED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""By `nohup`, and in the background of a script."""


_ASKS: Final = "geteuid("
_SETTINGS: Final = ("WAKU_", "WORKER_", "CLIENT_")
_LOOKS: Final = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing of the user's own reaches the tests: no setting, and no signal that is ignored."""
    for name in list(os.environ):
        if (name.startswith(_SETTINGS) and name != "WAKU_CONFORMANCE") or name in _LOOKS:
            del os.environ[name]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
    _hear_all_signals(config)


def _hear_all_signals(config: pytest.Config) -> None:
    """A signal that is ignored here would be ignored in all that the tests start. One that is handled is not handed on,
    and we are as deaf to it as before. The process that only hands out tests to others leaves this to them."""
    hands_out = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
    for number in _OFTEN_IGNORED:
        if not hands_out and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--must-run",
        action="append",
        default=[],
        metavar="TEXT",
        help="A test that is skipped for a reason with this text has failed: where all is there, nothing is left out.",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        why = report.longrepr[2]
        if any(text in why for text in item.config.getoption("--must-run")):
            report.outcome, report.longrepr = "failed", f"it must run here, and was skipped: {why}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks who runs it depends on the user, said or not."""
    for item in items:
        if item.name.partition("[")[0] in _askers(item.path):
            item.add_marker("user_dependent")


@cache
def _askers(path: Path) -> frozenset[str]:
    """The functions of a file that ask for the user's number, themselves or by another one."""
    text = path.read_text(encoding="utf-8")
    if _ASKS not in text:
        return frozenset()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    texts = {node.name: ast.unparse(node) for node in functions}
    direct = {name for name, source in texts.items() if _ASKS in source}
    return frozenset(name for name, source in texts.items() if any(f"{asker}(" in source for asker in direct))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests could not run here for want of a tool, and what CI left out: silence is no success."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)]
    missing = [reason for reason in reasons if MISSING in reason]
    if missing:
        names = sorted({reason.partition(f"{MISSING}: ")[2].partition(";")[0] for reason in missing})
        text = f"{len(missing)} skipped for missing tools ({', '.join(names)}): `make tools` installs them"
        terminalreporter.write_sep("=", text, yellow=True, bold=True)
    if notes := os.environ.get("CI_NOTES"):
        for line in Path(notes).read_text(encoding="utf-8").splitlines():
            terminalreporter.write_sep("=", f"NOTE: {line}", yellow=True, bold=True)
