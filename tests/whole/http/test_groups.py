"""A group as its users have it: a leader and a worker as processes, and clients that nobody here wrote."""

from __future__ import annotations

import http.client
import io
import json
import signal
import socket
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.eventually import eventually_blocking
from tests.kit.form import FORM, FORM_HEADERS, form
from tests.kit.tools import tool
from tests.whole.conftest import WITHIN_S, GridHere, Running

from wakugumi import Client, Refused, Result
from wakugumi.core.leader.answer_records import StatusAnswer
from wakugumi.core.leader.questions import AskStatus

pytestmark = pytest.mark.spec("G1")


def files_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def ask(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=WITHIN_S)
    connection.request(method, path, body, FORM_HEADERS if body is not None else {})
    answer = connection.getresponse()
    said = answer.status, answer.read()
    connection.close()
    return said


@pytest.mark.spec("N2", "C5")
def test_curl_sends_a_file_in_any_of_its_ways_and_gets_the_zip(grid: GridHere, home: Path) -> None:
    curl = tool("curl")
    ways = [
        (),
        ("-H", "Expect: 100-continue"),
        ("-H", "Transfer-Encoding: chunked"),
        ("-H", "Expect: 100-continue", "-H", "Transfer-Encoding: chunked"),
        ("--http1.0",),
    ]
    for size in (10, 3_000_000):
        (home / "in.txt").write_bytes(b"0123456789" * (size // 10))
        made = {"letters.txt": b"abcdefghij" * (size // 10), "stdout.txt": b"read in.txt\n", "stderr.txt": b""}
        for number, way in enumerate(ways):
            # The second one of a way is the same job again.
            url = f"http://{grid.address}/dispatch/curl-{size}-{number // 2}?program=letters"
            words = [curl, "-sS", "--fail-with-body", "-D", "head", "-o", "out.zip", "-F", "file=@in.txt", *way, url]
            subprocess.run(words, cwd=home, check=True, timeout=WITHIN_S)
            assert files_of((home / "out.zip").read_bytes()) == made
            assert "Waku-Status: OK" in (home / "head").read_text()


def test_http_client_keeps_its_connection_for_many_jobs(grid: GridHere) -> None:
    connection = http.client.HTTPConnection(grid.address, timeout=WITHIN_S)
    for number in range(4):
        connection.request("POST", f"/dispatch/job-{number}?program=odd", form(b"%d\n" % number), FORM_HEADERS)
        answer = connection.getresponse()
        files = files_of(answer.read())
        assert answer.status == 200
        assert (answer.headers["Waku-Status"], answer.headers["Waku-Exit-Code"]) == (
            ("FAILED", "9") if number % 2 else ("OK", "0")
        )
        assert files["stdout.txt"] == (b"" if number % 2 else b"%d\n" % number)
    connection.close()
    status, body = ask(grid.address, "GET", "/capacity")
    assert (status, json.loads(body)["running"]) == (200, 0)


@pytest.mark.spec("L6")
def test_the_same_id_by_http_and_by_frames_is_one_job(grid: GridHere) -> None:
    with Client(f"waku://{grid.address}", client_id="http") as client:

        def by_frames(job_id: str, content: bytes) -> Result:
            return client.submit("letters", args=["in.txt"], files={"in.txt": content}, job_id=job_id).result(WITHIN_S)

        def by_http(job_id: str, content: bytes) -> tuple[int, bytes]:
            return ask(grid.address, "POST", f"/dispatch/{job_id}?program=letters", form(content))

        status, data = by_http("one", b"42")
        assert (status, files_of(data)["letters.txt"]) == (200, b"ec")
        assert by_frames("one", b"42").files["letters.txt"] == b"ec"
        assert client.wait("one", WITHIN_S).files["letters.txt"] == b"ec"
        with pytest.raises(Refused, match="used for another request"):
            by_frames("one", b"43")
        assert by_frames("two", b"44").ok
        assert files_of(by_http("two", b"44")[1])["letters.txt"] == b"ee"
        assert by_http("two", b"45")[0] == 409
        told = client.ask(AskStatus())
        assert isinstance(told, StatusAnswer)
        assert told.submitted == 2


@pytest.mark.spec("L7")
def test_a_leader_that_is_killed_in_the_midst_answers_the_same_id_and_it_was_run_once(
    start: Callable[..., Running], home: Path, programs: Path
) -> None:
    (programs / "once").write_text('#!/bin/sh\necho run >> "$2"\nwhile [ ! -e "$3" ]; do sleep 0.02; done\necho done\n')
    (programs / "once").chmod(0o755)
    runs, go = home / "runs", home / "go"
    leader = start("leader", "0", "--state", home / "kept", "--program", "once")
    address = leader.line()
    port = address.rpartition(":")[2]
    folders = ("--programs", programs, "--jobs", home / "jobs")
    start("worker", "127.0.0.1", port, *folders, "--cpu-cap", "0.95")
    path = f"/dispatch/one?arg={{input}}&arg={runs}&arg={go}"
    with socket.create_connection(("127.0.0.1", int(port)), WITHIN_S) as caller:
        body = form(b"input")
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len(body)}\r\n"
        caller.sendall(f"{head}{FORM}\r\n\r\n".encode() + body)
        eventually_blocking(runs.exists)
        leader.signal(signal.SIGKILL)
        leader.end()
        assert caller.recv(1) == b""
    leader = start("leader", port, "--state", home / "kept", "--program", "once")
    leader.line()
    state, why = "", b""
    while state != "running":
        _, why = ask(address, "GET", "/status/one")
        state = json.loads(why)["state"]
    go.touch()
    status, data = ask(address, "POST", path, form(b"input"))
    assert (status, files_of(data)["stdout.txt"]) == (200, b"done\n")
    assert runs.read_text() == "run\n"
    leader.signal()
    assert leader.end()[0] == 0


def test_a_leader_is_told_its_program_and_its_cap(start: Callable[..., Running]) -> None:
    assert "--program: the name '../sh' is a path" in start("leader", "0", "--program", "../sh").end()[2]
    assert "--http-cap" in start("leader", "0", "--http-cap", "0").end()[2]
