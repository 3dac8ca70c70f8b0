"""Who is at the other end, and who else can read? TLS for a port, and for those who dial one (SPEC N5, O1).

With a `client_ca` a port takes only those who show a certificate that it signed. Nothing older than TLS 1.2 is spoken.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TypeAlias

from wakugumi.errors import ConfigError

TlsContext: TypeAlias = ssl.SSLContext
"""What a port or a caller is given, for those who pass it on."""


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """For a port. Raises ConfigError for files that cannot be read, or do not fit each other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, cert, key)
    if client_ca is not None:
        _load_ca(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """For those who dial: whom they believe (without a `ca`: whom the system does), and what they show. Raises
    ConfigError."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_ca(context, ca)
    if cert is not None:
        _load_own(context, cert, key or cert)
    return context


def _load_own(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        context.load_cert_chain(cert, key, password=lambda: "")  # rather than to ask a person who is not there
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(
            f"the certificate {cert} with the key {key} cannot be used: {_why(error)}",
            "name two PEM files: the certificate with those that signed it, and its key without a password",
        ) from None


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the certificates in {ca} cannot be used: {_why(error)}", "name a PEM file with those that sign the others"
        ) from None


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is no PEM file of that kind"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
