"""The authority behind an address: fetched without belief, compared, and no byte of a key is sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trustme

from wakugumi.adapters.access.certificates import CertifiedKey, ca_digest, make_ca, make_server_certificate
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.adapters.access.fetch_ca import fetch_ca
from wakugumi.adapters.access.state_folder import new_key
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError, Lost, WakugumiError
from wakugumi.wire.access_line import Key

pytestmark = pytest.mark.spec("O1")


@pytest.fixture(scope="module")
def ca() -> CertifiedKey:
    """Its certificate has a number of bytes whose base64 ends with `=`: a lenient reader would stop there."""
    while True:
        made = make_ca()
        if made.certificate.count(b"="):
            return made


def serving(ca: CertifiedKey, folder: Path) -> ssl.SSLContext:
    made = make_server_certificate(ca, "leader", [], ["127.0.0.1"])
    (folder / "server.pem").write_bytes(made.certificate + made.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


def strange() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1", "leader.wakugumi").configure_cert(context)
    return context


class Port:
    """Answers every request, or with `hasty` any bytes, with these bytes, and keeps all that it received."""

    def __init__(self, answer: bytes, *, closes: bool = True, hasty: bool = False) -> None:
        self.answer = answer
        self.closes = closes
        self.hasty = hasty
        self.received = bytearray()
        self.address = Address("", 0)


class Answering(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, port: Port) -> None:
        self.port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        port = self.port
        port.received += data
        if port.hasty or port.received.endswith(b"\r\n\r\n"):
            self.transport.write(port.answer)
            if port.closes:
                self.transport.close()


@asynccontextmanager
async def opened(port: Port, tls: ssl.SSLContext | None) -> AsyncIterator[Port]:
    server = await asyncio.get_running_loop().create_server(lambda: Answering(port), "127.0.0.1", 0, ssl=tls)
    port.address = Address(*server.sockets[0].getsockname())
    try:
        yield port
    finally:
        server.close()
        await server.wait_closed()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def fetched(port: Port, tls: ssl.SSLContext | None, digest: str, deadline_s: float = 20.0) -> str:
    async def fetch() -> str:
        async with opened(port, tls):
            return await fetch_ca(port.address, digest, deadline_s)

    return run(fetch())


def test_the_authority_of_the_line_is_fetched(ca: CertifiedKey, tmp_path: Path) -> None:
    port = Port(ok(b"\n" + ca.certificate.replace(b"\n", b"\r\n")))
    assert fetched(port, serving(ca, tmp_path), ca_digest(ca.certificate)) == ca.certificate.decode()
    assert port.received.startswith(b"GET /access/ca HTTP/1.1\r\n")
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    port = Port(chunked % (len(ca.certificate), ca.certificate), closes=False)
    assert fetched(port, serving(ca, tmp_path), ca_digest(ca.certificate)) == ca.certificate.decode()


async def join(address: Address, key: Key) -> None:
    """What a dialler does with a line: believe first, then show the key. Raises WakugumiError or SSLError."""
    entry = AccessEntry((address,), await fetch_ca(address, key.digest, 20.0), key)
    _, writer = await asyncio.open_connection(*address, ssl=entry.context(), server_hostname=entry.server_hostname)
    try:
        writer.write(f"AUTH {key.text}\r\n\r\n".encode())
        await writer.drain()
    finally:
        writer.close()


def in_the_middle(port: Port, key: Key) -> Exception:
    async def attack() -> Exception:
        async with opened(port, strange()):
            try:
                await join(port.address, key)
            except (WakugumiError, ssl.SSLError) as error:
                return error
        raise AssertionError("the key was shown")

    return run(attack())


@pytest.mark.parametrize(
    "lie",
    [
        lambda ca: make_ca().certificate,
        lambda ca: make_ca().certificate + ca,
        lambda ca: ca + make_ca().certificate,
        lambda ca: ca.replace(b"-----END", make_ca().certificate + b"-----END"),
        lambda ca: ca.replace(b"=\n", b"=" + make_ca().certificate.split(b"-----")[2] + b"\n"),
        lambda ca: b"",
        lambda ca: b"\xff" * 100,
    ],
)
def test_a_man_in_the_middle_with_another_authority_gets_no_byte_of_the_key(
    ca: CertifiedKey, lie: Callable[[bytes], bytes]
) -> None:
    key = new_key("desk-1", ca_digest(ca.certificate))
    port = Port(ok(lie(ca.certificate)))
    error = in_the_middle(port, key)
    assert isinstance(error, ConfigError)
    assert str(error) == f"another machine answers at {port.address}: its authority is not the one of the line"
    assert "the key was not sent" in error.hint
    for part in (key.name, key.digest, key.secret):
        assert part.encode() not in port.received


def test_a_man_in_the_middle_who_passes_the_true_authority_on_gets_no_byte_either(ca: CertifiedKey) -> None:
    key = new_key("desk-1", ca_digest(ca.certificate))
    port = Port(ok(ca.certificate))
    assert isinstance(in_the_middle(port, key), ssl.SSLCertVerificationError)
    for part in (key.name, key.digest, key.secret):
        assert part.encode() not in port.received


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ConfigError, "it answered 404"),
        (b"BUSY retry=5\n", Lost, "it is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", Lost, "it ended early"),
        (ok(b"x" * 100_000), Lost, "more than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000, Lost, "more than 65536 bytes|no HTTP"),
    ],
)
def test_an_answer_that_is_none_is_told(
    ca: CertifiedKey, tmp_path: Path, answer: bytes, kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        fetched(Port(answer), serving(ca, tmp_path), ca_digest(ca.certificate))


def test_a_port_that_is_silent_plain_or_closed_is_lost(ca: CertifiedKey, tmp_path: Path) -> None:
    with pytest.raises(Lost, match=r"within 0\.3 s"):
        fetched(Port(b"", closes=False), serving(ca, tmp_path), "k" * 32, 0.3)
    with pytest.raises(Lost, match="does not speak TLS"):
        fetched(Port(ok(b""), hasty=True), None, "k" * 32)
    port = Port(b"")

    async def closed() -> None:
        async with opened(port, None):
            pass
        await fetch_ca(port.address, "k" * 32, 20.0)

    with pytest.raises(Lost, match="nobody listens"):
        run(closed())
