"""A log line is one line, whatever a stranger's text in it holds."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest
from tests.kit.hostile_text import ALL, MARK, TEXTS, reached

from wakugumi.app import logs
from wakugumi.app.client_settings import LogSettings

pytestmark = pytest.mark.spec("O1")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, hook = root.handlers[:], root.level, sys.excepthook
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook = hook


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_a_record_is_one_visible_line(name: str, as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(LogSettings(log_level="info", log_json=as_json))
    text = TEXTS[name]
    logging.getLogger("wakugumi.test").info("said: %s", text, extra={"fields": {"path": text}})
    line = capsys.readouterr().err
    assert reached(line) == []
    assert line.count("\n") == 1
    if as_json:
        record = json.loads(line)
        assert (record["msg"], record["path"]) == (f"said: {text}", text)
    else:
        assert json.loads(line.partition(" msg=")[2].partition(" path=")[0]) == f"said: {text}"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_quotes_a_stranger_and_forges_no_line(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(LogSettings(log_level="info", log_json=as_json))
    try:
        raise ValueError(ALL)
    except ValueError:
        logging.getLogger("wakugumi.test").exception("it went wrong")
    told = capsys.readouterr().err
    assert reached(told) == []
    assert MARK in told
    assert all(line.startswith("    ") for line in told.splitlines()[1:])
    assert len(re.findall(r"^(?:time=|\{)", told, re.MULTILINE)) == 1


def test_the_last_words_of_a_bug_are_visible(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(LogSettings(log_level="info"))
    try:
        raise ValueError(ALL)
    except ValueError:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert told.startswith("Traceback")
    assert MARK in told
    assert reached(told) == []
