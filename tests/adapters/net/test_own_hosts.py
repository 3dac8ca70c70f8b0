"""Names and addresses by which other machines find this one."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from wakugumi.adapters.net.own_hosts import own_hosts


def test_a_server_at_one_address_is_found_there_and_under_its_names() -> None:
    assert own_hosts("10.0.0.5", ["grid.example"]) == ["grid.example", "10.0.0.5"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_server_at_all_addresses_is_found_at_each_that_others_reach(host: str) -> None:
    found = own_hosts(host, ["grid.example"])
    assert found[0] == "grid.example"
    assert found[-1] == socket.gethostname().lower()
    for text in found[1:-1]:
        address = ipaddress.ip_address(text)
        assert not address.is_loopback
        assert not address.is_link_local
