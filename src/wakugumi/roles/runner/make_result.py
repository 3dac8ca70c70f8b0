"""What does a job's end say? From exit code, output and files to a result that fits a frame (SPEC W6, C5).

OK is exit code 0 and nothing else. A program that failed still answers with all it wrote and made. What does not fit
stays in the job's directory as files that the result names by their hashes: `send_results` brings them to the leader.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from wakugumi.adapters.jobdir.directory import JobDir
from wakugumi.adapters.jobdir.large_parts import STDERR, STDOUT
from wakugumi.adapters.programs.output_files import Capture
from wakugumi.adapters.programs.processes import RunningProgram
from wakugumi.adapters.zip.write_memory import TooBig
from wakugumi.limits.runner import RESULT_BYTES_MAX
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.wire.messages.job import FAILED, OK, JobRequest, JobResult
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

TAIL_BYTES: Final = 64 * KIB
"""What a result tells of stdout and stderr where it cannot tell all: the end, where errors stand."""
_TEXTS_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - KIB
"""All that is not the archive, encoded: beside it there is room for the hashes of what does not fit."""
_UNPACKED_BYTES: Final = 40
"""What it takes to say how many bytes the archive's files have."""


class MadeResult(NamedTuple):
    """A job's encoded result and what the worker must know of it."""

    payload: bytes
    ok: bool
    reason: str
    """A code of the error table; empty if it is OK."""
    ran_s: float = 0.0
    """How long its program ran."""
    fault: str = ""
    """What is wrong with this machine, if that is why."""
    request: bytes = b""
    """The digest of the request; empty if it could not be read."""


def conclude(
    request: JobRequest,
    child: RunningProgram,
    directory: JobDir,
    worker: str,
    kept_s: float,
    go_on: Callable[[], None] = lambda: None,
    *,
    however_large: bool = True,
) -> MadeResult:
    """Make the result of a program that has ended, and keep it in its directory. Raises Refused, and TooBig if it is
    large and was not to be made `however_large`: then nothing has changed.

    The directory was reopened, and the capture measured. While much is packed, `go_on` is called now and then, and
    what it raises ends that.
    """
    reason = child.reason or ("exit" if child.exit_code else "")
    note = _note(child)
    bare = JobResult(
        request.job_id,
        request.client_id,
        request.exec_name,
        FAILED if reason else OK,
        stderr=note,
        exit_code=child.exit_code,
        reason=reason or None,
        run_s=round(child.ended_at - child.started_at, 6),
        worker=worker,
    )
    if reason == "output-limit":
        result = _with_texts(bare, child.capture, note, TAIL_BYTES, TAIL_BYTES)
        return MadeResult(directory.seal(result, encode(result), None), False, reason, _ran_s(child))
    result, payload, large = _texts_that_fit(bare, child.capture, note)
    # In JSON an archive is base64: four characters for three bytes.
    room = ((_TEXTS_BYTES_MAX if large else PAYLOAD_BYTES_MAX) - len(payload) - _UNPACKED_BYTES) // 4 * 3
    archive: bytes | BlobRef | None
    try:
        archive = directory.pack(room)
    except TooBig:
        if not however_large and directory.is_large():
            raise
        try:
            archive = directory.pack_large(RESULT_BYTES_MAX, go_on)
            if archive.size <= room:
                archive = directory.packed()
        except TooBig:
            kept = _kept(bare, child.capture, note, directory, worker, kept_s)
            return kept._replace(ran_s=_ran_s(child))
    if archive is not None:
        result = msgspec.structs.replace(result, unpacked_bytes=directory.unpacked_bytes)
    if large or isinstance(archive, BlobRef):
        return MadeResult(directory.seal_large(result, archive, large), not reason, reason, _ran_s(child))
    return MadeResult(directory.seal(result, payload, archive), not reason, reason, _ran_s(child))


def too_big(result: JobResult, where: str, kept_s: float) -> JobResult:
    """What a leader is told that cannot take what does not fit a frame."""
    note = (
        f"wakugumi: the result does not fit a frame of 4 MiB, and the leader takes no larger ones. "
        f"It is kept for {kept_s:g} s in {where} on worker {result.worker}\n"
    )
    stderr = result.stderr + ("" if not result.stderr or result.stderr.endswith("\n") else "\n") + note
    return JobResult(
        result.job_id,
        result.client_id,
        result.exec_name,
        FAILED,
        result.stdout[-TAIL_BYTES:],
        stderr[-TAIL_BYTES:],
        exit_code=result.exit_code,
        reason="too-big",
        run_s=result.run_s,
        worker=result.worker,
    )


NOT_BEGUN: Final = frozenset({"disk", "worker-error", "unknown-program"})
"""Reasons that say nothing about the job itself: another worker may well be able to start it (SPEC W9)."""


def refuse(
    request: JobRequest, child: RunningProgram | None, code: str, text: str, worker: str, *, sick: bool
) -> MadeResult:
    """The result of a job that could not be run, or whose result could not be kept: by this machine's fault, if it is
    `sick`."""
    result = JobResult(
        request.job_id,
        request.client_id,
        request.exec_name,
        FAILED,
        stderr=f"wakugumi: {text}\n",
        exit_code=None if child is None else child.exit_code,
        reason=code,
        worker=worker,
        not_begun=True if child is None and code in NOT_BEGUN else msgspec.UNSET,
    )
    return MadeResult(encode(result), False, code, _ran_s(child), text if sick else "")


def _ran_s(child: RunningProgram | None) -> float:
    return 0.0 if child is None else child.ended_at - child.started_at


def _note(child: RunningProgram) -> str:
    """What the program itself could not say."""
    if child.why:
        return f"wakugumi: {child.why}\n"
    if not child.signal:
        return ""
    try:
        name = signal.Signals(child.signal).name
    except ValueError:
        name = "unknown"
    return f"wakugumi: the program was ended by signal {child.signal} ({name})\n"


def _texts_that_fit(
    bare: JobResult, capture: Capture, note: str
) -> tuple[JobResult, bytes, dict[str, tuple[int, bytes]]]:
    """The result with its texts, the same encoded, and those that are too long for it: of these it has the end."""
    if not (capture.out_bytes or capture.err_bytes):
        return bare, encode(bare), {}
    if capture.out_bytes + capture.err_bytes <= _TEXTS_BYTES_MAX:
        result = _with_texts(bare, capture, note, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX)
        payload = encode(result)
        if len(payload) <= _TEXTS_BYTES_MAX:
            return result, payload, {}
    files = {STDOUT: (capture.out, b""), STDERR: (capture.err, note.encode())}
    larger, smaller = (STDOUT, STDERR) if capture.out_bytes >= capture.err_bytes else (STDERR, STDOUT)
    rooms = {larger: TAIL_BYTES, smaller: PAYLOAD_BYTES_MAX}
    if min(capture.out_bytes, capture.err_bytes) <= _TEXTS_BYTES_MAX:
        result = _with_texts(bare, capture, note, rooms[STDOUT], rooms[STDERR])
        payload = encode(result)
        if len(payload) <= _TEXTS_BYTES_MAX:
            return result, payload, {larger: files[larger]}
    result = _with_texts(bare, capture, note, TAIL_BYTES, TAIL_BYTES)
    return result, encode(result), files


def _kept(bare: JobResult, capture: Capture, note: str, directory: JobDir, worker: str, kept_s: float) -> MadeResult:
    """More than anyone takes: all of it stays where it is."""
    note += (
        f"wakugumi: the result is larger than {RESULT_BYTES_MAX} bytes: {capture.out_bytes} on stdout, "
        f"{capture.err_bytes} on stderr, {directory.produced_bytes()} in files. "
        f"It is kept for {kept_s:g} s in {directory.path} on worker {worker}\n"
    )
    result = msgspec.structs.replace(bare, status=FAILED, reason="too-big")
    return MadeResult(
        directory.keep(_with_texts(result, capture, note, TAIL_BYTES, TAIL_BYTES), capture), False, "too-big"
    )


def _with_texts(
    result: JobResult, capture: Capture, note: str, stdout_bytes_max: int, stderr_bytes_max: int
) -> JobResult:
    stdout, stderr = capture.texts(stdout_bytes_max, stderr_bytes_max)
    if note and stderr and not stderr.endswith("\n"):
        stderr += "\n"
    return msgspec.structs.replace(result, stdout=stdout, stderr=stderr + note)
