"""Which contents does a worker keep, under which names, and which of them go when room is needed? (SPEC C2–C4, C6)

    <cache>/.blobs/ab/abcd…       contents by their SHA-256, of jobs and caches alike: see `blobs`
    <cache>/<CacheId>/<Name>      the files of caches: hard links to them
    <cache>/.caches/<CacheId>.json   which names a cache has, written last: what is not in it does not count
    <cache>/.trash                on its way to nothing

Nothing under a cache id is ever overwritten. What was not used for longest goes first, what is pinned last, and what a
running job uses or a transfer is about to need never. One worker has the folder, and what is in it is known in memory:
all calls are made in the loop's thread but for those that say otherwise. Errors are Refused.
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
from wakugumi.adapters.files import free_on_disk, refused, remove_tree
from wakugumi.adapters.jobdir.folder_claim import claim
from wakugumi.errors import Refused
from wakugumi.limits.files import CACHE_BLOBS_MAX, CACHE_DISK_SHARE
from wakugumi.limits.runner import DISK_FREE_MIN_BYTES
from wakugumi.wire.messages.references import BlobRef

_BLOBS: Final = ".blobs"
_MANIFESTS: Final = ".caches"
_TRASH: Final = ".trash"
_MARK_NS: Final = 271_828_182
"""The nanoseconds of a content's time of change, set when it has come. Whoever writes to it later leaves others: so a
change shows, also if it was made while no worker was there to see it."""
_SECOND_NS: Final = 1_000_000_000
_USED_NS: Final = 60 * _SECOND_NS
"""How exactly the disk knows when a content was last used: the order outlives the process, nearly."""


class Added(NamedTuple):
    """What a put would change."""

    new: dict[str, BlobRef]
    skipped: int
    absent: list[BlobRef]
    """Contents of new and old names that are not here: each once."""


class CachedBlob:
    """A content that is here."""

    __slots__ = ("changed_ns", "names", "pins", "size", "used_ns", "users")

    def __init__(self, size: int, changed_ns: int, used_ns: int) -> None:
        self.size = size
        self.changed_ns = changed_ns
        self.used_ns = used_ns
        self.users = 0
        self.names: set[tuple[str, str]] = set()
        """Its links: ids of caches, and names there."""
        self.pins = 0


class CacheFolder:
    """All that one worker keeps for more than one job."""

    def __init__(self, path: Path, bytes_max: int = 0, *, blobs_max: int = CACHE_BLOBS_MAX) -> None:
        """Claim the folder or, if another worker has it, one in it. `bytes_max` of 0: a share of the disk.

        Raises ConfigError.
        """
        self.path, self._lock = claim(
            path, what="cache folder", inside=".worker-", hint="choose another one with --cache"
        )
        self.store = BlobStore(Path(self.path) / _BLOBS)
        for name in (_MANIFESTS, _TRASH):
            with contextlib.suppress(OSError):  # whoever needs it will say so
                os.makedirs(f"{self.path}/{name}", 0o700, exist_ok=True)
        disk = os.statvfs(self.path)
        self.bytes_max = bytes_max or int(disk.f_blocks * disk.f_frsize * CACHE_DISK_SHARE)
        self.blobs_max = blobs_max
        self.used_bytes = 0
        self.caches: dict[str, CacheOnDisk] = {}
        self.on_gone: Callable[[str], None] = lambda _: None
        """Called for each content that is not here any more."""
        self._blobs: dict[str, CachedBlob] = {}
        """In the order of their last use."""
        self._coming: dict[str, int] = {}
        """Contents that are being fetched, and the room they will take."""
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
        """For a content that is to come: others go, if they have to. Say `arrived` or `not_coming` afterwards."""
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
        """It is in the store, whole and verified."""
        self._coming.pop(ref.sha256, None)
        if ref.sha256 in self._blobs:
            return
        now = time.time_ns()
        path = self.store.path(ref.sha256)
        try:
            os.utime(path, ns=(now, now // _SECOND_NS * _SECOND_NS + _MARK_NS))
            changed_ns = os.stat(path, follow_symlinks=False).st_mtime_ns
        except OSError as error:
            raise refused(error, "a content cannot be kept") from None
        self._blobs[ref.sha256] = CachedBlob(ref.size, changed_ns, now)
        self.used_bytes += ref.size

    def not_coming(self, ref: BlobRef) -> None:
        if self._coming.pop(ref.sha256, None) is not None:
            self._partials.left(ref.sha256)

    def write(self, ref: BlobRef, content: bytes) -> None:
        """From any thread: a content that came in a frame. All of it or nothing."""
        incoming = self.store.begin(ref)
        try:
            incoming.restart()
            incoming.write(content)
            incoming.finish()
        except BaseException:
            incoming.abandon()
            raise

    def use(self, sha256: str) -> CachedBlob | None:
        """It stays until `let_go`. None if it is not here, or is not what came: then it is gone now."""
        held = self._blobs.get(sha256)
        if held is None or not (held.users or self._is_as_it_came(sha256, held)):
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
        """One user less. If somebody has kept a link to it, who could write to it unseen, it goes."""
        held.users -= 1
        assert held.users >= 0
        if not held.users and self._blobs.get(sha256) is held:  # it may have been taken out meanwhile
            self._is_as_it_came(sha256, held)

    def evict(self, sha256: str) -> None:
        """Take it out, whoever uses it: those who have it keep it."""
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
        """Now and then: transfers that nobody went on with for long are given up. `now` is of the wall clock."""
        self._partials.give_up_old(now)

    def empty_trash(self) -> None:
        """From any thread: what was taken out gives its room back. Large files take their time."""
        self.has_trash = False
        with contextlib.suppress(OSError), os.scandir(f"{self.path}/{_TRASH}") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    remove_tree(entry.path)

    # Caches.

    def plan(self, cache_id: str, files: Mapping[str, BlobRef]) -> Added:
        """What a put adds to what is here of this cache. Refused("conflict") for a name with another content (C2)."""
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
        """From any thread: give contents that are here their names."""
        if not os.path.exists(self._manifest(cache_id)):
            if os.path.lexists(f"{self.path}/{cache_id}"):
                raise Refused("conflict", f"{self.path}/{cache_id} is there already, and is no cache of this worker")
            self.write_manifest(
                cache_id, CacheOnDisk("", False, {})
            )  # so that what is linked is known to be ours, if we die
        scratch = f"{self._manifest(cache_id)}.link"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)
            for name, ref in files.items():
                content, path = self.store.path(ref.sha256), f"{self.path}/{cache_id}/{name}"
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                try:
                    os.link(content, path)
                except FileExistsError:  # perhaps of a content that went, and has come again
                    if not os.path.samestat(os.lstat(content), os.lstat(path)):
                        os.link(content, scratch)
                        os.replace(scratch, path)
        except OSError as error:
            raise refused(error, f"the files of cache {cache_id!r} cannot be linked") from None

    def unnamed(self, cache_id: str, files: Mapping[str, BlobRef]) -> list[str]:
        """Which of these names lead to no content that is here."""
        held = [(name, self._blobs.get(ref.sha256)) for name, ref in files.items()]
        return [name for name, one in held if one is None or (cache_id, name) not in one.names]

    def unlink(self, cache_id: str, names: Iterable[str]) -> None:
        """From any thread: take names back that were given in vain."""
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}/{cache_id}/{name}")

    def write_manifest(self, cache_id: str, cache: CacheOnDisk) -> None:
        """From any thread: this is the cache from now on, whatever becomes of us."""
        try:
            worker_cache_index.write(self._manifest(cache_id), cache)
        except OSError as error:
            raise refused(error, f"cache {cache_id!r} cannot be kept") from None

    def keep(self, cache_id: str, cache: CacheOnDisk) -> None:
        """Its files were linked and its manifest written: now it counts."""
        self._unname(cache_id)
        self.caches[cache_id] = cache
        for name, ref in cache.files.items():
            held = self._blobs.get(ref.sha256)
            if held is not None:
                held.names.add((cache_id, name))
                held.pins += cache.pinned

    def drop(self, cache_id: str) -> None:
        """All of it, and every content that no other cache has and no job uses.

        The manifest goes last: a folder without one is not ours, and would be in the way of the next put.
        """
        self._unname(cache_id)
        cache = self.caches.pop(cache_id, None)
        for name, ref in cache.files.items() if cache is not None else ():
            held = self._blobs.get(ref.sha256)
            if held is not None and not held.names and not held.users:
                self.evict(ref.sha256)
            elif held is not None:  # also a link in the trash counts as one that somebody keeps
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
        """Take out as much, or nothing if that much cannot be had. First what was left half-way, but not this one."""
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

    def _is_as_it_came(self, sha256: str, held: CachedBlob) -> bool:
        """Its size and time are what they were, and nobody but us has a name for it. If not, it goes."""
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
        """What is here, and is what it seems to be. The rest is removed."""
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
            # A job had it when we died, and may have changed it; or it was our own link, and is gone by now.
            if links > 1 + len(held.names) and self._blobs.get(sha256) is held:
                self._is_as_it_came(sha256, held)
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
    """All files so deep in a folder; hidden ones are not ours to look at."""
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
