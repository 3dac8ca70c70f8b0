"""TLS: what a port shows, whom it believes, and files that are no certificates."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from pathlib import Path

import pytest
from tests.kit.certificates import Certificates, make_certificates

from wakugumi.adapters.access.certificates import CertifiedKey, make_ca, make_csr, make_server_certificate, sign_csr
from wakugumi.adapters.loop.event_loop import run
from wakugumi.adapters.net.tls import (
    PeerCertificate,
    RenewedContext,
    client_context,
    grid_client_context,
    grid_server_context,
    peer_certificate,
    peer_certificate_name,
    server_context,
    unbelieving_context,
)
from wakugumi.errors import ConfigError


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> ssl.SSLObject:
    """In memory, until both are content: the client's end. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
                end.read(1)
            except ssl.SSLWantReadError:
                pass
    return ends[0]


@pytest.mark.spec("N5")
def test_a_port_is_believed_by_those_who_believe_its_authority(certs: Certificates) -> None:
    server = server_context(certs.server_cert, certs.server_key)
    handshake(server, client_context(certs.ca))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context())
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context(certs.ca), "elsewhere.example")


@pytest.mark.spec("N5")
def test_a_port_that_asks_for_certificates_takes_only_those_of_its_authority(certs: Certificates) -> None:
    server = server_context(certs.server_cert, certs.server_key, certs.ca)
    handshake(server, client_context(certs.ca, certs.client))
    for shown in (None, certs.stranger):
        with pytest.raises(ssl.SSLError):
            handshake(server, client_context(certs.ca, shown))


def test_nothing_older_than_tls_1_2_is_spoken(certs: Certificates) -> None:
    for context in (server_context(certs.server_cert, certs.server_key), client_context(), client_context(certs.ca)):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_files_that_cannot_be_used_are_told_by_name(certs: Certificates, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("hello")
    for cert, key, ca in (
        (tmp_path / "missing.pem", certs.server_key, None),
        (nonsense, certs.server_key, None),
        (certs.server_cert, certs.client, None),
        (certs.server_cert, certs.server_key, nonsense),
        (certs.server_cert, certs.server_key, tmp_path / "missing.pem"),
    ):
        with pytest.raises(ConfigError, match="cannot be used"):
            server_context(cert, key, ca)
    with pytest.raises(ConfigError, match=r"nonsense\.pem"):
        client_context(nonsense)


class Grid:
    """A grid's authority with the files of a server, and of a joined worker."""

    def __init__(self, folder: Path) -> None:
        self.ca = make_ca()
        self.pem = self.ca.certificate.decode()
        self.folder = folder
        self.serve("leader")
        asked = make_csr()
        joined = CertifiedKey(sign_csr(self.ca, asked.certificate, "worker", "rack-7", 30), asked.key)
        self.joined = folder / "joined.pem"
        self.joined.write_bytes(joined.certificate + joined.key)

    def serve(self, role: str) -> None:
        made = make_server_certificate(self.ca, role, ["localhost"], [])
        for name, data in (("server.pem", made.certificate), ("server.key", made.key)):
            (self.folder / f"{name}.new").write_bytes(data)
            os.replace(self.folder / f"{name}.new", self.folder / name)

    def context(self) -> ssl.SSLContext:
        return grid_server_context(self.folder / "server.pem", self.folder / "server.key", self.pem)


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    return Grid(tmp_path)


@pytest.mark.spec("O1")
def test_a_port_of_a_grid_speaks_only_tls_1_3(grid: Grid) -> None:
    old = client_context(certs_ca(grid))
    assert handshake(grid.context(), old).version() == "TLSv1.3"
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(grid.context(), old)
    assert grid.context().num_tickets == 0
    assert grid_client_context(grid.pem).minimum_version == ssl.TLSVersion.TLSv1_3


def certs_ca(grid: Grid) -> Path:
    path = grid.folder / "ca.pem"
    path.write_text(grid.pem)
    return path


@pytest.mark.spec("O1")
def test_a_dialler_of_a_grid_believes_its_authority_and_the_role_alone(grid: Grid, certs: Certificates) -> None:
    dialler = grid_client_context(grid.pem)
    handshake(grid.context(), dialler, "leader.wakugumi")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(grid.context(), dialler, "gateway.wakugumi")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(certs.server_cert, certs.server_key), dialler)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(grid.context(), grid_client_context(make_ca().certificate.decode()), "leader.wakugumi")
    handshake(server_context(certs.server_cert, certs.server_key), unbelieving_context(), "elsewhere")


@pytest.mark.spec("O1")
def test_a_certificate_of_another_authority_is_refused_also_where_none_is_needed(
    grid: Grid, certs: Certificates
) -> None:
    with pytest.raises(ssl.SSLError):
        handshake(grid.context(), grid_client_context(grid.pem, certs.client), "leader.wakugumi")


def test_certificates_that_are_none_are_told(tmp_path: Path, certs: Certificates) -> None:
    for text in ("", "hello", "-----BEGIN CERTIFICATE-----\n"):
        with pytest.raises(ConfigError, match="authority cannot be used"):
            grid_client_context(text)
    with pytest.raises(ConfigError, match="cannot be used"):
        grid_server_context(tmp_path / "missing.pem", certs.server_key, certs.ca.read_text())


async def seen_by(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> list[PeerCertificate | str | None]:
    """What a port knows of a client's certificate."""
    loop = asyncio.get_running_loop()
    seen: asyncio.Future[list[PeerCertificate | str | None]] = loop.create_future()

    class Looking(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            seen.set_result([peer_certificate(transport), peer_certificate_name(transport)])
            transport.close()

    port = await loop.create_server(Looking, "127.0.0.1", 0, ssl=server)
    calling, _ = await loop.create_connection(
        asyncio.Protocol, *port.sockets[0].getsockname(), ssl=client, server_hostname=name
    )
    try:
        return await asyncio.wait_for(seen, 20)
    finally:
        calling.abort()
        port.close()
        await port.wait_closed()


@pytest.mark.spec("O1")
def test_a_verified_certificate_names_its_key(grid: Grid, certs: Certificates) -> None:
    shown = run(seen_by(grid.context(), grid_client_context(grid.pem, grid.joined), "leader.wakugumi"))
    assert isinstance(shown[0], PeerCertificate)
    assert shown[0].name == shown[1] == "rack-7"
    assert 0 <= time.time() - 300 - shown[0].issued_at < 120
    assert run(seen_by(grid.context(), grid_client_context(grid.pem), "leader.wakugumi")) == [None, None]


@pytest.mark.spec("O1")
def test_a_certificate_of_a_server_is_no_key(grid: Grid) -> None:
    own = grid_client_context(grid.pem, grid.folder / "server.pem", grid.folder / "server.key")
    assert run(seen_by(grid.context(), own, "leader.wakugumi")) == [None, None]


@pytest.mark.spec("O1")
def test_a_certificate_that_nobody_verified_is_no_key(grid: Grid) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(grid.folder / "server.pem", grid.folder / "server.key")
    shown = run(seen_by(server, grid_client_context(grid.pem, grid.joined), "leader.wakugumi"))
    assert shown == [None, None]


@pytest.mark.spec("O1")
def test_new_connections_get_a_renewed_certificate(grid: Grid, caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    files = grid.folder / "server.pem", grid.folder / "server.key"
    current = RenewedContext(grid.context, *files, clock=lambda: now[0])
    first, dialler = current(), grid_client_context(grid.pem)
    now[0] = 100.0
    assert current() is first
    grid.serve("gateway")
    assert current() is first  # The next look comes later.
    now[0] = 200.0
    handshake(current(), dialler, "gateway.wakugumi")
    handshake(first, dialler, "leader.wakugumi")
    second = current()
    files[1].write_text("half a file")
    with caplog.at_level(logging.WARNING):
        for now[0] in (300.0, 400.0):
            assert current() is second
    assert [record.message.partition(":")[0] for record in caplog.records] == ["certificate not renewed"]
    files[1].unlink()
    now[0] = 500.0
    assert current() is second
    grid.serve("leader")
    current.look()
    handshake(current(), dialler, "leader.wakugumi")


def test_a_company_that_asks_for_certificates_gives_no_tickets(certs: Certificates) -> None:
    assert server_context(certs.server_cert, certs.server_key, certs.ca).num_tickets == 0
