"""A machine joins a grid: over real TLS, with real files."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.access_server import AccessServer

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.state_folder import join_line, new_key
from wakugumi.adapters.net.address import Address
from wakugumi.core.access.identity import Role
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.roles.access.join import JoinLine, forget, join, read_line

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1")]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AccessServer]:
    async with AccessServer(tmp_path / "state").listening() as server:
        yield server


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(tmp_path / "home" / "access.toml")


def mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


async def test_a_client_has_an_entry_by_the_address(server: AccessServer, file: AccessFile) -> None:
    key = server.key("desk-1", Role.CLIENT)
    done = await join(JoinLine((server.address,), key, "leader"), file)
    assert (done.known.name, done.known.role, done.known.degree) == ("desk-1", "client", "keys over TLS")
    assert done.certificate_until is None
    entry = file.find(server.address)
    assert entry is not None
    assert entry.key == key
    assert entry.certificate is None
    assert mode(file.path) == 0o600


@pytest.mark.parametrize("role", [Role.WORKER, Role.GATEWAY])
async def test_a_worker_and_a_gateway_have_a_certificate(role: Role, server: AccessServer, file: AccessFile) -> None:
    key = server.key("rack-7", role)
    done = await join(JoinLine((server.address,), key, "leader"), file)
    assert done.certificate_until is not None
    entry = file.find(server.address)
    assert entry is not None
    assert entry.certificate is not None
    assert entry.certificate.parent == file.path.parent
    assert mode(entry.certificate) == 0o600
    entry.context()
    entry._replace(key=None).context()
    before = entry.certificate.read_bytes()
    await join(JoinLine((server.address,), key, "leader"), file)
    assert entry.certificate.read_bytes() != before, "joining again renews"
    assert len(file.entries()) == 1


async def test_another_key_for_the_same_address_replaces_the_first_and_its_certificate(
    server: AccessServer, file: AccessFile
) -> None:
    worker, client = server.key("rack-7", Role.WORKER), server.key("desk-1", Role.CLIENT)
    done = await join(JoinLine((server.address,), worker, "leader"), file)
    await join(JoinLine((server.address,), client, "leader"), file)
    assert [entry.key for entry in file.entries()] == [client]
    assert done.entry.certificate is not None
    assert not done.entry.certificate.exists()


async def test_a_key_that_is_not_valid_is_refused_with_the_servers_words(
    server: AccessServer, file: AccessFile
) -> None:
    with pytest.raises(Refused, match="the key is not valid here") as no:
        await join(JoinLine((server.address,), new_key("desk-1", server.folder.digest), "leader"), file)
    assert (no.value.code, no.value.hint) == ("denied", "ask the operator for a new key")
    assert not file.path.exists()


async def test_the_key_of_another_grid_is_not_shown(server: AccessServer, file: AccessFile) -> None:
    with pytest.raises(ConfigError, match="another machine answers"):
        await join(JoinLine((server.address,), new_key("desk-1", "k" * 32), "leader"), file)
    assert server.shown == []
    assert not file.path.exists()


async def test_a_server_of_another_role_does_not_get_the_key(tmp_path: Path, file: AccessFile) -> None:
    async with AccessServer(tmp_path / "gateway", "gateway").listening() as server:
        key = server.key("desk-1", Role.CLIENT)
        with pytest.raises(ConfigError, match="is no leader of the grid") as no:
            await join(JoinLine((server.address,), key, "leader"), file)
        assert "--to gateway" in no.value.hint
        assert server.shown == []
        await join(JoinLine((server.address,), key, "gateway"), file)
        entry = file.find(server.address)
    assert entry is not None
    assert entry.role == "gateway"


async def test_of_several_addresses_one_that_answers_is_enough(server: AccessServer, file: AccessFile) -> None:
    silent = Address("127.0.0.1", 1)
    key = server.key("desk-1", Role.CLIENT)
    await join(JoinLine((silent, server.address), key, "leader"), file)
    entry = file.find(silent)
    assert entry is not None
    assert entry.leaders == (silent, server.address)
    with pytest.raises(Lost, match=r"127\.0\.0\.1:1"):
        await join(JoinLine((silent,), key, "leader"), file)


async def test_a_file_that_others_may_read_is_told_before_anything_is_sent(
    server: AccessServer, file: AccessFile
) -> None:
    file.path.parent.mkdir()
    file.path.touch()
    file.path.chmod(0o644)
    with pytest.raises(ConfigError, match="others may use"):
        await join(JoinLine((server.address,), server.key("desk-1", Role.CLIENT), "leader"), file)
    assert server.shown == []


async def test_a_forgotten_grid_leaves_no_key_and_no_certificate(server: AccessServer, file: AccessFile) -> None:
    assert not forget(server.address, file)
    assert not file.path.parent.exists()
    done = await join(JoinLine((server.address,), server.key("rack-7", Role.WORKER), "leader"), file)
    assert forget(server.address, file)
    assert file.entries() == []
    assert done.entry.certificate is not None
    assert not done.entry.certificate.exists()
    assert not forget(server.address, file)


def test_a_line_is_read_as_people_paste_it() -> None:
    key = new_key("desk-1", "d" * 32)
    for text in (f"waku://{key.text}@a:1,b", f"  waku join waku://{key.text}@a:1,b\n", f"{key.text}@a:1,b"):
        assert read_line(text, 5000) == ((Address("a", 1), Address("b", 5000)), key, "leader")
    assert read_line(join_line(key, "a:1", "node"), 5000) == ((Address("a", 1),), key, "node")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a:1", "the line has no key"),
        ("", "names no leader"),
        ("waku join --to worker a:1", "'worker' is no server to join"),
        (f"waku://x:{'d' * 32}-{'s' * 51}@a:1", "the secret of the key x is cut or misspelt"),
        (f"x:{'d' * 32}-{'s' * 52}@a:1,y:{'d' * 32}-{'s' * 52}@b:1", "the line has several keys"),
    ],
)
def test_a_line_that_is_none_is_told_without_its_secret(line: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as error:
        read_line(line, 5000)
    assert "sss" not in f"{error.value}{error.value.hint}"
