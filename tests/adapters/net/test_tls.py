"""TLS: what a port shows, whom it believes, and files that are no certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.kit.certificates import Certificates, make_certificates

from wakugumi.adapters.net.tls import client_context, server_context
from wakugumi.errors import ConfigError


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> None:
    """In memory, until both are content. Raises SSLError."""
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
