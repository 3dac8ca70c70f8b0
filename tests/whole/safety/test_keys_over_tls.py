"""Client, worker and leader prove who they are: a real grid over TLS, where no user of this machine is known."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kit.eventually import eventually
from tests.kit.tls_grid import TlsGrid
from tests.kit.worker_bench import Bench

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.net.address import Address
from wakugumi.adapters.net.tls import PeerCertificate
from wakugumi.core.access.identity import ALL_NAMES, Identity, Role, Rules
from wakugumi.core.access.local_rule import LocalRule
from wakugumi.errors import EXIT_DENIED, Refused
from wakugumi.limits.units import MIB
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.client.grid import connect
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.settings import LeaderSettings
from wakugumi.wire.access_line import Key

pytestmark = [pytest.mark.anyio, pytest.mark.spec("O1", "N5")]

ROLES = {"desk-1": Role.CLIENT, "rack-1": Role.WORKER}
CONTENT = os.urandom(24 * MIB)


class Holder:
    """The keys of a grid."""

    def __init__(self, *keys: Key) -> None:
        self.version = 0
        self._keys = {key: Identity(key.name, ROLES[key.name], Rules(clients=ALL_NAMES), key.name) for key in keys}
        self._closes: dict[int, tuple[str, Callable[[str], None]]] = {}

    def identify(self, key: Key) -> Identity:
        if key not in self._keys:
            raise Refused("denied", "the key is not valid here")
        return self._keys[key]

    def tls(self) -> None:
        """The guard has a certificate of its own."""

    async def close(self) -> None:
        """Needs no action."""

    def identify_certificate(self, _shown: PeerCertificate) -> Identity:
        raise Refused("denied", "the key is not valid here")

    def used(self, conn: int, name: str, close: Callable[[str], None]) -> None:
        self._closes[conn] = name, close

    def left(self, conn: int) -> None:
        self._closes.pop(conn, None)

    def revoke(self, key: Key) -> None:
        del self._keys[key]
        self.version += 1
        for name, close in list(self._closes.values()):
            if name == key.name:
                close("its key was revoked")


class World:
    """A leader behind TLS, its keys, and access files of a client and of a worker."""

    def __init__(self, folder: Path, grid: TlsGrid, holder: Holder, port: int, client: Key, worker: Key) -> None:
        self.holder, self.client, self.worker = holder, client, worker
        self.address = Address("127.0.0.1", port)
        stranger = client._replace(secret=worker.secret)
        self.of_stranger = grid.write_access(folder / "stranger" / "access.toml", grid.entry(port, stranger))
        self.of_client = grid.write_access(folder / "client" / "access.toml", grid.entry(port, client))
        self.of_worker = grid.write_access(folder / "worker" / "access.toml", grid.entry(port, worker))


@asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[World]:
    grid = TlsGrid(folder / "grid")
    client, worker, tls = grid.key("desk-1"), grid.key("rack-1"), grid.server()
    holder = Holder(client, worker)
    guard = AccessGuard(LocalRule("none", os.geteuid()), keys=holder, tls=lambda: tls)
    blobs = LeaderBlobs(FolderPlace(folder / "blobs"), url="")
    leader = Leader(settings=LeaderSettings(), blobs=blobs, guard=guard)
    try:
        yield World(folder, grid, holder, await leader.listen("127.0.0.1", 0), client, worker)
    finally:
        await leader.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    bench.program("copy", "cp in.bin out.bin; echo copied")
    yield bench
    await bench.close()


async def test_a_job_with_large_files_goes_through_with_keys_alone(
    tmp_path: Path, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    source = await asyncio.to_thread(_written, tmp_path / "in.bin")
    async with a_world(tmp_path) as world:
        bench.worker(world.address, access=world.of_worker, name="rack")
        async with connect(str(world.address), access=world.of_client) as grid:
            async with asyncio.timeout(60):
                result = await grid.run("copy", files={"in.bin": source})
            assert (result.ok, result.stdout) == (True, "copied\n")
            files = await asyncio.to_thread(result.extract, tmp_path / "out")
            assert await asyncio.to_thread(_read, tmp_path / "out" / "out.bin") == CONTENT, files
        for key in (world.client, world.worker):
            assert key.secret not in caplog.text
            assert key.secret not in repr(result)


async def test_who_shows_no_key_or_a_wrong_one_is_refused_at_once(tmp_path: Path, bench: Bench) -> None:
    async with a_world(tmp_path) as world:
        for access, why in ((None, "must show a key"), (world.of_stranger, "the key is not valid here")):
            with pytest.raises(Refused, match=why) as raised:
                async with connect(str(world.address), access=access, connect_timeout_s=30):
                    pass
            assert raised.value.exit_code == EXIT_DENIED
            assert world.worker.secret not in str(raised.value)


async def test_a_revoked_key_ends_what_waits_and_a_worker_with_one_says_so(
    tmp_path: Path, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_world(tmp_path) as world:
        bench.worker(world.address, access=world.of_worker)
        async with connect(str(world.address), access=world.of_client) as grid:
            async with asyncio.timeout(60):
                assert (await grid.run("count")).ok
            job = await grid.submit("wait")
            await bench.until_run(2)
            world.holder.revoke(world.worker)
            await eventually(lambda: "it refuses this worker: the key is not valid here" in caplog.text)
            world.holder.revoke(world.client)
            with pytest.raises(Refused, match="the key is not valid here"):
                async with asyncio.timeout(60):
                    await job


def _written(path: Path) -> Path:
    path.write_bytes(CONTENT)
    return path


def _read(path: Path) -> bytes:
    return path.read_bytes()
