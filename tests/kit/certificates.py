"""Certificates to try TLS with: an authority, a server on this machine, a client, and a stranger. Made anew."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import trustme


class Certificates(NamedTuple):
    ca: Path
    server_cert: Path
    server_key: Path
    client: Path
    """Its certificate and its key, in one file."""
    stranger: Path
    """The same, signed by somebody else."""


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir(exist_ok=True)
    ours, others = trustme.CA(), trustme.CA()
    server = ours.issue_cert("localhost", "127.0.0.1")
    made = Certificates(*(folder / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "other.pem")))
    ours.cert_pem.write_to_path(made.ca)
    server.cert_chain_pems[0].write_to_path(made.server_cert)
    server.private_key_pem.write_to_path(made.server_key)
    ours.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(made.client)
    others.issue_cert("stranger.example").private_key_and_cert_chain_pem.write_to_path(made.stranger)
    return made
