"""A worker sends others to its own address, and to nobody else's."""

from __future__ import annotations

import socket

import pytest

from wakugumi.adapters.net.worker_address import is_loopback, workers_url

pytestmark = pytest.mark.spec("C8", "O1")

ELSEWHERE = "192.0.2.7"
"""An address of the documentation's network: no machine has it."""


@pytest.mark.parametrize(
    ("url", "connected_from", "told"),
    [
        ("http://192.0.2.7:7000", "192.0.2.7", "http://192.0.2.7:7000"),
        ("http://[2001:db8::7]:7000", "2001:db8::7", "http://[2001:db8::7]:7000"),
        ("http://192.0.2.7:7000", "::ffff:192.0.2.7", "http://192.0.2.7:7000"),
        ("http://[2001:DB8:0::7]:7000", "2001:db8::7%eth0", "http://[2001:db8:0::7]:7000"),
        # A name is the worker's own word: its address is that of its connection.
        ("http://w7.example:7000", "192.0.2.7", "http://192.0.2.7:7000"),
        ("https://w7.example", "2001:db8::7", "https://[2001:db8::7]"),
        ("http://localhost:7000", "192.0.2.7", "http://192.0.2.7:7000"),
        # Nothing but host and port is passed on.
        ("http://user:word@192.0.2.7:7000/admin?x=/blobs#y", "192.0.2.7", "http://192.0.2.7:7000"),
        # Somebody else's.
        ("http://192.0.2.8:7000", "192.0.2.7", None),
        ("http://127.0.0.1:7000", "192.0.2.7", None),
        ("http://[::1]:7000", "192.0.2.7", None),
        ("http://169.254.169.254", "192.0.2.7", None),
        ("http://[::ffff:192.0.2.8]:7000", "192.0.2.7", None),
        ("http://192.0.2.8:7000", "127.0.0.1", None),
        ("http://w7.example:7000", "127.0.0.1", None),
        ("http://0.0.0.0:7000", "127.0.0.1", None),
        ("http://224.0.0.1:7000", "", None),
        # This machine, by whatever name.
        ("http://127.0.0.1:7000", "127.0.0.1", "http://127.0.0.1:7000"),
        ("http://127.0.0.1:7000", "::1", "http://127.0.0.1:7000"),
        ("http://localhost:7000", "127.0.0.1", "http://localhost:7000"),
        ("http://127.0.0.1:7000", "", "http://127.0.0.1:7000"),
        (f"http://{socket.gethostname()}:7000", "127.0.0.1", f"http://{socket.gethostname().lower()}:7000"),
    ],
)
def test_the_address_is_that_of_its_connection(url: str, connected_from: str, told: str | None) -> None:
    assert workers_url(url, connected_from, ()) == told


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        *(
            (host, True)
            for host in ("", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "a.localhost", "::")
        ),
        *((host, False) for host in ("192.0.2.7", "2001:db8::7", "w7.example", "notlocalhost")),
    ],
)
def test_a_loopback_address_means_another_machine_to_each(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def test_what_the_leader_was_told_of_is_passed_on_as_it_is() -> None:
    allowed = ("10.1.*.*", "*.Example")
    assert workers_url("http://10.1.2.3:7000", ELSEWHERE, allowed) == "http://10.1.2.3:7000"
    assert workers_url("http://W7.example:7000/x", ELSEWHERE, allowed) == "http://w7.example:7000"
    assert workers_url("http://10.2.2.3:7000", ELSEWHERE, allowed) is None


@pytest.mark.parametrize(
    "url", ["", "file:///etc", "http://", "http://[x", "http://h:port", "http://h:99999", "ftp://h:1"]
)
def test_what_is_no_url_of_a_worker_is_refused(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- of whoever reads URLs
        workers_url(url, ELSEWHERE, ())
