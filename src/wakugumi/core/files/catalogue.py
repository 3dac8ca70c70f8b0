"""Which caches are there, and which files are in them?

A cache is a named set of files for workers whose patterns overlap its targets. No file under its id is ever overwritten
(SPEC C2): a name with the same content is there already, a new name is added, a name with other content is refused. A
cache has one version from its first put until it is dropped, which tells two lives of the same id apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from wakugumi.core.files.events import CacheFile, DropCache, FilesStepBuilder, KeepCache, PutAsked
from wakugumi.core.names import check_file_names
from wakugumi.core.requirements import CACHE
from wakugumi.core.subject import PATTERNS_PER_WORKER_MAX, Pattern, overlaps
from wakugumi.errors import Refused
from wakugumi.limits.files import CACHE_BYTES_MAX, CACHE_TTL_S, CACHES_MAX
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import FILES_PER_CACHE_MAX, PAYLOAD_BYTES_MAX

_ENTRY_BYTES: Final = 124
"""Bytes that JSON adds to a name in a manifest: the hash, the size, and punctuation."""
_INLINE_BYTES: Final = 40


class CacheRecord:
    """One cache. Files are only added, so their number tells two states of the cache apart."""

    __slots__ = ("bytes", "cache_id", "created_at", "files", "hits", "pinned", "targets", "used_at", "version")

    def __init__(self, cache_id: str, version: str, now: float) -> None:
        self.cache_id = cache_id
        self.version = version
        self.files: dict[str, CacheFile] = {}
        self.targets: tuple[Pattern, ...] = ()
        self.pinned = False
        self.bytes = 0
        self.created_at = now
        self.used_at = now
        self.hits = 0

    @property
    def names(self) -> int:
        return len(self.files)

    def is_for(self, patterns: Iterable[Pattern]) -> bool:
        return overlap(self.targets, patterns)

    def record(self, now: float) -> KeepCache:
        files = tuple(self.files.values())
        return KeepCache(self.cache_id, self.version, files, self.targets, self.pinned, now - self.created_at)

    def use(self, now: float) -> None:
        self.used_at = now
        self.hits += 1


class CacheCatalogue:
    """All caches of a leader: bounded in number, bytes and age. `is_busy` tells whether a put of a cache is under way:
    such a cache stays, and so does one that a job names."""

    def __init__(
        self,
        new_version: Callable[[], str],
        *,
        is_needed: Callable[[str], bool],
        bytes_max: int = CACHE_BYTES_MAX,
        caches_max: int = CACHES_MAX,
    ) -> None:
        self.caches: dict[str, CacheRecord] = {}
        self.bytes = 0
        self.is_needed = is_needed
        """Does a job name this cache, as `cache:<id>`?"""
        self._new_version = new_version
        self._bytes_max = bytes_max
        self._caches_max = caches_max
        self._pins: dict[str, int] = {}
        """Number of files of all caches with this content."""

    def pins(self, sha256: str) -> bool:
        return sha256 in self._pins

    def put(
        self, asked: PutAsked, now: float, is_busy: Callable[[str], bool], out: FilesStepBuilder
    ) -> list[CacheRecord]:
        """Applies the put to its cache; returns the caches that were removed for it. Raises Refused, without a
        change."""
        cache = self.caches.get(asked.cache_id)
        new = self._new_files(cache, asked)
        added_bytes = sum(file.size for file in new)
        going = self._make_room(asked.cache_id, cache is None, added_bytes, is_busy)
        for old in going:
            self.drop(old, out)
        was = None if cache is None else (cache.names, cache.targets, cache.pinned)
        if cache is None:
            cache = self.caches[asked.cache_id] = CacheRecord(asked.cache_id, self._new_version(), now)
        self._add(cache, new)
        cache.targets = tuple(dict.fromkeys(cache.targets + asked.targets))
        cache.pinned = cache.pinned or asked.pinned
        cache.used_at = now
        if was != (cache.names, cache.targets, cache.pinned):
            out.keep.append(cache.record(now))
        return going

    def pin(self, cache: CacheRecord, pinned: bool, now: float, out: FilesStepBuilder) -> None:
        if cache.pinned != pinned:
            cache.pinned = pinned
            out.keep.append(cache.record(now))

    def drop(self, cache: CacheRecord, out: FilesStepBuilder) -> None:
        del self.caches[cache.cache_id]
        self.bytes -= cache.bytes
        for file in cache.files.values():
            self._pins[file.sha256] -= 1
            if not self._pins[file.sha256]:
                del self._pins[file.sha256]
        out.keep.append(DropCache(cache.cache_id))

    def expired(self, now: float, is_busy: Callable[[str], bool]) -> list[CacheRecord]:
        """Caches that were not used for too long."""
        return [
            cache
            for cache in self.caches.values()
            if now - cache.used_at >= CACHE_TTL_S and self._may_go(cache, is_busy)
        ]

    def recover(self, record: KeepCache, now: float) -> None:
        """A cache of an earlier life of this leader. It counts as used now: the time of its last use was not kept."""
        cache = self.caches[record.cache_id] = CacheRecord(record.cache_id, record.version, now)
        cache.created_at = now - record.age_s
        cache.targets = record.targets
        cache.pinned = record.pinned
        self._add(cache, record.files)

    def check(self) -> None:
        counts: dict[str, int] = {}
        for cache_id, cache in self.caches.items():
            assert cache.cache_id == cache_id
            assert cache.version
            assert cache.bytes == sum(file.size for file in cache.files.values())
            assert all(file.name == name for name, file in cache.files.items())
            for file in cache.files.values():
                counts[file.sha256] = counts.get(file.sha256, 0) + 1
        assert self._pins == counts
        assert self.bytes == sum(cache.bytes for cache in self.caches.values())

    def _add(self, cache: CacheRecord, files: Iterable[CacheFile]) -> None:
        for file in files:
            cache.files[file.name] = file
            cache.bytes += file.size
            self.bytes += file.size
            self._pins[file.sha256] = self._pins.get(file.sha256, 0) + 1

    def _new_files(self, cache: CacheRecord | None, asked: PutAsked) -> list[CacheFile]:
        """Files whose names are new (C2). Raises Refused."""
        known = {} if cache is None else cache.files
        new = []
        for file in asked.files:
            old = known.get(file.name)
            if old is None:
                new.append(file)
            elif (old.sha256, old.size) != (file.sha256, file.size):
                raise Refused(
                    "conflict", f"{asked.cache_id} has other content under the name {file.name[:80]!r}", hint=""
                )
        if not known and not new:
            raise Refused("bad-request", "a cache has at least one file")
        if new:
            _check_size([*known, *(file.name for file in new)])
        if cache is not None and len({*cache.targets, *asked.targets}) > PATTERNS_PER_WORKER_MAX:
            raise Refused("bad-request", f"a cache has at most {PATTERNS_PER_WORKER_MAX} targets")
        return new

    def _make_room(
        self, cache_id: str, is_new: bool, added_bytes: int, is_busy: Callable[[str], bool]
    ) -> list[CacheRecord]:
        """Caches to remove: the ones not used longest. Raises Refused if that is not enough."""
        over_bytes = self.bytes + added_bytes - self._bytes_max
        over = len(self.caches) + is_new - self._caches_max
        if over_bytes <= 0 and over <= 0:
            return []
        going: list[CacheRecord] = []
        for cache in sorted(self.caches.values(), key=lambda cache: cache.used_at):
            if over_bytes <= 0 and over <= 0:
                break
            if cache.cache_id != cache_id and self._may_go(cache, is_busy):
                going.append(cache)
                over_bytes -= cache.bytes
                over -= 1
        if over_bytes > 0 or over > 0:
            raise Refused("full", "the leader has no room for this cache: drop or unpin others", hint="")
        return going

    def _may_go(self, cache: CacheRecord, is_busy: Callable[[str], bool]) -> bool:
        return not (cache.pinned or is_busy(cache.cache_id) or self.is_needed(CACHE + cache.cache_id))


def overlap(ours: Iterable[Pattern], theirs: Iterable[Pattern]) -> bool:
    """Is there a subject that a pattern of each side matches (SPEC S2)?"""
    theirs = tuple(theirs)
    return any(overlaps(one, other) for one in ours for other in theirs)


def fits_inline(files: Iterable[CacheFile]) -> bool:
    """Do all these files fit one frame to an old worker, in base64?"""
    size = sum(4 * -(-file.size // 3) + len(file.name.encode()) + _INLINE_BYTES for file in files)
    return size <= PAYLOAD_BYTES_MAX - 4 * KIB


def _check_size(names: list[str]) -> None:
    """Raises Refused unless all these names can stand beside each other, and in one frame."""
    if len(names) > FILES_PER_CACHE_MAX:
        raise Refused("too-big", f"a cache has at most {FILES_PER_CACHE_MAX} files: put an archive instead", hint="")
    check_file_names(names)
    if sum(len(name.encode()) + _ENTRY_BYTES for name in names) > PAYLOAD_BYTES_MAX - 4 * KIB:
        raise Refused("too-big", "the names of this cache do not fit a frame: put an archive instead", hint="")
