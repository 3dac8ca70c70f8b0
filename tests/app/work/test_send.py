"""`waku send`: what it says of each node, and how it ends. The nodes are scripted; real ones are in tests/whole."""

from __future__ import annotations

import io
import socket
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.kit.tls_grid import TlsGrid

from wakugumi.app.cli import call


@contextmanager
def a_node(answer: bytes) -> Iterator[str]:
    """Takes one job after the other, and answers each like this; what it heard last is in its name."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    heard = b""
                    while b"\n" not in heard:
                        heard += peer.recv(65536)
                    line, _, data = heard.partition(b"\n")
                    if not answer.startswith(b"BUSY"):
                        left = int(line.split()[3]) - len(data)
                        while left > 0:
                            left -= len(peer.recv(65536))
                    peer.sendall(answer.replace(b"LINE", line))

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a b.txt"
    path.write_bytes(b"hello")
    return path


@pytest.mark.spec("N6")
def test_the_result_is_saved_beside_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with a_node(b"OK 20\nJOB x a%20b.txt 5ZIP") as node:
        assert call(["send", node, str(file), "--id", "x"]) == 0
    saved = file.with_name("a b.txt.result.zip")
    assert capsys.readouterr().out == f"{saved}\n"
    assert saved.read_bytes() == b"JOB x a%20b.txt 5ZIP"


@pytest.mark.spec("L6", "N6")
@pytest.mark.parametrize(
    ("comment", "said"),
    [
        (b"", ""),
        (b"made by hand", ""),
        (b"Waku-Kept: yesterday", "has had this answer since yesterday: the job did not run again"),
        (b"Waku-Kept: \x1b[2J\nx", "has had this answer since "),
    ],
)
def test_an_answer_that_was_kept_is_told(
    file: Path, capsys: pytest.CaptureFixture[str], comment: bytes, said: str
) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a", b"a")
        archive.comment = comment
    data = made.getvalue()
    with a_node(b"OK %d\n%s" % (len(data), data)) as node:
        assert call(["send", node, str(file)]) == 0
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == bool(said)
    assert "\x1b" not in err


@pytest.mark.spec("N6")
@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (b"BUSY retry=5\n", 1, "is busy, and accepts a retry in 5 s"),
        (b"ERR exit=3\n", 1, "exit code 3"),
        (b"ERR bad-name: no such name\n", 2, "no such name"),
        (b"ERR hello\n", 1, "hello"),
        (b"HTTP/1.1 400 Bad Request\r\n", 1, "is no answer of a node"),
        (b"OK 20\nhalf", 5, "in the midst of its answer"),
        (b"", 5, "without an answer"),
    ],
)
def test_what_a_node_says_is_told_and_nothing_is_saved(
    file: Path, capsys: pytest.CaptureFixture[str], answer: bytes, code: int, said: str
) -> None:
    with a_node(answer) as node:
        assert call(["send", node, str(file)]) == code
    assert said in capsys.readouterr().err
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.spec("N6")
def test_the_next_address_is_tried_on_busy_on_failure_and_on_nobody(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_node(b"BUSY retry=5\n") as busy, a_node(b"ERR exit=1\n") as failing, a_node(b"OK 2\nok") as good:
        assert call(["send", "127.0.0.1:1", busy, failing, good, str(file)]) == 0
    assert capsys.readouterr().err.count("trying the next one") == 3


@pytest.mark.spec("N6")
def test_a_node_that_says_nothing_is_left_for_the_next(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, a_node(b"OK 2\nok") as good:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert call(["send", address, good, str(file), "--timeout", "0.2"]) == 0
        assert call(["send", address, str(file), "--timeout", "0.2"]) == 5
    assert capsys.readouterr().err.count("neither read nor answered for 0.2 s") == 2


@pytest.mark.spec("N6")
def test_a_busy_node_is_left_before_all_is_sent(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with open(large, "wb") as sparse:
        sparse.truncate(1_000_000_000)
    with a_node(b"BUSY retry=5\n") as node:
        assert call(["send", node, str(large)]) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["127.0.0.1:1", "FILE"], 5),
        (["FILE"], 2),
        (["127.0.0.1:1", "missing"], 2),
        (["127.0.0.1:x", "FILE"], 2),
        (["127.0.0.1:1", "FILE", "--id", ".."], 2),
        (["127.0.0.1:1", "FILE", "--wait", "-1"], 2),
        (["127.0.0.1:1", "FILE", "--timeout", "0"], 2),
        (["127.0.0.1:1", "FILE", "--ca", "missing.pem"], 2),
    ],
)
def test_what_cannot_be_sent_ends_with_its_exit_code(file: Path, words: list[str], code: int) -> None:
    assert call(["send", *[str(file) if word == "FILE" else word for word in words]]) == code


@pytest.mark.spec("O1")
def test_a_key_is_shown_to_a_node_that_proves_who_it_is(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid, heard = TlsGrid(tmp_path / "grid"), list[bytes]()
    key, tls = grid.key(), grid.server("node")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with tls.wrap_socket(listener.accept()[0], server_side=True) as peer, peer.makefile("rb") as lines:
                heard.extend([lines.readline(), lines.readline()])
                peer.sendall(b"BUSY 3\n")

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        access = grid.write_access(tmp_path / "access" / "access.toml", grid.entry(port, key, "node"))
        assert call(["send", f"127.0.0.1:{port}", str(file), "--id", "x", "--access", str(access)]) == 1
        thread.join()
    assert heard == [f"AUTH {key.text}\n".encode(), b"JOB x a%20b.txt 5\n"]
    assert key.secret not in "".join(capsys.readouterr())


@pytest.mark.spec("O1")
def test_a_key_in_an_address_is_never_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = f"desk-1:{'a' * 32}-{'b' * 52}"
    for node in (f"waku://{key}@127.0.0.1:1", f"waku://{key}x@127.0.0.1:1", f"waku://{key}@127.0.0.1:none"):
        assert call(["send", node, str(file)]) != 0
        assert "bbb" not in "".join(capsys.readouterr())
