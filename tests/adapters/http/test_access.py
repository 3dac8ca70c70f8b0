"""Who may ask for which page? The guard tells who asks, the page what its sender must be allowed to do."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.kit.eventually import eventually
from tests.kit.guards import ScriptedGuard
from tests.kit.http_peer import Answer, HttpPeer, a_door, ask

from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply
from wakugumi.core.access.decide import Right
from wakugumi.core.access.identity import Identity, Role
from wakugumi.errors import Refused
from wakugumi.wire.access_line import Key, parse_key

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1")]

TEXT = f"desk-1:{'a' * 32}-{'b' * 52}"
DESK = Identity("desk-1", Role.CLIENT, key="desk-1", proof="key")
ROOT = Identity("uid-0", Role.ADMIN)
BEARER = f"Authorization: Bearer {TEXT}"


def who(key: Key | None, forwarded: bool) -> Identity:
    """Without a key it is the user of this machine, unless a relay is between."""
    if key is None and not forwarded:
        return ROOT
    if key == parse_key(TEXT):
        return DESK
    raise Refused("denied", "the key is not valid here", "ask for another")


async def tell(visit: HttpRequest) -> Reply:
    return Reply(200, visit.identity.name.encode())


@asynccontextmanager
async def door(guard: ScriptedGuard | None = None) -> AsyncIterator[int]:
    pages = [PageRoute(method, f"/{right.value}", tell, need=right) for right in Right for method in ("GET", "POST")]
    async with a_door(lambda: pages, guard=guard or ScriptedGuard(who)) as listener:
        yield listener.port


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["code"]


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([], b"uid-0"),
        ([BEARER], b"desk-1"),
        ([f"authorization: bearer {TEXT}"], b"desk-1"),
        ([f"Authorization: Basic {b64encode(TEXT.encode()).decode()}"], b"desk-1"),
        (["Via: 1.1 proxy", BEARER], b"desk-1"),
    ],
)
async def test_the_page_knows_who_asks(lines: list[str], name: bytes) -> None:
    async with door() as port:
        assert (await ask(port, "GET", "/run", *lines)).body == name


@pytest.mark.parametrize(
    "lines",
    [
        [f"Authorization: Bearer {TEXT[:-1]}c"],
        [f"Authorization: Bearer {TEXT[:-1]}"],
        ["Authorization: Bearer"],
        ["Authorization: Basic ???"],
        ["Authorization: Digest x"],
        ["Forwarded: for=192.0.2.60"],
        ["X-Forwarded-For: 192.0.2.60"],
        ["X-Forwarded-Host: a.example"],
        ["X-Real-IP: 192.0.2.60"],
        ["Via: 1.1 proxy"],
    ],
)
async def test_a_sender_without_a_proof_gets_401_and_no_word_of_its_key(lines: list[str]) -> None:
    async with door() as port:
        answer = await ask(port, "GET", "/look", *lines)
        assert code(answer) == (401, "denied")
        assert answer.head["www-authenticate"].startswith("Bearer")
        assert b"bbbbb" not in answer.body
        open_page = await ask(port, "GET", "/open", *lines)
        assert (open_page.status, open_page.body) == (200, b"nobody")


@pytest.mark.parametrize("right", [*Right])
async def test_a_role_without_the_right_gets_403_and_why(right: Right) -> None:
    may = right in {Right.OPEN, Right.KNOWN, Right.LOOK, Right.RUN, Right.CONTENT}
    async with door() as port:
        assert (await ask(port, "GET", f"/{right.value}")).status == 200
        answer = await ask(port, "GET", f"/{right.value}", BEARER)
        assert answer.status == (200 if may else 403)
        assert may or "desk-1 has the role client" in json.loads(answer.body)["detail"]


async def test_a_valid_key_makes_the_host_irrelevant_and_nothing_else_of_a_web_page() -> None:
    async with door() as port, HttpPeer(port) as peer:
        for more, status in (
            ([BEARER], 200),
            ([], 403),
            ([BEARER, "Origin: http://evil.example"], 403),
            ([BEARER, "Sec-Fetch-Site: cross-site"], 403),
        ):
            text = "".join(f"{line}\r\n" for line in ("POST /run HTTP/1.1", "Host: rebound.example", *more))
            await peer.say(text.encode() + b"Content-Length: 0\r\n\r\n")
            assert (await peer.answer()).status == status, more


async def test_a_connection_whose_key_ends_is_cut_off_and_the_guard_hears_of_every_end() -> None:
    guard = ScriptedGuard(who)
    async with door(guard) as port:
        async with HttpPeer(port) as peer:
            assert (await peer.ask("GET", "/run", BEARER)).status == 200
            assert guard.open == 1
            guard.close("the key was revoked")
            assert await peer.is_cut_off()
        await eventually(lambda: guard.open == 0)


async def test_each_request_of_a_connection_proves_itself() -> None:
    async with door() as port, HttpPeer(port) as peer:
        assert (await peer.ask("GET", "/run", BEARER)).body == b"desk-1"
        assert (await peer.ask("GET", "/run")).body == b"uid-0"
        assert (await peer.ask("GET", "/run", "Via: 1.1 proxy")).status == 401
