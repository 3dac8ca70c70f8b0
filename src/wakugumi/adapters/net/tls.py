"""How is the peer authenticated and the traffic encrypted? By TLS, for a port and for its clients. (SPEC N5, O1)

With a `client_ca` a port accepts only clients with a certificate that it signed. TLS 1.2 is the oldest version.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TypeAlias

from wakugumi.errors import ConfigError

TlsContext: TypeAlias = ssl.SSLContext
"""Alias for callers that only pass a context on."""


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Context of a port. Raises ConfigError for files that are unreadable, or do not match."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, cert, key)
    if client_ca is not None:
        _load_ca(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Context of a client: `ca` signs servers [default: the system's], `cert` is its own. Raises ConfigError."""
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
        context.load_cert_chain(cert, key, password=lambda: "")  # Without it a terminal prompt would block.
    except (OSError, ValueError) as error:  # An SSLError is an OSError.
        raise ConfigError(
            f"the certificate {cert} with the key {key} cannot be used: {_why(error)}",
            "name two PEM files: the certificate with its chain, and its key without a password",
        ) from None


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the certificates in {ca} cannot be used: {_why(error)}", "name a PEM file with the signing certificates"
        ) from None


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is not such a PEM file"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
