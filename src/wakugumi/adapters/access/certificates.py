"""How are the certificates of a grid made? (SPEC O1, N5) The only importer of `cryptography`, when it is first needed.

A grid has an authority of its own (P-256, ten years). Each server has a certificate with its host names and addresses,
and the name `<role>.wakugumi`: diallers of a grid expect that one, so that addresses may change, and a worker cannot
pose as a leader. The certificate of a joined key has the key's name as its common name (CN); a server's own has none.

Role, key name and host names of a certificate are those that the signer says. Of a request (CSR) only the public key
counts, and the proof that the sender has the private one.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import re
import secrets
import ssl
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.access import AUTHORITY_DAYS_MAX, CERTIFICATE_BACKDATED_S, CERTIFICATE_DAYS_MAX, CSR_BYTES_MAX
from wakugumi.wire.access_line import base32, digest_of, is_key_name

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

SERVER_ROLES: Final = frozenset({"leader", "gateway", "node", "worker"})
"""Roles that serve. Certificates of other roles are valid for clients only."""
_ROLE: Final = re.compile(r"[a-z]{1,20}")
_HOST_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*")
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_SUFFIX: Final = ".wakugumi"
_ORGANIZATION: Final = "Wakugumi"


class CertifiedKey(NamedTuple):
    """A certificate, or the request for one, with its private key; both PEM. As text it shows no key."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"CertifiedKey({len(self.certificate)} bytes)"


def role_name(role: str) -> str:
    """Name in the certificate of a server of this role, which diallers expect."""
    return f"{role}{_SUFFIX}"


def make_ca(now: float | None = None) -> CertifiedKey:
    """A new authority. `now` is the wall clock."""
    from cryptography import x509

    key = _new_key()
    subject = _subject(f"grid authority {base32(secrets.token_bytes(5))}")
    made = (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS_MAX, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    return CertifiedKey(_sign(made, key, key), _pem(key))


def make_server_certificate(
    ca: CertifiedKey,
    role: str,
    names: Iterable[str],
    addresses: Iterable[str],
    days: float = CERTIFICATE_DAYS_MAX,
    now: float | None = None,
) -> CertifiedKey:
    """A certificate of a server on this machine, without a key's name."""
    key = _new_key()
    return CertifiedKey(_leaf(ca, key.public_key(), role, "", names, addresses, days, now), _pem(key))


def make_csr() -> CertifiedKey:
    """A new private key, and a request for its certificate: the signer decides what it says."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    key = _new_key()
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    return CertifiedKey(request.public_bytes(Encoding.PEM), _pem(key))


def sign_csr(
    ca: CertifiedKey,
    csr: bytes,
    role: str,
    name: str,
    days: float,
    names: Iterable[str] = (),
    addresses: Iterable[str] = (),
    now: float | None = None,
) -> bytes:
    """The certificate (PEM) of the key `name` in this role, for the public key of a request. Raises Refused for a
    request that is none, is not signed by its own key, or has another kind of key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    assert is_key_name(name)
    if len(csr) > CSR_BYTES_MAX:
        raise _bad_request(f"it has more than {CSR_BYTES_MAX} bytes")
    try:
        request = x509.load_pem_x509_csr(csr)
        key = request.public_key()
        is_signed = request.is_signature_valid
    except Exception:  # The library raises many kinds for a stranger's bytes.
        raise _bad_request("it cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise _bad_request("its key is not one of P-256")
    if not is_signed:
        raise _bad_request("its signature is not that of its key")
    return _leaf(ca, key, role, name, names, addresses, days, now)


def ca_digest(pem: bytes) -> str:
    """The digest in a key, of the authority's certificate. Raises ConfigError if it is none, or several."""
    return digest_of(_der(pem))


def authority_pem(pem: bytes) -> bytes:
    """The authority's certificate with nothing beside it: only bytes that a digest was made of may be believed. Raises
    ConfigError if it is none, or several."""
    return ssl.DER_cert_to_PEM_cert(_der(pem)).encode()


def _der(pem: bytes) -> bytes:
    found = _PEM.fullmatch(pem.strip())
    try:
        if found is None:
            raise ValueError
        return base64.b64decode(b"".join(found[1].split()), validate=True)
    except ValueError:
        raise ConfigError("the certificate of the grid's authority cannot be read", "join the grid again") from None


def expires_at(pem: bytes) -> float:
    """When a certificate ends, by the wall clock. Raises ConfigError if it is none."""
    return _read(pem).not_valid_after_utc.timestamp()


def life_of(pem: bytes) -> tuple[float, float]:
    """When a certificate begins and ends, by the wall clock. Raises ConfigError if it is none."""
    found = _read(pem)
    return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()


def covers_server(pem: bytes, ca: bytes, role: str, names: Iterable[str], addresses: Iterable[str]) -> bool:
    """Is it a certificate of this authority for this role, with all these names and addresses? False for other bytes,
    too."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        found = _read(pem)
        found.verify_directly_issued_by(_read(ca))
        has = set(found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ConfigError, InvalidSignature, TypeError, ValueError, x509.ExtensionNotFound):
        return False
    return has.issuperset(_alternative_names(role, names, addresses))


def belong_together(made: CertifiedKey) -> bool:
    """Has the certificate this private key?"""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(made.key, None).public_key() == _read(made.certificate).public_key()
    except (ConfigError, TypeError, ValueError):
        return False


def _leaf(
    ca: CertifiedKey,
    key: ec.EllipticCurvePublicKey,
    role: str,
    name: str,
    names: Iterable[str],
    addresses: Iterable[str],
    days: float,
    now: float | None,
) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID as Use

    signer = load_pem_private_key(ca.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    authority = _read(ca.certificate)
    uses = [Use.SERVER_AUTH, Use.CLIENT_AUTH] if role in SERVER_ROLES else [Use.CLIENT_AUTH]
    made = (
        _builder(_subject(name), authority.subject, key, days, now, authority.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(role, names, addresses)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    )
    return _sign(made, signer, signer)


def _alternative_names(role: str, names: Iterable[str], addresses: Iterable[str]) -> list[x509.GeneralName]:
    """Raises ConfigError for a name that no server of a grid can have."""
    from cryptography import x509

    if not _ROLE.fullmatch(role):
        raise ConfigError(f"{role[:40]!r} is no role of a certificate")
    hosts = list(dict.fromkeys(name.lower().removesuffix(".") for name in names))
    for host in hosts:
        if not _HOST_NAME.fullmatch(host) or f".{host}".endswith(_SUFFIX):
            raise ConfigError(f"{host[:80]!r} cannot be a host name in a certificate", "write it as in URLs, no port")
    try:
        ips = list(dict.fromkeys(ipaddress.ip_address(one.partition("%")[0]) for one in addresses))
    except ValueError as error:
        raise ConfigError(f"the certificate cannot name this address: {error}") from None
    return [x509.DNSName(name) for name in (role_name(role), *hosts)] + [x509.IPAddress(ip) for ip in ips]


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION)]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else parts)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: float,
    now: float | None,
    latest: dt.datetime | None = None,
) -> x509.CertificateBuilder:
    from cryptography import x509

    at = dt.datetime.fromtimestamp(int(time.time() if now is None else now), dt.UTC)
    end = at + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - dt.timedelta(seconds=CERTIFICATE_BACKDATED_S))
        .not_valid_after(end if latest is None else min(end, latest))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _sign(made: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey, of: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(of.public_key())
    return made.add_extension(by, critical=False).sign(signer, SHA256()).public_bytes(Encoding.PEM)


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read(pem: bytes) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ConfigError("the certificate cannot be read") from None


def _bad_request(why: str) -> Refused:
    return Refused("bad-request", f"the request for a certificate is refused: {why}", "join again with `waku join`")
