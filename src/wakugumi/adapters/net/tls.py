"""How is the peer authenticated and the traffic encrypted? By TLS, for a port and for its clients. (SPEC N5, O1)

    of a grid      certificates of the grid's own authority, TLS 1.3. A client may show one; diallers expect the
                   server's role as its name
    of a company   --tls-cert and --tls-key, TLS 1.2 or newer. With a `client_ca` a port accepts only clients with a
                   certificate that it signed; diallers expect the host name

A context believes one authority, so that a verified certificate tells which one has signed it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from wakugumi.errors import ConfigError

TlsContext: TypeAlias = ssl.SSLContext
"""Alias for callers that only pass a context on."""
LOOK_S: Final = 10.0
"""Seconds between two looks for renewed files."""
_log = logging.getLogger(__name__)


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Context of a company's port. Raises ConfigError for files that are unreadable, or do not match."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, cert, key)
    if client_ca is not None:
        _load_ca(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # A resumed session would not show its certificate again.
        context.options |= ssl.OP_NO_TICKET
    return context


def grid_server_context(cert: Path, key: Path, ca_pem: str) -> ssl.SSLContext:
    """Context of a grid's port: a client may show a certificate of the grid's authority, and none of another. Raises
    ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load_own(context, cert, key)
    _load_pem(context, ca_pem)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.num_tickets = 0
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


def grid_client_context(ca_pem: str, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Context of a grid's dialler, which believes only this authority and expects the name of a role. Raises
    ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load_pem(context, ca_pem)
    if cert is not None:
        _load_own(context, cert, key or cert)
    return context


def unbelieving_context() -> ssl.SSLContext:
    """Context that believes every server: only to fetch a public text that is verified by other means."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class RenewedContext:
    """The context of the next handshake of a port. A new one is made once a file of its certificate was replaced;
    connections keep theirs. Files that do not match yet, or cannot be used, leave the old one."""

    def __init__(
        self, make: Callable[[], ssl.SSLContext], *files: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises ConfigError if the first one cannot be made."""
        self._make = make
        self._files = files
        self._clock = clock
        self._seen = self._look()
        self._look_at = clock() + LOOK_S
        self._is_told = False
        self._context = make()

    def __call__(self) -> ssl.SSLContext:
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self.look()
        return self._context

    def look(self) -> None:
        """Make a new context now, if a file was replaced."""
        found = self._look()
        if found == self._seen:
            return
        try:
            self._context = self._make()
        except ConfigError as error:
            if not self._is_told:
                _log.warning("certificate not renewed: %s", error)
            self._is_told = True
            return
        self._seen, self._is_told = found, False

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_signature(file) for file in self._files]


class PeerCertificate(NamedTuple):
    """A certificate that the peer showed, and that the authority of the context has signed."""

    name: str
    """Common name: in a grid the name of a key."""
    issued_at: float
    """Begin of its validity, by the wall clock."""


def peer_certificate(transport: asyncio.BaseTransport) -> PeerCertificate | None:
    """None for a peer without a verified certificate, or whose certificate has not exactly one common name."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    found = None if tls is None else tls.getpeercert()
    if not found:  # Empty for a certificate that was not verified.
        return None
    subject: tuple[tuple[tuple[str, str], ...], ...] = found.get("subject", ())  # type: ignore[assignment]
    names = [value for part in subject for kind, value in part if kind == "commonName"]
    if len(names) != 1:
        return None
    return PeerCertificate(names[0], float(ssl.cert_time_to_seconds(str(found["notBefore"]))))


def peer_name(transport: asyncio.BaseTransport) -> str | None:
    """Common name of a verified certificate, or its first alternative name: for an operator's own authority."""
    if (shown := peer_certificate(transport)) is not None:
        return shown.name
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    found = (None if tls is None else tls.getpeercert()) or {}
    others: tuple[tuple[str, str], ...] = found.get("subjectAltName", ())  # type: ignore[assignment]
    return others[0][1] if others else None


def peer_certificate_name(transport: asyncio.BaseTransport) -> str | None:
    """Common name of `peer_certificate`."""
    found = peer_certificate(transport)
    return None if found is None else found.name


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


def _load_pem(context: ssl.SSLContext, ca_pem: str) -> None:
    try:
        context.load_verify_locations(cadata=ca_pem)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the certificate of the grid's authority cannot be used: {_why(error)}", "join the grid again"
        ) from None


def _signature(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is not such a PEM file"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
