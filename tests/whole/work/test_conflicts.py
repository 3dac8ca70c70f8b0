"""One id, another request, through real processes: nobody is given the wrong result in silence (SPEC L6)."""

from __future__ import annotations

import http.client
import io
import json
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import pytest
from tests.kit.form import FORM_HEADERS, form
from tests.whole.conftest import WITHIN_S, Running

from wakugumi.app.serve.free_ports import free_port

pytestmark = pytest.mark.spec("L6")

Start = Callable[..., Running]


class Said(NamedTuple):
    status: int
    code: str
    out: bytes
    """What the program printed."""


def post(port: int, path: str, content: bytes) -> Said:
    """As curl does, and again while nobody listens."""
    body = form(content, "in")
    until = monotonic() + WITHIN_S
    while True:
        conn = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
        try:
            conn.request("POST", path, body, FORM_HEADERS)
            answer = conn.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            assert monotonic() < until, "nobody answered"
            sleep(0.05)  # until somebody listens there again
            continue
        finally:
            conn.close()
        if answer.status != 200:
            return Said(answer.status, json.loads(data)["code"], b"")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return Said(200, "", archive.read("stdout.txt"))


CONFLICT = Said(409, "conflict", b"")
MONDAY, TUESDAY = Said(200, "", b"monday"), Said(200, "", b"tuesday")


@pytest.fixture
def price(programs: Path) -> Path:
    """`price IN` prints its input."""
    (programs / "price").write_text('#!/bin/sh\nexec cat "$1"\n')
    (programs / "price").chmod(0o755)
    return programs


def a_forgetful_leader(start: Start, *words: str) -> tuple[int, Callable[[], None]]:
    """Its port, and a way to have it start anew without any memory."""
    port = free_port()
    leaders = [start("leader", str(port), "--memory", *words)]
    assert leaders[0].line().endswith(str(port))

    def forget() -> None:
        leaders[-1].signal(signal.SIGKILL)
        leaders[-1].process.wait()
        leaders.append(start("leader", str(port), "--memory", *words))
        leaders[-1].line()

    return port, forget


def test_a_worker_runs_what_its_leader_has_forgotten_and_never_tells_the_old_result(start: Start, price: Path) -> None:
    port, forget = a_forgetful_leader(start)
    words = ["--programs", price, "--jobs", price.parent / "jobs", "--slots", "2", "--cpu-cap", "0.95"]
    worker = start("worker", "127.0.0.1", str(port), "job.assign.>", *words)
    path = "/dispatch/report?program=price"
    assert post(port, path, b"monday") == MONDAY
    assert post(port, path, b"tuesday") == CONFLICT
    assert post(port, path + "&timeout=60&priority=3", b"monday") == MONDAY
    forget()
    assert post(port, path, b"tuesday") == TUESDAY
    assert post(port, path, b"monday") == CONFLICT
    forget()
    worker.signal(signal.SIGKILL)
    worker.process.wait()
    start("worker", "127.0.0.1", str(port), "job.assign.>", *words)
    assert post(port, path, b"monday") == MONDAY, "from its disk it does not tell tuesday's either"


def test_a_leader_that_has_forgotten_a_job_is_told_of_the_conflict_by_its_node(start: Start, price: Path) -> None:
    folders = ["--programs", price, "--jobs", price.parent / "jobs"]
    node = start("node", "--program", "price", *folders, "--slots", "2", "--http", "0", "--lines", "off")
    url = node.line().split()[0]
    port, forget = a_forgetful_leader(start, "--node", url)
    path = "/dispatch/report"
    assert post(port, path, b"monday") == MONDAY
    forget()
    assert post(port, path, b"wednesday") == CONFLICT
    forget()
    assert post(port, path, b"monday") == MONDAY, "it is the same request, and the node has its result"
    own = int(url.rpartition(":")[2])
    assert post(own, "/run/report", b"wednesday") == MONDAY, "by its own door it answers by the id alone"


def test_a_gateway_says_409_as_its_leaders_do(start: Start, price: Path) -> None:
    folders = ["--programs", price, "--jobs", price.parent / "jobs"]
    node = start("node", "--program", "price", *folders, "--slots", "2", "--http", "0", "--lines", "off")
    leader = start("leader", "0", "--memory", "--node", node.line().split()[0])
    gate = start("gateway", "0", "--group", f"a=http://{leader.line()}", "--state", price.parent / "gate")
    port = int(gate.line().rpartition(":")[2])
    assert post(port, "/submit/report", b"monday") == MONDAY
    assert post(port, "/submit/report", b"tuesday") == CONFLICT
    assert post(port, "/submit/report?timeout=30", b"monday") == MONDAY


def test_the_same_file_is_the_same_request_by_http_by_frames_and_as_a_blob(grid, waku, programs: Path) -> None:
    (programs / "sum").write_text('#!/bin/sh\nwc -c < "$1"\n')
    (programs / "sum").chmod(0o755)
    for size in (10, 400_000):  # The larger one is a blob, however it comes.
        file = programs.parent / "in"
        file.write_bytes(b"x" * size)
        path = f"/dispatch/size-{size}?program=sum"
        assert post(int(grid.port), path, file.read_bytes()).out == b"%d\n" % size
        again = waku("submit", "sum", "--id", f"size-{size}", "--file", file, "--", "in")
        assert again.returncode == 0, again.stderr
        assert json.loads(waku("jobs", "wait", f"size-{size}", "-o", "json").stdout)[0]["stdout"] == f"{size}\n"
        file.write_bytes(b"y" * size)
        other = waku("submit", "sum", "--id", f"size-{size}", "--file", file, "--", "in")
        assert other.returncode == 2
        assert "another request" in other.stderr


def test_a_job_that_timed_out_is_submitted_again_with_more_time(grid, waku, programs: Path, home: Path) -> None:
    ready = home / "ready"
    (programs / "slow").write_text(f"#!/bin/sh\nwhile [ ! -e {ready} ]; do sleep 0.02; done\necho ready\n")
    (programs / "slow").chmod(0o755)
    assert waku("submit", "slow", "--id", "night", "--timeout", "0.3").returncode == 0
    (row,) = json.loads(waku("jobs", "wait", "night", "-o", "json").stdout)
    assert row["reason"] == "timeout"
    ready.touch()
    again = waku("submit", "slow", "--id", "night", "--timeout", "60")
    assert again.returncode == 0, again.stderr
    (row,) = json.loads(waku("jobs", "wait", "night", "-o", "json").stdout)
    assert (row["status"], row["stdout"]) == ("OK", "ready\n")
