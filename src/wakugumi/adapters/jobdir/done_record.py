"""How does a finished job's result stand on the disk, and how is it read back? (SPEC W4)

    .done        its result as JSON, without the archive
    result.zip   and the archive, if it made any files

Nothing is synced: where power was lost, a torn `.done` is not JSON or does not fit its archive's checksum, and counts
as none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.adapters.files import read_all
from wakugumi.adapters.jobdir.done_marks import read_entry
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, Whole, parts_of
from wakugumi.adapters.zip.write_memory import crc32
from wakugumi.wire.messages.job import JobResult
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.untrusted_json import JsonReader

DONE: Final = ".done"


class Done(JobResult, frozen=True, rename="pascal"):
    """What `.done` holds: without an archive, the result that was sent, and of which request it is."""

    archive_bytes: int | None = None
    archive_crc: int | None = None
    request: str = ""
    """The digest of the request that was run. It comes last, and is not sent: a frame says it otherwise."""


_done: Final = JsonReader(Done)


def with_archive(result: JobResult, archive: bytes) -> Done:
    """What is kept of a result whose archive lies beside it."""
    return Done(**msgspec.structs.asdict(result), archive_bytes=len(archive), archive_crc=crc32(archive))


def with_request(content: bytes, request: bytes) -> bytes:
    """A record as JSON that also says of which request it is, if that is known."""
    return content[:-1] + _marked(request) if request else content


def read_whole(job: str, path: str) -> Whole | None:
    """The encoded result of a job whose directory this is, and the files that it names: they are there, and have their
    size. None if there is none that can be trusted. Raises OSError, and ValueError."""
    data = read_entry(job, f"{path}/{DONE}")
    if data is None:
        return None
    done = _done.read(data)
    parts = parts_of(done, path)
    request = bytes.fromhex(done.request)
    if done.archive_bytes is None:
        mark = _marked(request)
        return Whole(data[: -len(mark)] + b"}" if data.endswith(mark) else data, parts, request)
    archive = read_all(f"{path}/{ARCHIVE}")
    if len(archive) != done.archive_bytes or crc32(archive) != done.archive_crc:
        return None
    result = JobResult(**{name: getattr(done, name) for name in JobResult.__struct_fields__})
    return Whole(encode(msgspec.structs.replace(result, output_archive=archive)), parts, request)


def _marked(request: bytes) -> bytes:
    """How a `.done` ends that says of which request it is."""
    return b',"Request":"%s"}' % request.hex().encode()
