"""A node over TLS: both languages, on two ports and on one, and only for those who show what it asks for (SPEC N5)."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.kit.a_node import ANode, a_node, answer_from, post, unzipped
from tests.kit.certificates import Certificates, make_certificates
from tests.kit.eventually import eventually
from tests.kit.form import form
from tests.kit.http_peer import HttpPeer

from wakugumi.adapters.lines.client import send_job
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.gate import gate
from wakugumi.adapters.net.tls import client_context, server_context
from wakugumi.core.connections import line_connection
from wakugumi.errors import Lost
from wakugumi.limits.wire import STRANGERS_MAX
from wakugumi.wire.line import Ok

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def by_http(at: ANode, job: str, content: bytes, tls: ssl.SSLContext) -> dict[str, bytes]:
    reader, writer = await asyncio.open_connection("localhost", at.http, ssl=tls)
    try:
        writer.write(post(f"/run/{job}", form(content)))
        async with asyncio.timeout(20):
            got = await answer_from(reader)
        assert got.status == 200
        return got.files
    finally:
        writer.transport.abort()


@pytest.mark.spec("N5")
@pytest.mark.parametrize("one_port", [False, True])
@pytest.mark.parametrize("size", [5, 3_000_000])
async def test_both_languages_are_spoken_over_tls(
    tmp_path: Path, certs: Certificates, one_port: bool, size: int
) -> None:
    content = bytes(range(256)) * (size // 256) + b"hello"
    async with a_node(tmp_path, tls=server_context(certs.server_cert, certs.server_key), one_port=one_port) as at:
        assert str(at.ports).startswith("https://")
        tls = client_context(certs.ca)
        assert (await by_http(at, "x", content, tls))["copied"] == content
        (tmp_path / "in.bin").write_bytes(content)
        to = tmp_path / "out.zip"
        answer = await send_job(Address("localhost", at.lines), "y", tmp_path / "in.bin", "in.bin", to, tls)
        assert isinstance(answer, Ok)
        assert unzipped(to.read_bytes())["copied"] == content


@pytest.mark.spec("N5")
async def test_who_reads_to_the_end_over_tls_need_not_wait_for_it(
    tmp_path: Path, certs: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_connection, "LINGER_S", 600.0)
    async with a_node(tmp_path, tls=server_context(certs.server_cert, certs.server_key)) as at:
        reader, writer = await asyncio.open_connection("localhost", at.lines, ssl=client_context(certs.ca))
        writer.write(b"JOB x in.txt 5\nhello")
        async with asyncio.timeout(20):
            assert (await reader.read(-1)).startswith(b"OK ")
        writer.transport.abort()


@pytest.mark.spec("N5")
@pytest.mark.parametrize("one_port", [False, True])
async def test_who_shows_no_certificate_that_is_believed_runs_nothing(
    tmp_path: Path, certs: Certificates, one_port: bool
) -> None:
    tls = server_context(certs.server_cert, certs.server_key, certs.ca)
    (tmp_path / "in.bin").write_bytes(b"hello")
    async with a_node(tmp_path, tls=tls, one_port=one_port) as at:
        for shown in (None, certs.stranger):
            other = client_context(certs.ca, shown)
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await by_http(at, "x", b"hello", other)
            with pytest.raises(Lost):
                await send_job(
                    Address("localhost", at.lines), "x", tmp_path / "in.bin", "in.bin", tmp_path / "out.zip", other
                )
        reader, writer = await asyncio.open_connection("localhost", at.lines)  # and who speaks no TLS at all
        writer.write(b"JOB x a 5\nhello")
        assert b"OK" not in await reader.read(-1)
        writer.close()
        assert at.runs == 0
        ours = client_context(certs.ca, certs.client)
        assert (await by_http(at, "x", b"hello", ours))["copied"] == b"hello"
        assert at.runs == 1


@pytest.mark.spec("O6")
async def test_a_crowd_that_never_begins_its_handshake_is_bounded_and_honest_clients_are_served(
    tmp_path: Path, certs: Certificates
) -> None:
    strangers = gate().strangers
    tls = client_context(certs.ca)
    (tmp_path / "in.bin").write_bytes(b"hello")
    async with (
        a_node(tmp_path, tls=server_context(certs.server_cert, certs.server_key)) as at,
        AsyncExitStack() as stack,
    ):
        silent = [await stack.enter_async_context(HttpPeer((at.http, at.lines)[n % 2])) for n in range(1_100)]
        assert await silent[0].is_cut_off()
        await eventually(lambda: len(strangers) == STRANGERS_MAX)
        assert (await by_http(at, "x", b"hello", tls))["copied"] == b"hello"
        out = tmp_path / "out.zip"
        answer = await send_job(Address("localhost", at.lines), "y", tmp_path / "in.bin", "in.bin", out, tls)
        assert isinstance(answer, Ok)
        strangers.deadline_s = 0.1
        async with HttpPeer(at.http) as last:
            assert await last.is_cut_off()
        assert await silent[-1].is_cut_off()
        assert len(strangers) == 0
