"""A worker's cache folder: contents are brought, put under names, used and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.blobs.worker_cache import CachedBlob, CacheFolder
from wakugumi.adapters.blobs.worker_cache_index import CacheOnDisk
from wakugumi.limits.units import KIB
from wakugumi.wire.messages.references import BlobRef


class World:
    def __init__(self, path: Path, **options: int) -> None:
        self.path = path
        self.options = options
        self.gone: list[str] = []
        self.folder = self._open()

    def _open(self) -> CacheFolder:
        folder = CacheFolder(self.path, **self.options)
        folder.on_gone = self.gone.append
        return folder

    def again(self) -> None:
        """Another life of the same folder."""
        self.folder.close()
        self.folder = self._open()

    def bring(self, content: bytes) -> BlobRef:
        ref = ref_of_bytes(content)
        if not self.folder.has(ref):
            self.folder.make_room(ref)
            self.folder.write(ref, content)
            self.folder.arrived(ref)
        return ref

    def put(self, cache_id: str, version: str = "1", pinned: bool = False, /, **files: Any) -> dict[str, BlobRef]:
        refs = {name: self.bring(content) for name, content in files.items()}
        self.folder.link(cache_id, refs)
        old = self.folder.caches.get(cache_id)
        cache = CacheOnDisk(version, pinned, {**(old.files if old else {}), **refs})
        self.folder.write_manifest(cache_id, cache)
        self.folder.keep(cache_id, cache)
        return refs

    def use(self, ref: BlobRef) -> CachedBlob:
        held = self.folder.use(ref.sha256)
        assert held is not None
        return held

    def held(self, *refs: BlobRef) -> list[bool]:
        """Which of them are here: as it is known, as it is on the disk."""
        answers = [self.folder.has(ref) for ref in refs]
        assert answers == [self.folder.store.has(ref) for ref in refs]
        return answers

    def check(self) -> None:
        sizes = [self.folder.store.size(sha256) for sha256 in self.folder.blobs]
        assert self.folder.used_bytes == sum(size or 0 for size in sizes)
        assert self.folder.used_bytes <= self.folder.bytes_max


def kib(count: int, seed: int = 0) -> bytes:
    return bytes([seed]) * (count * KIB)
