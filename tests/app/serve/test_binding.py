"""A server listens on this machine alone unless it is told otherwise, and knows the names that it is told."""

from __future__ import annotations

import pytest

from wakugumi.adapters.net.address import Address
from wakugumi.app.serve.binding import binding, check_port, names_for
from wakugumi.errors import ConfigError


def test_a_port_is_a_port() -> None:
    assert binding("0.0.0.0", 0) == Address("0.0.0.0", 0)
    assert check_port(0) == 0
    with pytest.raises(ConfigError, match="a port is 1 to 65535, not 0"):
        check_port(0, least=1)
    with pytest.raises(ConfigError, match="not 65536"):
        binding("127.0.0.1", 65536)


def test_the_host_that_it_listens_on_is_one_of_its_names() -> None:
    assert {"grid.example", "10.0.0.1"} <= names_for(("grid.example",), "10.0.0.1")
    assert "" not in names_for((), "")
