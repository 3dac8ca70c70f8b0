"""What strangers send to a gateway: a clear 4xx, no row, no file, no slot, and no group is blamed for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.fake_group import (
    Caller,
    FakeGroup,
    GatewayHere,
    a_gateway,
    call,
    groups_of,
    left_on_disk,
    open_files,
    submit,
)
from tests.kit.form import DELIMITER, FORM, FORM_TYPE, form

from wakugumi.core.connections import pace
from wakugumi.core.gateway.rows import Totals

pytestmark = pytest.mark.anyio

BODY_MAX = 2_000_000


@pytest.fixture
async def group() -> AsyncIterator[FakeGroup]:
    async with groups_of("a") as [made]:
        yield made


@pytest.fixture
async def gate(tmp_path: Path, group: FakeGroup) -> AsyncIterator[GatewayHere]:
    async with a_gateway(tmp_path, [group], body_bytes_max=BODY_MAX) as made:
        yield made


async def nothing_is_left(gate: GatewayHere, folder: Path) -> None:
    await eventually(lambda: gate.server.pages.submits == 0 and gate.server.gateway.flights == {})
    assert await gate.server.gateway.store.totals() == Totals()
    assert left_on_disk(folder) == []
    await eventually(lambda: open_files(folder) == [])
    assert len(gate.server.gateway.queue) == 0
    assert [word for _, word, _ in gate.server.gateway.calls.groups.states(0.0)] == ["ok"]
    assert (await submit(gate.port, "afterwards")).status == 200


NAMES = [
    *("", "..", ".", "%2e%2e", "a/b", "a%2Fb", "%00", "a%20b", "%ff", "%F0%9F%98%80", "x" * 129, "a%0d%0ab"),
    *("a?program=x%00", "a?nonsense=1", "a?program=..%2fx", "a?timeout=-1", "a?async=maybe", "a?key=x&key=y"),
]


async def test_a_bad_name_or_query_is_refused(tmp_path: Path, gate: GatewayHere, group: FakeGroup) -> None:
    for name in NAMES:
        for lines in ([], ["Prefer: respond-async"]):
            heard = await submit(gate.port, name, b"1", *lines)
            assert heard.status == 400, name
            assert heard.code in {"bad-request", "bad-name"}, name
    assert group.dispatched == []
    await nothing_is_left(gate, tmp_path)


FORMS = {
    "not a form": ("text/plain", b"hello"),
    "no type": ("", b"hello"),
    "no boundary": ("multipart/form-data", form(b"1")),
    "another boundary": ("multipart/form-data; boundary=other", form(b"1")),
    "no file": (FORM_TYPE, form(b"1", field="other")),
    "two files": (FORM_TYPE, form(b"1").replace(DELIMITER + b"--\r\n", b"") + form(b"2")),
    "no end": (FORM_TYPE, form(b"1").replace(DELIMITER + b"--", b"")),
    "no part": (FORM_TYPE, DELIMITER + b"--\r\n"),
    "empty": (FORM_TYPE, b""),
    "a path": (FORM_TYPE, form(b"1", file_name="../../etc/passwd")),
    "an encoded path": (FORM_TYPE, form(b"1", file_name="%2e%2e%2fx")),
}


async def test_what_is_no_form_with_one_file_is_refused(tmp_path: Path, gate: GatewayHere, group: FakeGroup) -> None:
    for what, (content_type, body) in FORMS.items():
        for query in ("", "?async=1"):
            heard = await call(gate.port, "POST", f"/submit/monday{query}", body, f"Content-Type: {content_type}")
            assert heard.status == 400, what
    assert group.dispatched == []
    await nothing_is_left(gate, tmp_path)


@pytest.mark.parametrize("query", ["", "?async=1"])
async def test_a_large_form_that_turns_out_bad_at_its_end_is_refused(
    tmp_path: Path, gate: GatewayHere, group: FakeGroup, query: str
) -> None:
    body = form(b"x" * 1_000_000).replace(DELIMITER + b"--", DELIMITER + b"-x")
    heard = await call(gate.port, "POST", f"/submit/monday{query}", body, FORM)
    assert heard.status == 400
    assert gate.server.gateway.flights == {}, "who is told no may send it again at once"
    await nothing_is_left(gate, tmp_path)


@pytest.mark.parametrize("query", ["", "?async=1"])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused(
    tmp_path: Path, gate: GatewayHere, query: str, is_chunked: bool
) -> None:
    body = form(b"x" * BODY_MAX)
    async with Caller(gate.port) as caller:
        if is_chunked:
            await caller.head("POST", f"/submit/monday{query}", FORM, "Transfer-Encoding: chunked")
            await caller.say(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        else:
            await caller.head("POST", f"/submit/monday{query}", FORM, f"Content-Length: {len(body)}")
        heard = await caller.heard()
    assert (heard.status, heard.code) == (413, "too-big")
    await nothing_is_left(gate, tmp_path)


@pytest.mark.parametrize("query", ["", "?async=1"])
@pytest.mark.parametrize("sent", [0, 10, 600_000])
async def test_a_half_sent_body_leaves_nothing(
    tmp_path: Path, gate: GatewayHere, group: FakeGroup, sent: int, query: str
) -> None:
    body = form(b"x" * 1_000_000)
    async with Caller(gate.port) as caller:
        await caller.head("POST", f"/submit/monday{query}", FORM, f"Content-Length: {len(body)}")
        await caller.say(body[:sent])
        await eventually(lambda: gate.server.pages.submits == 1)
        if sent > 300_000 and not query:
            await eventually(lambda: gate.server.gateway.flights)
    await nothing_is_left(gate, tmp_path)
    assert (await submit(gate.port, "monday")).status == 200


@pytest.mark.parametrize("query", ["", "?async=1"])
@pytest.mark.parametrize("sent", [10, 600_000])
async def test_who_sends_too_slowly_is_told_so(
    tmp_path: Path, gate: GatewayHere, sent: int, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "BODY_RECEIVED_MIN_S", 0.2)
    body = form(b"x" * 1_000_000)
    async with Caller(gate.port) as caller:
        await caller.head("POST", f"/submit/monday{query}", FORM, f"Content-Length: {len(body)}")
        await caller.say(body[:sent])
        heard = await caller.heard()
    assert (heard.status, heard.code) == (408, "too-slow")
    monkeypatch.undo()
    await nothing_is_left(gate, tmp_path)


async def test_who_waits_for_the_same_job_goes_on_when_the_first_sends_only_half(
    tmp_path: Path, gate: GatewayHere, group: FakeGroup
) -> None:
    body = form(b"x" * 1_000_000)
    async with Caller(gate.port) as caller:
        await caller.head("POST", "/submit/monday", FORM, f"Content-Length: {len(body)}")
        await caller.say(body[:600_000])
        await eventually(lambda: gate.server.gateway.flights)
        second = asyncio.get_running_loop().create_task(submit(gate.port, "monday", b"whole"))
        await eventually(lambda: gate.server.pages.submits == 2)
    assert (await second).body == b"PK by a"
    assert [asked.content for asked in group.dispatched] == [b"whole"]


async def test_what_is_not_there_is_told(gate: GatewayHere) -> None:
    for path in ("/submit", "/status/", "/nothing", "/result/..%2f", "/jobs/"):
        heard = await call(gate.port, "GET", path)
        assert heard.status in {400, 404, 405}, path
        assert heard.code


@pytest.mark.spec("O1")
async def test_a_web_page_of_elsewhere_cannot_submit(gate: GatewayHere, group: FakeGroup) -> None:
    heard = await submit(gate.port, "monday", b"1", "Origin: http://elsewhere.example")
    assert (heard.status, heard.code) == (403, "denied")
    assert group.dispatched == []
