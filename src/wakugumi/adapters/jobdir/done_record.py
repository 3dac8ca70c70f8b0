"""How is a finished job's result stored on disk, and how is it read back? (SPEC W4)

    .done        the result as JSON, without the archive
    result.zip   the archive, if the job made files

Files are not synced. After a power loss a torn `.done` is not JSON, or does not match its archive's checksum, and
counts as missing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.adapters.files import read_all
from wakugumi.adapters.jobdir.done_marks import read_entry
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, Whole, parts_of
from wakugumi.adapters.zip.records import crc32
from wakugumi.wire.messages.job import JobResult, write_result
from wakugumi.wire.untrusted_json import JsonReader

DONE: Final = ".done"


class Done(JobResult, frozen=True, rename="pascal"):
    """Content of `.done`: the sent result without its archive, and the digest of its request."""

    archive_bytes: int | None = None
    archive_crc: int | None = None
    request: str = ""
    """Digest of the request that was run. It is last, and not part of the sent result."""


_done: Final = JsonReader(Done)


def with_archive(result: JobResult, archive: bytes) -> Done:
    """The record of a result whose archive is beside it."""
    return Done(**msgspec.structs.asdict(result), archive_bytes=len(archive), archive_crc=crc32(archive))


def with_request(content: bytes, request: bytes) -> bytes:
    """A record as JSON with the digest of its request, if known."""
    return content[:-1] + _marked(request) if request else content


def read_whole(job: str, path: str, folder: int) -> Whole | None:
    """The encoded result in a job's directory, which is open, and the files it names, which exist with the right size.
    None if it cannot be trusted. Raises OSError and ValueError."""
    data = read_entry(job, DONE, folder)
    if data is None:
        return None
    done = _done.read(data)
    parts = parts_of(done, path, folder)
    request = bytes.fromhex(done.request)
    if done.archive_bytes is None:
        mark = _marked(request)
        return Whole(data[: -len(mark)] + b"}" if data.endswith(mark) else data, parts, request)
    archive = read_all(ARCHIVE, folder)
    if len(archive) != done.archive_bytes or crc32(archive) != done.archive_crc:
        return None
    result = JobResult(**{name: getattr(done, name) for name in JobResult.__struct_fields__})
    return Whole(write_result(msgspec.structs.replace(result, output_archive=archive)), parts, request)


def _marked(request: bytes) -> bytes:
    """The end of a `.done` with a request's digest."""
    return b',"Request":"%s"}' % request.hex().encode()
