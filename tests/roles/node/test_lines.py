"""What does a node answer to a line? Real programs over real sockets."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.kit.a_node import a_node, ask, say, unzipped
from tests.kit.node_requests import line, run

pytestmark = pytest.mark.anyio


@pytest.mark.spec("N1", "W1")
@pytest.mark.parametrize("one_port", [False, True])
async def test_a_job_by_line_is_answered_with_its_zip(tmp_path: Path, one_port: bool) -> None:
    async with a_node(tmp_path, one_port=one_port) as at:
        head, _, body = (await say(at.lines, line("monday-7", name="a%20b.txt"))).partition(b"\n")
        assert head == b"OK %d" % len(body)
        assert unzipped(body) == {"copied": b"hello", "stdout.txt": b"5\n", "stderr.txt": b"warned\n"}
        assert (at.http == at.lines) is one_port


@pytest.mark.spec("N1")
async def test_a_program_that_fails_is_told_in_a_line_and_runs_again(tmp_path: Path) -> None:
    async with a_node(tmp_path, "fail") as at:
        for runs in (1, 2):
            assert await say(at.lines, line("x")) == b"ERR exit=3\n"
            assert at.runs == runs


@pytest.mark.spec("N1")
async def test_the_few_lines_of_the_document_speak_to_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = (Path(__file__).parents[3] / "docs" / "use" / "http.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    (tmp_path / "input.txt").write_text("hello")
    monkeypatch.chdir(tmp_path)
    async with a_node(tmp_path) as at:
        names: dict[str, object] = {}
        await asyncio.to_thread(exec, code.replace("9099", str(at.lines)), names)
        assert capsys.readouterr().out.startswith("b'OK ")
        assert at.runs == 1


@pytest.mark.spec("N4", "G1")
async def test_who_sends_nothing_gets_what_is_there_and_is_told_if_there_is_nothing(tmp_path: Path) -> None:
    async with a_node(tmp_path) as at:
        nothing = b"POST /run/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        assert (await ask(at.http, nothing)).status == 400
        first = await ask(at.http, run("x"))
        again = await ask(at.http, nothing)
        assert (again.status, again.files, at.runs) == (200, first.files, 1)
