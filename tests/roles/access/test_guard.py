"""Who asks? A real connection on this machine; other machines, users and relays by what a guard sees of them."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from wakugumi.adapters.net.tls import PeerCertificate
from wakugumi.core.access.identity import Identity, Role, Rules
from wakugumi.core.access.known_as import Degree
from wakugumi.core.access.local_rule import LocalRule
from wakugumi.errors import Refused
from wakugumi.roles.access import guard as module
from wakugumi.roles.access.guard import AccessGuard, EmbeddedGuard
from wakugumi.wire.access_line import Key, parse_key

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1")]

KEY = parse_key(f"desk-1:{'a' * 32}-{'b' * 52}")
HERE, THERE = ("127.0.0.1", 5000), ("127.0.0.1", 40000)
FAR = ("192.0.2.7", 40000)
BEGIN = "Jan  5 09:34:43 2026 GMT"


class Certificate:
    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def getpeercert(self) -> dict[str, Any]:
        return self._found


class Transport(asyncio.BaseTransport):
    """The facts that a guard asks for."""

    def __init__(self, peer: tuple[str, int] = THERE, *, tls: Certificate | None = None) -> None:
        here = HERE if peer == THERE else ("192.0.2.1", HERE[1])
        super().__init__({"sockname": here, "peername": peer, "socket": object(), "ssl_object": tls})


class Keys:
    """One valid key."""

    context: ssl.SSLContext | None = None

    def tls(self) -> ssl.SSLContext | None:
        return self.context

    async def close(self) -> None:
        """Needs no action."""

    def __init__(self) -> None:
        self.version = 0
        self.is_valid = True
        self.asked = 0
        self.conns: dict[int, str] = {}

    def identify(self, key: Key) -> Identity:
        self.asked += 1
        if key != KEY or not self.is_valid:
            raise Refused("denied", "the key is not valid here")
        return Identity("desk-1", Role.CLIENT, key="desk-1", proof="key")

    def identify_certificate(self, shown: PeerCertificate) -> Identity:
        assert shown.name == "rack"
        return Identity("rack", Role.WORKER, key="rack", proof="certificate")

    def made_at(self, _name: str) -> float:
        return 0.0

    def identify_again(self, name: str, _made_at: float) -> Identity:
        if not self.is_valid:
            raise Refused("denied", "the key is not valid here")
        return Identity(name, Role.CLIENT, key=name, proof="cookie")

    def used(self, conn: int, name: str, _close: Callable[[str], None]) -> None:
        self.conns[conn] = name

    def left(self, conn: int) -> None:
        del self.conns[conn]


@pytest.fixture
def uid(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What the kernel says."""
    says: list[int | None] = [os.geteuid()]
    monkeypatch.setattr(module, "peer_uid", lambda _sock: says[0])
    return says


def ask(
    guard: AccessGuard, transport: Transport | None = None, key: Key | None = None, *, forwarded: bool = False
) -> Identity:
    return guard.caller(transport or Transport(), lambda _why: None).identify(key, forwarded=forwarded)


async def test_a_real_peer_of_this_machine_is_its_user() -> None:
    met: asyncio.Future[Identity] = asyncio.get_running_loop().create_future()

    def came(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.set_result(AccessGuard().caller(writer.transport, lambda _why: None).identify())
        writer.close()

    server = await asyncio.start_server(came, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    identity = await met
    writer.close()
    server.close()
    assert (identity.role, identity.proof, identity.name) == (Role.ADMIN, "user", f"uid:{os.geteuid()}")


async def test_the_kernel_is_asked_once_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "peer_uid", lambda sock: asked.append(sock) or os.geteuid())
    caller = AccessGuard().caller(Transport(), lambda _why: None)
    assert caller.identify() == caller.identify()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("says", "peer", "forwarded", "said"),
    [
        (1234, THERE, False, "user 1234 of this machine must show a key"),
        (None, THERE, False, "the kernel does not tell which user this is"),
        (0, THERE, True, "a relay passed the request on"),
        (0, FAR, False, "this port speaks TLS with other machines"),
    ],
)
async def test_others_are_told_what_to_do(
    uid: list[int | None], says: int | None, peer: tuple[str, int], forwarded: bool, said: str
) -> None:
    uid[0] = says
    with pytest.raises(Refused, match=said) as caught:
        ask(AccessGuard(LocalRule("admin", 77)), Transport(peer), forwarded=forwarded)
    assert caught.value.code == "denied"
    assert "waku keys make" in (caught.value.hint or "")


async def test_a_far_peer_over_tls_needs_a_key_and_the_kernel_is_not_asked(uid: list[int | None]) -> None:
    with pytest.raises(Refused, match="shows a key"):
        ask(AccessGuard(), Transport(FAR, tls=Certificate({})))


async def test_an_open_guard_knows_users_and_takes_the_rest_as_anybody(uid: list[int | None]) -> None:
    guard = AccessGuard(is_open=True)
    assert ask(guard).proof == "user"
    assert ask(guard, Transport(FAR)).proof == "open"
    uid[0] = 1234
    assert ask(guard).proof == "open"


async def test_members_of_the_group_are_clients(uid: list[int | None]) -> None:
    guard = AccessGuard(LocalRule("admin", 77, 500), members={1234})
    uid[0] = 1234
    assert ask(guard).role is Role.CLIENT
    uid[0] = 1235
    with pytest.raises(Refused):
        ask(guard)


async def test_a_key_counts_more_than_the_user_and_its_connection_is_known(uid: list[int | None]) -> None:
    keys = Keys()
    guard = AccessGuard(keys=keys)
    caller = guard.caller(Transport(), lambda _why: None)
    assert caller.identify(KEY).name == "desk-1"
    assert list(keys.conns.values()) == ["desk-1"]
    assert caller.identify().proof == "user"
    assert not keys.conns
    caller.identify(KEY)
    caller.left()
    assert not keys.conns
    with pytest.raises(Refused):
        caller.identify(KEY._replace(secret="c" * 52))


async def test_a_key_is_checked_again_only_when_keys_have_changed(uid: list[int | None]) -> None:
    keys = Keys()
    caller = AccessGuard(keys=keys).caller(Transport(), lambda _why: None)
    caller.identify(KEY)
    caller.identify(KEY)
    assert keys.asked == 1
    keys.is_valid = False
    keys.version += 1
    with pytest.raises(Refused):
        caller.identify(KEY)


async def test_a_key_that_others_could_read_is_refused(uid: list[int | None]) -> None:
    with pytest.raises(Refused, match="others can read"):
        ask(AccessGuard(keys=Keys()), Transport(FAR), KEY)
    assert ask(AccessGuard(keys=Keys()), Transport(FAR, tls=Certificate({})), KEY).name == "desk-1"


async def test_a_guard_without_keys_takes_none(uid: list[int | None]) -> None:
    with pytest.raises(Refused, match="there are no keys here"):
        ask(AccessGuard(), key=KEY)


async def test_certificates_of_an_own_authority_are_clients_and_required(uid: list[int | None]) -> None:
    guard = AccessGuard(knows_certificates=True)
    subject = {"subject": ((("organizationName", "x"),), (("commonName", "pricing"),)), "notBefore": BEGIN}
    shown = ask(guard, Transport(FAR, tls=Certificate(subject)))
    assert (shown.name, shown.role, shown.proof) == ("pricing", Role.CLIENT, "certificate")
    other = ask(
        guard,
        Transport(FAR, tls=Certificate({"subject": (), "subjectAltName": (("DNS", "a.example"),), "notBefore": BEGIN})),
    )
    assert other.name == "a.example"
    for transport in (Transport(), Transport(tls=Certificate({}))):
        with pytest.raises(Refused, match="asks for a certificate"):
            ask(guard, transport)


async def test_denials_are_logged_for_an_audit(uid: list[int | None], caplog: pytest.LogCaptureFixture) -> None:
    uid[0] = 1234
    with caplog.at_level(logging.WARNING, "wakugumi.audit"), pytest.raises(Refused):
        ask(AccessGuard(LocalRule("admin", 77)))
    assert "denied peer=127.0.0.1:40000: user 1234" in caplog.text


async def test_an_embedded_peer_may_do_everything() -> None:
    identity = EmbeddedGuard().caller(Transport(), lambda _why: None).identify()
    assert (identity.role, identity.rules, identity.proof) == (Role.ADMIN, Rules(), "embedded")


def test_the_degree_is_the_proof_that_is_asked_for() -> None:
    assert AccessGuard().degree is Degree.THIS_USER
    keys = Keys()
    assert AccessGuard(keys=keys).degree is Degree.THIS_USER
    keys.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert AccessGuard(keys=keys).degree is Degree.KEYS
    assert AccessGuard(is_open=True).degree is Degree.OPEN
    assert AccessGuard(is_open=True, knows_certificates=True).degree is Degree.CERTIFICATES
    assert EmbeddedGuard().degree is Degree.THIS_USER
