"""One request over TLS, and its small answer: head, body and key as they are sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.access_server import AccessServer

from wakugumi.adapters.access.ask_page import ask_page
from wakugumi.adapters.access.certificates import make_csr
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.core.access.identity import Role
from wakugumi.wire.access_line import write_authorization

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1")]


async def test_a_request_has_its_headers_and_its_body(tmp_path: Path) -> None:
    async with AccessServer(tmp_path / "state").listening() as server:
        key = server.key("rack-7", Role.WORKER)
        entry = AccessEntry((server.address,), server.folder.ca_pem.decode(), key)
        headers = {"Authorization": write_authorization(key)}
        tls, name = entry.context(), entry.server_hostname
        status, body = await ask_page(
            server.address, "POST /access/certificate", tls, name, headers, make_csr().certificate
        )
        assert status == 200
        assert body.startswith(b"-----BEGIN CERTIFICATE-----")
        assert server.shown == [key]
        assert (await ask_page(server.address, "GET /access/ca", tls, name)) == (200, server.folder.ca_pem)
        assert (await ask_page(server.address, "GET /access/me", tls, name))[0] == 401
