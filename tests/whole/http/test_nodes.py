"""`waku node` and `waku send` as processes, and clients that nobody here wrote: curl, http.client, nc."""

from __future__ import annotations

import http.client
import io
import os
import signal
import subprocess
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.certificates import make_certificates
from tests.kit.eventually import eventually_blocking
from tests.kit.form import FORM_HEADERS, form
from tests.kit.tools import tool
from tests.whole.conftest import WITHIN_S, Running, Waku

from wakugumi.core.ids import job_id_from_name, show_job_id

Start = Callable[..., Running]


class ANode:
    """A node's process, and where it is reached."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.http, _, self.lines = running.line().partition(" lines=")
        self.port = int(self.http.rpartition(":")[2])


class Place:
    """Programs, a jobs folder, and the nodes that were started there, one after the other."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.folder = folder
        self.jobs = folder / "jobs"
        self.runs = folder / "runs"
        self.gate = folder / "gate"
        self._start = start
        (folder / "bin").mkdir()
        runs = f'echo "$PWD" >> "{self.runs}"'
        self.program("copy", f'{runs}; cp "$1" copied; wc -c < "$1"')
        self.program("wait", f'{runs}; while [ ! -e "{self.gate}" ]; do sleep 0.02; done; cat "$1"')

    def program(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def node(self, *words: str | Path, program: str = "copy", slots: int = 2, lines: str = "0") -> ANode:
        folders = ("--programs", self.folder / "bin", "--jobs", self.jobs)
        ports = ("--http", "0", "--lines", lines)
        return ANode(self._start("node", "--program", program, *folders, *ports, "--slots", str(slots), *words))

    def run_count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


@pytest.fixture
def place(home: Path, start: Start) -> Place:
    return Place(home, start)


def curl(*words: str | Path) -> tuple[int, str]:
    """The status and what went to stderr."""
    run = [tool("curl"), "-sS", "--max-time", "50", "-w", "%{http_code}", *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    return int(done.stdout[-3:]), done.stderr


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.spec("N2")
def test_curl_sends_a_form_in_all_its_ways(place: Place) -> None:
    node = place.node()
    small, large, out = place.folder / "in.txt", place.folder / "large.bin", place.folder / "out.zip"
    small.write_text("hello")
    large.write_bytes(os.urandom(3_000_000))
    ways: dict[str, tuple[str, ...]] = {
        "plain": (),
        "chunked": ("-H", "Transfer-Encoding: chunked"),
        "waits": ("-H", "Expect: 100-continue"),
        "does-not-wait": ("-H", "Expect:"),
        "chunked-and-waits": ("-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue"),
    }
    for way, words in ways.items():
        for file in (small, large):
            got, _ = curl(*words, "-F", f"file=@{file}", f"{node.http}/run/{way}-{file.stem}", "-o", out)
            assert got == 200, way
            assert unzipped(out.read_bytes())["copied"] == file.read_bytes(), way
    assert place.run_count() == 10
    assert curl("-X", "POST", "-H", "Content-Type: text/plain", "-d", "x", f"{node.http}/run/x", "-o", out)[0] == 400
    assert curl("-F", f"other=@{small}", f"{node.http}/run/x", "-o", out)[0] == 400
    assert curl("-F", f"file=@{small}", "-F", "more=1", f"{node.http}/run/x", "-o", out)[0] == 400
    assert curl("--path-as-is", "-F", f"file=@{small}", f"{node.http}/run/../x", "-o", out)[0] == 400
    assert curl(f"{node.http}/health", "-o", out)[0] == 200


@pytest.mark.spec("N2", "N3")
def test_curl_is_told_busy_while_it_sends_a_gigabyte(place: Place) -> None:
    node = place.node(program="wait")
    small, large, out = place.folder / "in.txt", place.folder / "large.bin", place.folder / "out.zip"
    small.write_text("hello")
    with open(large, "wb") as file:
        file.truncate(1_000_000_000)
    threads = [
        threading.Thread(target=curl, args=("-F", f"file=@{small}", f"{node.http}/run/{n}", "-o", os.devnull))
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    eventually_blocking(lambda: place.run_count() == 2)
    for way in ("Expect:", "Expect: 100-continue", "Transfer-Encoding: chunked"):
        assert curl("-H", way, "-F", f"file=@{large}", f"{node.http}/run/more", "-o", out)[0] == 503
        assert b'"code":"busy"' in out.read_bytes()
    assert list((place.jobs / ".receiving").iterdir()) == []
    place.gate.touch()
    for thread in threads:
        thread.join()
    assert curl("-F", f"file=@{small}", f"{node.http}/run/more", "-o", out)[0] == 200


@pytest.mark.spec("N2")
def test_a_client_of_the_standard_library_keeps_its_connection(place: Place) -> None:
    node = place.node()
    caller = http.client.HTTPConnection("127.0.0.1", node.port, timeout=WITHIN_S)
    for number in range(3):
        caller.request("POST", f"/run/{number}", form(b"%d" % number), FORM_HEADERS)
        got = caller.getresponse()
        assert (got.status, got.getheader("Waku-Status")) == (200, "OK")
        assert unzipped(got.read())["copied"] == b"%d" % number
    caller.request("GET", "/capacity")
    assert caller.getresponse().read() == b'{"running":0,"limit":2}'
    caller.close()


@pytest.mark.spec("N1")
def test_nc_speaks_lines(place: Place) -> None:
    node = place.node(lines="same")
    assert node.http == f"http://{node.lines}"
    host, _, port = node.lines.rpartition(":")
    for words in ([], ["-N"]):  # with and without closing its half behind the input
        said = b"JOB nc a%20b 5\r\nhello"
        done = subprocess.run([tool("nc"), *words, host, port], input=said, capture_output=True, timeout=WITHIN_S)
        line, _, body = done.stdout.partition(b"\n")
        assert line == b"OK %d" % len(body)
        assert unzipped(body)["copied"] == b"hello"
    assert place.run_count() == 1


@pytest.mark.spec("N6")
def test_send_tries_one_address_after_the_other(place: Place, waku: Waku) -> None:
    node = place.node()
    file = place.folder / "in put.txt"
    file.write_text("hello")
    done = waku("send", "127.0.0.1:1", node.lines, file, "--id", "x")
    assert done.returncode == 0, done.stderr
    result = place.folder / "in put.txt.result.zip"
    assert done.stdout.strip() == str(result)
    assert unzipped(result.read_bytes()) == {"copied": b"hello", "stdout.txt": b"5\n", "stderr.txt": b""}
    assert "cannot connect" in done.stderr
    assert "already" not in done.stderr
    again = waku("send", node.lines, file, "--id", "x", "--out", place.folder / "again.zip")
    assert again.returncode == 0
    assert f"{node.lines} has had this answer since 20" in again.stderr
    assert unzipped((place.folder / "again.zip").read_bytes()) == unzipped(result.read_bytes())
    assert place.run_count() == 1


@pytest.mark.spec("N6", "N3")
def test_send_waits_for_a_busy_node_if_it_is_told_to(place: Place, start: Start, waku: Waku) -> None:
    node = place.node("--retry-after", "1", program="wait", slots=1)
    file = place.folder / "in.txt"
    file.write_text("hello")
    first = start("send", node.lines, file, "--id", "one")
    eventually_blocking(lambda: place.run_count() == 1)
    busy = waku("send", node.lines, file, "--id", "two")
    assert (busy.returncode, "is busy" in busy.stderr) == (1, True)
    second = start("send", node.lines, file, "--id", "two", "--wait", "50", "--out", place.folder / "two.zip")
    second.until(lambda text: "all nodes are busy" in text)
    place.gate.touch()
    assert first.end()[0] == 0
    assert second.end()[0] == 0
    assert unzipped((place.folder / "two.zip").read_bytes())["stdout.txt"] == b"hello"


@pytest.mark.spec("N4", "W3", "W4")
@pytest.mark.parametrize("hours", ["24", "0"])
def test_a_node_that_was_killed_answers_for_what_it_had_finished_and_runs_what_was_cut(
    place: Place, hours: str, start: Start
) -> None:
    node = place.node("--interrupted-hours", hours, program="wait")
    file, out = place.folder / "in.txt", place.folder / "out.zip"
    file.write_text("hello")
    assert curl("-F", f"file=@{file}", f"{node.http}/run/done?program=copy", "-o", out)[0] == 200
    before = out.read_bytes()
    start("send", node.lines, file, "--id", "cut")
    eventually_blocking(lambda: place.run_count() == 2)
    node.running.signal(signal.SIGKILL)
    node.running.end()
    remains = place.jobs / show_job_id(job_id_from_name("cut"))
    assert (remains / "in.txt").exists()
    (place.jobs / ".receiving" / "received-1").write_bytes(b"half of it")

    node = place.node("--interrupted-hours", hours, program="wait")
    eventually_blocking(lambda: remains.exists() is (hours != "0"))
    assert list((place.jobs / ".receiving").iterdir()) == []
    file.write_text("something else")
    assert curl("-F", f"file=@{file}", f"{node.http}/run/done", "-o", out)[0] == 200
    assert out.read_bytes() == before
    assert place.run_count() == 2
    place.gate.touch()
    assert curl("-F", f"file=@{file}", f"{node.http}/run/cut", "-o", out)[0] == 200
    assert unzipped(out.read_bytes())["stdout.txt"] == b"something else"
    assert place.run_count() == 3


@pytest.mark.spec("O3")
def test_a_node_that_is_told_to_stop_answers_who_waits_and_ends_well(place: Place, start: Start) -> None:
    node = place.node(program="wait")
    file = place.folder / "in.txt"
    file.write_text("hello")
    sending = start("send", node.lines, file)
    eventually_blocking(lambda: place.run_count() == 1)
    node.running.signal(signal.SIGTERM)
    node.running.until(lambda text: "draining" in text)
    assert curl(f"{node.http}/health", "-o", os.devnull)[0] == 503
    place.gate.touch()
    assert sending.end()[0] == 0
    assert node.running.end()[0] == 0


@pytest.mark.spec("N3", "W2")
def test_a_node_works_for_a_leader_too_over_the_same_slots(place: Place, start: Start, waku: Waku) -> None:
    address = start("leader", "0").line()
    node = place.node("--leader", address, "--name", "both", "--cpu-cap", "0.95", program="wait", slots=1)
    node.running.until(lambda text: "the leader speaks version" in text)
    file, out = place.folder / "in.txt", place.folder / "out.zip"
    file.write_text("hello")
    by_frames = start("run", "wait", "--leader", address, "--file", file, "--", "in.txt")
    eventually_blocking(lambda: place.run_count() == 1)
    assert curl("-F", f"file=@{file}", f"{node.http}/run/x", "-o", out)[0] == 503
    place.gate.touch()
    assert by_frames.end()[:2] == (0, "hello")
    assert curl("--retry", "5", "-F", f"file=@{file}", f"{node.http}/run/x", "-o", out)[0] == 200
    listed = waku("workers", "list", "--leader", address)
    assert "both" in listed.stdout


@pytest.mark.spec("N5")
def test_curl_and_send_show_certificates(place: Place, waku: Waku) -> None:
    certs = make_certificates(place.folder / "certificates")
    tls = ("--tls-cert", certs.server_cert, "--tls-key", certs.server_key, "--client-ca", certs.ca)
    node = place.node(*tls)
    assert node.http.startswith("https://")
    file, out = place.folder / "in.txt", place.folder / "out.zip"
    file.write_text("hello")
    url = f"https://localhost:{node.port}/run/x"
    assert curl("--cacert", certs.ca, "--cert", certs.client, "-F", f"file=@{file}", url, "-o", out)[0] == 200
    refused = subprocess.run(
        [tool("curl"), "-sS", "--cacert", certs.ca, "-F", f"file=@{file}", url], capture_output=True, timeout=WITHIN_S
    )
    assert refused.returncode != 0
    lines = f"localhost:{node.lines.rpartition(':')[2]}"
    assert waku("send", lines, file, "--ca", certs.ca, "--cert", certs.client, "--id", "x").returncode == 0
    assert unzipped((place.folder / "in.txt.result.zip").read_bytes()) == unzipped(out.read_bytes())
    assert waku("send", lines, file, "--ca", certs.ca, "--cert", certs.stranger).returncode == 5
    assert place.run_count() == 1
