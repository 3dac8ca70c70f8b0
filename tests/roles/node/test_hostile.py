"""A node and those who mean no good: a clear no in both languages, no slot lost, nothing left on the disk.

Every test ends with `a_node` counting its run and receive slots to zero, and looking into its folder for inputs.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.kit.a_node import ANode, Got, a_node, ask, post, say
from tests.kit.form import BOUNDARY, DELIMITER, FORM_TYPE, form

from wakugumi.adapters.http import connection
from wakugumi.core.connections import pace
from wakugumi.core.ids import job_id_from_name, show_job_id
from wakugumi.limits.http import LINE_BYTES_MAX
from wakugumi.limits.units import MIB

pytestmark = pytest.mark.anyio

INPUT_MAX = 2 * MIB
BIG = b"x" * (3 * MIB)


def jobs_in(at: ANode) -> list[str]:
    """Directories of jobs, finished or not."""
    return sorted(path.name for path in Path(at.node.station.folder).iterdir() if not path.name.startswith("."))


def chunked(body: bytes) -> bytes:
    return b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"


TWO_FILES = form(b"one")[: -len(b"--\r\n")] + b"\r\n" + form(b"two")[len(DELIMITER + b"\r\n") :]
TWO_LARGE = form(BIG[:MIB])[: -len(b"--\r\n")] + b"\r\n" + form(b"two")[len(DELIMITER + b"\r\n") :]

BAD_REQUESTS: dict[str, tuple[int, bytes]] = {
    "no form": (400, b"POST /run/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"),
    "another type": (400, post("/run/x", b"{}").replace(FORM_TYPE.encode(), b"application/json")),
    "no boundary": (400, post("/run/x", form(b"x")).replace(f"; boundary={BOUNDARY}".encode(), b"")),
    "no body": (400, post("/run/x", b"")),
    "no part": (400, post("/run/x", DELIMITER + b"--\r\n")),
    "another field": (400, post("/run/x", form(b"x", field="other"))),
    "two files": (400, post("/run/x", TWO_FILES)),
    "two files, the first on disk": (400, post("/run/x", TWO_LARGE)),
    "a form without an end": (400, post("/run/x", form(b"x")[:-8])),
    "a large form without an end": (400, post("/run/x", form(BIG[:MIB])[:-8])),
    "a head of a part without an end": (400, post("/run/x", DELIMITER + b"\r\n" + b"X: y\r\n" * 10_000)),
    "too large, and said so": (413, post("/run/x", b"", length=10**15)),
    "too large, in chunks": (413, post("/run/x", chunked(form(BIG)), "Transfer-Encoding: chunked", length=-1)),
    "too much behind the form": (413, post("/run/x", form(b"x") + BIG, length=len(form(b"x")) + len(BIG))),
    "an unknown parameter": (400, post("/run/x?what=1", form(b"x"))),
    "a query that is no text": (400, post("/run/x?arg=%ff", form(b"x"))),
    "a program with a way out": (400, post("/run/x?program=../sh", form(b"x"))),
    "an argument with a NUL": (400, post("/run/x?arg=%00", form(b"x"))),
    "no such program": (404, post("/run/x?program=nothing", form(b"x"))),
    "no such page": (404, post("/go/x", form(b"x"))),
    "another method": (405, b"PUT /run/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
    "a hundred thousand headers": (
        400,
        post("/run/x", form(b"x"), *[f"X-{number}: y" for number in range(100_000)]),
    ),
    "a megabyte in a header": (400, post("/run/x", form(b"x"), "X: " + "y" * MIB)),
    "a foreign web page": (403, post("/run/x", form(b"x"), "Origin: http://elsewhere.example")),
    "two lengths": (400, post("/run/x", form(b"x"), "Content-Length: 3")),
    "a length that is none": (400, post("/run/x", form(b"x")).replace(b"Content-Length: ", b"Content-Length: -")),
}


@pytest.mark.spec("N2", "W5")
async def test_a_bad_request_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    async with a_node(tmp_path, input_bytes=INPUT_MAX) as at:
        for what, (status, request) in BAD_REQUESTS.items():
            got = await ask(at.http, request)
            assert got.status == status, what
            assert got.headers["content-type"].startswith("application/problem+json"), what
            await at.all_free()
            assert at.runs == 0, what
        assert (await ask(at.http, post("/run/x", form(b"good")))).status == 200


JOB_NAMES = [
    *(
        "",
        ".",
        "..",
        "%2e%2e",
        "a/b",
        "a%2Fb",
        "a%5Cb",
        "%00",
        "a%20b",
        "%ff",
        "%E6%9E%A0",
        "..%2f..%2fetc",
        "a%0d%0ab",
    ),
    *("a" * 129, "a;b", "*", "~"),
]


@pytest.mark.spec("N2")
async def test_a_job_that_cannot_be_called_so_is_refused(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        for name in JOB_NAMES:
            for request in (post(f"/run/{name}", form(b"x")), post(f"/run/{name}", form(BIG))):
                got = await ask(at.http, request)
                assert 400 <= got.status < 500, name
                assert got.headers["content-type"].startswith("application/problem+json"), name
        assert (at.runs, jobs_in(at)) == (0, [])


async def test_a_job_with_a_name_of_a_megabyte_is_refused(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        assert 400 <= (await ask(at.http, post("/run/" + "a" * MIB, form(b"x")))).status < 500
        assert (await say(at.lines, b"JOB " + b"a" * MIB + b" f 1\nx")).startswith(b"ERR bad-request: ")


HOSTILE_NAMES = [
    *("../x", "/etc/passwd", "a/../../x", "a\\b", "C:x", "nul", "a\tb", ".done", "x/", "a//b", ".", "..", "a" * 300),
    *("%2e%2e%2fx", "%00", "a%0Ab", "%5c", "%ff", "con.txt", "x.", " "),
]


@pytest.mark.spec("W5")
async def test_a_file_that_cannot_be_called_so_is_refused_in_both_languages(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        for name in HOSTILE_NAMES:
            got = await ask(at.http, post("/run/x", form(b"x", name)))
            assert (got.status, got.problem) == (400, "bad-name"), name
            by_line = await say(at.lines, f"JOB x {name.replace(' ', '%20')} 1\nx".encode())
            assert by_line.startswith((b"ERR bad-name: ", b"ERR bad-request: ")), name
        assert (at.runs, jobs_in(at)) == (0, [])


@pytest.mark.spec("W5")
async def test_a_strange_but_good_name_is_taken_as_it_is_meant(tmp_path: Path) -> None:
    names = ["a%20b.txt", "dir/in%20it", "100%.txt", "枠.txt", "%E6%9E%A0", "-rf", "result.zip"]
    async with a_node(tmp_path) as at:
        for number, name in enumerate(names):
            got = await ask(at.http, post(f"/run/x{number}", form(b"hello", name)))
            assert got.headers["waku-status"] == "OK", name
            assert got.files["copied"] == b"hello", name
            assert (await say(at.lines, f"JOB y{number} {name} 5\nhello".encode())).startswith(b"OK "), name


BAD_LINES: dict[str, bytes] = {
    "no words": b"JOB \n",
    "three words": b"JOB x 5\nhello",
    "five words": b"JOB x a b 5\nhello",
    "a size that is none": b"JOB x a five\nhello",
    "a negative size": b"JOB x a -5\nhello",
    "too large": b"JOB x a 999999999999999999\n",
    "half of it": b"JOB x a 100\nhello",
    "half of what goes to disk": b"JOB x a %d\n" % (MIB + 1) + BIG[:MIB],
    "no end": b"JOB x a 5",
    "not UTF-8": b"JOB x \xff 5\nhello",
    "too long": b"JOB x " + b"a" * LINE_BYTES_MAX + b" 1\nx",
    "no name": b"JOB  a 5\nhello",
    "a way out": b"JOB .. a 5\nhello",
    "a way up": b"JOB ../x a 5\nhello",
    "a name of 129": b"JOB " + b"a" * 129 + b" a 5\nhello",
    "a name of another alphabet": "JOB 枠 a 5\nhello".encode(),
    "zeros": bytes(1000),
}


@pytest.mark.spec("N1", "W5")
async def test_a_bad_line_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    async with a_node(tmp_path, input_bytes=INPUT_MAX) as at:
        for what, said in BAD_LINES.items():
            got = await say(at.lines, said, end=True)
            assert got.startswith(b"ERR "), what
            assert got.count(b"\n") == 1, what
            await at.all_free()
            assert (at.runs, jobs_in(at)) == (0, []), what
        assert (await say(at.lines, b"JOB x a 4\ngood")).startswith(b"OK ")


@pytest.mark.parametrize("size", [100, MIB])
async def test_who_stops_in_the_midst_is_told_or_gone_and_holds_nothing(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 0.2)
    async with a_node(tmp_path) as at:
        whole = form(b"x" * size)
        got = await ask(at.http, post("/run/x", whole[: 50 + size // 2], length=len(whole)))
        assert (got.status, got.problem) == (408, "too-slow")
        assert (await say(at.lines, b"JOB x a %d\n" % size + b"x" * (size // 2))).startswith(b"ERR too-slow: ")
        for port, half in (
            (at.http, post("/run/x", whole[: 50 + size // 2], length=len(whole))),
            (at.lines, b"JOB x a %d\n" % size + b"x" * (size // 2)),
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(half)
            await at.until("node.receiving == 1")
            writer.transport.abort()
            await at.until("node.receiving == 0")
        assert (at.runs, jobs_in(at)) == (0, [])


async def test_who_does_not_read_its_answer_is_cut_off_and_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pace, connection):
        monkeypatch.setattr(module, "BODY_RECEIVED_MIN_S", 0.2)
    async with a_node(tmp_path, "large") as at:
        for port, request in ((at.http, post("/run/x", form(b"x"))), (at.lines, b"JOB x a 1\nx")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(request)
            await at.until("node.answering == 1")
            await at.until("node.answering == 0")
            assert at.runs == 1
            writer.transport.abort()
            del reader


async def test_a_crowd_of_slow_ones_leaves_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 0.5)
    async with a_node(tmp_path, receive=20) as at:
        whole = form(b"x" * 100)
        crowd = [ask(at.http, post(f"/run/{n}", whole[:50], length=len(whole))) for n in range(20)]
        answers: list[Got] = await asyncio.gather(*crowd)
        assert {(got.status, got.problem) for got in answers} == {(408, "too-slow")}
        by_line = await asyncio.gather(*[say(at.lines, b"JOB %d a 100\nx" % n) for n in range(20)])
        assert all(got.startswith(b"ERR too-slow: ") for got in by_line)


@pytest.mark.spec("N3")
async def test_busy_reaches_a_client_of_the_library_that_sends_a_gigabyte(tmp_path: Path) -> None:
    """Python's http.client sends all of it before it looks for an answer."""
    size = 1_000_000_000
    answers: list[tuple[int, str | None]] = []

    def client(port: int) -> None:
        caller = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        caller.putrequest("POST", "/run/y")
        caller.putheader("Content-Type", FORM_TYPE)
        caller.putheader("Content-Length", str(size))
        caller.endheaders()
        with suppress(ConnectionError):
            for _ in range(size // MIB):
                caller.send(bytes(MIB))
        got = caller.getresponse()
        answers.append((got.status, got.getheader("Retry-After")))
        caller.close()

    async with a_node(tmp_path, "wait", slots=1) as at, asyncio.TaskGroup() as group:
        first = group.create_task(ask(at.http, post("/run/x", form(b"x"))))
        await at.until("station.running == 1")
        before = memory_bytes()
        await run_beside(client, at.http)
        assert answers == [(503, "5")]
        assert memory_bytes() - before < 64 * MIB
        at.open_gate()
        assert (await first).status == 200


@pytest.mark.spec("N3")
@pytest.mark.parametrize("language", ["http", "lines"])
async def test_busy_reaches_who_reads_while_it_sends_a_gigabyte(tmp_path: Path, language: str) -> None:
    size = 1_000_000_000
    answers: list[bytes] = []
    sent = 0

    def client(port: int) -> None:
        nonlocal sent
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            head = b"JOB y a %d\n" % size if language == "lines" else post("/run/y", b"", length=size)
            sock.sendall(head)
            while sent < size:
                sock.settimeout(0)
                with suppress(BlockingIOError):
                    answers.append(sock.recv(100))
                    return
                sock.settimeout(20)
                sock.sendall(bytes(MIB))
                sent += MIB

    async with a_node(tmp_path, "wait", slots=1) as at, asyncio.TaskGroup() as group:
        first = group.create_task(ask(at.http, post("/run/x", form(b"x"))))
        await at.until("station.running == 1")
        await run_beside(client, at.http if language == "http" else at.lines)
        assert answers[0].startswith(b"BUSY retry=5\n" if language == "lines" else b"HTTP/1.1 503 ")
        assert sent < size
        at.open_gate()
        assert (await first).status == 200


async def test_the_directory_of_a_job_holds_only_what_it_may(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        assert (await ask(at.http, post("/run/x", form(BIG)))).status == 200
        directory = Path(at.node.station.folder) / show_job_id(job_id_from_name("x"))
        assert sorted(os.listdir(directory)) == [".done", "result.zip"]


def memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run_beside(client: object, port: int) -> None:
    assert callable(client)
    thread = threading.Thread(target=client, args=(port,))
    thread.start()
    await asyncio.to_thread(thread.join)
