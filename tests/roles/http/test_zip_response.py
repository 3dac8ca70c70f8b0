"""How does a job's result become the answer to an HTTP request?"""

from __future__ import annotations

import asyncio
import io
import threading
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wakugumi.adapters.http.page import HttpRefusal, Reply, Stream
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT
from wakugumi.adapters.zip.add_output import splice, splice_counted
from wakugumi.errors import CODES, Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.roles.http.zip_response import answer_of, is_answer, raise_unless_answer
from wakugumi.wire.messages.job import FAILED, OK, JobResult
from wakugumi.wire.messages.references import BlobRef

GOOD = JobResult("id", status=OK, stdout="said", stderr="", exit_code=0, run_s=0.25, worker="w-1")


def files_in(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


async def body_of(reply: Reply) -> bytes:
    if isinstance(reply.body, bytes):
        return reply.body
    data = b"".join([piece async for piece in reply.body.pieces])
    assert len(data) == reply.body.size
    return data


def answer(result: JobResult, parts: dict[str, Path] | None = None) -> tuple[Reply, dict[str, bytes]]:
    """What is answered, and the files of it. All that was needed for it is let go, once."""

    async def ask() -> tuple[Reply, dict[str, bytes]]:
        told: list[str] = []
        reply = await answer_of("night-1", result, parts or {}, lambda: told.append("done"))
        assert told == ([] if isinstance(reply.body, Stream) else ["done"])
        files = files_in(await body_of(reply))
        assert told == ["done"]
        return reply, files

    return asyncio.run(ask())


@pytest.mark.spec("N2")
def test_a_good_result_is_a_zip_and_its_head_tells_how_it_went() -> None:
    made = splice(b"", {"made.txt": b"made"})
    reply, files = answer(msgspec.structs.replace(GOOD, output_archive=made))
    assert files == {"made.txt": b"made", "stdout.txt": b"said", "stderr.txt": b""}
    assert (reply.status, reply.content_type) == (200, "application/zip")
    assert reply.headers == {
        "Waku-Job": "night-1",
        "Waku-Status": "OK",
        "Waku-Exit-Code": "0",
        "Waku-Run-Seconds": "0.250000",
        "Waku-Worker": "w-1",
        "Content-Disposition": 'attachment; filename="result-night-1.zip"',
    }


@pytest.mark.spec("N2", "W6")
@pytest.mark.parametrize("reason", ["exit", "output-limit", "memory-limit", "cpu-limit", None, "a-code-of-tomorrow"])
def test_a_program_that_fails_by_itself_is_an_answer(reason: str | None) -> None:
    reply, files = answer(JobResult("id", status=FAILED, stderr="no such rate", exit_code=3, reason=reason))
    assert reply.status == 200
    assert files["stderr.txt"] == b"no such rate"
    assert (reply.headers["Waku-Status"], reply.headers["Waku-Exit-Code"]) == ("FAILED", "3")
    assert reply.headers.get("Waku-Reason") == reason


@pytest.mark.parametrize("code", ["timeout", "dead", "cancelled", "unknown-program", "bad-name", "worker-lost"])
def test_everything_else_is_a_problem_with_its_code_s_status(code: str) -> None:
    failed = JobResult("id", status=FAILED, stderr="and this is why", reason=code)
    assert not is_answer(failed)
    with pytest.raises(HttpRefusal, match="and this is why") as caught:
        answer(failed)
    assert (caught.value.code, caught.value.status) == (code, CODES[code].http_status)
    assert caught.value.headers == {"Waku-Job": "night-1", "Waku-Status": "FAILED", "Waku-Reason": code}
    with pytest.raises(HttpRefusal, match=f"job n ended by {code}"):
        raise_unless_answer("n", msgspec.structs.replace(failed, stderr=""))


def test_a_stranger_s_words_cannot_break_the_head() -> None:
    reply, _ = answer(msgspec.structs.replace(GOOD, status=FAILED, worker="w\r\nSet-Cookie: 名" * 99, reason="a\nb"))
    assert reply.headers["Waku-Worker"].startswith("w%0D%0ASet-Cookie: %E5%90%8D")
    assert reply.headers["Waku-Reason"] == "a%0Ab"
    assert all(value.isascii() and value.isprintable() for value in reply.headers.values())


def test_what_is_too_large_for_one_piece_is_streamed() -> None:
    printed = "x" * (INLINE_FILE_BYTES_MAX + 1)
    reply, files = answer(msgspec.structs.replace(GOOD, stdout=printed))
    assert isinstance(reply.body, Stream)
    assert files["stdout.txt"] == printed.encode()


@pytest.mark.parametrize(("count", "in_the_loop"), [(0, True), (100, True), (101, False), (3_000, False)])
def test_a_result_of_many_files_is_gone_through_beside_the_loop(
    count: int, in_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def spied(*arguments: Any) -> tuple[bytes, int]:
        threads.append(threading.current_thread())
        return splice_counted(*arguments)

    monkeypatch.setattr("wakugumi.roles.http.zip_response.splice_counted", spied)
    made = splice(b"", {str(number): b"" for number in range(count)}) if count else None
    reply, files = answer(msgspec.structs.replace(GOOD, output_archive=made))
    assert isinstance(reply.body, bytes)
    assert len(files) == count + 2
    assert [thread is threading.current_thread() for thread in threads] == [in_the_loop]


@pytest.mark.spec("C7")
def test_what_is_not_in_the_result_is_read_from_its_files(tmp_path: Path) -> None:
    parts = {key: tmp_path / key for key in (ARCHIVE, STDOUT, STDERR)}
    parts[ARCHIVE].write_bytes(splice(b"", {"made": b"made"}))
    parts[STDOUT].write_bytes(b"all of it")
    parts[STDERR].write_bytes(b"all of that")
    blob = BlobRef("0" * 64, 1)
    large = msgspec.structs.replace(GOOD, stdout="its end", archive_blob=blob, stdout_blob=blob, stderr_blob=blob)
    _, files = answer(large, parts)
    assert files == {"made": b"made", "stdout.txt": b"all of it", "stderr.txt": b"all of that"}


def test_files_that_are_gone_and_archives_that_are_none_are_refused_and_let_go() -> None:
    async def refused(result: JobResult) -> str:
        told: list[str] = []
        with pytest.raises(Refused) as caught:
            await answer_of("n", result, {ARCHIVE: Path("/nowhere")}, lambda: told.append("done"))
        assert told == ["done"]
        return caught.value.code

    async def scenario() -> None:
        blob = BlobRef("0" * 64, 1)
        assert await refused(msgspec.structs.replace(GOOD, archive_blob=blob)) == "expired"
        assert await refused(msgspec.structs.replace(GOOD, stdout_blob=blob)) == "expired"
        assert await refused(msgspec.structs.replace(GOOD, output_archive=b"none")) == "bad-result"
        assert await refused(msgspec.structs.replace(GOOD, stdout="x" * 10**6, output_archive=b"none")) == "bad-result"

    asyncio.run(scenario())


@pytest.mark.spec("N2")
def test_a_result_with_its_output_in_the_archive_is_that_archive() -> None:
    texts = {"stdout.txt": b"said", "stderr.txt": b""}
    apart = msgspec.structs.replace(GOOD, output_archive=splice(b"", {"made.txt": b"made"}))
    whole = splice(apart.output_archive or b"", texts)
    together = msgspec.structs.replace(GOOD, output_archive=whole, archive_output=True)
    first, second = answer(apart)[0], answer(together)[0]
    assert second.body is whole
    assert first == second
    with pytest.raises(Refused) as caught:
        answer(msgspec.structs.replace(GOOD, archive_output=True))
    assert caught.value.code == "bad-result"
