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
from wakugumi.app.show.output import say_error
from wakugumi.wire.access_line import parse_key

pytestmark = pytest.mark.spec("O1")

KEY = parse_key(f"desk-1:{'k' * 32}-{'x7' * 26}")


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


@pytest.mark.parametrize("as_json", [False, True])
def test_no_line_has_the_secret_of_a_key(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(LogSettings(log_level="info", log_json=as_json))
    log = logging.getLogger("wakugumi.test")
    log.info(f"dialled waku://{KEY.text}@10.0.0.5:5000")
    log.info("shown: %s, %r", KEY.text, [KEY.secret, KEY.text[:80]])
    log.info("asked", extra={"fields": {"header": f"Bearer {KEY.text}"}})
    try:
        raise ValueError(f"{KEY.text} is wrong")
    except ValueError:
        log.exception("it went wrong")
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert KEY.secret[:10] not in told
    assert told.count(f"desk-1:{KEY.digest}-…") + told.count(f"desk-1:{KEY.digest}-\\u2026") >= 5
    assert "waku://desk-1:" in told
    assert "@10.0.0.5:5000" in told


def test_an_error_of_a_command_hides_the_secret_too(capsys: pytest.CaptureFixture[str]) -> None:
    say_error(f"{KEY.text} is wrong", f"not {KEY.secret}")
    assert capsys.readouterr().err == f"error: desk-1:{KEY.digest}-… is wrong\n\nhint: not …\n"
