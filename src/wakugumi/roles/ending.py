"""What does a job's end say? From exit code, output and files to a result that fits a frame (SPEC W6).

OK is exit code 0 and nothing else. A program that failed still answers with all it wrote and made. What does not fit
stays in the job's directory, and the result says where and how much.
"""

from __future__ import annotations

import signal
from typing import Final, NamedTuple

import msgspec

from wakugumi.adapters.archive import TooBig
from wakugumi.adapters.jobdir import JobDir
from wakugumi.adapters.process import Child
from wakugumi.limits import KIB, PAYLOAD_BYTES_MAX
from wakugumi.wire.message import FAILED, OK, JobRequest, JobResult, encode

TAIL_BYTES: Final = 64 * KIB
"""What a result tells of stdout and stderr where it cannot tell all: the end, where errors stand."""


class Ended(NamedTuple):
    """A job's encoded result and what the worker must know of it."""

    payload: bytes
    ok: bool
    reason: str
    """A code of the error table; empty if it is OK."""


def conclude(request: JobRequest, child: Child, directory: JobDir, worker: str, kept_s: float) -> Ended:
    """Make the result of a program that has ended, and keep it in its directory. Raises Refused.

    The directory was reopened, and the capture measured.
    """
    capture = child.capture
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
        result = _with_texts(bare, child, note, TAIL_BYTES)
        return Ended(directory.seal(result, encode(result), None), False, reason)
    try:
        if capture.out_bytes + capture.err_bytes > PAYLOAD_BYTES_MAX:
            raise TooBig
        result = bare
        if capture.out_bytes or capture.err_bytes:
            result = _with_texts(bare, child, note, PAYLOAD_BYTES_MAX)
        payload = encode(result)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise TooBig
        # In JSON an archive is base64: four characters for three bytes.
        archive = directory.pack((PAYLOAD_BYTES_MAX - len(payload)) // 4 * 3)
    except TooBig:
        sizes = (capture.out_bytes, capture.err_bytes, directory.produced_bytes())
        note += (
            "wakugumi: the result does not fit a frame of 4 MiB: {} bytes on stdout, {} on stderr, {} in files. "
            "It is kept for {:g} s in {} on worker {}\n"
        ).format(*sizes, kept_s, directory.path, worker)
        result = msgspec.structs.replace(bare, status=FAILED, reason="too-big")
        return Ended(directory.keep(_with_texts(result, child, note, TAIL_BYTES), capture), False, "too-big")
    return Ended(directory.seal(result, payload, archive), not reason, reason)


def refuse(request: JobRequest, child: Child | None, code: str, text: str, worker: str) -> Ended:
    """The result of a job that could not be run, or whose result could not be kept."""
    result = JobResult(
        request.job_id,
        request.client_id,
        request.exec_name,
        FAILED,
        stderr=f"wakugumi: {text}\n",
        exit_code=None if child is None else child.exit_code,
        reason=code,
        worker=worker,
    )
    return Ended(encode(result), False, code)


def _note(child: Child) -> str:
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


def _with_texts(result: JobResult, child: Child, note: str, bytes_max: int) -> JobResult:
    stdout, stderr = child.capture.texts(bytes_max)
    if note and stderr and not stderr.endswith("\n"):
        stderr += "\n"
    return msgspec.structs.replace(result, stdout=stdout, stderr=stderr + note)
