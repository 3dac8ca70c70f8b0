"""Where are a leader's caches on disk? In one file each, with their files and target workers.

    <state>/caches/<cache id>.json        complete, or the previous version
    <state>/caches/<cache id>.broken      unreadable, and never used again

A thread of its own writes them in order. A failed write is repeated each second, and later steps wait: a cache that was
confirmed to a client must exist after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import msgspec

from wakugumi.adapters.blobs.store import is_sha256
from wakugumi.adapters.files import sync_folder
from wakugumi.core.files.events import CacheFile, DropCache, KeepCache, SpreadKeep
from wakugumi.core.names import check_cache_id, check_file_names
from wakugumi.core.subject import kept_pattern
from wakugumi.errors import ConfigError, WakugumiError
from wakugumi.wire.untrusted_json import read_json

log = logging.getLogger("wakugumi.caches")

_RETRY_S: Final = 1.0
_SUFFIX: Final = ".json"
_SCRATCH: Final = ".scratch"
"""Name of the file being written: there is one thread, and no cache id begins with a dot."""


class Manifest(msgspec.Struct, frozen=True):
    """Content of such a file."""

    cache: str
    version: str
    targets: list[str]
    pinned: bool
    created: float
    """By the wall clock, which stays valid after a restart."""
    files: list[CacheFile]


class Manifests:
    """The keeper of a leader's cache machine. Calls and callbacks are made in the loop's thread."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError if the folder cannot be used."""
        self.folder = os.path.abspath(folder)
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the folder for caches {self.folder} cannot be used: {error.strerror}") from None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: SimpleQueue[tuple[Sequence[SpreadKeep], Callable[[], None] | None] | None] = SimpleQueue()
        self._open = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="waku-manifests", daemon=True)

    def load(self) -> Iterator[KeepCache]:
        """All kept caches. An unreadable file is renamed, with a log line."""
        now = time.time()
        for name in sorted(os.listdir(self.folder)):
            if not name.endswith(_SUFFIX):
                continue
            path = f"{self.folder}/{name}"
            try:
                yield _read(path, name.removesuffix(_SUFFIX), now)
            except (OSError, ValueError, WakugumiError) as error:
                log.error("cache lost, put it again path=%s: %s", path, error)
                with contextlib.suppress(OSError):
                    os.replace(path, f"{path.removesuffix(_SUFFIX)}.broken")

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    @property
    def idle(self) -> bool:
        return self._open == 0

    def commit(self, records: Sequence[SpreadKeep], done: Callable[[], None] | None, *, patient: bool = False) -> None:
        del patient  # A wait gains nothing, as puts of caches are rare.
        self._open += 1
        self._queue.put((records, done))

    async def close(self) -> None:
        """Write all records first, unless the disk rejects them."""
        self._closing.set()
        self._queue.put(None)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _done(self, done: Callable[[], None] | None) -> None:
        self._open -= 1
        if done is not None:
            done()

    # In the thread.

    def _write_all(self) -> None:
        assert self._loop is not None
        while (given := self._queue.get()) is not None:
            records, done = given
            for record in records:
                if not self._write_surely(record):
                    return
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._done, done)

    def _write_surely(self, record: SpreadKeep) -> bool:
        """False if closed before it was written."""
        has_failed = False
        while True:
            try:
                self._write(record)
            except OSError as error:
                if not has_failed:
                    log.error("cache not kept yet cache=%s: %s", record.cache_id, error.strerror or error)
                has_failed = True
                if self._closing.wait(_RETRY_S):
                    return False
            else:
                if has_failed:
                    log.info("cache kept now cache=%s", record.cache_id)
                return True

    def _write(self, record: SpreadKeep) -> None:
        path = f"{self.folder}/{record.cache_id}{_SUFFIX}"
        if isinstance(record, DropCache):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        else:
            created = time.time() - record.age_s
            manifest = Manifest(
                record.cache_id, record.version, list(record.targets), record.pinned, created, list(record.files)
            )
            scratch = f"{self.folder}/{_SCRATCH}"
            with open(scratch, "wb") as file:
                file.write(msgspec.json.encode(manifest))
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, path)
        sync_folder(self.folder)


def _read(path: str, cache_id: str, now: float) -> KeepCache:
    """Raises OSError, ValueError or Refused."""
    with open(path, "rb") as file:
        manifest = read_json(file.read(), Manifest)
    if manifest.cache != check_cache_id(cache_id):
        raise ValueError(f"it is a manifest of {manifest.cache[:80]!r}")
    check_file_names(file.name for file in manifest.files)
    if not all(is_sha256(file.sha256) and file.size >= 0 for file in manifest.files):
        raise ValueError("a hash or a size is invalid")
    targets = tuple(kept_pattern(target) for target in manifest.targets)
    age_s = max(now - manifest.created, 0.0)
    return KeepCache(cache_id, manifest.version, tuple(manifest.files), targets, manifest.pinned, age_s)
