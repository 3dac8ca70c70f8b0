"""Another user of this machine is shut out of every port on loopback, and is told what to do. (SPEC O1)"""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from tests.kit.another_user import UID, answer_to_another_user
from tests.kit.form import FORM_HEADERS, form
from tests.kit.old_peers import HELLO_CLIENT, HELLO_WORKER, RESULT, SUBMIT_JOB, Message, pack, unpack

from wakugumi.wire import frame as fr
from wakugumi.wire.frame import Decoder
from wakugumi.wire.messages.hello import WANTS_CLIENT, HelloClient
from wakugumi.wire.messages.payload import encode

pytestmark = [pytest.mark.spec("O1"), pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")]

SAID = f"user {UID} of this machine must show a key"


def http(method: str, path: str, *lines: str, body: bytes = b"") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}", *lines]
    return "".join(f"{line}\r\n" for line in head).encode() + b"\r\n" + body


def job_by_form(path: str) -> bytes:
    return http("POST", path, *(f"{name}: {value}" for name, value in FORM_HEADERS.items()), body=form(b"x", "in"))


def is_denied(address: str, said: bytes) -> None:
    answer = answer_to_another_user(address, said)
    assert answer.startswith(b"HTTP/1.1 401 "), answer
    problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert problem["code"] == "denied"
    assert SAID in problem["detail"]
    assert "waku keys make" in problem["hint"]


def test_a_leader_s_port_is_closed_to_other_users_in_every_language(start, waku, home: Path) -> None:
    leader = start("leader", "0", "--memory").line()
    for said in (
        job_by_form("/dispatch/x"),
        http("GET", "/status/x"),
        http("GET", "/result/x"),
        http("DELETE", "/jobs/x"),
        http("GET", "/metrics"),
        http("GET", "/capacity"),
        http("GET", f"/blobs/{'0' * 64}"),
        http("PUT", f"/blobs/{'0' * 64}", body=b"x"),
    ):
        is_denied(leader, said)
    assert answer_to_another_user(leader, http("GET", "/health")).startswith(b"HTTP/1.1 200 ")
    # A newer client is told at once, an old one with its first job, and an old worker is cut off.
    hello = fr.encode(fr.HELLO_CLIENT, payload=encode(HelloClient("me", 4, list(WANTS_CLIENT))))
    (told,) = Decoder().feed(answer_to_another_user(leader, hello))
    assert told.type == fr.REFUSAL
    assert SAID.encode() in told.payload
    job = uuid4()
    said = pack(Message(HELLO_CLIENT, subject="me")) + pack(Message(SUBMIT_JOB, job, payload=b'{"ExecName":"calcA"}'))
    result = unpack(answer_to_another_user(leader, said)[4:])
    assert (result.type, result.corr_id) == (RESULT, job)
    assert (json.loads(result.payload)["Status"], SAID in json.loads(result.payload)["Stderr"]) == ("FAILED", True)
    assert answer_to_another_user(leader, pack(Message(HELLO_WORKER, uuid4()))) == b""
    status = waku("status", "--leader", leader, "-o", "json")
    assert status.returncode == 0, status.stderr


def test_a_node_a_gateway_and_metrics_are_closed_to_other_users(start, programs: Path, home: Path) -> None:
    jobs = home.parent / "jobs"
    node = start("node", "--programs", programs, "--jobs", jobs, "--http", "0", "--lines", "0").line().split()
    url, lines = node[0].removeprefix("http://"), node[1].removeprefix("lines=")
    is_denied(url, job_by_form("/run/x"))
    is_denied(url, http("GET", "/capacity"))
    assert answer_to_another_user(lines, b"JOB x in 1\nx").startswith(f"ERR denied: {SAID}".encode())
    gateway = start("gateway", "0", "--group", f"a=http://{url}").line().removeprefix("http://")
    for said in (job_by_form("/submit/x"), http("GET", "/status/x"), http("GET", "/events/x"), http("GET", "/metrics")):
        is_denied(gateway, said)
    leader = start("leader", "0", "--memory").line()
    worker = start(
        "worker", *leader.split(":"), "--programs", programs, "--jobs", home.parent / "other", "--metrics", "0"
    )
    at = worker.until(lambda text: "metrics at http://" in text).partition("metrics at http://")[2].partition("/")[0]
    is_denied(at, http("GET", "/metrics"))


def test_a_peer_that_sends_and_closes_at_once_is_no_administrator(start, waku, home: Path) -> None:
    """Of a closed socket the kernel reports user 0: the job must not be taken for root's."""
    leader = start("leader", "0", "--memory").line()
    host, port = leader.split(":")
    job = Message(SUBMIT_JOB, uuid4(), payload=b'{"ExecName":"calcA"}')
    said = pack(Message(HELLO_CLIENT, subject="evil")) + pack(job)
    code = (
        f"import encodings.idna, os, socket; os.setgid({UID}); os.setuid({UID})\n"
        "for _ in range(200):\n"
        f"    with socket.create_connection(({host!r}, {port})) as call:\n"
        f"        call.sendall({said!r})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    rows = json.loads(waku("jobs", "list", "--leader", leader, "-o", "json").stdout)
    assert rows["jobs"] == []


def test_members_of_a_group_may_submit_and_not_rule(start, home: Path) -> None:
    member = pwd.getpwnam("daemon")
    leader = start("leader", "0", "--memory", "--local-group", grp.getgrgid(member.pw_gid).gr_name).line()
    assert answer_to_another_user(leader, http("GET", "/capacity"), member.pw_uid).startswith(b"HTTP/1.1 200 ")
    hello = fr.encode(fr.HELLO_CLIENT, payload=encode(HelloClient("me", 4, list(WANTS_CLIENT))))
    drain = fr.encode(fr.ASK, bytes(16), payload=b'{"ask":"drain","worker":"x"}')
    answer = answer_to_another_user(leader, hello + drain, member.pw_uid, ends=True)
    told = {each.type: each for each in Decoder().feed(answer)}
    assert b"uid:1 has the role client and may not" in told[fr.ASK].payload
    is_denied(leader, http("GET", "/status/x"))


@pytest.mark.parametrize("mode", ["client", "none"])
def test_root_may_be_less_than_an_administrator(start, waku, home: Path, mode: str) -> None:
    leader = start("leader", "0", "--memory", "--local", mode).line()
    status = waku("status", "--leader", leader)
    drained = waku("workers", "drain", "x", "--leader", leader)
    if mode == "client":
        assert status.returncode == 0, status.stderr
        assert "may not" in drained.stderr
    else:
        assert status.returncode != 0
    assert drained.returncode == 4 if mode == "client" else drained.returncode != 0


def test_an_open_leader_takes_everybody_and_says_so(start, home: Path) -> None:
    leader = start("leader", "0", "--memory", "--allow-open").line()
    assert answer_to_another_user(leader, http("GET", "/capacity")).startswith(b"HTTP/1.1 200 ")
