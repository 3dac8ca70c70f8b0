"""The user's access file: found by address, changed whole, and refused if others may read it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.certificates import ca_digest, make_ca
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.adapters.access.private_files import write_private
from wakugumi.adapters.access.state_folder import new_key
from wakugumi.adapters.net.address import Address, parse_address
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.spec("O1")
PEM = make_ca().certificate.decode()
DIGEST = ca_digest(PEM.encode())


def entry(*leaders: str, name: str = "desk-1") -> AccessEntry:
    return AccessEntry(tuple(map(parse_address, leaders)), PEM, new_key(name, DIGEST))


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(tmp_path / "config" / "wakugumi" / "access.toml")


def test_an_entry_is_found_by_the_address_that_is_dialled(file: AccessFile) -> None:
    assert file.entries() == []
    assert file.find(Address("a", 1)) is None
    one = entry("10.0.0.5:5000", "Rack-1.example:5000")
    two = entry("[fd00::1]:5000", name="rack-7")._replace(
        certificate=Path("/x/own.pem"), certificate_key=Path("/x/own.key"), role="gateway"
    )
    file.add(one)
    file.add(two)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert file.entries() == [one, two]
    assert file.find(Address("10.0.0.5", 5000)) == one
    assert file.find(Address("rack-1.EXAMPLE.", 5000)) == one
    assert file.find(Address("fd00:0::1", 5000)) == two
    for other in (Address("10.0.0.5", 5001), Address("10.0.0.50", 5000), Address("example", 5000)):
        assert file.find(other) is None


def test_a_new_entry_takes_its_addresses_from_others(file: AccessFile) -> None:
    file.add(entry("a:1", "b:1"))
    new = entry("B:1", name="new")
    file.add(new)
    assert [[str(one) for one in found.leaders] for found in file.entries()] == [["a:1"], ["b:1"]]
    assert file.find(Address("b", 1)) == new
    assert file.remove(Address("a", 1))
    assert not file.remove(Address("a", 1))
    assert file.entries() == [new]


def test_a_path_in_the_file_begins_at_its_folder(file: AccessFile) -> None:
    file.add(entry("a:1")._replace(certificate=Path("own.pem"), certificate_key=Path("own.key")))
    assert file.entries()[0].certificate == file.path.parent / "own.pem"


@pytest.mark.parametrize(
    "change",
    [
        ("leaders = ", "leader = "),
        ('leaders = ["a:1"]', "leaders = []"),
        ('"a:1"', '"a"'),
        ('"a:1"', '"key:word@a:1"'),
        ("desk-1:", "desk-1"),
        (DIGEST, "q" * 32),
        ("BEGIN", "BEGAN"),
        ("[[grid]]", "[grid]"),
        ("[[grid]]", "[[grid"),
        ('role = "leader"', 'role = "client"'),
        ('role = "leader"', "role = 7"),
    ],
)
def test_a_file_with_a_fault_is_refused_without_its_secret(file: AccessFile, change: tuple[str, str]) -> None:
    one = entry("a:1")
    file.add(one)
    text = file.path.read_text()
    assert change[0] in text
    write_private(file.path, text.replace(*change).encode())
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        file.find(Address("a", 1))
    assert str(file.path) in str(caught.value)
    assert one.key is not None
    assert one.key.secret not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(ConfigError, match="cannot be read"):  # Nothing is lost by a change.
        file.add(entry("b:1"))
    assert file.path.read_text() == text.replace(*change)


def test_a_second_authority_beside_the_first_is_refused(file: AccessFile) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        file.add(entry("a:1")._replace(ca_pem=PEM + make_ca().certificate.decode()))


def test_a_file_that_others_may_read_is_refused(file: AccessFile) -> None:
    file.add(entry("a:1"))
    file.path.chmod(0o644)
    with pytest.raises(ConfigError, match="others may use") as caught:
        file.find(Address("a", 1))
    assert f"chmod 600 {file.path}" in caught.value.hint


def test_a_folder_that_is_there_may_be_open_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    AccessFile(tmp_path / "access.toml").add(entry("a:1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(file: AccessFile) -> None:
    file.add(entry("a:1"))
    os.chown(file.path, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        file.entries()


ADD = """
import sys
from pathlib import Path
from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.adapters.net.address import Address
for number in range(5):
    AccessFile(Path(sys.argv[1])).add(AccessEntry((Address(sys.argv[2], number),), sys.argv[3]))
"""


def test_processes_that_join_at_once_lose_no_entry(file: AccessFile) -> None:
    many = [subprocess.Popen([sys.executable, "-c", ADD, str(file.path), name, PEM]) for name in "abc"]
    assert [one.wait(60) for one in many] == [0, 0, 0]
    assert len(file.entries()) == 15
