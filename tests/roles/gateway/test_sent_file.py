"""Does a group that takes files get the file as it is, whole and with its right size, and each other group the form?"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import cast

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    Asked,
    Caller,
    FakeGroup,
    Said,
    a_gateway,
    a_problem,
    call,
    groups_of,
    left_on_disk,
    open_files,
    submit,
    until_state,
)
from tests.kit.form import FORM, form

from wakugumi.adapters.spool import SpoolReader
from wakugumi.core.gateway.rows import InputAt
from wakugumi.errors import Lost
from wakugumi.roles.gateway.sent_file import FilePieces, file_in
from wakugumi.wire.messages.envelope import seal

pytestmark = pytest.mark.anyio

LARGE = bytes(Random(1).randbytes(700_000))


async def pieces_of(body: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


def file_pieces(body: bytes, size: int, found: InputAt, known: InputAt | None) -> FilePieces:
    """Of a body that is read in pieces of this size."""
    return FilePieces(cast(SpoolReader, pieces_of(body, size)), found, lambda: known)


@pytest.mark.parametrize("step", [1, 3, 10, 1_000])
@pytest.mark.parametrize("content", [b"", b"x", b"some bytes"])
async def test_the_file_is_cut_out_of_its_form_wherever_the_pieces_end(step: int, content: bytes) -> None:
    body = form(content)
    found = InputAt(b"{}", body.index(b"\r\n\r\n") + 4, len(content))
    pieces = file_pieces(body, step, found, found)
    sent = [piece async for piece in pieces]
    assert all(sent)
    assert b"".join(sent) == file_in(body, found) == seal(b"{}", content)
    assert pieces.size == len(seal(b"{}", content))


@pytest.mark.parametrize("known", [None, InputAt(b"{}", 4, 7)])
async def test_the_last_byte_of_a_file_with_another_size_is_not_sent(known: InputAt | None) -> None:
    sent = bytearray()
    pieces = file_pieces(b"form" + b"content", 2, InputAt(b"{}", 4, 6), known)

    async def read() -> None:
        async for piece in pieces:
            sent.extend(piece)

    with pytest.raises(Lost):
        await read()
    assert bytes(sent) == seal(b"{}", b"conte")


@pytest.fixture
async def group() -> AsyncIterator[FakeGroup]:
    async with groups_of("a", takes_files=True) as [made]:
        yield made


@pytest.mark.spec("G2")
@pytest.mark.parametrize("query", ["", "&async=1"])
@pytest.mark.parametrize("content", [b"", b"42", LARGE], ids=["empty", "small", "large"])
async def test_a_group_that_takes_files_gets_no_form(
    tmp_path: Path, group: FakeGroup, query: str, content: bytes
) -> None:
    async with a_gateway(tmp_path, [group]) as gate:
        said = f"?program=p&arg=%7Binput%7D&arg=y&timeout=9&subject=s{query}"
        await submit(gate.port, "monday", content, "Waku-Client: me", query=said)
        await until_state(gate.port, "monday", "done")
        [asked] = group.dispatched
        assert asked.is_file
        assert asked.path == "/dispatch/monday?subject=s"
        assert asked.head["waku-client"] == "me"
        assert asked.content == content
        assert asked.job["Args"] == ["in.txt", "y"]
        assert (asked.job["ExecName"], asked.job["ClientId"], asked.job["TimeoutS"]) == ("p", "me", 9.0)
        assert [file["Name"] for file in asked.job["Files"]] == ["in.txt"]
        assert (await call(gate.port, "GET", "/result/monday")).body == b"PK by a"
        await eventually(lambda: open_files(tmp_path) == [])


@pytest.mark.spec("L6")
async def test_another_request_under_an_id_is_a_conflict_as_with_forms(tmp_path: Path, group: FakeGroup) -> None:
    async with groups_of("b") as [other]:
        async with a_gateway(tmp_path, [group]) as gate:
            assert (await submit(gate.port, "monday", LARGE)).status == 200
        async with a_gateway(tmp_path, [other]) as gate:
            assert (await submit(gate.port, "monday", LARGE)).body == b"PK by a"
            assert (await submit(gate.port, "monday", LARGE + b"!")).code == "conflict"
        assert other.dispatched == []


async def send_half(caller: Caller, body: bytes, *lines: str) -> None:
    await caller.head("POST", "/submit/monday", FORM, *lines)
    await caller.say(body[:400_000])


@pytest.mark.spec("G2")
async def test_a_file_is_sent_while_it_is_received(tmp_path: Path, group: FakeGroup) -> None:
    body = form(LARGE)
    async with a_gateway(tmp_path, [group]) as gate, Caller(gate.port) as caller:
        await send_half(caller, body, f"Content-Length: {len(body)}")
        await eventually(lambda: group.began == 1)
        await caller.say(body[400_000:])
        assert (await caller.heard()).status == 200
        [asked] = group.dispatched
        assert asked.is_file
        assert asked.content == LARGE


@pytest.mark.parametrize("tail", [b"and an end that few clients write", b""], ids=["longer", "shorter"])
async def test_an_unusual_end_of_a_form_makes_no_wrong_file(tmp_path: Path, group: FakeGroup, tail: bytes) -> None:
    body = form(LARGE)
    body = body + tail if tail else body.removesuffix(b"\r\n")
    async with a_gateway(tmp_path, [group]) as gate, Caller(gate.port) as caller:
        await send_half(caller, body, f"Content-Length: {len(body)}")
        await eventually(lambda: group.began == 1)
        await caller.say(body[400_000:])
        assert (await caller.heard()).status == 200
        [asked] = group.dispatched  # The first was cut off.
        assert group.began == 2
        assert asked.is_file
        assert asked.content == LARGE
        assert [word for _, word, _ in gate.server.gateway.calls.groups.states(0.0)] == ["ok"]


async def test_a_form_whose_size_is_unknown_is_sent_as_it_comes(tmp_path: Path, group: FakeGroup) -> None:
    body = form(LARGE)
    async with a_gateway(tmp_path, [group]) as gate, Caller(gate.port) as caller:
        await caller.head("POST", "/submit/monday", FORM, "Transfer-Encoding: chunked")
        await caller.say(b"%x\r\n%b\r\n" % (400_000, body[:400_000]))
        await eventually(lambda: group.began == 1)
        await caller.say(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 400_000, body[400_000:]))
        assert (await caller.heard()).status == 200
        [asked] = group.dispatched
        assert not asked.is_file
        assert asked.content == LARGE


@pytest.mark.parametrize("content", [b"42", LARGE], ids=["small", "large"])
async def test_each_group_gets_what_it_takes_from_one_try_to_the_next(tmp_path: Path, content: bytes) -> None:
    async with groups_of("a", "b", "c") as groups:
        for one in groups[:2]:
            one.say(a_problem(503, "full"))
        groups[1].says_takes = groups[1].takes_files = True
        async with a_gateway(tmp_path, groups) as gate:
            assert (await submit(gate.port, "monday", content)).status == 200
        asked = [one.dispatched[0] for one in groups if one.dispatched]
        assert [one.is_file for one in asked] == [
            one is groups[1].dispatched[0] for one in asked if groups[1].dispatched
        ]
        assert {hashlib.sha256(one.content or b"").digest() for one in asked} == {hashlib.sha256(content).digest()}


async def test_a_group_that_takes_files_no_more_gets_the_form(tmp_path: Path, group: FakeGroup) -> None:
    async with a_gateway(tmp_path, [group]) as gate:
        group.takes_files = False  # It was replaced by an older one, and the gateway has not asked since.
        for name in ("monday", "tuesday"):
            assert (await submit(gate.port, name)).status == 200
            assert not group.dispatched[-1].is_file
        assert [asked.is_file for asked in group.dispatched[:2]] == [True, False]


async def test_a_bad_request_stays_one(tmp_path: Path, group: FakeGroup) -> None:
    group.say(a_problem(400, "bad-request"))
    async with a_gateway(tmp_path, [group]) as gate:
        for name in ("monday", "tuesday"):
            assert (await submit(gate.port, name)).code == "bad-request"
        assert [asked.is_file for asked in group.dispatched] == [True, True]


@pytest.mark.spec("G3")
@pytest.mark.parametrize("content", [b"42", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("takes_files", [True, False])
async def test_another_gateway_forwards_a_row_in_either_form(tmp_path: Path, content: bytes, takes_files: bool) -> None:
    async with groups_of("a", takes_files=takes_files) as [group]:

        async def full(_asked: Asked) -> Said:
            return a_problem(503, "full")

        group.behave = full
        async with a_gateway(tmp_path, [group]) as first:
            assert (await submit(first.port, "monday", content, query="?async=1")).status == 202
            await asyncio.wait_for(group.arrived.wait(), 20)
        async with a_gateway(tmp_path, [group], lease_s=0.3) as second:
            group.behave = group.result  # Now that its kind is known.
            await until_state(second.port, "monday", "done")
            assert group.dispatched[-1].is_file == takes_files
            assert {asked.content for asked in group.dispatched} == {content}
            await eventually(lambda: left_on_disk(tmp_path) == [])
