"""`waku join`: a real command against a real server; the secret is in the access file alone."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.access_server import AccessServer

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.app.cli import call
from wakugumi.core.access.identity import Role
from wakugumi.errors import EXIT_DENIED, EXIT_NO_LEADER, EXIT_NOT_FOUND, EXIT_USAGE
from wakugumi.wire.access_line import Key

pytestmark = pytest.mark.spec("O1")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AccessServer]:
    """In a loop of its own: the command has one, too."""
    server = AccessServer(tmp_path / "state")
    is_open = threading.Event()
    loop = asyncio.new_event_loop()
    ends = asyncio.Event()

    async def serve() -> None:
        async with server.listening():
            is_open.set()
            await ends.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert is_open.wait(20)
    yield server
    loop.call_soon_threadsafe(ends.set)
    thread.join()
    loop.close()


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home" / "access.toml"
    monkeypatch.setenv("WAKU_ACCESS", str(path))
    return path


@pytest.fixture
def key(server: AccessServer) -> Key:
    return server.key("desk-1", Role.CLIENT)


def test_the_line_comes_from_stdin(
    server: AccessServer, key: Key, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"waku join {server.line(key)}\n"))
    assert call(["join", "-"]) == 0
    said = capsys.readouterr()
    told = dict(line.split("  ", 1) for line in said.out.splitlines())
    assert told["leader"].strip() == str(server.address)
    assert told["known as"].strip() == "desk-1, with the role client"
    assert "run jobs as desk-1, desk-1.*" in told["may"]
    assert told["key in"].strip() == str(path)
    assert key.secret not in said.out + said.err
    entry = AccessFile(path).find(server.address)
    assert entry is not None
    assert entry.key == key


def test_a_line_among_the_arguments_works_with_a_word_about_the_history(
    server: AccessServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, other = server.key("rack-7", Role.WORKER), tmp_path / "other" / "access.toml"
    assert call(["join", server.line(key), "--access", str(other), "-o", "json"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["me"]["name"], told["me"]["role"], told["file"]) == ("rack-7", "worker", str(other))
    assert Path(told["certificate"]).parent == other.parent
    assert 89 * 86_400 < told["certificate_until_s"] <= 90 * 86_400
    assert "history" in said.err
    assert key.secret not in said.out + said.err


def test_a_grid_is_forgotten(server: AccessServer, key: Key, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["join", server.line(key), "-o", "quiet"]) == 0
    assert capsys.readouterr().out == "desk-1\n"
    assert call(["join", "--forget", str(server.address)]) == 0
    assert AccessFile(path).entries() == []
    assert call(["join", "--forget", str(server.address)]) == EXIT_NOT_FOUND


def test_a_key_that_is_not_valid_is_denied(
    server: AccessServer, key: Key, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.keys.clear()
    assert call(["join", server.line(key)]) == EXIT_DENIED
    said = capsys.readouterr()
    assert "the key is not valid here" in said.err
    assert key.secret not in said.out + said.err
    assert not path.exists()


def test_nobody_at_the_address_is_told(key: Key, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["join", f"waku://{key.text}@127.0.0.1:1"]) == EXIT_NO_LEADER
    assert key.secret not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no line is given"),
        (["--bogus"], "does not take '--bogus'"),
        (["a:1"], "the line has no key"),
        (["a:1", "--forget", "a:1"], "exclude each other"),
        (["waku://x:y-z@a:1"], "is cut or misspelt"),
    ],
)
def test_a_wrong_call_is_told(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["join", *words]) == EXIT_USAGE
    assert complaint in capsys.readouterr().err
