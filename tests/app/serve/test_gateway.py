"""`waku gateway`: what it is told, and what it says of what cannot be."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from wakugumi.app import settings
from wakugumi.app.cli import call


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ([], "a gateway needs a group"),
        (["--group", "a"], "names no group"),
        (["--group", "a=http://h:1", "--group", "a=http://h:2"], "the same name"),
        (["--group", "a=http://h:1", "--choice", "best"], "--choice"),
        (["--group", "a=http://h:1", "--state", "/dev/null/x"], "/dev/null/x cannot be used for the gateway's state"),
        (["--group", "a=http://h:99999"], "the port 99999, which is out of range"),
        (["--group", "a=http://h:1/x?y=1"], "a host, a port and perhaps a path"),
        (["--group", "a=http://h"], "no port"),
        (["--group", "a=http://h:1,zone=east", "--choice", "near"], "--zone"),
        (["--group", "a=http://h:1", "--choice", "near", "--zone", "east"], "no group is in the zone east"),
        (["--group", "a=http://h:1", "--try-timeout", "0"], "--try-timeout"),
        (["--group", "a=http://h:1", "--keep-bytes", "much"], "--keep-bytes"),
        (["--group", "a=http://h:1", "--queue-bytes", "much"], "--queue-bytes"),
    ],
)
@pytest.mark.spec("O1")
def test_what_it_cannot_start_with_costs_a_sentence(
    more: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["gateway", "0", *more]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("content", [b"my own notes", b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_not_a_gateways_is_left_alone(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.sqlite"
    file.write_bytes(content)
    assert call(["gateway", "0", "--group", "a=http://h:1", "--state", str(tmp_path)]) == 2
    assert str(file) in capsys.readouterr().err
    assert file.read_bytes() == content


def test_a_leaders_journal_is_not_taken_for_a_gateways_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = sqlite3.connect(tmp_path / "gateway.sqlite")
    base.execute("CREATE TABLE log(number INTEGER)")
    base.close()
    assert call(["gateway", "0", "--group", "a=http://h:1", "--state", str(tmp_path)]) == 2
    assert "not the state of a gateway" in capsys.readouterr().err


def test_a_gateway_has_a_folder_of_its_own_per_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert settings.state_folder(5000, "gateway") == Path("/somewhere/wakugumi/gateway-5000")
