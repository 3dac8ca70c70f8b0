"""Which requests may a web page have sent? A list of cases: add a line for each trick that becomes known."""

from __future__ import annotations

import pytest

from wakugumi.errors import ConfigError
from wakugumi.wire.web_origin import Foreign, check_page, server_names

pytestmark = pytest.mark.spec("O1")

NAMES = frozenset({"calc-7", "grid.example"})
HOSTS = {
    "localhost": True,
    "LOCALHOST:5000": True,
    "localhost.": True,
    "127.0.0.1:5000": True,
    "192.0.2.1": True,
    "[::1]:5000": True,
    "[2001:db8::1]": True,
    "calc-7:5000": True,
    "grid.example": True,
    "Grid.Example.:5000": True,
    "": False,
    "evil.example": False,
    "localhost.evil.example:5000": False,
    "evil.example:localhost": False,
    "127.0.0.1.evil.example": False,
    "calc-7.evil.example": False,
    "xcalc-7": False,
    "localhost@evil.example": False,
    "evil.example@localhost": False,
    "localhost/": False,
    "localhost#evil": False,
    "localhost, evil.example": False,
    "[::1": False,
    "::1": False,
    "[localhost]": False,
    "[evil.example]": False,
    "0x7f.1": False,
    "2130706433": False,
    "127.1": False,
    "localhost\u3002": False,
    "ｌocalhost": False,
    "grid.example\x00": False,
    "localhost:5000:5000": False,
}
ORIGINS = {
    "http://localhost:5000": True,
    "https://localhost:5000": True,
    "HTTP://LOCALHOST:5000": True,
    "": False,
    "null": False,
    "http://localhost": False,
    "http://localhost:3000": False,
    "http://localhost:5000.evil.example": False,
    "http://evil.example": False,
    "http://127.0.0.1:5000": False,
    "http://evil@localhost:5000": False,
    "http://localhost:5000/": False,
    "localhost:5000": False,
    "http://[": False,
}
SITES = {"": True, "none": True, "same-origin": True, "same-site": False, "cross-site": False, "what": False}


def passes(
    host: str = "localhost:5000",
    origin: str | None = None,
    site: str = "",
    *,
    looks: bool = False,
    program: bool = False,
) -> bool:
    try:
        check_page(host, origin, site, looks=looks, program=program, names=NAMES)
    except Foreign:
        return False
    return True


@pytest.mark.parametrize("host", HOSTS)
def test_only_addresses_and_own_names_are_hosts(host: str) -> None:
    assert passes(host) == HOSTS[host]


@pytest.mark.parametrize("origin", ORIGINS)
def test_only_a_page_of_this_host_may_ask(origin: str) -> None:
    assert passes(origin=origin) == ORIGINS[origin]


@pytest.mark.parametrize("site", SITES)
def test_what_a_browser_says_of_the_page_counts_unless_a_reader_followed_a_link(site: str) -> None:
    assert passes(site=site) == SITES[site]
    assert passes(site=site, looks=True)
    assert not passes("evil.example", site=site, looks=True)


def test_a_program_may_use_any_name_and_a_page_gains_nothing_by_that() -> None:
    assert passes("balancer.example:443", program=True)
    assert not passes("balancer.example", "http://evil.example", program=True)
    assert not passes("balancer.example", site="cross-site", program=True)
    assert not passes("localhost@evil.example", program=True)


def test_the_refusal_names_the_option() -> None:
    with pytest.raises(Foreign) as refused:
        check_page("grid.corp.example:5000", None, "", looks=False, program=False, names=NAMES)
    assert "--name grid.corp.example," in refused.value.hint


def test_a_server_without_such_an_option_names_none() -> None:
    with pytest.raises(Foreign) as refused:
        check_page("grid.corp.example", None, "", looks=False, program=False, names=NAMES, option="")
    assert refused.value.hint == "ask for its IP address"


def test_names_are_names() -> None:
    assert server_names(["Grid.Example.", " a_b-1 "]) == {"grid.example", "a_b-1"}
    for bad in ("", ".", "grid:5000", "http://grid", "a b", "*.example", "-a", "a" * 254, "é"):
        with pytest.raises(ConfigError, match="is no name of a machine"):
            server_names([bad])
