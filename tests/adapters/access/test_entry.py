"""One grid as a dialler knows it: whom it believes, and that its texts have no secret."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from wakugumi.adapters.access.certificates import CertifiedKey, ca_digest, make_ca, make_csr, sign_csr
from wakugumi.adapters.access.entry import AccessEntry, checked_entry
from wakugumi.adapters.access.private_files import write_private
from wakugumi.adapters.access.state_folder import new_key
from wakugumi.adapters.net.address import Address
from wakugumi.errors import ConfigError

pytestmark = pytest.mark.spec("O1")
LEADERS = (Address("10.0.0.5", 5000),)


@pytest.fixture(scope="module")
def ca() -> CertifiedKey:
    return make_ca()


def entry_of(ca: CertifiedKey) -> AccessEntry:
    return AccessEntry(LEADERS, ca.certificate.decode(), new_key("desk-1", ca_digest(ca.certificate)))


def test_a_context_believes_only_the_grid_and_expects_the_role(ca: CertifiedKey) -> None:
    entry = entry_of(ca)
    context = entry.context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert [ca_digest(ssl.DER_cert_to_PEM_cert(one).encode()) for one in context.get_ca_certs(True)] == [
        ca_digest(ca.certificate)
    ]
    assert entry.server_hostname == "leader.wakugumi"
    assert entry._replace(role="gateway").server_hostname == "gateway.wakugumi"


def test_no_text_of_an_entry_has_its_secret(ca: CertifiedKey) -> None:
    entry = entry_of(ca)
    assert entry.key is not None
    assert entry.key.secret not in f"{entry} {entry!r} {[entry]}"
    assert "desk-1" in repr(entry)


def test_a_certificate_needs_its_secret_key(ca: CertifiedKey, tmp_path: Path) -> None:
    asked = make_csr()
    cert, key = tmp_path / "own.pem", tmp_path / "own.key"
    cert.write_bytes(sign_csr(ca, asked.certificate, "worker", "rack-7", 30))
    entry = entry_of(ca)._replace(key=None, certificate=cert, certificate_key=key)
    with pytest.raises(ConfigError, match="is missing"):
        entry.context()
    write_private(key, asked.key)
    entry.context()
    os.chmod(key, 0o644)  # noqa: PTH101
    with pytest.raises(ConfigError, match="others may use"):
        entry.context()


def test_beside_a_key_no_certificate_is_shown_so_that_an_old_one_shuts_nobody_out(
    ca: CertifiedKey, tmp_path: Path
) -> None:
    entry_of(ca)._replace(certificate=tmp_path / "gone.pem").context()


def test_a_key_of_another_grid_is_refused_and_a_second_authority_too(ca: CertifiedKey) -> None:
    entry = entry_of(ca)
    assert checked_entry(entry) == entry
    with pytest.raises(ConfigError, match="of another grid"):
        checked_entry(entry._replace(ca_pem=make_ca().certificate.decode()))
    with pytest.raises(ConfigError, match="cannot be read"):
        checked_entry(entry._replace(ca_pem=entry.ca_pem + make_ca().certificate.decode()))
    assert checked_entry(entry._replace(ca_pem=f"\n{entry.ca_pem}\n\n")) == entry
