"""Certificates of a grid: what they say, who signs them, and what a request cannot make them say."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wakugumi.adapters.access.certificates import (
    CertifiedKey,
    belong_together,
    ca_digest,
    covers_server,
    expires_at,
    life_of,
    make_ca,
    make_csr,
    make_server_certificate,
    role_name,
    sign_csr,
)
from wakugumi.errors import ConfigError, Refused
from wakugumi.wire.access_line import base32

pytestmark = pytest.mark.spec("O1", "N5")
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def ca() -> CertifiedKey:
    return make_ca()


def read(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def dns_names(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.get_values_for_type(x509.DNSName)


def common_names(certificate: x509.Certificate) -> list[object]:
    return [one.value for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def shake(server: CertifiedKey, ca: bytes, name: str, folder: Path, client: CertifiedKey | None = None) -> object:
    """The client's certificate as the server sees it, by strict rules. Raises SSLError."""
    contexts = []
    for protocol, own in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        context = ssl.SSLContext(protocol)
        context.load_verify_locations(cadata=ca.decode())
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if own is not None:
            (folder / "one.pem").write_bytes(own.certificate + own.key)
            context.load_cert_chain(folder / "one.pem")
        contexts.append(context)
    contexts[0].verify_mode = ssl.CERT_OPTIONAL
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling = contexts[1].wrap_bio(to_client, to_server, server_hostname=name)
    serving = contexts[0].wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        for end in (calling, serving):
            try:
                end.do_handshake()
                end.read(1)
            except ssl.SSLWantReadError:
                pass
    return serving.getpeercert()


def test_an_authority_only_signs_servers_and_clients() -> None:
    made = read(make_ca(NOW).certificate)
    get = made.extensions.get_extension_for_class
    assert get(x509.BasicConstraints).critical
    assert get(x509.BasicConstraints).value == x509.BasicConstraints(ca=True, path_length=0)
    assert get(x509.KeyUsage).critical
    assert get(x509.KeyUsage).value.key_cert_sign
    assert not get(x509.KeyUsage).value.digital_signature
    assert get(x509.AuthorityKeyIdentifier).value.key_identifier == get(x509.SubjectKeyIdentifier).value.digest
    assert made.not_valid_before_utc.timestamp() == NOW - 300
    assert made.not_valid_after_utc - made.not_valid_before_utc > dt.timedelta(days=3650)
    key = made.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    made.verify_directly_issued_by(made)


def test_two_authorities_differ_in_name_and_digest() -> None:
    one, two = make_ca(), make_ca()
    assert read(one.certificate).subject != read(two.certificate).subject
    assert ca_digest(one.certificate) != ca_digest(two.certificate)


def test_a_digest_is_that_of_the_design(ca: CertifiedKey) -> None:
    der = read(ca.certificate).public_bytes(Encoding.DER)
    assert ca_digest(ca.certificate) == base32(hashlib.sha256(der).digest()[:20])
    for wrong in (b"", b"hello", b"\xff", ca.key, ca.certificate[:-40]):
        with pytest.raises(ConfigError, match="cannot be read"):
            ca_digest(wrong)


def test_a_server_is_believed_by_its_role_its_names_and_its_addresses(ca: CertifiedKey, tmp_path: Path) -> None:
    server = make_server_certificate(ca, "leader", ["rack-1.example", "Rack_2."], ["127.0.0.1", "fe80::1%eth0"])
    for name in ("leader.wakugumi", "rack-1.example", "rack_2", "127.0.0.1", "fe80::1"):
        assert shake(server, ca.certificate, name, tmp_path) is None
    for name in ("worker.wakugumi", "rack-2.example", "127.0.0.2", "wakugumi"):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(server, ca.certificate, name, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, make_ca().certificate, "leader.wakugumi", tmp_path)


def test_a_server_certificate_names_no_key_and_ends_in_time(ca: CertifiedKey) -> None:
    now = time.time()
    server = make_server_certificate(ca, "leader", [], [], now=now)
    made = read(server.certificate)
    assert common_names(made) == []
    assert expires_at(server.certificate) == pytest.approx(now + 90 * 86400, abs=1)
    assert life_of(server.certificate) == pytest.approx((now - 300, now + 90 * 86400), abs=1)
    assert made.not_valid_before_utc.timestamp() == int(now) - 300
    get = made.extensions.get_extension_for_class
    assert get(x509.BasicConstraints).value == x509.BasicConstraints(ca=False, path_length=None)
    assert set(get(x509.ExtendedKeyUsage).value) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    authority = read(ca.certificate).extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert get(x509.AuthorityKeyIdentifier).value.key_identifier == authority.digest


def test_no_certificate_outlives_its_authority(ca: CertifiedKey) -> None:
    end = expires_at(ca.certificate)
    assert expires_at(make_server_certificate(ca, "leader", [], [], now=end - 86400).certificate) == end


def greedy_csr() -> CertifiedKey:
    """A request that would be the leader, an authority, and another key."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("leader.wakugumi")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    return CertifiedKey(request.public_bytes(Encoding.PEM), b"")


def test_the_signer_decides_all_that_a_certificate_says(ca: CertifiedKey) -> None:
    made = read(sign_csr(ca, greedy_csr().certificate, "worker", "rack-7", 30, ["rack-7.example"], ["10.0.0.7"]))
    assert common_names(made) == ["rack-7"]
    assert dns_names(made) == ["worker.wakugumi", "rack-7.example"]
    found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.7")]
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert made.not_valid_after_utc - made.not_valid_before_utc == dt.timedelta(days=30, seconds=300)


def test_a_joined_key_is_known_by_its_certificate(ca: CertifiedKey, tmp_path: Path) -> None:
    asked = make_csr()
    joined = CertifiedKey(sign_csr(ca, asked.certificate, "worker", "rack-7", 30), asked.key)
    assert belong_together(joined)
    assert not belong_together(CertifiedKey(joined.certificate, make_csr().key))
    server = make_server_certificate(ca, "leader", [], [])
    seen = shake(server, ca.certificate, role_name("leader"), tmp_path, joined)
    assert isinstance(seen, dict)
    assert (("commonName", "rack-7"),) in seen["subject"]
    with pytest.raises(ssl.SSLCertVerificationError):  # A worker cannot pose as the leader.
        shake(joined, ca.certificate, role_name("leader"), tmp_path)


def test_a_certificate_of_a_client_cannot_serve(ca: CertifiedKey, tmp_path: Path) -> None:
    asked = make_csr()
    client = CertifiedKey(sign_csr(ca, asked.certificate, "client", "desk-1", 30), asked.key)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(client, ca.certificate, role_name("client"), tmp_path)


def test_a_certificate_signed_by_another_authority_or_by_a_leaf_is_refused(ca: CertifiedKey, tmp_path: Path) -> None:
    server = make_server_certificate(ca, "leader", [], [])
    for signer in (make_ca(), make_server_certificate(ca, "leader", [], [])):
        asked = make_csr()
        stranger = CertifiedKey(sign_csr(signer, asked.certificate, "worker", "admin", 1), asked.key)
        with pytest.raises(ssl.SSLError):
            shake(server, ca.certificate, role_name("leader"), tmp_path, stranger)


def rsa_csr() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    return request.public_bytes(Encoding.PEM)


def forged_csr() -> bytes:
    """A request with the public key of another one."""
    one, two = (x509.load_pem_x509_csr(make_csr().certificate) for _ in range(2))
    spot = one.tbs_certrequest_bytes
    der = two.public_bytes(Encoding.DER).replace(two.tbs_certrequest_bytes, spot)
    return x509.load_der_x509_csr(der).public_bytes(Encoding.PEM)


@pytest.mark.parametrize(
    ("csr", "why"),
    [
        (lambda: b"", "cannot be read"),
        (lambda: b"hello", "cannot be read"),
        (lambda: b"\xff" * 100, "cannot be read"),
        (lambda: make_csr().certificate[:-50], "cannot be read"),
        (lambda: make_csr().certificate + b" " * 20_000, "more than 16384 bytes"),
        (rsa_csr, "not one of P-256"),
        (forged_csr, "signature"),
    ],
    ids=["empty", "text", "bytes", "cut", "large", "rsa", "forged"],
)
def test_a_request_that_is_none_is_refused(ca: CertifiedKey, csr: Callable[[], bytes], why: str) -> None:
    with pytest.raises(Refused, match=why):
        sign_csr(ca, csr(), "worker", "rack-7", 30)


@pytest.mark.parametrize("name", ["leader.wakugumi", "wakugumi", "a b", "", "*.example", "a:5000", "ä", "a..b", "-a"])
def test_a_host_name_that_is_none_or_is_a_role_is_refused(ca: CertifiedKey, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a host name"):
        sign_csr(ca, make_csr().certificate, "worker", "rack-7", 30, [name])


def test_an_address_or_role_that_is_none_is_refused(ca: CertifiedKey) -> None:
    with pytest.raises(ConfigError, match="cannot name this address"):
        make_server_certificate(ca, "leader", [], ["rack-1"])
    with pytest.raises(ConfigError, match="no role"):
        make_server_certificate(ca, "leader.x", [], [])


def test_a_certificate_that_lacks_a_name_or_is_of_another_authority_does_not_cover_it(ca: CertifiedKey) -> None:
    server = make_server_certificate(ca, "leader", ["a"], ["127.0.0.1"]).certificate
    assert covers_server(server, ca.certificate, "leader", ["A"], ["127.0.0.1"])
    assert covers_server(server, ca.certificate, "leader", [], [])
    assert not covers_server(server, ca.certificate, "leader", ["b"], [])
    assert not covers_server(server, ca.certificate, "leader", [], ["127.0.0.2"])
    assert not covers_server(server, ca.certificate, "gateway", [], [])
    assert not covers_server(server, make_ca().certificate, "leader", [], [])
    assert not covers_server(b"hello", ca.certificate, "leader", [], [])


def test_no_key_is_in_a_text(ca: CertifiedKey) -> None:
    assert "PRIVATE" not in f"{ca} {ca!r} {[ca]}"


LAZY = """
import sys
sys.argv = ["waku", *sys.argv[1:]]
import wakugumi.adapters.access.certificates
from wakugumi.app.cli import main
try:
    main()
finally:
    assert not any(name.split(".")[0] == "cryptography" for name in sys.modules), "cryptography was imported"
"""


@pytest.mark.parametrize("words", [["--help"], ["run", "/bin/true"]])
def test_commands_that_need_no_certificate_do_not_load_the_library(words: list[str], tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", LAZY, *words], capture_output=True, text=True, cwd=tmp_path)
    assert (ran.returncode, ran.stderr.count("Error")) == (0, 0), ran.stderr
