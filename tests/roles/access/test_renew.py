"""Certificates of joined machines are renewed in time: over real TLS, with real files."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kit.access_server import AccessServer
from tests.kit.eventually import eventually

from wakugumi.adapters.access.access_file import AccessFile
from wakugumi.adapters.access.certificates import CertifiedKey, expires_at, make_csr, sign_csr
from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.access.entry import AccessEntry
from wakugumi.adapters.blobs.store import BlobStore
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.address import Address
from wakugumi.core.access.identity import Role
from wakugumi.core.gateway.groups import GroupAt
from wakugumi.errors import Lost, Refused
from wakugumi.roles.access import renew
from wakugumi.roles.access.join import forget, write_certificate
from wakugumi.roles.access.renew import renew_if_due, renew_often
from wakugumi.roles.gateway.server import GatewayServer
from wakugumi.roles.gateway.settings import GatewaySettings
from wakugumi.roles.runner.files.serve import serve
from wakugumi.roles.runner.settings import WorkerSettings
from wakugumi.roles.runner.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1")]

DAY_S = 86_400.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AccessServer]:
    async with AccessServer(tmp_path / "state").listening() as server:
        server.days = 30.0
        yield server


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(tmp_path / "home" / "access.toml")


def joined(server: AccessServer, file: AccessFile, role: Role = Role.WORKER, *, old_days: float = 25.0) -> Path:
    """The certificate, of 30 days, of a machine that joined so many days ago."""
    key, asked = server.key("rack-7", role), make_csr()
    began_at = time.time() - old_days * DAY_S
    pem = sign_csr(server.folder.ca(), asked.certificate, role.value, key.name, server.days, now=began_at)
    path = file.path.with_name("rack-7.pem")
    file.add(AccessEntry((server.address,), server.folder.ca_pem.decode(), key, path))
    write_certificate(path, CertifiedKey(pem, asked.key))
    return path


def days_left(certificate: Path) -> float:
    return (expires_at(certificate.read_bytes()) - time.time()) / DAY_S


async def test_a_certificate_that_is_nearly_over_is_replaced(server: AccessServer, file: AccessFile) -> None:
    path, sources = joined(server, file), AccessSources(file.path)
    assert days_left(path) == pytest.approx(5, abs=0.1)
    assert await renew_if_due(sources, server.address, time.time())
    assert days_left(path) == pytest.approx(30, abs=0.1)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    entry = file.find(server.address)
    assert entry is not None
    entry._replace(key=None).context()  # Certificate and private key belong together.
    assert not await renew_if_due(sources, server.address, time.time())
    assert len(server.shown) == 1


async def test_a_certificate_with_more_than_a_third_of_its_life_stays(server: AccessServer, file: AccessFile) -> None:
    path = joined(server, file, old_days=19)
    before = path.read_bytes()
    assert not await renew_if_due(AccessSources(file.path), server.address, time.time())
    assert await renew_if_due(AccessSources(file.path), server.address, time.time() + 2 * DAY_S)
    assert path.read_bytes() != before


async def test_a_certificate_that_is_missing_is_made_anew(server: AccessServer, file: AccessFile) -> None:
    path = joined(server, file)
    path.unlink()
    assert await renew_if_due(AccessSources(file.path), server.address, time.time())
    assert days_left(path) == pytest.approx(30, abs=0.1)


async def test_entries_without_a_certificate_of_join_are_left_alone(
    server: AccessServer, file: AccessFile, tmp_path: Path
) -> None:
    path, key = joined(server, file), server.key("desk-1", Role.WORKER)
    before = path.read_bytes()
    ca = server.folder.ca_pem.decode()
    for entry in (
        AccessEntry((server.address,), ca, key),
        AccessEntry((server.address,), ca, None, path),
        AccessEntry((server.address,), ca, key, path, tmp_path / "own.key"),
    ):
        file.add(entry)
        assert not await renew_if_due(AccessSources(file.path), server.address, time.time())
    assert not await renew_if_due(AccessSources(file.path), Address("127.0.0.1", 1), time.time())
    assert (path.read_bytes(), server.shown) == (before, [])


async def test_an_entry_that_is_forgotten_meanwhile_gets_no_file(server: AccessServer, file: AccessFile) -> None:
    path = joined(server, file)
    server.on_certificate = lambda: forget(server.address, file)
    assert not await renew_if_due(AccessSources(file.path), server.address, time.time())
    assert not path.exists()


async def test_a_failure_leaves_the_old_certificate(server: AccessServer, file: AccessFile) -> None:
    path = joined(server, file)
    before = path.read_bytes()
    server.keys.clear()
    with pytest.raises(Refused, match="the key is not valid here"):
        await renew_if_due(AccessSources(file.path), server.address, time.time())
    entry = file.find(server.address)
    assert entry is not None
    silent = Address("127.0.0.1", 1)
    file.add(entry._replace(leaders=(silent,)))
    with pytest.raises(Lost, match="cannot connect"):
        await renew_if_due(AccessSources(file.path), silent, time.time())
    assert path.read_bytes() == before


async def test_a_failure_is_one_line_and_is_retried(
    server: AccessServer, file: AccessFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renew, "CERTIFICATE_LOOK_S", 0.01)
    path, keys = joined(server, file), dict(server.keys)
    server.keys.clear()
    tasks = Tasks()
    with caplog.at_level(logging.INFO, "wakugumi.certificates"):
        tasks.start_loop(lambda: renew_often(AccessSources(file.path), [server.address]), name="certificate")
        await eventually(lambda: len(server.shown) >= 2)
        server.keys.update(keys)
        await eventually(lambda: "certificate renewed" in caplog.text)
    await tasks.close()
    first, *_ = [one.getMessage() for one in caplog.records if one.name == "wakugumi.certificates"]
    assert first == f"certificate not renewed server={server.address} again_s=0.01: the key is not valid here"
    assert "Traceback" not in caplog.text
    assert days_left(path) == pytest.approx(30, abs=0.1)


async def test_a_serving_worker_shows_the_new_certificate_to_new_connections(
    server: AccessServer, file: AccessFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakugumi.adapters.net.tls.LOOK_S", 0.0)
    joined(server, file)
    serving = await serve(BlobStore(tmp_path / "b"), Address("127.0.0.1", 0), None, file.find(server.address))
    port = int(serving.url.rpartition(":")[2])

    async def shown_until() -> float:
        pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        return (expires_at(pem.encode()) - time.time()) / DAY_S

    assert await shown_until() == pytest.approx(5, abs=0.1)
    assert await renew_if_due(AccessSources(file.path), server.address, time.time())
    assert await shown_until() == pytest.approx(30, abs=0.1)
    await serving.close()


async def test_a_running_worker_renews_its_certificate(server: AccessServer, file: AccessFile, tmp_path: Path) -> None:
    path = joined(server, file)
    (tmp_path / "bin").mkdir()
    settings = WorkerSettings(
        leader=server.address, programs=tmp_path / "bin", jobs=tmp_path / "jobs", access=file.path, slots=1
    )
    worker, tasks = Worker(settings), Tasks()
    run = tasks.start(worker.run(), name="worker")
    await eventually(lambda: days_left(path) > 29)
    worker.request_stop()
    worker.request_stop()
    await run


async def test_a_running_gateway_renews_its_certificates(
    server: AccessServer, file: AccessFile, tmp_path: Path
) -> None:
    path = joined(server, file, Role.GATEWAY)
    groups = (GroupAt("a", f"https://{server.address}"),)
    async with GatewayServer(GatewaySettings(groups=groups, state=tmp_path / "gateway", access=file.path)):
        await eventually(lambda: days_left(path) > 29)
