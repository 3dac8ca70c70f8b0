"""Those who ask a leader by HTTP, and what it must count to zero when they are gone."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kit.a_leader import Running
from tests.kit.eventually import eventually
from tests.kit.form import FORM, form
from tests.kit.http_peer import Answer, HttpPeer

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.roles.access.guard import AccessGuard
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.http.pages import GroupPages
from wakugumi.roles.leader.leader import Leader
from wakugumi.roles.leader.settings import LeaderSettings


def files_of(answer: Answer) -> dict[str, bytes]:
    assert answer.head["content-type"] == "application/zip", answer
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


class Caller(HttpPeer):
    """One who asks, on a connection of its own."""

    async def post(self, path: str, content: bytes = b"1,2,3", *lines: str, file_name: str = "in.csv") -> Answer:
        await self.send(path, content, *lines, file_name=file_name)
        return await self.answer()

    async def send(self, path: str, content: bytes = b"1,2,3", *lines: str, file_name: str = "in.csv") -> None:
        """All but waiting for the answer."""
        body = form(content, file_name)
        await self.head("POST", path, FORM, f"Content-Length: {len(body)}", *lines)
        await self.say(body)

    async def get(self, path: str) -> Answer:
        return await self.ask("GET", path)


async def post(leader: Running, path: str, content: bytes = b"1,2,3", *lines: str) -> Answer:
    async with Caller(leader.port) as caller:
        return await caller.post(path, content, *lines)


async def get(leader: Running, path: str) -> Answer:
    async with Caller(leader.port) as caller:
        return await caller.get(path)


def pages_of(leader: Running) -> GroupPages:
    assert leader.leader.pages is not None
    return leader.leader.pages


async def nothing_is_left(leader: Running) -> None:
    """Nobody is waited for, nothing is received, and no file is on its way."""
    pages = pages_of(leader)
    store = None if leader.leader.blobs is None else leader.leader.blobs.store
    await eventually(
        lambda: not (pages.callers.machine.waiting or pages.receiving or (store and any(store.incoming.iterdir())))
    )


@asynccontextmanager
async def a_group(folder: Path, guard: AccessGuard | None = None, **options: Any) -> AsyncIterator[Running]:
    """A leader with a place for large inputs."""
    blobs = LeaderBlobs(FolderPlace(folder / "blobs"), url="")
    leader = Leader(settings=LeaderSettings(**options), blobs=blobs, guard=guard)
    running = Running(leader, await leader.listen("127.0.0.1", 0))
    try:
        yield running
        await asyncio.sleep(0)
        assert not leader.drive.failed.done()
        running.machine.check()
    finally:
        await leader.close()
