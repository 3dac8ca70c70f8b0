"""What does not fit a frame, as a user fetches it: it can be stopped, and a full disk is told as his own.

The leader is scripted; its place for blobs speaks HTTP, and stops in the middle if a test says so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import pytest
from msgspec import UNSET
from tests.kit.answering_leader import AnsweringLeader
from tests.kit.eventually import eventually_blocking

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.app import EXIT_INTERRUPTED
from wakugumi.app.cli import call
from wakugumi.app.show.downloads import ShownTransfer
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.limits.units import MIB
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.hello import BLOBS, Welcome
from wakugumi.wire.messages.job import JobResult
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

DEADLINE_S = 45.0
"""A transfer that nobody stops goes on trying for more than a minute."""
NOISE = os.urandom(4 * MIB)
TEXT = b"the same again\n" * (4 * MIB // 15)
"""Which is packed to nearly nothing."""


def archive(content: bytes) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("made", content)
    return buffer.getvalue()


class Gives(AnsweringLeader):
    """Every job has made an archive, and said a lot."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.stalls = False
        self.made = archive(NOISE)
        self.said = b""
        self.over = threading.Event()
        leader = self

        class Place(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = leader.blobs[self.path.rpartition("/")[2]]
                if "Range" in self.headers:
                    leader.over.wait()  # It stands still, like a process that was stopped.
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                half = len(content) // 2 if leader.stalls else len(content)
                self.wfile.write(content[:half])
                self.wfile.flush()
                if leader.stalls:
                    leader.over.wait()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Place)
        self._serving = threading.Thread(target=self._http.serve_forever)
        self._serving.start()
        super().__init__()

    def put(self, content: bytes) -> BlobRef:
        ref = ref_of_bytes(content)
        self.blobs[ref.sha256] = content
        return ref

    def _reply(self, frame: fr.Frame) -> bytes:
        if frame.type == fr.HELLO_CLIENT:
            place = f"http://127.0.0.1:{self._http.server_port}"
            return fr.encode(fr.WELCOME, payload=encode(Welcome("1", [BLOBS], place)))
        if frame.type == fr.SUBMIT_JOB:
            result = JobResult(
                show_job_id(JobId(frame.msg_id)),
                stdout="end\n",
                exit_code=0,
                archive_blob=self.put(self.made),
                stdout_blob=self.put(self.said) if self.said else UNSET,
            )
            receipt = fr.encode(fr.RECEIPT, payload=frame.msg_id)
            return receipt + fr.encode(fr.RESULT, frame.msg_id, frame.msg_id, payload=encode(result))
        return super()._reply(frame)

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()
        self._serving.join()
        super().close()


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Gives]:
    leader = Gives()
    monkeypatch.setenv("WAKU_LEADER", leader.address)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "in").write_text("in")
    yield leader
    leader.close()


Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """A command of a user, which is ended with the test if need be."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, before: str = "") -> subprocess.Popen[str]:
        command = ["sh", "-c", f'{before}exec "$@"', "sh", sys.executable, "-m", "wakugumi", *words]
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


COMMANDS = {"run": ["run", "p", "--out", "out"], "map": ["map", "p", "in", "--out", "out"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_one_signal_ends_a_transfer_that_stands_still_and_nothing_is_left(
    leader: Gives, started: Started, tmp_path: Path, command: str
) -> None:
    leader.stalls = True
    process = started(*COMMANDS[command])
    eventually_blocking(lambda: any(path.stat().st_size for path in files_in(tmp_path / "out")))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == EXIT_INTERRUPTED, err
    assert files_in(tmp_path / "out") == []


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("made", [NOISE, TEXT], ids=["while it is fetched", "while it is unpacked"])
def test_a_disk_that_takes_no_more_is_told_as_the_users_own(
    leader: Gives, started: Started, tmp_path: Path, command: str, made: bytes
) -> None:
    """A bound for the size of a file is as good as a full disk, and may be had by everybody."""
    leader.made = archive(made)
    process = started(*COMMANDS[command], before="ulimit -f 2048; ")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, err
    assert "to out: File too large" in err
    assert "choose another --out" in err
    assert "worker" not in err
    assert files_in(tmp_path / "out") == []


def test_a_full_folder_for_temporary_files_is_told_by_its_name(leader: Gives, started: Started, tmp_path: Path) -> None:
    leader.made, leader.said = archive(b""), NOISE
    process = started("run", "p", "--out", "out", before="ulimit -f 2048; ")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, err
    assert f"{tmp_path / 'temporary'}" in err
    assert "TMPDIR" in err
    assert "worker" not in err


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("wakugumi.app.show.downloads.monotonic", clock)
    monkeypatch.setattr("wakugumi.app.show.progress.monotonic", clock)
    return clock


def test_without_a_terminal_a_line_comes_twice_a_minute(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    transfer = ShownTransfer(100 * MIB)
    for _ in range(50):
        clock.now += 1
        transfer.on_bytes(2 * MIB)
    for _ in range(20):
        clock.now += 1
        transfer.on_bytes(0)
    transfer.close()
    assert capsys.readouterr().err.splitlines() == [
        "fetching 60.0 MiB of 100.0 MiB, 2.0 MiB/s",
        "unpacking 100.0 MiB",
    ]


def test_what_is_done_soon_is_not_told_of(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    transfer = ShownTransfer(10 * MIB)
    for _ in range(10):
        clock.now += 1
        transfer.on_bytes(MIB)
    transfer.close()
    assert capsys.readouterr().err == ""


def test_whoever_draws_is_told_all_along_and_when_it_is_over(clock: Clock) -> None:
    told: list[str] = []
    transfer = ShownTransfer(2 * MIB, told.append)
    for count in (0, 0, MIB, MIB, 0):
        clock.now += 2
        transfer.on_bytes(count)
    transfer.close()
    assert told == [
        "fetching 1.0 MiB of 2.0 MiB, 170.7 KiB/s",
        "fetching 2.0 MiB of 2.0 MiB, 256.0 KiB/s",
        "unpacking 2.0 MiB",
        "",
    ], "and before anything has come, the terminal is the program's"


def test_the_last_word_has_a_line_of_its_own(
    leader: Gives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wakugumi.app.show.downloads.is_drawable", lambda _: True)
    monkeypatch.setattr("wakugumi.app.show.downloads.QUIET_S", 0.0)
    assert call(["run", "p", "--out", str(tmp_path / "out")]) == 0
    err = capsys.readouterr().err
    assert err.startswith("\r\x1b[Kfetching ")
    assert err.endswith(f"\r\x1b[K1 file written to {tmp_path / 'out'}\n")
