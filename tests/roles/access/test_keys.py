"""Keys of a role: a real folder, a real certificate, and connections that end with their keys."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from wakugumi.adapters.access.certificates import make_csr
from wakugumi.adapters.access.state_folder import AccessFolder
from wakugumi.adapters.net.tls import PeerCertificate
from wakugumi.core.access.identity import Identity, Role, Rules
from wakugumi.core.access.key_questions import AskKey, AskKeys, AskMakeKey, AskRevokeKey, KeyRow, KeysAnswer, MadeKey
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.wire import STRANGERS_TOLD_MAX
from wakugumi.roles.access.keys import GridKeys, KeyPlace
from wakugumi.wire.access_line import Key, parse_key

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1")]


def place(path: Path) -> Callable[[], KeyPlace]:
    def make() -> KeyPlace:
        folder = AccessFolder.open(path / "access", "leader", ["grid.example", "127.0.0.1"])
        return KeyPlace(folder, folder.keys("grid.example:5000"), folder.context(), ["grid.example"])

    return make


@asynccontextmanager
async def keys_of(path: Path, *, made: bool = True) -> AsyncIterator[GridKeys]:
    make = place(path)
    keys = GridKeys(make, await asyncio.to_thread(make) if made else None)
    try:
        yield keys
    finally:
        await keys.close()


async def make(keys: GridKeys, name: str = "desk-1", role: Role = Role.CLIENT, **rules: object) -> Key:
    made = await keys.ask(AskMakeKey(name, role, Rules(**rules)))  # type: ignore[arg-type]
    assert isinstance(made, MadeKey)
    assert (made.row.name, made.hosts) == (name, ["grid.example"])
    return parse_key(made.key)


async def test_a_made_key_is_known_with_its_rules_also_after_a_restart(tmp_path: Path) -> None:
    async with keys_of(tmp_path) as keys:
        key = await make(keys, programs=("calc*",), cap=7)
        for _ in range(2):
            identity = keys.identify(key)
            assert (identity.name, identity.key, identity.proof) == ("desk-1", "desk-1", "key")
            assert identity.rules == Rules(programs=("calc*",), cap=7)
    async with keys_of(tmp_path) as keys:
        assert keys.identify(key).name == "desk-1"
        listed = await keys.ask(AskKeys())
        assert isinstance(listed, KeysAnswer)
        assert [row.name for row in listed.rows] == ["admin", "client", "worker", "desk-1"]


async def test_a_wrong_secret_an_unknown_name_and_another_grid_get_the_same_words(tmp_path: Path) -> None:
    async with keys_of(tmp_path) as keys, keys_of(tmp_path / "other") as others:
        key = await make(keys)
        words = set()
        for wrong in (key._replace(secret="b" * 52), key._replace(name="desk-2"), await make(others)):
            with pytest.raises(Refused) as caught:
                keys.identify(wrong)
            words.add((caught.value.code, caught.value.message))
        assert words == {("denied", "the key is not valid here")}


async def test_revoking_a_key_closes_its_connections_and_tells_the_leader(tmp_path: Path) -> None:
    async with keys_of(tmp_path) as keys:
        key, other = await make(keys), await make(keys, "desk-2")
        closed: list[str] = []
        ended: list[str] = []
        keys.on_ended = ended.append
        for conn, name in ((1, "desk-1"), (2, "desk-1"), (3, "desk-2")):
            keys.used(conn, name, lambda why, conn=conn: closed.append(f"{conn}: {why}"))  # type: ignore[misc]
        keys.left(2)
        version = keys.version
        row = await keys.ask(AskRevokeKey("desk-1"))
        assert isinstance(row, KeyRow)
        assert row.state == "revoked"
        assert closed == ["1: the key was revoked"]
        assert ended == ["desk-1"]
        assert keys.version > version
        with pytest.raises(Refused):
            keys.identify(key)
        assert keys.identify(other).name == "desk-2"
    async with keys_of(tmp_path) as keys:
        with pytest.raises(Refused):
            keys.identify(key)


async def test_a_question_that_cannot_be_answered_is_refused(tmp_path: Path) -> None:
    async with keys_of(tmp_path) as keys:
        with pytest.raises(Refused, match="knows no key"):
            await keys.ask(AskKey("nobody"))
        await make(keys)
        with pytest.raises(Refused, match="there is a key desk-1 already"):
            await keys.ask(AskMakeKey("desk-1", Role.CLIENT))


async def test_the_first_key_makes_the_authority_and_the_certificate(tmp_path: Path) -> None:
    async with keys_of(tmp_path, made=False) as keys:
        assert (keys.tls(), keys.ca_pem) == (None, None)
        key, other = await asyncio.gather(make(keys), make(keys, "desk-2"))
        assert isinstance(keys.tls(), ssl.SSLContext)
        assert keys.ca_pem is not None
        assert {keys.identify(key).name, keys.identify(other).name} == {"desk-1", "desk-2"}


async def test_a_folder_that_cannot_be_made_refuses_the_key(tmp_path: Path) -> None:
    def fail() -> KeyPlace:
        raise ConfigError("the disk is full", "make room")

    keys = GridKeys(fail, None)
    with pytest.raises(Refused, match="keys cannot be made here: the disk is full"):
        await keys.ask(AskMakeKey("desk-1", Role.CLIENT))
    await keys.close()


@pytest.mark.parametrize("role", [Role.WORKER, Role.GATEWAY])
async def test_a_certificate_counts_as_its_key_until_the_key_ends(tmp_path: Path, role: Role) -> None:
    async with keys_of(tmp_path) as keys:
        identity = keys.identify(await make(keys, "rack-7", role))
        request = (await asyncio.to_thread(make_csr)).certificate
        assert b"BEGIN CERTIFICATE" in await keys.certify(identity, request)
        shown = PeerCertificate("rack-7", 4e9)
        assert keys.identify_certificate(shown).proof == "certificate"
        await keys.ask(AskRevokeKey("rack-7"))
        with pytest.raises(Refused):
            keys.identify_certificate(shown)


async def test_no_certificate_is_made_for_others(tmp_path: Path) -> None:
    async with keys_of(tmp_path) as keys:
        request = (await asyncio.to_thread(make_csr)).certificate
        client = keys.identify(await make(keys))
        for identity in (client, Identity("uid:0", Role.ADMIN)):
            with pytest.raises(Refused):
                await keys.certify(identity, request)
        worker = keys.identify(await make(keys, "rack-7", Role.WORKER))
        with pytest.raises(Refused):
            await keys.certify(worker, b"no request")


async def test_keys_have_rules_from_the_first_narrow_key_until_it_is_revoked(tmp_path: Path) -> None:
    async with keys_of(tmp_path, made=False) as keys:
        assert not keys.have_rules
        await make(keys, "all", clients=("*",))
        assert not keys.have_rules
        await make(keys, programs=("calc*",))
        assert keys.have_rules
    async with keys_of(tmp_path) as keys:
        assert keys.have_rules
        await keys.ask(AskRevokeKey("desk-1"))
        assert not keys.have_rules


@pytest.mark.spec("O6")
async def test_a_crowd_with_wrong_keys_does_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with keys_of(tmp_path) as keys:
        wrong = (await make(keys))._replace(secret="b" * 52)
        with caplog.at_level(logging.INFO, "wakugumi.audit"):
            for _ in range(5 * STRANGERS_TOLD_MAX):
                with pytest.raises(Refused):
                    keys.identify(wrong)
    assert caplog.text.count("key refused key=desk-1 why=") == STRANGERS_TOLD_MAX
