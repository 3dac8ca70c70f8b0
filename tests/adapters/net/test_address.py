"""Which address is meant, and may others reach it?"""

from __future__ import annotations

import re

import pytest

from wakugumi.adapters.net.address import Address, is_loopback, parse_access_line, parse_address, parse_addresses
from wakugumi.errors import ConfigError
from wakugumi.wire.access_line import Key


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
        *["a b:5000", "a\x00b:5000", "a:5000,b:5000", "waku://", "waku://:5000"],
    ],
)
def test_what_is_no_address_is_told_with_what_to_write(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(text))) as caught:
        parse_address(text)
    assert caught.value.hint == "write host:port, such as localhost:5000"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "rack-1", "*"])
def test_everything_else_is_wider(host: str) -> None:
    assert not is_loopback(host)


def test_several_addresses_are_read() -> None:
    assert parse_addresses("waku://a:1, b,[::1]:3", 2) == [Address("a", 1), Address("b", 2), Address("::1", 3)]


@pytest.mark.parametrize(
    ("text", "why"), [("a:1,", "names no leader beside a comma"), ("a:1,a:1", "the leader a:1 is named twice")]
)
def test_a_list_with_a_gap_or_with_an_address_twice_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_addresses(text)


KEY = Key("desk-1", "k" * 32, "x" * 52)
OTHER = Key("rack-7", "q" * 32, "y" * 52)


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a:1", [(Address("a", 1), None)]),
        (f"waku://{KEY.text}@10.0.0.5:5000", [(Address("10.0.0.5", 5000), KEY)]),
        (f"{KEY.text}@[::1]", [(Address("::1", 7), KEY)]),
        (f"{KEY.text}@a:1,b:2, waku://c", [(Address("a", 1), KEY), (Address("b", 2), KEY), (Address("c", 7), KEY)]),
        (
            f"waku://{KEY.text}@a:1,waku://{OTHER.text}@b:2,c:3",
            [(Address("a", 1), KEY), (Address("b", 2), OTHER), (Address("c", 3), KEY)],
        ),
        (f"a:1,{KEY.text}@b:2,c:3", [(Address("a", 1), None), (Address("b", 2), KEY), (Address("c", 3), None)]),
    ],
)
def test_an_access_line_has_addresses_and_their_keys(text: str, read: list[tuple[Address, Key | None]]) -> None:
    assert parse_access_line(text, 7) == read


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    "text",
    [
        f"waku://{KEY.text}@a:1,",
        f"waku://{KEY.text}@a:1,b:2,a:1",
        f"waku://{KEY.text}@a:x",
        f"waku://{KEY.text}@",
        f"waku://{KEY.text}",
        f"{KEY.text}",
        f"{KEY.text}:5000",
        f"waku://{KEY.text}@@a:1",
        f"waku://{KEY.text}@b@a:1",
        f"http://{KEY.text}@a:1",
        f"waku:/{KEY.text}@a:1",
        f"waku://{KEY.text[:-1]}@a:1",
        f"waku://{KEY.text}z@a:1",
        f"waku://{KEY.text.upper()}@a:1",
        f"waku://desk-1@{KEY.digest}-{KEY.secret}:1",
        f"waku://{KEY.digest}-{KEY.secret}@a:1",
        f"waku://{KEY.text}@a\u2100b:1",
        f"waku://x\u2100:{KEY.digest}-{KEY.secret}@a:1",
        f"waku://[{KEY.text}@a:1",
        f"waku://{KEY.text}@a:1/jobs",
        "waku://@a:1",
    ],
)
def test_an_error_about_an_access_line_has_no_secret(text: str) -> None:
    for parse in (parse_access_line, parse_address, parse_addresses):
        with pytest.raises(ConfigError) as caught:
            parse(text)
        error = caught.value
        assert "xxx" not in f"{error} {error.hint}".lower()
        assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.spec("O1")
def test_an_address_alone_has_no_user() -> None:
    with pytest.raises(ConfigError, match=re.escape("'…@localhost:5000' is not a leader's address")):
        parse_address("user:word@localhost:5000")
