"""Settings of a role become the guard of its ports."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import pytest
from tests.kit.certificates import make_certificates

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.net.address import Address
from wakugumi.app.serve.access import guard_of, keys_have_rules
from wakugumi.core.access.identity import Role, Rules
from wakugumi.core.access.key_questions import AskMakeKey, MadeKey
from wakugumi.core.access.local_rule import LocalRule
from wakugumi.errors import ConfigError
from wakugumi.roles.access.keys import GridKeys
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.wire.access_line import parse_key

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1", "N5")]

HERE = Address("127.0.0.1", 5000)
WIDE = Address("0.0.0.0", 5000)


async def test_by_default_this_user_and_root_are_administrators() -> None:
    guard = await guard_of(LeaderSettings(), "leader", HERE, None)
    assert guard.local == LocalRule("admin", os.geteuid())
    assert (guard.is_open, guard.knows_certificates, guard.tls()) == (False, False, None)


async def test_settings_change_the_rule() -> None:
    guard = await guard_of(LeaderSettings(local="none", local_group="root", allow_open=True), "leader", HERE, None)
    assert guard.local == LocalRule("none", os.geteuid(), 0)
    assert guard.is_open


async def test_own_certificates_are_used_and_asked_for(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path)
    files = {"tls_cert": str(certs.server_cert), "tls_key": str(certs.server_key)}
    one = await guard_of(LeaderSettings(**files), "leader", HERE, None)
    assert isinstance(one.tls(), ssl.SSLContext)
    assert not one.knows_certificates
    two = await guard_of(LeaderSettings(**files, client_ca=str(certs.ca)), "leader", HERE, None)
    assert two.knows_certificates
    assert (context := two.tls()) is not None
    assert context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "settings", [{"tls_cert": "x"}, {"tls_key": "x"}, {"client_ca": "x"}, {"local_group": "no-such"}]
)
async def test_half_a_setting_is_refused_with_a_hint(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        await guard_of(LeaderSettings(**settings), "leader", HERE, None)  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.fixture
def access_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccessFile:
    monkeypatch.setenv("WAKU_ACCESS", str(tmp_path / "config/access.toml"))
    return AccessFile(tmp_path / "config/access.toml")


async def test_a_wide_port_secures_itself_and_tells_its_own_user(
    tmp_path: Path, access_file: AccessFile, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        guard = await guard_of(LeaderSettings(names=("grid.example",)), "leader", WIDE, tmp_path / "state")
    assert guard.degree == "keys over TLS"
    assert isinstance(guard.tls(), ssl.SSLContext)
    await guard.close()
    folder = tmp_path / "state/access"
    assert folder.stat().st_mode & 0o777 == 0o700
    line = (folder / "admin.key").read_text()
    assert line.startswith("waku join waku://admin:")
    assert line.endswith("@grid.example:5000\n")
    entry = access_file.find(Address("grid.example", 5000))
    assert entry is not None
    assert entry.key is not None
    assert entry.key.text in line
    assert str(folder) in caplog.text
    assert entry.key.secret not in caplog.text
    again = await guard_of(LeaderSettings(names=("grid.example",)), "leader", WIDE, tmp_path / "state")
    assert again.keys is not None
    assert again.keys.identify(entry.key).name == "admin"
    await again.close()


async def test_a_port_of_this_machine_has_keys_only_once_one_was_made(tmp_path: Path, access_file: AccessFile) -> None:
    guard = await guard_of(LeaderSettings(), "leader", HERE, tmp_path)
    assert (guard.degree, guard.tls(), (tmp_path / "access").exists()) == ("this user", None, False)
    assert isinstance(guard.keys, GridKeys)
    made = await guard.keys.ask(AskMakeKey("desk-1", Role.CLIENT))
    assert isinstance(made, MadeKey)
    assert guard.degree == "keys over TLS"
    assert guard.keys.identify(parse_key(made.key)).name == "desk-1"
    await guard.close()


async def test_a_wide_port_without_a_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a folder for its keys") as caught:
        await guard_of(LeaderSettings(), "leader", WIDE, None)
    assert "--allow-open" in (caught.value.hint or "")
    guard = await guard_of(LeaderSettings(allow_open=True), "leader", WIDE, None)
    assert guard.degree == "open"


async def test_a_role_knows_before_it_starts_whether_its_keys_have_rules(
    tmp_path: Path, access_file: AccessFile
) -> None:
    settings = LeaderSettings()
    assert not keys_have_rules(settings, None)
    assert not keys_have_rules(settings, tmp_path)
    guard = await guard_of(settings, "leader", HERE, tmp_path)
    assert isinstance(guard.keys, GridKeys)
    await guard.keys.ask(AskMakeKey("all", Role.CLIENT, Rules(clients=("*",))))
    assert not keys_have_rules(settings, tmp_path)
    await guard.keys.ask(AskMakeKey("desk-1", Role.CLIENT))
    assert keys_have_rules(settings, tmp_path)
    assert not keys_have_rules(LeaderSettings(allow_open=True), tmp_path)
    await guard.close()
