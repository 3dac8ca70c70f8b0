"""What is the result of a job? Exit code, output and files become a result that fits a frame. (SPEC W6, C5)

Only exit code 0 is OK. A failed program's result also has all of its output and files. Parts that do not fit stay in
the job's directory as files that the result names by hash; `send_results` uploads them to the leader.
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
from wakugumi.adapters.zip.write import TooBig
from wakugumi.limits.runner import RESULT_BYTES_MAX
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.wire.messages.job import FAILED, OK, JobRequest, JobResult
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

TAIL_BYTES: Final = 64 * KIB
"""Length of stdout and stderr in a result that cannot hold all of them: their end, where errors are."""
_TEXTS_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - KIB
"""Most bytes of the encoded result without its archive; the rest is for the hashes of large parts."""
_UNPACKED_BYTES: Final = 64
"""Bytes that the encoded facts about the archive take: its unpacked size, and whether it has the output."""


class MadeResult(NamedTuple):
    """A job's encoded result and the facts that the worker needs of it."""

    payload: bytes
    ok: bool
    reason: str
    """A code of the error table; empty if OK."""
    ran_s: float = 0.0
    """Seconds that the program ran."""
    fault: str = ""
    """Why this machine is to blame; empty if it is not."""
    request: bytes = b""
    """Digest of the request; empty if the request could not be read."""


def conclude(
    request: JobRequest,
    child: RunningProgram,
    directory: JobDir,
    worker: str,
    kept_s: float,
    go_on: Callable[[], None] = lambda: None,
    write: Callable[[JobResult], bytes] = encode,
    *,
    however_large: bool = True,
) -> MadeResult:
    """Make the result of an ended program and keep it in its directory. Raises Refused, and TooBig for a large result
    unless `however_large`; TooBig changes nothing.

    The directory was reopened, and the capture measured. While much is packed, `go_on` is called repeatedly; an
    exception of it ends the packing. `write` encodes the result as its receiver takes it.
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
        return MadeResult(write(directory.seal(result, encode(result), None)), False, reason, _ran_s(child))
    result, payload, large = _texts_that_fit(bare, child.capture, note)
    # In JSON an archive is base64: four characters for three bytes.
    room = ((_TEXTS_BYTES_MAX if large else PAYLOAD_BYTES_MAX) - len(payload) - _UNPACKED_BYTES) // 4 * 3
    archive: bytes | BlobRef | None
    texts = _output_of(result) if request.archive_output and not large else {}
    try:
        archive = directory.pack(room, texts)
        if texts and archive is not None:  # Texts alone are in the result: an archive would be one more file on disk.
            result = msgspec.structs.replace(result, archive_output=True)
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
    if directory.unpacked_bytes is not None:
        result = msgspec.structs.replace(result, unpacked_bytes=directory.unpacked_bytes)
    result = directory.seal(result, payload, archive, large)
    return MadeResult(write(result), not reason, reason, _ran_s(child))


def too_big(result: JobResult, where: str, kept_s: float) -> JobResult:
    """The result for a leader that takes only frames."""
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
"""Reasons that do not depend on the job: another worker may be able to start it (SPEC W9)."""


def refuse(
    request: JobRequest, child: RunningProgram | None, code: str, text: str, worker: str, *, sick: bool
) -> MadeResult:
    """The result of a job that could not be run, or whose result could not be kept. `sick`: by this machine's fault."""
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


def _output_of(result: JobResult) -> dict[str, bytes]:
    """Texts for the archive; none if they are long, because the result has them as well."""
    if len(result.stdout) + len(result.stderr) > TAIL_BYTES:
        return {}
    return {"stdout.txt": result.stdout.encode(errors="replace"), "stderr.txt": result.stderr.encode(errors="replace")}


def _ran_s(child: RunningProgram | None) -> float:
    return 0.0 if child is None else child.ended_at - child.started_at


def _note(child: RunningProgram) -> str:
    """Facts about the end that the program could not print."""
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
    """The result with its texts, its encoding, and the texts too long for it, of which the result has the end."""
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
    """A result above every limit: all of it stays in the directory."""
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
