"""Which names does a cache on a worker have? Its index file lists them:

    {"Version":"0b1c…","Pinned":false,"Entries":[{"Name":"a.bin","Sha256":"…","Size":1}]}

The file is written under another name and renamed. It is not synced: after a power loss it may be torn.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from wakugumi.adapters.blobs.store import is_sha256
from wakugumi.adapters.files import read_all, write_new
from wakugumi.core.names import check_cache_id, check_file_names
from wakugumi.errors import Refused
from wakugumi.wire.messages.cache import CacheEntry
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef
from wakugumi.wire.untrusted_json import Unreadable, read_json


class CacheIndexFile(msgspec.Struct, frozen=True, rename="pascal"):
    """Content of an index file."""

    version: str
    pinned: bool
    entries: list[CacheEntry]


class CacheOnDisk(NamedTuple):
    """One cache on this disk. Some of its contents may have been evicted: they are fetched when a job needs them."""

    version: str
    pinned: bool
    files: dict[str, BlobRef]


def write(path: str, cache: CacheOnDisk) -> None:
    """Raises OSError."""
    entries = [CacheEntry(name, sha256=ref.sha256, size=ref.size) for name, ref in cache.files.items()]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}.new")
    write_new(f"{path}.new", encode(CacheIndexFile(cache.version, cache.pinned, entries)), 0o600)
    os.replace(f"{path}.new", path)


def read(path: str) -> CacheOnDisk | None:
    """None if it cannot be read."""
    try:
        manifest = read_json(read_all(path), CacheIndexFile)
        return CacheOnDisk(manifest.version, manifest.pinned, refs_of(manifest.entries))
    except (OSError, Unreadable, Refused):
        return None


def cache_id_of(path: str) -> str | None:
    """The cache of this index file. None if the name is not that of an index file."""
    cache_id, dot, ending = os.path.basename(path).rpartition(".")
    try:
        return check_cache_id(cache_id) if dot + ending == ".json" else None
    except Refused:
        return None


def refs_of(entries: Iterable[CacheEntry]) -> dict[str, BlobRef]:
    """Entries by name, checked. Raises Refused."""
    files: dict[str, BlobRef] = {}
    entries = list(entries)
    check_file_names([entry.name for entry in entries])
    for entry in entries:
        if entry.sha256 is None or not is_sha256(entry.sha256) or entry.size is None or entry.size < 0:
            raise Refused("bad-request", f"{entry.name!r} has no SHA-256 and size")
        files[entry.name] = BlobRef(entry.sha256, entry.size)
    return files
