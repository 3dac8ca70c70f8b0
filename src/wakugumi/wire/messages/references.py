"""Which blobs and caches does a job or a result name? References are checked here.

The core knows a job's files only by names: the SHA-256 of a blob, and `cache:<id>` for a cache. Blobs come first, so
that the first name tells whether there are any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from wakugumi.core.names import check_cache_id
from wakugumi.core.requirements import CACHE
from wakugumi.errors import Refused
from wakugumi.limits.files import BLOB_BYTES_MAX
from wakugumi.limits.wire import FILES_PER_JOB_MAX

_HEX: Final = frozenset("0123456789abcdef")
_NO_CONTENT: Final = (b"", b"null")


class BlobRef(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """File content that is sent beside the frames, by its SHA-256 in lower-case hexadecimal digits."""

    sha256: str
    size: int


class FileHead(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Fields of an InputFile that a leader needs: its source."""

    cache_id: str | None = None
    content: msgspec.Raw = msgspec.Raw()
    sha256: str | None = None
    size: int | None = None


def blobs_of_job(files: Sequence[FileHead]) -> tuple[tuple[str, ...], tuple[BlobRef, ...]]:
    """Names of all blobs and caches of a job's files, each once; and its blobs. Raises Refused."""
    if len(files) > FILES_PER_JOB_MAX:
        raise Refused("too-big", f"{len(files)} files are too many: a job has at most {FILES_PER_JOB_MAX}")
    blobs: dict[str, BlobRef] = {}
    caches: dict[str, None] = {}
    for file in files:
        if file.sha256 is not None:
            ref = _blob_of(file, file.sha256)
            if blobs.setdefault(ref.sha256, ref) != ref:
                raise Refused("bad-request", f"the blob {ref.sha256} stands there with two sizes")
        elif file.cache_id:
            if bytes(file.content) in _NO_CONTENT:
                caches[CACHE + check_cache_id(file.cache_id)] = None
        elif file.size is not None:
            raise Refused("bad-request", "a file with a Size and without a Sha256 is none")
    return (*blobs, *caches), tuple(blobs.values())


def blobs_of_result(refs: Iterable[BlobRef | None]) -> tuple[BlobRef, ...]:
    """Each blob of a result once, from the fields of its head (`AckHead.blobs`). Raises Refused."""
    found = {}
    for ref in refs:
        if ref is not None:
            try:
                found[ref.sha256] = check_ref(ref)
            except Refused as no:
                raise Refused("bad-result", f"the worker's answer is not a result: {no.message}") from None
    return tuple(found.values())


def check_ref(ref: BlobRef) -> BlobRef:
    """The reference itself, if valid. Raises Refused."""
    if len(ref.sha256) != 64 or not _HEX.issuperset(ref.sha256):
        raise Refused("bad-request", f"a Sha256 is 64 lower-case hexadecimal digits, not {ref.sha256[:80]!r}")
    if not 0 <= ref.size <= BLOB_BYTES_MAX:
        raise Refused("bad-request", f"a blob has 0 to {BLOB_BYTES_MAX} bytes, not {ref.size}"[:300])
    return ref


def _blob_of(file: FileHead, sha256: str) -> BlobRef:
    if bytes(file.content) not in _NO_CONTENT:
        raise Refused("bad-request", "a file has Content or a Sha256, not both")
    if file.cache_id:
        raise Refused("bad-request", "a file has a CacheId or a Sha256, not both")
    if file.size is None:
        raise Refused("bad-request", "a file with a Sha256 has a Size")
    return check_ref(BlobRef(sha256, file.size))
