"""Each role as a process, open to the network: no web page of elsewhere may ask it, and programs may by any name."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from wakugumi.adapters.blobs.place_http import HttpPlace
from wakugumi.errors import Lost
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.spec("O1")

ALIAS = "grid.example"
OPEN = ("--host", "0.0.0.0", "--allow-open", "--name", ALIAS)
LOOK = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document"
CASES = {
    "Host: 127.0.0.1": 200,
    "Host: 10.1.2.3:5000": 200,
    "Host: localhost": 200,
    f"Host: {socket.gethostname()}": 200,
    f"Host: {ALIAS}:5000": 200,
    f"Host: {ALIAS}\r\nOrigin: http://{ALIAS}": 200,
    "Host: balancer.example\r\nSec-Waku: 1": 200,
    f"Host: 127.0.0.1\r\n{LOOK}": 200,
    "Host: evil.example": 403,
    "Host: 127.0.0.1\r\nOrigin: http://evil.example": 403,
    "Host: 127.0.0.1\r\nOrigin: null": 403,
    "Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site": 403,
    f"Host: 127.0.0.1\r\n{LOOK.replace('document', 'iframe')}": 403,
    f"Host: evil.example\r\n{LOOK}": 403,
}


def ask(port: int, lines: str, method: str = "GET") -> tuple[int, str, bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"{method} /health HTTP/1.1\r\n{lines}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    top, _, body = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), top.decode().lower(), body


def leader(start: Callable[..., Any], _: Path) -> int:
    return int(start("leader", "0", *OPEN).line().rpartition(":")[2])


def gateway(start: Callable[..., Any], _: Path) -> int:
    return int(start("gateway", "0", "--group", "a=http://127.0.0.1:9", *OPEN).line().rpartition(":")[2])


def node(start: Callable[..., Any], programs: Path) -> int:
    said = start("node", "--programs", programs, "--http", "0", "--lines", "off", "--jobs", programs / "jobs", *OPEN)
    return int(said.line().rpartition(":")[2])


def up(start: Callable[..., Any], programs: Path) -> int:
    said = start("up", "0", "--programs", programs, "--jobs", programs / "jobs", *OPEN)
    return int(said.line().rpartition(":")[2])


def worker(start: Callable[..., Any], programs: Path) -> int:
    ports = ("--metrics", "0.0.0.0:0", "--name", ALIAS, "--allow-open")
    running = start("worker", "127.0.0.1", "9", "--programs", programs, "--jobs", programs / "jobs", *ports)
    said = running.until(lambda text: "/metrics" in text)
    return int(said.partition("/metrics")[0].rpartition(":")[2])


@pytest.mark.parametrize("role", [leader, gateway, node, up, worker])
def test_no_page_of_elsewhere_is_answered_on_any_binding(
    start: Callable[..., Any], programs: Path, role: Callable[[Callable[..., Any], Path], int]
) -> None:
    port = role(start, programs)
    for lines, status in CASES.items():
        got, head, body = ask(port, lines)
        assert got == status, (lines, head, body)
        assert "x-content-type-options: nosniff" in head
        assert "frame-ancestors 'none'" in head
        if status == 403:
            problem = json.loads(body)
            assert problem["code"] == "denied"
            assert problem["hint"]
    advice = "its IP address" if role is worker else "--name evil.example"
    assert advice in ask(port, "Host: evil.example")[2].decode()
    assert ask(port, f"Host: 127.0.0.1\r\n{LOOK}", "POST")[0] == 403, "a form of elsewhere is no look"


def test_a_worker_says_nothing_to_the_network_unless_told(waku: Callable[..., Any], programs: Path) -> None:
    words = ["worker", "127.0.0.1", "9", "--programs", programs]
    for more in (["--metrics", "0.0.0.0:0"], ["--serve", "10.0.0.7:7000"]):
        done = waku(*words, *more)
        assert done.returncode == 2
        assert "--allow-open" in done.stderr
        assert more[0] in done.stderr


@pytest.mark.parametrize("role", ["leader", "gateway", "node"])
def test_names_by_http_and_the_name_of_a_worker_have_a_variable_each(
    start: Callable[..., Any], programs: Path, role: str
) -> None:
    words = {
        "leader": ("leader", "0", "--memory"),
        "gateway": ("gateway", "0", "--group", "one=http://127.0.0.1:9", "--state", programs / "state"),
        "node": ("node", "--programs", programs, "--jobs", programs / "jobs", "--http", "0", "--lines", "off"),
    }
    env = {"WAKU_HOST_NAMES": f"other.example {ALIAS}", "WAKU_NAME": "machine-7.example"}
    said = start(*words[role], env=env).line()
    port = int(said.rpartition(":")[2])
    assert ask(port, f"Host: {ALIAS}")[0] == 200
    assert ask(port, "Host: machine-7.example")[0] == 403


def test_a_name_that_is_none_is_refused(waku: Callable[..., Any]) -> None:
    done = waku("leader", "0", "--name", "http://grid.example:5000")
    assert done.returncode == 2
    assert "is no name of a machine" in done.stderr


def test_our_own_transfers_say_that_no_browser_sent_them() -> None:
    heads: list[bytes] = []

    def hear() -> None:
        connection, _ = listener.accept()
        with connection:
            heads.append(connection.recv(65_536))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = Thread(target=hear)
        other.start()
        with pytest.raises(Lost):
            HttpPlace(f"http://127.0.0.1:{listener.getsockname()[1]}").has(BlobRef("0" * 64, 1))
        other.join()
    assert b"\r\nSec-Waku: 1\r\n" in heads[0]
