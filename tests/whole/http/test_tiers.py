"""The three tiers, as one command starts them, and as a drill kills them."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.kit.form import FORM_HEADERS, form
from tests.whole.conftest import Running, Waku


def submit(address: str, name: str, content: bytes) -> bytes:
    """The ZIP; as often as it takes until the gateway has found its groups."""
    until = monotonic() + 30
    while True:
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("POST", f"/submit/{name}", form(content), FORM_HEADERS)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status == 200:
            return body
        assert answer.status == 503, body
        assert monotonic() < until, body
        sleep(0.1)


def processes_of(text: str) -> dict[str, int]:
    """Names and process ids, as `waku up` lists them."""
    rows = [line.split() for line in text.splitlines() if " pid " in line]
    return {row[0]: int(row[-1]) for row in rows}


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.spec("G2", "O4")
def test_one_command_starts_the_three_tiers_and_ends_them(
    start: Callable[..., Running], home: Path, programs: Path
) -> None:
    words = ("up", "0", "--groups", "2", "--nodes", "1", "--programs", programs, "--program", "letters")
    up = start(*words, "--state", home / "tiers")
    address = up.line()
    said = up.until(lambda text: "/status/" in text)
    processes = processes_of(said)
    assert sorted(processes) == ["gateway", "group-1", "group-2", "node-1-1", "node-2-1"]
    with zipfile.ZipFile(io.BytesIO(submit(address, "first", b"123"))) as archive:
        assert archive.read("letters.txt") == b"bcd"
        assert archive.read("stdout.txt").startswith(b"read ")

    # What is killed is told of, and the others go on.
    for name in ("group-1", "node-1-1"):
        os.kill(processes[name], signal.SIGKILL)
    up.until(lambda text: "group-1 has ended" in text and "node-1-1 has ended" in text)
    with zipfile.ZipFile(io.BytesIO(submit(address, "second", b"456"))) as archive:
        assert archive.read("letters.txt") == b"efg"

    up.signal()
    code, _, _ = up.end()
    assert code == 0
    assert not any(map(lives, processes.values()))


@pytest.mark.user_dependent
@pytest.mark.spec("O4", "G2")
def test_a_drill_kills_every_tier_and_loses_nothing(waku: Waku) -> None:
    drill = waku("drill", "--groups", "2", "--nodes", "1", "--jobs", "100", "--away", "0.3", "-o", "json")
    report = json.loads(drill.stdout)
    assert drill.returncode == 0, report["wrong"]
    assert report["passed"]
    assert report["count"]["answered"] == 100
    assert report["count"]["faults"] == ["node", "leader", "group", "gateway"]
    assert report["count"]["runs"] >= 100
