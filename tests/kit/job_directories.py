"""Directories of jobs, sealed and looked into. For tests."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from uuid import UUID

from wakugumi.adapters.jobdir.directory import JobDir
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.wire.messages.job import JobResult, read_result, write_result
from wakugumi.wire.messages.payload import encode

ROOM = 1_000_000


def result_of(job: str, **fields: object) -> JobResult:
    return JobResult(job, "client", "calcA", stdout="out", exit_code=0, **fields)  # type: ignore[arg-type]


def seal(directory: JobDir, job: str, bytes_max: int = ROOM) -> bytes:
    directory.reopen()
    result = result_of(job)
    sealed = directory.seal(result, encode(result), directory.pack(bytes_max))
    directory.close()
    return encode(sealed) if sealed.output_archive is None else write_result(sealed)


def copied_in(directory: JobDir) -> str:
    with open("/bin/true", "rb") as file:
        return directory.place_program("/bin/true", file.fileno())


def listed(directory: JobDir | Path) -> list[str]:
    return sorted(os.listdir(directory.path if isinstance(directory, JobDir) else directory))


def listed_jobs(jobs: JobsFolder) -> list[str]:
    return [name for name in listed(Path(jobs.path)) if not name.startswith(".")]


def archive_of(job: str, payload: bytes) -> zipfile.ZipFile:
    archive = read_result(UUID(job).bytes_le, payload).output_archive  # type: ignore[arg-type]
    assert archive is not None
    return zipfile.ZipFile(io.BytesIO(archive))
