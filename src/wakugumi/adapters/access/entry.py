"""What does a dialler need to reach a grid: whom to believe, and who it is? (SPEC O1) One entry of the access file."""

from __future__ import annotations

import hmac
import ssl
from pathlib import Path
from typing import NamedTuple

from wakugumi.adapters.access.certificates import authority_pem, ca_digest, role_name
from wakugumi.adapters.access.private_files import read_private
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.tls import grid_client_context
from wakugumi.errors import ConfigError
from wakugumi.wire.access_line import Key


class AccessEntry(NamedTuple):
    """A key is shown only to these addresses, over TLS that this authority has signed. As text it shows no secret."""

    leaders: tuple[Address, ...]
    ca_pem: str
    """Certificate of the grid's authority."""
    key: Key | None = None
    certificate: Path | None = None
    """Certificate of the key, from the grid's authority."""
    certificate_key: Path | None = None
    """Private key of the certificate."""
    role: str = "leader"
    """Role of the servers at these addresses."""

    @property
    def server_hostname(self) -> str:
        """Name that the server's certificate must have."""
        return role_name(self.role)

    def context(self) -> ssl.SSLContext:
        """A context that believes only the grid's authority. The certificate is shown if there is no key: one that has
        expired must not shut out a valid key. Raises ConfigError."""
        if self.key is not None:
            return grid_client_context(self.ca_pem)
        if self.certificate is not None and read_private(self.certificate_key or self.certificate) is None:
            raise ConfigError(f"the key of the certificate {self.certificate} is missing", "join the grid again")
        return grid_client_context(self.ca_pem, self.certificate, self.certificate_key)

    def __repr__(self) -> str:
        return f"AccessEntry({', '.join(map(str, self.leaders))}, key={self.key!r}, role={self.role})"


def checked_entry(entry: AccessEntry) -> AccessEntry:
    """The entry with its authority alone as text. Raises ConfigError if its key is of another authority."""
    pem = authority_pem(entry.ca_pem.encode()).decode()
    if entry.key is not None and not hmac.compare_digest(entry.key.digest, ca_digest(pem.encode())):
        raise ConfigError(f"the key {entry.key.name} is of another grid than the certificate beside it", "join again")
    return entry._replace(ca_pem=pem)
