"""How an address is dialled: plain without an entry, otherwise with the first of its sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.scripted_leader import scripted
from tests.kit.tls_grid import TlsGrid, TlsLeader

from wakugumi.adapters.access import dialled
from wakugumi.adapters.access.dialled import AccessSources, access_path, entry_of, take_key, url_of
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.spec("O1")

THERE = Address("10.0.0.5", 5000)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WAKU_ACCESS", raising=False)
    for table in ("_authorities", "_given", "_shown"):
        monkeypatch.setattr(dialled, table, {})
    return tmp_path


@pytest.fixture
def grid(tmp_path: Path) -> TlsGrid:
    return TlsGrid(tmp_path / "grid")


def test_the_flag_comes_before_the_variable_and_this_before_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert access_path("/x/a", {"WAKU_ACCESS": "/y/a"}) == Path("/x/a")
    assert access_path(None, {"WAKU_ACCESS": "~/a"}) == Path("/home/me/a")
    assert access_path(None, {}) == Path("/home/me/.config/wakugumi/access.toml")


def test_without_a_source_the_connection_is_plain() -> None:
    sources = AccessSources()
    assert run(sources.entry(THERE)) is None
    assert sources.key_name(THERE) == ""
    assert url_of(THERE, None) == "http://10.0.0.5:5000"


def test_the_users_file_is_found_by_the_address(grid: TlsGrid, home: Path) -> None:
    entry = grid.entry(5000, grid.key())._replace(leaders=(THERE,))
    (home / ".config").mkdir()
    grid.write_access(home / ".config" / "wakugumi" / "access.toml", entry)
    sources = AccessSources()
    found = run(sources.entry(THERE))
    assert found is not None
    assert found.key == entry.key
    assert sources.key_name(THERE) == "desk-1"
    assert run(sources.entry(Address("10.0.0.5", 5001))) is None


def test_a_named_file_counts_alone_and_must_exist(grid: TlsGrid, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = grid.key("mine"), grid.key("other")
    (home / ".config").mkdir()
    for file, key in ((".config/wakugumi/access.toml", mine), ("other/access.toml", other)):
        grid.write_access(home / file, grid.entry(5000, key)._replace(leaders=(THERE,)))
    assert AccessSources(home / "other/access.toml").key_name(THERE) == "other"
    monkeypatch.setenv("WAKU_ACCESS", str(home / "other/access.toml"))
    assert AccessSources().key_name(THERE) == "other"
    with pytest.raises(ConfigError, match="does not exist"):
        run(AccessSources(home / "none").entry(THERE))


def test_a_file_that_others_may_read_is_refused(grid: TlsGrid, home: Path) -> None:
    file = grid.write_access(home / "a" / "access.toml", grid.entry(5000, grid.key())._replace(leaders=(THERE,)))
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="others may use"):
        run(AccessSources(file).entry(THERE))


def test_a_key_beside_the_address_comes_first_and_its_authority_is_fetched_once(grid: TlsGrid, home: Path) -> None:
    async def main() -> None:
        async with scripted(TlsLeader(grid.server(), grid.ca.certificate)) as leader:
            assert isinstance(leader, TlsLeader)
            key, address = grid.key("line"), Address("127.0.0.1", leader.port)
            sources = AccessSources(grid.write_access(home / "a" / "access.toml", grid.entry(leader.port, grid.key())))
            for _ in range(2):
                entry = await sources.entry(address, key)
                assert entry is not None
                assert (entry.key, entry.role, entry.leaders) == (key, "leader", (address,))
                assert entry.ca_pem.encode() == grid.ca.certificate
            assert leader.asked_for_ca == 1
            assert key.secret.encode() not in leader.received

    run(main())


def test_another_authority_is_not_believed(grid: TlsGrid, tmp_path: Path) -> None:
    other = TlsGrid(tmp_path / "other")

    async def main() -> None:
        async with scripted(TlsLeader(other.server(), other.ca.certificate)) as leader:
            assert isinstance(leader, TlsLeader)
            key = grid.key()
            with pytest.raises(ConfigError, match="another machine answers"):
                await AccessSources().entry(Address("127.0.0.1", leader.port), key)
            assert key.secret.encode() not in leader.received

    run(main())


def test_a_key_of_a_setting_leaves_the_url_and_belongs_to_the_address(grid: TlsGrid) -> None:
    key = grid.key("gw")
    assert take_key(f"https://{key.text}@10.0.0.5:5000/a") == "https://10.0.0.5:5000/a"
    assert take_key("http://10.0.0.6:5000/a@b") == "http://10.0.0.6:5000/a@b"
    assert AccessSources().key_name(THERE) == "gw"
    for wrong in (f"https://{key.text}@10.0.0.5", f"https://{key.text[:-3]}@10.0.0.5:5000"):
        with pytest.raises(ConfigError) as raised:
            take_key(wrong)
        assert key.secret[:20] not in f"{raised.value} {raised.value.hint}"


def test_a_url_names_the_key_and_not_its_secret(grid: TlsGrid, home: Path) -> None:
    one, two = (grid.entry(5000, grid.key(name))._replace(leaders=(THERE,)) for name in ("one", "two"))
    assert one.key is not None
    urls = [url_of(THERE, entry) for entry in (one, two, one._replace(key=None))]
    assert urls == [f"https://{name}@10.0.0.5:5000" for name in ("one", "two", "certificate")]
    assert entry_of("one", THERE) is one
    assert entry_of("two", THERE) is two
    assert entry_of("other", THERE) is None
    (home / ".config").mkdir()
    grid.write_access(home / ".config" / "wakugumi" / "access.toml", two)
    found = entry_of("other", THERE)
    assert found is not None, "in another process the user's file has it"
    assert found.key == two.key


def test_nothing_of_tls_is_imported_without_an_entry(home: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from wakugumi.adapters.access.dialled import AccessSources\n"
        "from wakugumi.adapters.net.address import Address\n"
        "assert asyncio.run(AccessSources().entry(Address('127.0.0.1', 5000))) is None\n"
        "loaded = {'cryptography', 'tomllib', 'wakugumi.adapters.net.tls', 'wakugumi.adapters.access.entry'}\n"
        "sys.exit(str(loaded & set(sys.modules)) if loaded & set(sys.modules) else 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env={"HOME": str(home)})
