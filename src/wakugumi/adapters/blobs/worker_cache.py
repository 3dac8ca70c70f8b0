"""Which contents does a worker keep, under which names, and which are removed when space is needed? (SPEC C2–C4, C6)

    <cache>/.blobs/ab/abcd…       contents by SHA-256, of jobs and caches: see `store`
    <cache>/<CacheId>/<Name>      files of caches: hard links to contents
    <cache>/.caches/<CacheId>.json   names in a cache, written last: other files do not count
    <cache>/.trash                files to be removed

A file of a cache is never overwritten. The least recently used contents are removed first, pinned ones last, and
contents in use by a job or a transfer never. One worker owns the folder and knows its content in memory. All calls are
made in the loop's thread unless stated otherwise. Errors are Refused.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.blobs import worker_cache_index
from wakugumi.adapters.blobs.partials import Partials
from wakugumi.adapters.blobs.store import BlobStore, is_sha256
from wakugumi.adapters.blobs.worker_cache_index import CacheOnDisk
from wakugumi.adapters.files import Refusing, free_on_disk, remove_tree
from wakugumi.adapters.jobdir.folder_claim import claim
from wakugumi.errors import Refused
from wakugumi.limits.files import CACHE_BLOBS_MAX, CACHE_DISK_SHARE
from wakugumi.limits.runner import DISK_FREE_MIN_BYTES
from wakugumi.wire.messages.references import BlobRef

_BLOBS: Final = ".blobs"
_MANIFESTS: Final = ".caches"
_TRASH: Final = ".trash"
_MARK_NS: Final = 271_828_182
"""Nanoseconds of a content's modification time, set on arrival. A later write changes them, so a modification shows
even if it happened while no worker ran."""
_SECOND_NS: Final = 1_000_000_000
_USED_NS: Final = 60 * _SECOND_NS
"""Interval at which a use is written to disk: the order of last uses nearly survives a restart."""


class Added(NamedTuple):
    """Changes that a put would make."""

    new: dict[str, BlobRef]
    skipped: int
    absent: list[BlobRef]
    """Contents of new and old names that are not here, each once."""


class CachedBlob:
    """A content that is here."""

    __slots__ = ("changed_ns", "names", "pins", "size", "used_ns", "users")

    def __init__(self, size: int, changed_ns: int, used_ns: int) -> None:
        self.size = size
        self.changed_ns = changed_ns
        self.used_ns = used_ns
        self.users = 0
        self.names: set[tuple[str, str]] = set()
        """Links to it: cache id and name."""
        self.pins = 0


class CacheFolder:
    """All contents and caches that one worker keeps."""

    def __init__(self, path: Path, bytes_max: int = 0, *, blobs_max: int = CACHE_BLOBS_MAX) -> None:
        """Claim the folder or, if another worker has it, one inside it. `bytes_max` 0: a share of the disk.

        Raises ConfigError.
        """
        self.path, self._lock = claim(
            path, what="cache folder", inside=".worker-", hint="choose another one with --cache"
        )
        self.store = BlobStore(Path(self.path) / _BLOBS)
        for name in (_MANIFESTS, _TRASH):
            with contextlib.suppress(OSError):  # The first use will raise it.
                os.makedirs(f"{self.path}/{name}", 0o700, exist_ok=True)
        disk = os.statvfs(self.path)
        self.bytes_max = bytes_max or int(disk.f_blocks * disk.f_frsize * CACHE_DISK_SHARE)
        self.blobs_max = blobs_max
        self.used_bytes = 0
        self.caches: dict[str, CacheOnDisk] = {}
        self.on_gone: Callable[[str], None] = lambda _: None
        """Called for each removed content."""
        self._blobs: dict[str, CachedBlob] = {}
        """Contents in the order of their last use."""
        self._coming: dict[str, int] = {}
        """Contents being fetched, with their sizes."""
        self.has_trash = False
        self._partials = Partials(self.store, self._trash)
        self._scan()

    @property
    def blobs(self) -> Iterable[str]:
        return self._blobs.keys()

    def has(self, ref: BlobRef) -> bool:
        held = self._blobs.get(ref.sha256)
        return held is not None and held.size == ref.size

    # Contents.

    def make_room(self, ref: BlobRef) -> None:
        """Make room for a content to be fetched, if necessary by evicting others. Then call `arrived` or
        `not_coming`."""
        if ref.sha256 in self._coming:
            return
        if ref.size > self.bytes_max:
            raise Refused("disk", f"{ref.size} bytes are more than this worker keeps at all ({self.bytes_max})")
        begun = self._partials.size(ref.sha256)
        used = self.used_bytes + sum(self._coming.values()) + self._partials.used_bytes - begun
        wanted = used + ref.size - self.bytes_max
        short = ref.size - begun + DISK_FREE_MIN_BYTES - free_on_disk(self.path)
        count = len(self._blobs) + len(self._coming) + 1 - self.blobs_max
        if wanted > 0 or short > 0 or count > 0:
            self._evict(max(wanted, short), count, ref.sha256)
        self._partials.resumed(ref.sha256)
        self._coming[ref.sha256] = ref.size

    def arrived(self, ref: BlobRef) -> None:
        """The content is in the store, complete and verified."""
        self._coming.pop(ref.sha256, None)
        if ref.sha256 in self._blobs:
            return
        now = time.time_ns()
        path = self.store.path(ref.sha256)
        with Refusing("a content cannot be kept"):
            os.utime(path, ns=(now, now // _SECOND_NS * _SECOND_NS + _MARK_NS))
            changed_ns = os.stat(path, follow_symlinks=False).st_mtime_ns
        self._blobs[ref.sha256] = CachedBlob(ref.size, changed_ns, now)
        self.used_bytes += ref.size

    def not_coming(self, ref: BlobRef) -> None:
        if self._coming.pop(ref.sha256, None) is not None:
            self._partials.left(ref.sha256)

    def write(self, ref: BlobRef, content: bytes) -> None:
        """Write a content of a frame, from any thread. An error leaves nothing."""
        incoming = self.store.begin(ref)
        try:
            incoming.restart()
            incoming.write(content)
            incoming.finish()
        except BaseException:
            incoming.abandon()
            raise

    def use(self, sha256: str) -> CachedBlob | None:
        """Mark the content as used until `let_go`. None if it is absent or was modified; then it is evicted."""
        held = self._blobs.get(sha256)
        if held is None or not (held.users or self._is_intact(sha256, held)):
            return None
        held.users += 1
        self._blobs[sha256] = self._blobs.pop(sha256)
        now = time.time_ns()
        if now - held.used_ns > _USED_NS:
            held.used_ns = now
            with contextlib.suppress(OSError):
                os.utime(self.store.path(sha256), ns=(now, held.changed_ns))
        return held

    def let_go(self, sha256: str, held: CachedBlob) -> None:
        """Remove one user. The content is evicted if a process has kept a link, through which it could write unseen."""
        held.users -= 1
        assert held.users >= 0
        if not held.users and self._blobs.get(sha256) is held:  # It may have been evicted meanwhile.
            self._is_intact(sha256, held)

    def evict(self, sha256: str) -> None:
        """Remove a content, even in use: its users keep their links."""
        held = self._blobs.pop(sha256, None)
        if held is None:
            return
        self.used_bytes -= held.size
        for cache_id, name in held.names:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}/{cache_id}/{name}")
        with contextlib.suppress(OSError):
            os.replace(self.store.path(sha256), self._trash())
        self.on_gone(sha256)

    def sweep(self, now: float) -> None:
        """Give up interrupted transfers that are too old; called regularly. `now` is of the wall clock."""
        self._partials.give_up_old(now)

    def empty_trash(self) -> None:
        """Free the space of removed files, from any thread. Large files take time."""
        self.has_trash = False
        with contextlib.suppress(OSError), os.scandir(f"{self.path}/{_TRASH}") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    remove_tree(entry.path)

    # Caches.

    def plan(self, cache_id: str, files: Mapping[str, BlobRef]) -> Added:
        """Changes that a put makes to this cache. Refused("conflict") for a name with another content (C2)."""
        cache = self.caches.get(cache_id)
        old = cache.files if cache is not None else {}
        new: dict[str, BlobRef] = {}
        absent: dict[str, BlobRef] = {}
        for name, ref in files.items():
            found = old.get(name)
            if found is None:
                new[name] = ref
            elif found != ref:
                raise Refused("conflict", f"{name[:80]!r} is in cache {cache_id!r} already, with another content")
            if not self.has(ref):
                absent[ref.sha256] = ref
        total = sum({ref.sha256: ref.size for ref in files.values()}.values())
        if total > self.bytes_max:
            raise Refused("disk", f"{total} bytes are more than this worker keeps at all ({self.bytes_max})")
        if len(old) + len(new) > self.blobs_max:
            raise Refused("disk", f"a worker keeps at most {self.blobs_max} files, and a cache no more")
        return Added(new, len(files) - len(new), list(absent.values()))

    def link(self, cache_id: str, files: Mapping[str, BlobRef]) -> None:
        """Link contents under their names, from any thread."""
        if not os.path.exists(self._manifest(cache_id)):
            if os.path.lexists(f"{self.path}/{cache_id}"):
                raise Refused("conflict", f"{self.path}/{cache_id} exists already, and is no cache of this worker")
            # First an empty manifest: after a crash it marks the links as ours.
            self.write_manifest(cache_id, CacheOnDisk("", False, {}))
        scratch = f"{self._manifest(cache_id)}.link"
        with Refusing(f"the files of cache {cache_id!r} cannot be linked"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)
            for name, ref in files.items():
                content, path = self.store.path(ref.sha256), f"{self.path}/{cache_id}/{name}"
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                try:
                    os.link(content, path)
                except FileExistsError:  # It may be a link to an evicted content that was fetched again.
                    if not os.path.samestat(os.lstat(content), os.lstat(path)):
                        os.link(content, scratch)
                        os.replace(scratch, path)

    def unnamed(self, cache_id: str, files: Mapping[str, BlobRef]) -> list[str]:
        """Names that are not linked to a present content."""
        held = [(name, self._blobs.get(ref.sha256)) for name, ref in files.items()]
        return [name for name, one in held if one is None or (cache_id, name) not in one.names]

    def unlink(self, cache_id: str, names: Iterable[str]) -> None:
        """Remove the links of a failed put, from any thread."""
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}/{cache_id}/{name}")

    def write_manifest(self, cache_id: str, cache: CacheOnDisk) -> None:
        """Make this the cache on disk, from any thread."""
        with Refusing(f"cache {cache_id!r} cannot be kept"):
            worker_cache_index.write(self._manifest(cache_id), cache)

    def keep(self, cache_id: str, cache: CacheOnDisk) -> None:
        """Make the linked and written cache the current one."""
        self._unname(cache_id)
        self.caches[cache_id] = cache
        for name, ref in cache.files.items():
            held = self._blobs.get(ref.sha256)
            if held is not None:
                held.names.add((cache_id, name))
                held.pins += cache.pinned

    def drop(self, cache_id: str) -> None:
        """Remove a cache, and its contents that no other cache has and no job uses.

        The manifest is removed last: a folder without one is not ours, and would block the next put.
        """
        self._unname(cache_id)
        cache = self.caches.pop(cache_id, None)
        for name, ref in cache.files.items() if cache is not None else ():
            held = self._blobs.get(ref.sha256)
            if held is not None and not held.names and not held.users:
                self.evict(ref.sha256)
            elif held is not None:  # A link in the trash would count as one that a process keeps.
                self.unlink(cache_id, [name])
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}/{cache_id}", self._trash())
            os.unlink(self._manifest(cache_id))

    def close(self) -> None:
        if self._lock.is_held:
            self.empty_trash()
            self._lock.release()

    # Room.

    def _evict(self, bytes_needed: int, count_needed: int, coming: str) -> None:
        """Evict so much, or raise without evicting anything: first interrupted transfers, except `coming`."""
        given_up: list[str] = []
        for sha256, size in self._partials.oldest_first():
            if bytes_needed > 0 and sha256 != coming:
                given_up.append(sha256)
                bytes_needed -= size
        chosen: list[str] = []
        for pinned in (False, True):
            for sha256, held in self._blobs.items():
                if bytes_needed <= 0 and count_needed <= 0:
                    break
                if not held.users and bool(held.pins) == pinned:
                    chosen.append(sha256)
                    bytes_needed -= held.size
                    count_needed -= 1
        if bytes_needed > 0 or count_needed > 0:
            what = f"{bytes_needed} bytes" if bytes_needed > 0 else "a file"
            raise Refused("disk", f"there is no room for {what} more in {self.path}: running jobs use the rest")
        for sha256 in given_up:
            self._partials.give_up(sha256)
        for sha256 in chosen:
            self.evict(sha256)

    def _is_intact(self, sha256: str, held: CachedBlob) -> bool:
        """Whether size and time are unchanged and no foreign link exists; if not, the content is evicted."""
        try:
            status = os.stat(self.store.path(sha256), follow_symlinks=False)
        except OSError:
            status = None
        if status is not None and (status.st_size, status.st_mtime_ns) == (held.size, held.changed_ns):
            links = 1 + len(held.names)
            if status.st_nlink <= links:
                return True
        self.evict(sha256)
        return False

    def _unname(self, cache_id: str) -> None:
        cache = self.caches.get(cache_id)
        if cache is not None:
            for name, ref in cache.files.items():
                held = self._blobs.get(ref.sha256)
                if held is not None and (cache_id, name) in held.names:
                    held.names.discard((cache_id, name))
                    held.pins -= cache.pinned

    def _manifest(self, cache_id: str) -> str:
        return f"{self.path}/{_MANIFESTS}/{cache_id}.json"

    def _trash(self) -> str:
        self.has_trash = True
        return f"{self.path}/{_TRASH}/{os.urandom(8).hex()}"

    # After a start.

    def _scan(self) -> None:
        """Find intact contents and caches; remove all others."""
        found: list[tuple[str, CachedBlob, int, int]] = []
        for path in _files(f"{self.path}/{_BLOBS}", depth=1):
            sha256 = os.path.basename(path)
            status = os.stat(path, follow_symlinks=False)
            if not is_sha256(sha256) or status.st_mtime_ns % _SECOND_NS != _MARK_NS:
                os.unlink(path)
                continue
            held = CachedBlob(status.st_size, status.st_mtime_ns, status.st_atime_ns)
            found.append((sha256, held, status.st_nlink, status.st_ino))
        found.sort(key=lambda one: one[1].used_ns)
        self._blobs = {sha256: held for sha256, held, _, _ in found}
        self.used_bytes = sum(held.size for held in self._blobs.values())
        self._read_manifests({sha256: inode for sha256, _, _, inode in found})
        self.empty_trash()
        for sha256, held, links, _ in found:
            # An extra link: a job had it before the restart and may have modified it, or it was in the trash.
            if links > 1 + len(held.names) and self._blobs.get(sha256) is held:
                self._is_intact(sha256, held)
        self.empty_trash()

    def _read_manifests(self, inodes: Mapping[str, int]) -> None:
        for path in _files(f"{self.path}/{_MANIFESTS}", depth=0):
            cache_id = worker_cache_index.cache_id_of(path)
            if cache_id is None:
                os.unlink(path)
                continue
            cache = worker_cache_index.read(path)
            if cache is None or not cache.files:
                self.drop(cache_id)
                continue
            self.caches[cache_id] = cache
            for name, ref in cache.files.items():
                self._check_link(cache_id, name, ref, inodes.get(ref.sha256), cache.pinned)
            for file in _files_below(f"{self.path}/{cache_id}"):
                if file.removeprefix(f"{self.path}/{cache_id}/") not in cache.files:
                    os.unlink(file)

    def _check_link(self, cache_id: str, name: str, ref: BlobRef, inode: int | None, pinned: bool) -> None:
        held = self._blobs.get(ref.sha256)
        if held is not None and held.size != ref.size:
            self.evict(ref.sha256)
            held = None
        path = f"{self.path}/{cache_id}/{name}"
        with contextlib.suppress(OSError):
            if held is None or os.stat(path, follow_symlinks=False).st_ino != inode:
                os.unlink(path)
            else:
                held.names.add((cache_id, name))
                held.pins += pinned


def _files(folder: str, depth: int) -> Iterable[str]:
    """Files at this depth in a folder, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries if entry.name[0] != "."]
    except OSError:
        return
    for path, is_folder in found:
        if depth and is_folder:
            yield from _files(path, depth - 1)
        elif not depth and not is_folder:
            yield path


def _files_below(folder: str) -> Iterable[str]:
    for path, _, names in os.walk(folder):
        yield from (f"{path}/{name}" for name in names)
