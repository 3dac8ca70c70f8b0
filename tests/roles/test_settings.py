"""How does a text become a path or an address?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError
from wakugumi.roles.settings import HOST, read_absolute, read_address, read_path


def test_a_path_stays_as_it_was_typed_unless_it_must_be_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_path("jobs", "--jobs") == Path("jobs")
    assert read_absolute("cache", "--cache") == tmp_path / "cache"
    assert read_absolute("/cache", "--cache") == Path("/cache")


def test_an_address_has_host_and_port() -> None:
    assert read_address(f"{HOST}:5000", "--leader") == Address(HOST, 5000)
    with pytest.raises(ConfigError):
        read_address("localhost:99999", "--leader")
