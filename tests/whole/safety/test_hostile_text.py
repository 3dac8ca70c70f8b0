"""No text of a stranger commands a terminal or forges a log line, whichever command or role shows it.

All commands are walked: a scripted leader, node, group and client fill every text that they may send with all of
`tests/kit/hostile_text.py`. A new command is red here until it says what it shows of the outside.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.kit.answering_leader import AnsweringLeader
from tests.kit.hostile_text import ALL, MARK, TEXTS, filled, reached
from tests.whole.conftest import WAKU, WITHIN_S

from wakugumi.app.commands import COMMANDS
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.roles.client.ask import ANSWERS
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.cache import CacheEntry, CachePutRequest, CachePutResult, FailedWorker, Source, Stock, Want
from wakugumi.wire.messages.control import Rest, read_question
from wakugumi.wire.messages.hello import HelloClient, HelloWorker, Welcome
from wakugumi.wire.messages.job import InputFile, JobRequest, JobResult, Refusal, unpack_ids
from wakugumi.wire.messages.payload import encode

pytestmark = pytest.mark.spec("O1")

JOB = "00000000-0000-0000-0000-000000000001"

ASKING: dict[str, list[str]] = {
    "map": ["calcA", "in.txt", "--out", "out"],
    "run": ["quiet", "--out", "made"],
    "submit": ["calcA"],
    "broadcast": ["calcA"],
    "client": ["LEADER_HOST", "LEADER_PORT", "me", "--count", "1"],
    "clientx": ["me", "LEADER", "--count", "1"],
    "status": [],
    "top": ["--once"],
    "jobs list": [],
    "jobs show": [JOB],
    "jobs story": [JOB],
    "jobs explain": [JOB],
    "jobs cancel": [JOB],
    "jobs wait": [JOB, "--out", "waited"],
    "dead list": [],
    "dead show": [JOB],
    "dead requeue": ["--all"],
    "dead drop": ["--all"],
    "caches put": ["data-1", "in.txt"],
    "caches list": [],
    "caches show": ["data-1"],
    "caches pin": ["data-1"],
    "caches drop": ["data-1"],
    "workers list": [],
    "workers drain": ["w1"],
    "workers resume": ["w1"],
    "keys make": ["desk-1", "--role", "client"],
    "keys list": [],
    "keys show": ["desk-1"],
    "keys revoke": ["desk-1"],
    "link": [],
}
"""What is asked of a leader, and what is typed for it."""
SERVING = {"up", "leader", "worker", "node", "gateway", "send", "store check", "store backup", "store repair"}
"""Each has a test of its own below."""
NOTHING_FROM_OUTSIDE = {
    "demo": "its jobs are made here, and run here",
    "join": "it asks a server that the authority of its line has signed",
    "drill": "it starts its own leader, workers and clients",
}
SILENT = {
    "answers": {"submit", "jobs cancel", "dead requeue", "dead drop", "keys make"},
    "refuses": {"map"},
}
"""What shows nothing of what the leader said: ids of its own, numbers, and a key that is none. A map's refusals are in
its folder."""


def test_every_command_is_walked() -> None:
    names = {command.name for commands in COMMANDS.values() for command in commands}
    assert names == set(ASKING) | SERVING | set(NOTHING_FROM_OUTSIDE)


def a_zip() -> bytes:
    """Names that no honest worker packs, and one that it does."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("fine.txt", "fine")
        for text in TEXTS.values():
            archive.writestr(text.replace("/", "_").replace("\0", "\1"), "x")
    return file.getvalue()


class HostileLeader(AnsweringLeader):
    """It answers with hostile text wherever a text may stand, or refuses with it."""

    def __init__(self) -> None:
        self.refuses = False
        super().__init__()

    def _reply(self, frame: fr.Frame) -> bytes:
        no = encode(Refusal(ALL, ALL))
        if frame.type == fr.HELLO_CLIENT:
            return fr.encode(fr.WELCOME, payload=encode(Welcome(ALL, ["finds", "caps", ALL], "")))
        if frame.type == fr.ASK:
            if self.refuses:
                return fr.encode(fr.ASK, corr_id=frame.msg_id, subject="refused", payload=no)
            question = read_question(frame.payload)
            return fr.encode(fr.ASK, corr_id=frame.msg_id, payload=encode(filled(ANSWERS[type(question)])))
        if frame.type == fr.SUBMIT_JOB:
            if self.refuses:
                return fr.encode(fr.REFUSAL, corr_id=frame.msg_id, payload=no)
            return fr.encode(fr.RECEIPT, payload=frame.msg_id) + self._result(JobId(frame.msg_id), frame.payload)
        if frame.type == fr.FIND:
            return fr.encode(fr.FOUND, corr_id=frame.msg_id, payload=frame.payload)
        if frame.type == fr.CLAIM:
            if self.refuses:
                ids = unpack_ids(frame.payload)
                return b"".join(fr.encode(fr.REFUSAL, corr_id=job, payload=no) for job in ids)
            return b"".join(self._result(job, b"") for job in unpack_ids(frame.payload))
        if frame.type == fr.CACHE_PUT:
            status = "FAILED" if self.refuses else "OK"
            failures = [FailedWorker(ALL, ALL)]
            done = CachePutResult("data-1", status, ALL, sent=3, ok=1, failed=2, failures=failures, code=ALL)
            return fr.encode(fr.CACHE_ACK, corr_id=frame.msg_id, payload=encode(done))
        return b""

    def _result(self, job: JobId, request: bytes) -> bytes:
        printed = "" if b'"quiet"' in request else ALL
        record = JobResult(show_job_id(job), ALL, ALL, "FAILED", printed, printed, a_zip(), 3, ALL, 1.0, ALL)
        if b"BroadcastS" in request:
            parts = json.dumps([[bytes(15).hex() + "07", ALL]])
            record = JobResult(show_job_id(job), stdout=parts, exit_code=0)
        return fr.encode(fr.RESULT, job, job, payload=encode(record))


@pytest.fixture
def leader(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileLeader]:
    leader = HostileLeader()
    monkeypatch.setenv("WAKU_LEADER", leader.address)
    yield leader
    leader.close()


class OnATerminal:
    """A process whose three streams are one terminal."""

    def __init__(self, words: list[str | Path], home: Path) -> None:
        self._ours, its = pty.openpty()
        termios.tcsetwinsize(its, (60, 200))
        env = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(words, cwd=home, env=env, stdin=its, stdout=its, stderr=its)
        os.close(its)
        self._seen = b""
        self._news = threading.Condition()
        self._is_over = False
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        """All along: a terminal that nobody reads would stop whoever writes to it."""
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # The other side is closed.
                data = b""
            with self._news:
                self._seen += data
                self._is_over = not data
                self._news.notify_all()
            if not data:
                return

    @property
    def seen(self) -> str:
        return self._seen.decode(errors="surrogateescape")

    def until(self, said: Callable[[str], bool]) -> str:
        with self._news:
            assert self._news.wait_for(lambda: self._is_over or said(self.seen), WITHIN_S), self.seen[-2000:]
        assert said(self.seen), f"it ended after {self.seen[-2000:]!r}"
        return self.seen

    def ended(self) -> str:
        """All that it has shown."""
        with self._news:
            assert self._news.wait_for(lambda: self._is_over, WITHIN_S), self.seen[-2000:]
        self.process.wait(WITHIN_S)
        return self.seen

    def types(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join(WITHIN_S)
        os.close(self._ours)


@pytest.fixture
def on_a_terminal(home: Path) -> Iterator[Callable[..., OnATerminal]]:
    opened: list[OnATerminal] = []

    def start(*words: str | Path) -> OnATerminal:
        opened.append(OnATerminal(list(words), home))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


CALLS = """
import json, sys
from wakugumi.app.cli import call
for words in json.loads(sys.argv[1]):
    print("@@@", " ".join(words[:2]), flush=True)
    call(words)
    sys.stdout.flush()
"""
"""One process for many commands: each is called as `waku` calls it."""


def typed(leader: AnsweringLeader, more: list[str]) -> list[list[str]]:
    host, _, port = leader.address.rpartition(":")
    places = {"LEADER": leader.address, "LEADER_HOST": host, "LEADER_PORT": port}
    return [[*name.split(), *(places.get(word, word) for word in words), *more] for name, words in ASKING.items()]


def sections(shown: str) -> dict[str, str]:
    """What each command has shown, by its name."""
    found: dict[str, str] = {}
    for section in shown.split("@@@ ")[1:]:
        head, _, text = section.partition("\n")
        name = head.strip()
        found[name if name in ASKING else name.split()[0]] = text
    return found


@pytest.mark.parametrize("mood", ["answers", "refuses"])
@pytest.mark.parametrize("how", ["terminal", "pipe", "json", "quiet", "debug", "log-json"])
def test_no_command_shows_what_a_leader_says_as_it_came(
    leader: HostileLeader, on_a_terminal: Callable[..., OnATerminal], home: Path, mood: str, how: str
) -> None:
    leader.refuses = mood == "refuses"
    (home / "in.txt").write_text("1")
    without = {"map", "run"} if how in {"json", "quiet"} else set()
    logged = {"debug": ["--log-level", "debug"], "log-json": ["--log-level", "debug", "--log-json"]}.get(how, [])
    more = ["-o", how] if how in {"json", "quiet"} else logged
    words = [each for each in typed(leader, more) if each[0] not in without]
    command = [sys.executable, "-c", CALLS, json.dumps(words)]
    if how in {"terminal", "debug", "log-json"}:
        shown = on_a_terminal(*command).ended()
    else:
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, cwd=home, timeout=WITHIN_S, check=True, **piped)
        shown = done.stdout.decode(errors="surrogateescape")
    by_name = sections(shown)
    assert set(by_name) == set(ASKING) - without
    for name, text in by_name.items():
        assert reached(text, drawn=how not in {"pipe", "json", "quiet"}) == [], name
        assert "Traceback" not in text, name
        if how in {"terminal", "pipe"} and name not in SILENT[mood]:
            assert MARK in text, f"{name} shows nothing of it: {text!r}"


def test_what_is_left_out_of_a_result_is_said(leader: HostileLeader, home: Path) -> None:
    """And only what is honest is written."""
    (home / "in.txt").write_text("1")
    left = len(TEXTS)
    for words, said, fine in (
        (["run", "quiet", "--out", "made"], f"1 file written to made, {left} left out: no honest worker", "made"),
        (
            ["map", "quiet", "in.txt", "--out", "out"],
            f"{left} entries of results were left out: dot-files",
            "out/in.txt",
        ),
        (["jobs", "wait", JOB, "--out", "kept"], f"{left} entries of results were left out: dot-files", f"kept/{JOB}"),
    ):
        done = subprocess.run([WAKU, *words], cwd=home, capture_output=True, text=True, timeout=WITHIN_S)
        assert said in done.stderr, words
        made = {path.name for path in (home / fine).iterdir()}
        assert made - {".waku.json", "stdout.txt", "stderr.txt"} == {"fine.txt"}


def test_json_has_what_the_leader_said_unchanged(leader: HostileLeader, home: Path) -> None:
    """It is data: a program that reads it gets the text itself."""
    done = subprocess.run(
        [WAKU, "jobs", "list", "-o", "json"], cwd=home, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert json.loads(done.stdout)["jobs"][0]["program"] == ALL


def test_the_live_view_draws_none_of_it(leader: HostileLeader, on_a_terminal: Callable[..., OnATerminal]) -> None:
    view = on_a_terminal(WAKU, "top", "--every", "0.1")
    view.until(lambda text: text.count(MARK) > 20)
    view.types(b"q")
    assert reached(view.ended(), drawn=True) == []


@pytest.mark.parametrize("drawn", [True, False])
def test_a_program_that_was_asked_for_writes_what_it_likes(
    home: Path, on_a_terminal: Callable[..., OnATerminal], drawn: bool
) -> None:
    """`waku run` is the user's own program: its output is passed on, byte for byte."""
    said = "\x1b[31mred\x1b[0m \x9b \u202e"
    (home / "paint").write_text(f"#!/bin/sh\nprintf '%s' '{said}'\n")
    (home / "paint").chmod(0o755)
    if drawn:
        assert said in on_a_terminal(WAKU, "run", "./paint").ended()
    else:
        done = subprocess.run([WAKU, "run", "./paint"], cwd=home, capture_output=True, timeout=WITHIN_S)
        assert done.stdout == said.encode()


def test_send_shows_a_nodes_words_and_obeys_none(home: Path, on_a_terminal: Callable[..., OnATerminal]) -> None:
    (home / "in.txt").write_text("1")
    said = [text.replace("\n", " ") for text in TEXTS.values()]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            for text in said:
                peer, _ = server.accept()
                with peer:
                    peer.settimeout(WITHIN_S)
                    peer.recv(65536)
                    peer.sendall(f"ERR {text}: {text}\n".encode("utf-8", "surrogatepass"))
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(65536):
                        pass

        thread = threading.Thread(target=answer)
        thread.start()
        shown = on_a_terminal(WAKU, "send", *[address] * len(said), "in.txt").ended()
        thread.join(WITHIN_S)
    assert shown.count(MARK) > len(said)
    assert reached(shown, drawn=True) == []


def test_the_store_commands_show_file_names_only_visibly(home: Path, on_a_terminal: Callable[..., OnATerminal]) -> None:
    """Of a journal that was handed over: its name is the stranger's."""
    folder = home / TEXTS["clipboard"]
    folder.mkdir()
    (folder / "journal.sqlite").write_bytes(b"no journal at all" * 100)
    (home / "to").mkdir()
    for words in (["check", folder], ["backup", folder, home / "to" / "copy"], ["repair", folder]):
        shown = on_a_terminal(WAKU, "store", *words).ended()
        assert MARK in shown, words
        assert reached(shown, drawn=True) == [], words


# Roles: their log, on a terminal, in both forms.


def frames(port: int, *sent: bytes) -> bytes:
    """Say this to whoever listens there, one connection each; all that came back."""
    heard = b""
    for data in sent:
        with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as peer:
            peer.sendall(data)
            try:
                if b" HTTP/1.1\r\n" in data:  # A caller by HTTP that ends its side first has left, and is not heard.
                    heard += peer.recv(65536)
                peer.shutdown(socket.SHUT_WR)
                while more := peer.recv(65536):
                    heard += more
            except OSError:  # It was cut off.
                pass
    return heard


def a_stranger_says() -> Iterator[bytes]:
    """To any port: frames, lines and requests, with each text wherever one may stand."""
    for text in TEXTS.values():
        raw = text.encode("utf-8", "surrogatepass")
        one_line = raw.replace(b"\n", b" ").replace(b"\r", b" ")
        hello = fr.encode(fr.HELLO_CLIENT, subject="me", payload=encode(HelloClient("me", 4, ["receipts"])))
        job = bytes(15) + b"\7"
        yield fr.encode(fr.HELLO_CLIENT, subject=text)
        yield fr.encode(fr.HELLO_CLIENT, payload=encode(HelloClient(text, 4, [text])))
        yield fr.encode(fr.HELLO_WORKER, job, subject=text)
        yield fr.encode(fr.HELLO_WORKER, job, payload=encode(HelloWorker(text, [text])))
        yield hello + fr.encode(fr.SUBMIT_JOB, job, subject=text, payload=raw)
        request = JobRequest(show_job_id(JobId(job)), text, text, [text], [InputFile(text, text)], key=text)
        yield hello + fr.encode(fr.SUBMIT_JOB, job, payload=encode(request))
        put = CachePutRequest(text, [CacheEntry(text, b"x")], text)
        yield hello + fr.encode(fr.CACHE_PUT, job, subject=f"cache.put.{text}", payload=encode(put))
        yield hello + fr.encode(fr.ASK, job, payload=encode({"ask": text, "job": text}))
        worker = fr.encode(fr.HELLO_WORKER, job, payload=encode(HelloWorker("w", ["rests", "blobs", "reattach"])))
        yield worker + fr.encode(fr.RESTING, payload=encode(Rest(text)))
        yield worker + fr.encode(fr.STOCK, payload=encode(Stock(True, text, text, [text], caches={text: text})))
        yield worker + fr.encode(fr.WANT, job, payload=encode(Want(text, 1, text, text)))
        yield worker + fr.encode(fr.ACK_JOB, job, job, payload=encode({"Status": text, "Reason": text}))
        yield worker + fr.encode(99, job, subject=text, payload=raw)
        yield b"JOB " + one_line.replace(b" ", b"_") + b" in.txt 0\n"
        yield b"JOB x " + one_line.replace(b" ", b"_") + b" 0\n"
        yield one_line + b"\n\n"
        yield from requests(raw, (b"GET /status",))
        yield b"GET /" + one_line.replace(b" ", b"_") + b" HTTP/1.1\r\nHost: " + one_line + b"\r\n\r\n"
    yield from requests(ALL.encode(), PAGES)


PAGES = tuple(
    method + b" /" + page
    for method in (b"GET", b"POST", b"DELETE")
    for page in (b"run", b"dispatch", b"submit", b"status", b"result", b"jobs", b"blobs")
)


def requests(text: bytes, pages: tuple[bytes, ...]) -> Iterator[bytes]:
    path = b"".join(b"%c" % byte if chr(byte).isalnum() and byte < 128 else b"%%%02x" % byte for byte in text)
    value = text.replace(b"\n", b" ").replace(b"\r", b" ").replace(b"\0", b" ")
    head = b"Host: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n"
    head += b"User-Agent: " + value + b"\r\nWaku-Client: " + value + b"\r\n"
    for page in pages:
        yield page + b"/" + path + b"?program=" + path + b" HTTP/1.1\r\n" + head + b"\r\n"


LISTENS = re.compile(r"^[a-z0-9:/ ]*127\.0\.0\.1:\d+[^\n]*\r\n", re.MULTILINE)
"""The line on stdout."""
ROLES: dict[str, list[str]] = {
    "leader": ["0", "--memory"],
    "up": ["0", "--memory", "--programs", "programs", "--jobs", "jobs", "--slots", "1"],
    "node": ["--http", "0", "--programs", "programs", "--jobs", "jobs", "--slots", "1"],
    "gateway": ["0", "--state", "gate", "--group", "a=http://127.0.0.1:9"],
}


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("role", ROLES)
def test_no_role_logs_a_strangers_text_as_it_came(
    home: Path, programs: Path, on_a_terminal: Callable[..., OnATerminal], role: str, form: str
) -> None:
    (home / "programs").symlink_to(programs)
    words = [*ROLES[role], "--log-level", "debug", *(["--log-json"] if form == "json" else [])]
    if role == "node":
        words += ["--lines", "0"]
    running = on_a_terminal(WAKU, role, *words)
    said = LISTENS.search(running.until(lambda text: bool(LISTENS.search(text))))
    assert said
    ports = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", said[0])}  # the log names ports of peers, too
    assert len(ports) == (2 if role == "node" else 1)
    for port in ports:
        frames(port, *a_stranger_says())
    running.process.send_signal(signal.SIGTERM)
    shown = running.ended()
    assert MARK in shown
    assert reached(shown, drawn=True) == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_worker_logs_a_leaders_text_visibly(
    home: Path, programs: Path, on_a_terminal: Callable[..., OnATerminal], form: str
) -> None:
    """A leader that sends each text as its version, as a job, as a cache and as a refusal."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()[:2]
        words = ["--programs", programs, "--jobs", home / "jobs", "--slots", "1", "--log-level", "debug"]
        words += ["--log-json"] if form == "json" else []
        running = on_a_terminal(WAKU, "worker", host, str(port), "job.assign.>", *words)
        server.settimeout(WITHIN_S)
        peer, _ = server.accept()
        with peer:
            peer.settimeout(WITHIN_S)
            peer.recv(65536)
            peer.sendall(fr.encode(fr.WELCOME, payload=encode(Welcome(ALL, ["blobs", ALL]))))
            for at, text in enumerate(TEXTS.values()):
                job = bytes(15) + bytes([at + 1])
                request = JobRequest(show_job_id(JobId(job)), text, text, [text], [InputFile(text, None, b"x")])
                put = CachePutRequest(text, [CacheEntry(text, b"x")], text)
                peer.sendall(
                    fr.encode(fr.ASSIGN_JOB, job, subject=text, payload=encode(request))
                    + fr.encode(fr.CACHE_PUT, job, subject="cache.put", payload=encode(put))
                    + fr.encode(fr.REFUSAL, job, job, payload=encode(Refusal(text, text)))
                    + fr.encode(fr.SOURCE, job, job, payload=encode(Source(text, 1, text, text, text, text)))
                    + fr.encode(fr.CACHE_DROP, job, subject=text, payload=text.encode())
                    + fr.encode(98, job, subject=text)
                )
            done, heard = fr.Decoder(), 0
            done.trust()
            while heard < len(TEXTS):
                data = peer.recv(65536)
                assert data
                heard += sum(frame.type == fr.ACK_JOB for frame in done.feed(data))
            running.process.kill()
        shown = running.ended()
    assert MARK in shown
    assert reached(shown, drawn=True) == []


def test_every_answer_of_a_leader_can_be_filled() -> None:
    """What this page does not fill, it does not test."""
    for kind in ANSWERS.values():
        assert MARK in msgspec.json.encode(filled(kind)).decode()
