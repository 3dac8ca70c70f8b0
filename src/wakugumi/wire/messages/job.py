"""Which messages are about jobs and their results? (SPEC F6–F9)

The leader reads only the routing fields of a job (`read_submit`) and of a result (`read_ack`): the payload is passed on
as the same bytes. All readers take JSON, as frames carry it, and envelopes, as HTTP does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from wakugumi.core.ids import JobId, parse_job_id, show_job_id
from wakugumi.core.leader.jobs.broadcast import BroadcastPart
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.leader import OUTPUT_TAIL_CHARS_MAX
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.wire.frame import NO_ID, Frame
from wakugumi.wire.messages.envelope import is_envelope, json_of, opened, seal, split
from wakugumi.wire.messages.payload import TEXT_CHARS_MAX, encode, read_payload
from wakugumi.wire.messages.references import BlobRef, FileHead
from wakugumi.wire.untrusted_json import JsonReader, Unreadable

OK: Final = "OK"
FAILED: Final = "FAILED"
Status: TypeAlias = Literal["OK", "FAILED"]
"""Status of a job's result. A payload with another status is no result."""
ExitCode: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**32 - 1)]
"""32 bits, signed or not: Windows has exit codes such as 0xC0000005."""


class InputFile(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A file of a job: in the frame (`content`), as a blob, or in a cache. In the head of an envelope a size without a
    hash is that of a content in the envelope."""

    name: str
    cache_id: str | None = None
    content: bytes | None = None
    sha256: str | None = None
    size: int | None = None


class JobLimits(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """SPEC W8. None: no limit."""

    memory_bytes: int | None = None
    cpu_s: float | None = None
    file_bytes: int | None = None
    processes: int | None = None


class JobRequest(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One run of a program, as the client asks for it and the worker reads it. Its options: `job_options`."""

    job_id: str
    client_id: str = ""
    exec_name: str = ""
    args: list[str] = []
    files: list[InputFile] = []
    timeout_s: float | None = None
    limits: JobLimits | None = None
    retries: int = 0
    """Further runs of a program that ends with a non-zero exit or takes too long."""
    key: str = ""
    """Jobs with the same key go to the same worker, if the leader's policy is sticky."""
    priority: int = 0
    """Jobs of higher priority go before others of the same client and subject."""
    slots: int = 1
    """Slots of a worker that the job takes."""
    broadcast_s: float | None = None
    """Run by every matching worker, each within this many seconds (S5)."""
    env: dict[str, str] = {}
    """Variables for the program, besides those of its worker (U8)."""
    archive_output: bool = False
    """The result is wanted as one ZIP, with stdout and stderr in it, if it fits a frame (N2). Only in envelopes."""


class JobResult(msgspec.Struct, frozen=True, rename="pascal"):
    """How a job ended, as the worker writes it and the client reads it."""

    job_id: str
    client_id: str = ""
    exec_name: str = ""
    status: Status = OK
    stdout: str = ""
    stderr: str = ""
    output_archive: bytes | None = None
    exit_code: ExitCode | None = None
    reason: str | None = None
    """Why the job FAILED: a code of the error table. Old workers give none."""
    run_s: float | None = None
    worker: str | None = None
    archive_blob: BlobRef | msgspec.UnsetType = msgspec.UNSET
    """The archive, if too large for a frame; then `output_archive` is None."""
    stdout_blob: BlobRef | msgspec.UnsetType = msgspec.UNSET
    """All of stdout, if too large for a frame; then `stdout` holds its end."""
    stderr_blob: BlobRef | msgspec.UnsetType = msgspec.UNSET
    unpacked_bytes: int | msgspec.UnsetType = msgspec.UNSET
    """Size of all files of the archive, the bound for unpacking. Old workers do not report it."""
    not_begun: bool | msgspec.UnsetType = msgspec.UNSET
    """The worker could not start the program; another worker may be able to."""
    archive_output: bool | msgspec.UnsetType = msgspec.UNSET
    """The last two entries of the archive are stdout.txt and stderr.txt, as wanted. Only in envelopes."""
    archive_size: int | msgspec.UnsetType = msgspec.UNSET
    """Only in the head of an envelope: size of the archive in the envelope."""


class SubmitHead(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Fields of a JobRequest that a leader needs."""

    job_id: str = ""
    exec_name: str = ""
    timeout_s: float | None = None
    retries: int = 0
    key: str = ""
    priority: int = 0
    slots: int = 1
    broadcast_s: float | None = None
    files: tuple[FileHead, ...] | None = None
    env: dict[str, str] | None = None


class AssignHead(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Fields of a JobRequest that a worker must know before it starts the job."""

    slots: int = 1


class AckHead(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Fields of a JobResult that a leader needs, or must not pass on if invalid."""

    status: Status
    reason: str | None = None
    exit_code: ExitCode | str | None = None
    """Some old workers write it as text, which some old clients read."""
    archive_blob: BlobRef | None = None
    stdout_blob: BlobRef | None = None
    stderr_blob: BlobRef | None = None
    not_begun: bool = False

    def blobs(self) -> tuple[BlobRef | None, ...]:
        return self.archive_blob, self.stdout_blob, self.stderr_blob


class Printed(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Fields of a JobResult with the program's output."""

    stdout: str = ""
    stderr: str = ""


class Refusal(msgspec.Struct, frozen=True, rename="pascal"):
    code: str
    message: str


class Missing(msgspec.Struct, frozen=True, rename="pascal"):
    """Blobs that a leader needs before it takes a job, a result or a cache: put these, and send it again."""

    blobs: list[str]


_submit_head: Final = JsonReader(SubmitHead)
_assign_head: Final = JsonReader(AssignHead)
_ack_head: Final = JsonReader(AckHead)
_printed: Final = JsonReader(Printed)
_request: Final = JsonReader(JobRequest)
_result: Final = JsonReader(JobResult)
_parts: Final = JsonReader(list[BroadcastPart])
_EMPTY_ACK: Final = AckHead(OK)
_HERE: Final = FileHead()
"""A file whose content is in the envelope."""
_AS_JSON_MORE_BYTES: Final = 128
"""Names of fields, quotes and longer numbers of one content as JSON, beside the head of its envelope."""


def read_submit(frame: Frame) -> tuple[JobId, SubmitHead]:
    """The job's id and routing fields. The payload's id wins over the frame's (F9). Raises Refused."""
    try:
        head = _submit_head_of(frame.payload)
        job_id = parse_job_id(head.job_id) if head.job_id else JobId(frame.msg_id)
    except ValueError as error:
        raise Refused("bad-request", f"the payload is not a job request: {error}") from None
    if job_id == NO_ID:
        raise Refused("bad-request", "the job has no id")
    return job_id, head


def head_of(request: JobRequest) -> SubmitHead:
    """Routing fields of a request that was read already."""
    absent = [file for file in request.files if file.content is None]
    files = tuple(FileHead(file.cache_id, sha256=file.sha256, size=file.size) for file in absent)
    return SubmitHead(
        request.job_id,
        request.exec_name,
        request.timeout_s,
        request.retries,
        request.key,
        request.priority,
        request.slots,
        request.broadcast_s,
        files or None,
        request.env or None,
    )


def read_slots(payload: bytes) -> int:
    """Number of slots that a job takes. A request without this field is not decoded for it."""
    try:
        payload = json_of(payload)
        # A name may be written with escapes, and leader and worker must not read it differently.
        if b"Slots" not in payload and rb"\u00" not in payload:
            return 1
        return min(max(_assign_head.read(payload).slots, 1), CREDIT_MAX)
    except Unreadable:
        return 1  # The worker will report that the request cannot be read.


def read_ack(payload: bytes) -> AckHead:
    """Status and reason of a result; an empty payload means OK without output (F9). Raises Refused."""
    if not payload:
        return _EMPTY_ACK
    try:
        return _ack_head.read(json_of(payload))
    except Unreadable as error:
        raise Refused("bad-result", f"the worker's answer is not a result: {error}") from None


def output_tail(payload: bytes) -> str:
    """The end of a FAILED result's output: its stderr or, if empty, its stdout. Empty if unreadable."""
    try:
        printed = _printed.read(json_of(payload))
    except Unreadable:
        return ""
    return (printed.stderr or printed.stdout)[-OUTPUT_TAIL_CHARS_MAX:]


def read_request(payload: bytes) -> JobRequest:
    """A complete job, for a worker. Raises Refused."""
    try:
        return _opened_request(payload) if is_envelope(payload) else _request.read(payload)
    except Unreadable as error:
        raise Refused("bad-request", f"the payload is not a job request: {error}") from None


def read_request_head(head: bytes) -> JobRequest:
    """The job in the head of an envelope, without the contents. Raises Unreadable."""
    return _request.read(head)


def write_request(request: JobRequest) -> bytes:
    """The job in an envelope, with each content as it is."""
    contents = [file.content for file in request.files if file.content is not None]
    files = [_without_content(file) for file in request.files]
    return seal(encode(msgspec.structs.replace(request, files=files)), *contents)


def request_as_json(payload: bytes) -> bytes:
    """The job as frames carry it, with the output apart. Raises Refused."""
    if not is_envelope(payload):
        return payload
    return encode(msgspec.structs.replace(read_request(payload), archive_output=False))


def read_result(job_id: JobId, payload: bytes) -> JobResult:
    """A complete result, for a client. Raises PeerError: the worker's fault, because a leader does not look inside."""
    if not payload:
        return empty_result(show_job_id(job_id))
    try:
        return _opened_result(payload) if is_envelope(payload) else _result.read(payload)
    except Unreadable as error:
        raise PeerError(f"the payload of Result is not a result: {error}") from None


def read_result_head(head: bytes) -> JobResult:
    """The result in the head of an envelope, without the archive. Raises Unreadable."""
    return _result.read(head)


def write_result(result: JobResult) -> bytes:
    """The result in an envelope, with its archive as it is."""
    archive = result.output_archive
    if archive is None:
        return seal(encode(result))
    return seal(encode(msgspec.structs.replace(result, output_archive=None, archive_size=len(archive))), archive)


def bytes_as_json(payload: bytes) -> int:
    """Bound of the size as JSON of a job with one file, or of a result. Contents are base64 there: four characters for
    three bytes. Raises Unreadable."""
    if not is_envelope(payload):
        return len(payload)
    return len(payload) + (len(payload) - len(json_of(payload))) // 3 + _AS_JSON_MORE_BYTES


def empty_result(job_id: str) -> JobResult:
    """Meaning of an empty payload: OK, without output (F9)."""
    return JobResult(job_id, exit_code=0)


def job_has_blobs(payload: bytes) -> bool:
    """Does a job name blobs? Only its head is read: a leader does not check the rest."""
    try:
        payload = json_of(payload)
        return _may_name_blobs(payload) and any(file.sha256 for file in _submit_head.read(payload).files or ())
    except Unreadable:
        return False


def result_has_blobs(payload: bytes) -> bool:
    """Does a result name blobs? Only its head is read, as with a job."""
    try:
        payload = json_of(payload)
        return _may_name_blobs(payload) and any(_ack_head.read(payload).blobs())
    except Unreadable:
        return False


def _submit_head_of(payload: bytes) -> SubmitHead:
    """Raises Unreadable."""
    if not is_envelope(payload):
        return _submit_head.read(payload)
    head = _submit_head.read(json_of(payload))
    files = tuple(_HERE if _is_here(file) else file for file in head.files or ())
    return msgspec.structs.replace(head, files=files or None)


def _opened_request(payload: bytes) -> JobRequest:
    """Raises Unreadable."""
    head, at = opened(payload)
    request = _request.read(head)
    contents = iter(split(payload, at, [file.size or 0 for file in request.files if _is_here(file)]))
    files = [InputFile(file.name, file.cache_id, next(contents)) if _is_here(file) else file for file in request.files]
    return msgspec.structs.replace(request, files=files)


def _is_here(file: InputFile | FileHead) -> bool:
    """Does the content of a file of an envelope's head follow the head?"""
    return file.size is not None and file.sha256 is None


def _without_content(file: InputFile) -> InputFile:
    content = file.content
    return file if content is None else InputFile(file.name, file.cache_id, size=len(content))


def _opened_result(payload: bytes) -> JobResult:
    """Raises Unreadable."""
    head, at = opened(payload)
    result = _result.read(head)
    size = result.archive_size
    if not isinstance(size, int):
        split(payload, at, [])
        return result
    (archive,) = split(payload, at, [size])
    return msgspec.structs.replace(result, output_archive=archive, archive_size=msgspec.UNSET)


def _may_name_blobs(payload: bytes) -> bool:
    """May the payload name blobs? False is certain."""
    # A name may be written with escapes.
    return b'Sha256"' in payload or rb"\u00" in payload


def read_credit(payload: bytes) -> int:
    """The int32 of a Credit frame; 0, which the core refuses, for anything malformed (F7)."""
    return int.from_bytes(payload, "little", signed=True) if len(payload) == 4 else 0


def write_credit(amount: int) -> bytes:
    assert 0 < amount <= CREDIT_MAX
    return amount.to_bytes(4, "little", signed=True)


def read_refusal(payload: bytes) -> Refusal:
    return read_payload(Refusal, payload, "Refusal")


def read_missing(payload: bytes) -> list[str]:
    """The SHA-256 of each blob that a leader still needs. Raises PeerError."""
    return read_payload(Missing, payload, "Missing").blobs


def read_parts(text: str) -> list[BroadcastPart]:
    """The parts of a broadcast, which are its result. Raises PeerError."""
    try:
        return _parts.read(text)
    except Unreadable as error:
        raise PeerError(f"the list of a broadcast's parts cannot be read: {error}") from None


def write_refusal(code: str, text: str) -> bytes:
    return encode(Refusal(code, text[:TEXT_CHARS_MAX]))


def pack_ids(job_ids: Iterable[JobId]) -> bytes:
    """Any number of ids as the payload of Receipt, Confirm, Cancel, Claim, Fetch, Find or Found."""
    return b"".join(job_ids)


def unpack_ids(payload: bytes) -> Sequence[JobId]:
    """Raises PeerError if the payload is not a row of ids."""
    if len(payload) == 16:
        return (JobId(payload),)
    if len(payload) % 16:
        raise PeerError(f"a row of ids has 16 bytes each, not {len(payload)} in all")
    return [JobId(payload[at : at + 16]) for at in range(0, len(payload), 16)]
