"""How is a job sent by line, and what is said of a node that is busy, breaks off or is no node?"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.kit.tls_grid import TlsGrid

from wakugumi.adapters.lines.client import send_job
from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError, Lost, PeerError
from wakugumi.limits.http import LINE_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.wire.line import Answer, Busy, Err, Ok, write_busy, write_exit, write_ok

Answers = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
INPUT = b"input"


def ask(folder: Path, answers: Answers, content: bytes = INPUT, silence_max_s: float = 60.0) -> Answer:
    """The answer of a node that answers like this. Its ZIP, if any, is in `out.zip`."""
    (folder / "in.txt").write_bytes(content)
    failed: list[BaseException] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answers(reader, writer)
        except BaseException as error:
            failed.append(error)
            raise
        finally:
            writer.close()

    async def both() -> Answer:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
            return await send_job(
                address, "night-7", folder / "in.txt", "in put.txt", folder / "out.zip", None, silence_max_s
            )

    try:
        return asyncio.run(both())
    finally:
        assert not [error for error in failed if isinstance(error, AssertionError)]


def says(answer: bytes) -> Answers:
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readuntil(b"\n") == b"JOB night-7 in%20put.txt 5\n"
        assert await reader.readexactly(len(INPUT)) == INPUT
        writer.write(answer)

    return answers


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("content", [b"", b"zip", b"z" * (2 * MIB + 1)], ids=len)
def test_the_zip_of_an_answer_is_in_its_file(tmp_path: Path, content: bytes) -> None:
    assert ask(tmp_path, says(write_ok(len(content)) + content)) == Ok(len(content))
    assert (tmp_path / "out.zip").read_bytes() == content
    assert left_in(tmp_path) == {"in.txt", "out.zip"}


@pytest.mark.parametrize(("line", "answer"), [(write_busy(3), Busy(3)), (write_exit(7), Err("exit=7"))])
def test_an_answer_without_a_zip_makes_no_file(tmp_path: Path, line: bytes, answer: Answer) -> None:
    assert ask(tmp_path, says(line)) == answer
    assert left_in(tmp_path) == {"in.txt"}


def test_a_busy_node_need_not_read_the_file(tmp_path: Path) -> None:
    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\n")
        writer.write(write_busy(1))
        await writer.drain()

    assert ask(tmp_path, busy, bytes(64 * MIB)) == Busy(1)


def test_an_answer_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(Lost, match="7 of 10 bytes are missing"):
        ask(tmp_path, says(write_ok(10) + b"zip"))
    assert left_in(tmp_path) == {"in.txt"}


def test_an_earlier_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "out.zip").write_bytes(b"old")
    with pytest.raises(Lost):
        ask(tmp_path, says(write_ok(10) + b"zip"))
    assert (tmp_path / "out.zip").read_bytes() == b"old"


def test_a_node_that_closes_without_an_answer_is_lost(tmp_path: Path) -> None:
    with pytest.raises(Lost, match="without an answer"):
        ask(tmp_path, says(b"half a li"))


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b"x" * (LINE_BYTES_MAX * 3), b"OK much\n"])
def test_another_server_is_no_node(tmp_path: Path, answer: bytes) -> None:
    with pytest.raises(PeerError):
        ask(tmp_path, says(answer))


def test_a_node_that_does_nothing_is_slow(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(Lost, match="neither read nor answered") as lost:
        ask(tmp_path, silent, silence_max_s=0.05)
    assert lost.value.why == "slow"


def test_a_port_where_nothing_listens_is_lost(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound, but not listening: connections are refused.
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(Lost, match="cannot connect"):
            asyncio.run(send_job(address, "a", tmp_path / "in", "in", tmp_path / "out"))


def test_files_of_this_machine_are_told_apart_from_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "out.zip").mkdir()
    with pytest.raises(ConfigError, match="cannot be written") as told:
        ask(tmp_path, says(write_ok(3) + b"zip"))
    assert "--out" in told.value.hint
    assert left_in(tmp_path) == {"in.txt", "out.zip"}

    async def unread() -> None:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
            await send_job(address, "a", tmp_path / "gone", "gone", tmp_path / "out")

    with pytest.raises(ConfigError, match="cannot be read"):
        asyncio.run(unread())


@pytest.mark.spec("O1")
def test_a_key_goes_before_the_job_to_a_node_that_proves_who_it_is(tmp_path: Path) -> None:
    grid = TlsGrid(tmp_path / "grid")
    key, received = grid.key(), list[bytes]()
    (tmp_path / "in.txt").write_bytes(INPUT)

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend([await reader.readuntil(b"\n"), await reader.readuntil(b"\n")])
        writer.write(write_busy(3))
        writer.close()

    async def send(role: str) -> Answer:
        async with await asyncio.start_server(answers, "127.0.0.1", 0, ssl=grid.server(role)) as server:
            port = server.sockets[0].getsockname()[1]
            entry = grid.entry(port, key, "node")
            files = tmp_path / "in.txt", "in.txt", tmp_path / "out.zip"
            return await send_job(Address("127.0.0.1", port), "night-7", *files, access=entry)

    assert asyncio.run(send("node")) == Busy(3)
    assert received == [f"AUTH {key.text}\n".encode(), b"JOB night-7 in.txt 5\n"]
    received.clear()
    with pytest.raises(Lost, match="is not believed"):
        asyncio.run(send("worker"))
    assert received == []
