"""How do a job's inputs reach a worker? A scripted leader with a place for files, and a real worker that fetches."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.kit.worker_bench import Bench
from tests.kit.workers_leader import (
    ACK,
    CACHE_ACK,
    CACHE_PUT,
    CREDIT,
    HEARTBEAT,
    HELLO_WORKER,
    HOLDING,
    WELCOME,
    Connection,
    Message,
    WorkersLeader,
    new_id,
)

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.core.transfers import fetching
from wakugumi.limits.units import KIB
from wakugumi.roles.runner.worker import Worker
from wakugumi.wire.messages.references import BlobRef

STOCK, WANT, SOURCE, CACHE_DROP = 29, 30, 31, 32
LARGE = 200 * KIB
"""More than is copied."""


def fetch_bounds(monkeypatch: pytest.MonkeyPatch, **others: Any) -> None:
    """Workers made from now on fetch with other bounds."""
    monkeypatch.setattr(fetching, "USUAL_BOUNDS", fetching.USUAL_BOUNDS._replace(**others))


def large(seed: int = 0) -> bytes:
    return hashlib.shake_128(bytes([seed])).digest(LARGE)


class InputsWorld:
    """A leader with a place, and a worker that it talks to."""

    def __init__(self, leader: WorkersLeader, bench: Bench, folder: Path) -> None:
        self.leader = leader
        self.bench = bench
        self.folder = folder
        self.cache = folder / "cache"
        self.place = FolderPlace(folder / "place")
        self.link: Connection
        self.stock: list[Any] = []
        self.others: list[Message] = []
        bench.program("show", "cat $(ls -A); echo; echo run >> $0.runs")

    async def worker(self, **settings: Any) -> Worker:
        worker = self.bench.worker(self.leader.address, **{"cache": self.cache, **settings})
        await self.connect()
        return worker

    async def connect(self, wants: str = '"blobs"') -> None:
        self.link = await self.leader.connection()
        await self.link.expect(HELLO_WORKER)
        self.stock.clear()
        self.others.clear()
        self.link.send(WELCOME, f'{{"Version":"1","Wants":[{wants}],"Blobs":"{self.place.url}"}}'.encode())
        if wants:
            self.stock.append((await self.link.expect(STOCK)).json)
            assert self.stock[0]["Whole"]
        await self.next(HOLDING)

    async def next(self, *kinds: int) -> Message:
        """The next frame of these types. What else comes is remembered."""
        for at, message in enumerate(self.others):
            if message.type in kinds:
                return self.others.pop(at)
        while True:
            message = await self.link.read()
            if message.type in kinds:
                return message
            if message.type == STOCK:
                self.stock.append(message.json)
            elif message.type not in {CREDIT, HEARTBEAT}:
                self.others.append(message)

    async def told(self, **what: Any) -> None:
        """Until a Stock said this."""

        def says(stock: Any) -> bool:
            return all(stock.get(name) == value for name, value in what.items())

        while not any(says(stock) for stock in self.stock):
            message = await self.link.read()
            if message.type == STOCK:
                self.stock.append(message.json)
            elif message.type not in {CREDIT, HEARTBEAT}:
                self.others.append(message)

    def has(self, content: bytes) -> BlobRef:
        """The leader's place has it."""
        ref = ref_of_bytes(content)
        if not self.place.has(ref):
            path = self.folder / ref.sha256
            path.write_bytes(content)
            self.place.put(ref, path)
        return ref

    def assign(self, program: str = "show", /, **files: Any) -> uuid.UUID:
        """A job with these files: contents as blobs, or the ids of caches."""
        job = new_id()
        entries: list[dict[str, Any]] = []
        for name, what in files.items():
            if isinstance(what, str):
                entries.append({"Name": name, "CacheId": what})
            else:
                ref = ref_of_bytes(what)
                entries.append({"Name": name, "Sha256": ref.sha256, "Size": ref.size})
        self.link.assign(job, program, Files=entries)
        return job

    def answer(self, want: Message, ref: BlobRef, url: str = "", **fields: Any) -> None:
        source = {"Sha256": ref.sha256, "Size": ref.size, "Url": url, **fields}
        self.link.send(SOURCE, json.dumps(source).encode(), corr_id=want.msg_id)

    async def served(self, content: bytes) -> Any:
        """Answer the next want with the leader's place; returns the want."""
        want = await self.next(WANT)
        self.answer(want, self.has(content))
        return want.json

    async def gave_up(self, content: bytes, url: str = "") -> uuid.UUID:
        """It says so of its want, whose id is returned."""
        want = await self.next(WANT)
        assert want.json["Sha256"] == ref_of_bytes(content).sha256
        assert want.json["Failed"] == {"Url": url, "Why": "given-up"}
        return want.msg_id

    async def ended(self, job: uuid.UUID) -> Any:
        ack = await self.next(ACK)
        assert ack.corr_id == job
        return ack.json

    def put(self, cache_id: str, version: str = "v1", /, **files: Any) -> uuid.UUID:
        put = new_id()
        entries = [
            {"Name": name, "Sha256": hashlib.sha256(content).hexdigest(), "Size": len(content)}
            for name, content in files.items()
        ]
        self.send_put(put, CacheId=cache_id, Version=version, Entries=entries)
        return put

    def send_put(self, put: uuid.UUID, **request: Any) -> None:
        self.link.send(CACHE_PUT, json.dumps(request).encode(), msg_id=put, subject="cache.put")

    async def put_ended(self, put: uuid.UUID) -> tuple[str, str]:
        ack = await self.next(CACHE_ACK)
        assert ack.corr_id == put
        return ack.json["Status"], ack.json["Message"]

    async def cached(self, cache_id: str, version: str = "v1", /, **files: Any) -> None:
        put = self.put(cache_id, version, **files)
        for content in files.values():
            await self.served(content)
        assert (await self.put_ended(put))[0] == "OK"
        while not any(stock.get("Caches", {}).get(cache_id, "").startswith(version) for stock in self.stock):
            self.stock.append((await self.next(STOCK)).json)

    def drop(self, cache_id: str) -> None:
        self.link.send(CACHE_DROP, json.dumps({"CacheId": cache_id}).encode())
