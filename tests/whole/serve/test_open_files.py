"""Roles raise the limit of open files, hold no more connections than fit it, and leave programs what they had."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.whole.conftest import Running

from wakugumi.limits.wire import CONNECTION_FILES_SHARE, STRANGERS_SHARE
from wakugumi.wire import frame as fr

SOFT, HARD = 80, 160
CONNECTIONS = int(HARD * CONNECTION_FILES_SHARE)


@pytest.fixture(autouse=True)
def _few_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`waku` starts with a small limit."""
    script = home.parent / "few" / "waku"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nulimit -Sn {SOFT}\nulimit -Hn {HARD}\nexec "{Running.command}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(Running, "command", script)


def said_once(running: Running) -> str:
    text = running.until(lambda text: "open files" in text)
    assert text.count("open files") == 1
    return text


def opened(port: int, count: int, all_open: ExitStack, hello: bytes = b"") -> None:
    for _ in range(count):
        all_open.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)).sendall(hello)


@pytest.mark.spec("O6")
def test_a_leader_holds_as_many_connections_as_fit_its_open_files_and_goes_on(start, waku, programs: Path) -> None:
    leader = start("leader", "0")
    address = leader.line()
    text = said_once(leader)
    assert f"open files: at most {HARD} ({SOFT} before), so at most {CONNECTIONS} connections" in text
    with ExitStack() as all_open:
        port = int(address.rpartition(":")[2])
        opened(port, 2 * CONNECTIONS, all_open)
        strangers = int(CONNECTIONS * STRANGERS_SHARE)
        leader.until(lambda text: f"more than {strangers} connections without a hello, and it is the oldest" in text)
        opened(port, CONNECTIONS + 3, all_open, fr.encode(fr.HELLO_CLIENT, subject="known"))
        leader.until(lambda text: text.count(f"more than {CONNECTIONS} connections") == 3)
    worker = start("worker", *address.split(":"), "--programs", programs, "--jobs", programs.parent / "jobs")
    worker.until(lambda text: "the leader speaks version" in text)
    done = waku("run", "--leader", address, "calcA", "--", "1")
    assert (done.returncode, done.stdout) == (0, "calcA 1\n")


def test_a_node_and_a_gateway_raise_it_too(start, programs: Path) -> None:
    node = start("node", "--http", "0", "--lines", "0", "--programs", programs, "--jobs", programs.parent / "jobs")
    assert f"at most {HARD} ({SOFT} before)" in said_once(node)
    http = re.search(r"http://127.0.0.1:(\d+) lines=", node.line())
    assert http is not None
    with ExitStack() as all_open:
        opened(int(http[1]), CONNECTIONS // 3 + 3, all_open)
        node.until(lambda text: text.count("no hello, and others need its place") == 3)
        node.until(lambda text: text.count("connections without a hello, and it is the oldest") == 10)
    gateway = start("gateway", "0", "--group", f"one=http://127.0.0.1:{http[1]}")
    assert f"so at most {CONNECTIONS} connections" in said_once(gateway)


def test_a_program_has_the_limit_that_its_worker_was_started_with(start, waku, programs: Path) -> None:
    program = programs / "limit"
    program.write_text(f"#!/bin/sh\nuntil [ $(ulimit -Sn) = {SOFT} ]; do :; done\nulimit -Sn\nulimit -Hn\n")
    program.chmod(0o755)
    leader = start("leader", "0")
    address = leader.line()
    worker = start("worker", *address.split(":"), "--programs", programs, "--jobs", programs.parent / "jobs")
    assert f"at most {HARD} ({SOFT} before)" in said_once(worker)
    done = waku("run", "--leader", address, "limit")
    assert (done.stdout, done.stderr) == (f"{SOFT}\n{HARD}\n", "")
