"""Which address is meant, and may others reach it?"""

from __future__ import annotations

import re

import pytest

from wakugumi.adapters.net.address import Address, check_binding, parse_address, parse_addresses
from wakugumi.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("localhost:5000", "localhost", 5000, "localhost:5000"),
        ("waku://rack-1.example:5001", "rack-1.example", 5001, "rack-1.example:5001"),
        ("waku://rack-1.example:5001/", "rack-1.example", 5001, "rack-1.example:5001"),
        ("tcp://10.0.0.1:5000", "10.0.0.1", 5000, "10.0.0.1:5000"),
        ("[::1]:5000", "::1", 5000, "[::1]:5000"),
        ("localhost", "localhost", 7, "localhost:7"),
        ("waku://[::1]", "::1", 7, "[::1]:7"),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int, shown: str) -> None:
    address = parse_address(text, default_port=7)
    assert address == Address(host, port)
    assert str(address) == shown


@pytest.mark.parametrize(
    "text",
    [
        *["", ":", ":5000", "localhost", "localhost:", "localhost:x", "localhost:65536", "localhost:-1", "[::1"],
        *["::1:5000", "[zz]:5000", "http://localhost:5000", "localhost:5000/jobs", "localhost:5000?a=b"],
        *["user@localhost:5000", "a b:5000", "a\x00b:5000", "a:5000,b:5000", "waku://", "waku://:5000"],
    ],
)
def test_what_is_no_address_is_told_with_what_to_write(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(text))) as caught:
        parse_address(text)
    assert caught.value.hint == "write host:port, such as localhost:5000"


@pytest.mark.spec("O1")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_may_be_bound_without_a_word(host: str) -> None:
    check_binding(host, allow_open=False)


@pytest.mark.spec("O1")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "rack-1", "*"])
def test_anything_wider_needs_a_word(host: str) -> None:
    with pytest.raises(ConfigError, match="would let anyone") as caught:
        check_binding(host, allow_open=False)
    assert "--allow-open" in caught.value.hint
    check_binding(host, allow_open=True)


def test_several_addresses_are_read() -> None:
    assert parse_addresses("waku://a:1, b,[::1]:3", 2) == [Address("a", 1), Address("b", 2), Address("::1", 3)]


@pytest.mark.parametrize(
    ("text", "why"), [("a:1,", "names no leader beside a comma"), ("a:1,a:1", "the leader a:1 is named twice")]
)
def test_a_list_with_a_gap_or_with_an_address_twice_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_addresses(text)
