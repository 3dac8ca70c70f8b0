"""A grid's access files: made once, whole and secret; checked at each start; renewed in time."""

from __future__ import annotations

import os
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wakugumi.adapters.access.certificates import covers_server, expires_at, make_ca
from wakugumi.adapters.access.private_files import write_private
from wakugumi.adapters.access.state_folder import FIRST_KEYS, AccessFolder, join_line, new_key
from wakugumi.adapters.net.address import Address, parse_access_line
from wakugumi.core.access.identity import Role
from wakugumi.core.access.key_ring import KeyRing
from wakugumi.errors import ConfigError
from wakugumi.wire.access_line import Key, secret_hash

pytestmark = pytest.mark.spec("O1")
NAMES = ["rack-1.example", "127.0.0.1", "::1"]
AT = "10.0.0.5:5000"
DAY_S = 86_400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "access"


def opened(path: Path, now: float | None = None, names: list[str] = NAMES) -> AccessFolder:
    return AccessFolder.open(path, "leader", names, now)


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in os.listdir(path) if not name.endswith(".lock")}


def line_of(path: Path, name: str) -> tuple[Address, Key]:
    words = (path / f"{name}.key").read_text().split()
    assert words[:2] == ["waku", "join"]
    [(address, key)] = parse_access_line(words[2])
    assert key is not None
    return address, key


def test_all_files_are_made_once_and_secret(path: Path) -> None:
    before = os.umask(0)
    try:
        first = opened(path)
        first.keys(AT)
    finally:
        os.umask(before)
    made = contents(path)
    pairs = {f"{name}.{kind}" for name in ("ca", "server") for kind in ("pem", "key")}
    assert set(made) == {"keys.toml", *pairs, *(f"{role}.key" for role in FIRST_KEYS)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE((path / name).stat().st_mode) for name in os.listdir(path)} == {0o600}
    second = opened(path)
    second.keys(AT)
    assert contents(path) == made
    assert second.digest == first.digest


def test_the_first_keys_are_valid_and_only_their_hashes_are_kept(path: Path) -> None:
    folder = opened(path)
    file = folder.keys(AT, now=1000.0)
    ring = KeyRing(lambda: 2000.0, 0.0)
    ring.recover(file.keys)
    for role in FIRST_KEYS:
        address, key = line_of(path, role.value)
        assert (address, key.digest) == (Address("10.0.0.5", 5000), folder.digest)
        identity = ring.identify(key.name, secret_hash(key), 2000.0)
        assert (identity.role, identity.name) == (role, role.value)
        assert identity.sight() is None
        assert key.secret.encode() not in (path / "keys.toml").read_bytes()
    assert [key.role for key in file.keys] == [Role.ADMIN, Role.CLIENT, Role.WORKER]


def test_lines_follow_the_address_and_removed_ones_stay_removed(path: Path) -> None:
    opened(path).keys(AT)
    _, key = line_of(path, "client")
    (path / "admin.key").unlink()
    opened(path).keys("[fd00::1]:6000")
    assert line_of(path, "client") == (Address("fd00::1", 6000), key)
    assert not (path / "admin.key").exists()


def test_a_server_shows_its_names_to_those_who_believe_the_authority(path: Path) -> None:
    folder = opened(path)
    server = (path / "server.pem").read_bytes()
    assert covers_server(server, folder.ca_pem, "leader", ["rack-1.example"], ["127.0.0.1", "::1"])
    assert folder.context()().minimum_version == ssl.TLSVersion.TLSv1_3


def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left(path: Path) -> None:
    now = time.time()
    folder = opened(path, now)
    context = folder.context()
    first = context()
    assert not folder.renew_if_due(now + 59 * DAY_S)
    assert folder.renew_if_due(now + 61 * DAY_S)
    assert expires_at((path / "server.pem").read_bytes()) == pytest.approx(now + 151 * DAY_S, abs=2)
    context.look()
    assert context() is not first
    assert not folder.renew_if_due(now + 61 * DAY_S)


def test_a_certificate_that_does_not_fit_is_made_anew_at_the_start(path: Path) -> None:
    opened(path)
    for change in (
        (path / "server.pem").unlink,
        (path / "server.key").unlink,
        lambda: write_private(path / "server.pem", b"half"),
        lambda: write_private(path / "server.key", make_ca().key),
    ):
        before = contents(path)["server.pem"]
        change()
        folder = opened(path)
        assert contents(path)["server.pem"] != before
        folder.context()
    before = contents(path)["server.pem"]
    opened(path, names=[*NAMES, "alias.example"])
    assert contents(path)["server.pem"] != before


def test_a_certificate_made_by_a_wrong_clock_is_made_anew(path: Path) -> None:
    now = time.time()
    opened(path, now + 1000 * DAY_S)
    opened(path, now)
    assert expires_at((path / "server.pem").read_bytes()) < now + 91 * DAY_S


def test_a_start_that_was_killed_half_way_is_repeated(path: Path) -> None:
    opened(path).keys(AT)
    (path / "ca.pem").unlink()
    (path / "keys.toml").unlink()
    (path / ".ca.pem.0123.new").write_bytes(b"half")
    folder = opened(path)
    folder.keys(AT)
    assert line_of(path, "admin")[1].digest == folder.digest
    assert not any(name.endswith(".new") for name in os.listdir(path))


@pytest.mark.parametrize("name", ["ca.pem", "ca.key"])
def test_an_authority_that_is_gone_or_damaged_is_never_replaced_silently(path: Path, name: str) -> None:
    opened(path).keys(AT)
    good = contents(path)[name]
    for damage in (None, b"", b"half", make_ca().certificate if name == "ca.pem" else make_ca().key):
        (path / name).unlink()
        if damage is not None:
            write_private(path / name, damage)
        with pytest.raises(ConfigError, match="not the grid's authority") as caught:
            opened(path)
        assert "from a copy" in caught.value.hint
        write_private(path / name, good)
    opened(path)


def test_an_authority_that_was_swapped_beneath_a_running_server_signs_nothing(path: Path) -> None:
    folder = opened(path)
    other = make_ca()
    write_private(path / "ca.pem", other.certificate)
    write_private(path / "ca.key", other.key)
    with pytest.raises(ConfigError, match="not the grid's authority"):
        folder.ca()


def test_files_that_others_may_read_stop_the_start(path: Path) -> None:
    opened(path).keys(AT)
    for name, mode in (("ca.key", 0o640), ("server.key", 0o644), ("keys.toml", 0o604), (".", 0o755)):
        (path / name).chmod(mode)
        with pytest.raises(ConfigError, match="others may use") as caught:
            opened(path).keys(AT)
        assert "chmod" in caught.value.hint
        (path / name).chmod(0o700 if name == "." else 0o600)


OPEN = """
import sys
from pathlib import Path
from wakugumi.adapters.access.state_folder import AccessFolder
sys.stdin.readline()
folder = AccessFolder.open(Path(sys.argv[1]), "leader", ["127.0.0.1"])
keys = folder.keys("127.0.0.1:5000").keys
print(folder.digest, *sorted(key.secret_hash.hex() for key in keys))
"""


def test_processes_that_start_at_once_make_one_authority_and_one_set_of_keys(path: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(path)]
    many = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for one in many:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    said = {one.communicate(timeout=60)[0] for one in many}
    assert len(said) == 1
    assert len(said.pop().split()) == 4


def test_each_key_has_a_secret_of_its_own() -> None:
    one, two = new_key("desk-1", "k" * 32), new_key("desk-1", "k" * 32)
    assert one.secret != two.secret
    assert parse_access_line(join_line(one, AT).removeprefix("waku join ")) == [(Address("10.0.0.5", 5000), one)]
