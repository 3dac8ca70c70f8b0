"""A machine joins over HTTP: it fetches the authority, and a certificate for its key. A browser opens a link, and gets
a cookie."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kit.guards import ANN, KeysAtHand, key_of
from tests.kit.http_peer import Answer, HttpPeer, a_door, ask

from wakugumi.adapters.access.certificates import make_csr
from wakugumi.adapters.access.state_folder import AccessFolder
from wakugumi.adapters.http.page import HttpRequest, PageRoute, Reply
from wakugumi.core.access.decide import Right
from wakugumi.core.access.identity import Identity, Role
from wakugumi.core.access.key_questions import AskMakeKey, AskRevokeKey, MadeKey
from wakugumi.core.access.local_rule import LocalRule
from wakugumi.limits.access import CSR_BYTES_MAX
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.access.keys import GridKeys, KeyPlace
from wakugumi.roles.http.access_pages import access_pages
from wakugumi.wire.access_line import parse_key

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1")]


async def test_the_authority_is_for_all_and_a_certificate_for_a_key(tmp_path: Path) -> None:
    def place() -> KeyPlace:
        folder = AccessFolder.open(tmp_path / "access", "leader", ["127.0.0.1"])
        return KeyPlace(folder, folder.keys("127.0.0.1:1"), folder.context(), ["127.0.0.1"])

    keys = GridKeys(place, await asyncio.to_thread(place))
    guard = AccessGuard(keys=keys)
    made = await keys.ask(AskMakeKey("rack-7", Role.WORKER))
    assert isinstance(made, MadeKey)
    request = (await asyncio.to_thread(make_csr)).certificate
    bearer = f"Authorization: Bearer {made.key}"
    async with a_door(lambda: access_pages("leader", guard), guard=guard) as listener:
        authority = await ask(listener.port, "GET", "/access/ca")
        assert (authority.status, authority.body) == (200, keys.ca_pem)
        certificate = await ask(listener.port, "POST", "/access/certificate", bearer, body=request)
        assert certificate.status == 200
        assert certificate.body.count(b"BEGIN CERTIFICATE") == 2
        assert certificate.body.endswith(authority.body)
        for lines, body, status in (
            ((), request, 403),
            ((bearer[:-1] + "2",), request, 401),
            ((bearer,), b"nonsense", 400),
            ((bearer,), b"x" * (CSR_BYTES_MAX + 1), 413),
        ):
            assert (await ask(listener.port, "POST", "/access/certificate", *lines, body=body)).status == status
    await keys.close()


async def test_a_server_without_keys_has_no_authority() -> None:
    guard = AccessGuard()
    async with a_door(lambda: access_pages("leader", guard), guard=guard) as listener:
        assert (await ask(listener.port, "GET", "/access/ca")).status == 404


class Desk:
    """A server with keys that trusts no user of this machine, and a key."""

    def __init__(self, keys: GridKeys, guard: AccessGuard, port: int, key: str, tls: ssl.SSLContext) -> None:
        self.keys, self.guard, self.port, self.key, self.tls = keys, guard, port, key, tls

    def link(self) -> str:
        return self.guard.new_link(self.keys.identify(parse_key(self.key))).word

    async def ask(self, method: str, path: str, *lines: str) -> Answer:
        async with HttpPeer(self.port, self.tls) as peer:
            return await peer.ask(method, path, *lines)

    async def cookie(self) -> str:
        opened = await self.ask("GET", f"/in/{self.link()}")
        assert opened.status == 303
        return f"Cookie: {opened.head['set-cookie'].partition(';')[0]}"


@asynccontextmanager
async def a_desk(path: Path, role: Role = Role.CLIENT) -> AsyncIterator[Desk]:
    def place() -> KeyPlace:
        folder = AccessFolder.open(path / "access", "leader", ["127.0.0.1"])
        return KeyPlace(folder, folder.keys("127.0.0.1:1"), folder.context(), ["127.0.0.1"])

    async def tell(visit: HttpRequest) -> Reply:
        return Reply(200, f"{visit.identity.name} by {visit.identity.proof}".encode())

    keys = GridKeys(place, await asyncio.to_thread(place))
    guard = AccessGuard(LocalRule("none", os.geteuid()), keys=keys)
    made = await keys.ask(AskMakeKey("desk-1", role))
    assert isinstance(made, MadeKey)
    assert keys.ca_pem is not None
    trusts = ssl.create_default_context(cadata=keys.ca_pem.decode())
    pages = [PageRoute(method, "/me", tell, need=Right.LOOK) for method in ("GET", "POST")]
    async with a_door(lambda: [*access_pages("leader", guard), *pages], guard=guard, tls=guard.tls()) as listener:
        yield Desk(keys, guard, listener.port, made.key, trusts)
    await keys.close()


async def test_a_link_becomes_a_strict_cookie_once_and_no_log_has_its_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with a_desk(tmp_path) as desk:
        word = desk.link()
        assert re.fullmatch("[a-z2-7]{32}", word)
        unused = await desk.ask("HEAD", f"/in/{word}")
        opened = await desk.ask("GET", f"/in/{word}")
        refused = [await desk.ask("GET", path) for path in (f"/in/{word}", "/in/", "/in/x", f"/in/{word}/", "/in/%ff")]
        lost = await desk.ask("POST", f"/in/{word}")
        cookie = opened.head["set-cookie"]
        known = await desk.ask("GET", "/me", f"Cookie: theme=dark; {cookie.partition(';')[0]}; x=y")
    assert unused.status == 403
    assert (opened.status, opened.head["location"], lost.status) == (303, "/openapi.json", 405)
    marks = "HttpOnly; SameSite=Strict; Path=/; Max-Age=43200; Secure"
    assert re.fullmatch(f"waku=[a-z2-7]{{52}}; {marks}", cookie)
    for answer in (opened, *refused):
        assert (answer.head["referrer-policy"], answer.head["cache-control"]) == ("no-referrer", "no-store")
    assert {(answer.status, answer.body) for answer in refused} == {(403, refused[0].body)}
    assert known.body == b"desk-1 by cookie"
    assert "/in/…" in caplog.text
    assert word not in caplog.text
    assert cookie[5:20] not in caplog.text


async def test_a_cookie_ends_with_its_key_and_is_not_that_of_the_next_one(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        cookie, unopened = await desk.cookie(), desk.link()
        async with HttpPeer(desk.port, desk.tls) as peer:
            assert (await peer.ask("GET", "/me", cookie)).status == 200
            await desk.keys.ask(AskRevokeKey("desk-1"))
            assert await peer.is_cut_off()
        assert (await desk.ask("GET", "/me", cookie)).status == 401
        await desk.keys.ask(AskMakeKey("desk-1", Role.ADMIN))
        late = await desk.ask("GET", f"/in/{unopened}")
        assert (await desk.ask("GET", "/me", cookie)).status == 401
        late_cookie = f"Cookie: {late.head.get('set-cookie', '').partition(';')[0]}"
        assert (await desk.ask("GET", "/me", late_cookie)).status == 401


async def test_a_browser_changes_something_only_by_a_button_of_a_page_of_here(tmp_path: Path) -> None:
    site, button = "Sec-Fetch-Site: same-origin", "Waku-Button: 1"
    async with a_desk(tmp_path) as desk:
        cookie, bearer = await desk.cookie(), f"Authorization: Bearer {desk.key}"
        for lines, status in (
            ((site, button), 200),
            ((), 403),
            ((site,), 403),
            ((button,), 403),
            ((site, "Waku-Button: 0"), 403),
            (("Sec-Fetch-Site: none", button), 403),
            (("Sec-Fetch-Site: cross-site", button), 403),
            ((site, button, "Origin: https://evil.example"), 403),
        ):
            assert (await desk.ask("POST", "/me", cookie, *lines)).status == status, lines
        assert (await desk.ask("GET", "/me", cookie, "Sec-Fetch-Site: cross-site")).status == 403
        assert (await desk.ask("POST", "/me", cookie, bearer)).body == b"desk-1 by key"
        assert (await desk.ask("GET", "/me", cookie, "Authorization: Bearer x")).status == 401


@pytest.mark.parametrize(("proof", "status"), [("cookie", 403), ("bearer", 200)])
async def test_a_cookie_does_not_make_the_host_irrelevant(tmp_path: Path, proof: str, status: int) -> None:
    async with a_desk(tmp_path) as desk, HttpPeer(desk.port, desk.tls) as peer:
        shown = await desk.cookie() if proof == "cookie" else f"Authorization: Bearer {desk.key}"
        await peer.say(f"GET /me HTTP/1.1\r\nHost: rebound.example\r\n{shown}\r\n\r\n".encode())
        assert (await peer.answer()).status == status


async def test_a_cookie_gets_no_certificate_which_would_outlive_it(tmp_path: Path) -> None:
    async with a_desk(tmp_path, Role.GATEWAY) as desk:
        button = (await desk.cookie(), "Sec-Fetch-Site: same-origin", "Waku-Button: 1")
        refused = await desk.ask("POST", "/access/certificate", *button)
        assert (refused.status, refused.problem["detail"]) == (403, "a certificate is made for a key")


async def test_without_tls_a_link_of_a_key_is_refused_and_one_of_a_user_proves_nothing(tmp_path: Path) -> None:
    keys = KeysAtHand(ANN)
    guard = AccessGuard(keys=keys)

    async def tell(visit: HttpRequest) -> Reply:
        return Reply(200, visit.identity.proof.encode())

    pages = [*access_pages("leader", guard), PageRoute("GET", "/me", tell, need=Right.LOOK)]
    async with a_door(lambda: pages, guard=guard) as listener:
        of_key = guard.new_link(keys.identify(key_of(ANN)))
        assert of_key.is_tls
        assert (await ask(listener.port, "GET", f"/in/{of_key.word}")).status == 403
        of_user = guard.new_link(Identity("uid:1", Role.ADMIN))
        assert not of_user.is_tls
        opened = await ask(listener.port, "GET", f"/in/{of_user.word}")
        assert (opened.status, "Secure" in opened.head["set-cookie"]) == (303, False)
        cookie = f"Cookie: {opened.head['set-cookie'].partition(';')[0]}"
        assert (await ask(listener.port, "GET", "/me", cookie)).body == b"user"
        assert (await ask(listener.port, "GET", "/me", cookie, "Via: 1.1 proxy")).status == 401
