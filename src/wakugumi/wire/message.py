"""What does a frame say? (SPEC F4–F9) JSON payloads to values and back.

The leader reads only the routing fields of a job (`read_submit`) and of a result (`read_ack`): the payload travels
on as the same bytes. Names are PascalCase on the wire and snake_case here; unknown fields are ignored, missing ones
have defaults, and what cannot be read raises PeerError (a hello, an id list) or Refused (one job of a good peer). What
is said about it is cut, however much of it a stranger wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec

from wakugumi.core.ids import ClientId, JobId, parse_job_id, show_job_id
from wakugumi.core.leader.admin.questions import Question
from wakugumi.core.leader.jobs.broadcast import BroadcastPart
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.leader import CLIENT_CAP_MAX, CLIENT_CAP_OLD, OUTPUT_TAIL_CHARS_MAX
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.limits.wire import CACHE_ID_CHARS_MAX, CLIENT_ID_CHARS_MAX, WORKER_NAME_CHARS_MAX
from wakugumi.wire.frame import NO_ID, Frame
from wakugumi.wire.untrusted_json import JsonReader, Unreadable, read_json

T = TypeVar("T")

TEXT_CHARS_MAX: Final = 1_000
"""Of a refusal's message: it may quote what was asked, and must fit a frame and a log line."""

OK: Final = "OK"
FAILED: Final = "FAILED"
SKIPPED: Final = "SKIPPED"
"""Of a CachePut: all of it was there already."""
PROGRESS: Final = "PROGRESS"
"""Of a CachePut that is under way."""

Status: TypeAlias = Literal["OK", "FAILED"]
"""Of a job's result. A worker that says anything else has sent no result."""
ExitCode: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**32 - 1)]
"""32 bits, signed or not: Windows has exit codes such as 0xC0000005."""

RECEIPTS: Final = "receipts"
HEARTBEATS: Final = "heartbeats"
REATTACH: Final = "reattach"
CANCELS: Final = "cancels"
CAPS: Final = "caps"
BLOBS: Final = "blobs"
"""It exchanges what does not fit a frame as blobs, and is told which of them are missing."""
FINDS: Final = "finds"
"""A leader says which jobs it knows, without a client waiting for them."""
ZSTD: Final = "zstd"
"""Payloads of jobs and results may be packed, in both directions."""
RESTS: Final = "rests"
"""A worker may say that its machine is out of order, and gives back what it could not start."""
ENV: Final = "env"
"""A worker gives programs the variables that a job sets; a leader assigns such jobs to no other."""
DIGESTS: Final = "digests"
"""It tells of each job which request it is (`request_digest`): a client in the corrId of a SubmitJob, a worker in the
msgId of an AckJob."""
WANTS_CLIENT: Final = (RECEIPTS, HEARTBEATS, BLOBS, DIGESTS)
WANTS_WORKER: Final = (RECEIPTS, HEARTBEATS, REATTACH, CANCELS, BLOBS, RESTS, DIGESTS, ENV)


class BlobRef(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """File content that travels beside the frames, by its SHA-256 in lower-case hexadecimal digits."""

    sha256: str
    size: int


class InputFile(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A file that a job brings along: in the frame (`content`), as a blob, or one of a cache that it names."""

    name: str
    cache_id: str | None = None
    content: bytes | None = None
    sha256: str | None = None
    size: int | None = None


class JobLimits(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """SPEC W8. None is no limit."""

    memory_bytes: int | None = None
    cpu_s: float | None = None
    file_bytes: int | None = None
    processes: int | None = None


class JobRequest(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One run of a program, as the client asks for it and the worker reads it. What may be asked: `job_options`."""

    job_id: str
    client_id: str = ""
    exec_name: str = ""
    args: list[str] = []
    files: list[InputFile] = []
    timeout_s: float | None = None
    limits: JobLimits | None = None
    retries: int = 0
    """How often a program that ends with a non-zero exit is run again before that is the job's answer."""
    key: str = ""
    """Jobs with the same key go to the same worker, where the leader's policy is sticky."""
    priority: int = 0
    """Higher ones go before others of the same client and subject."""
    slots: int = 1
    """How many of a worker's slots it takes."""
    broadcast_s: float | None = None
    """It is for every worker that matches, and each has so many seconds for it (S5)."""
    env: dict[str, str] = {}
    """Variables for the program, beside those of its worker (U8)."""


class JobResult(msgspec.Struct, frozen=True, rename="pascal"):
    """How it ended, as the worker writes it and the client reads it."""

    job_id: str
    client_id: str = ""
    exec_name: str = ""
    status: Status = OK
    stdout: str = ""
    stderr: str = ""
    output_archive: bytes | None = None
    exit_code: ExitCode | None = None
    reason: str | None = None
    """Why it FAILED: a code of the error table. Old workers give none."""
    run_s: float | None = None
    worker: str | None = None
    archive_blob: BlobRef | msgspec.UnsetType = msgspec.UNSET
    """The archive, where it does not fit a frame; `output_archive` is None then."""
    stdout_blob: BlobRef | msgspec.UnsetType = msgspec.UNSET
    """All of stdout, where it does not fit a frame; `stdout` holds its end then."""
    stderr_blob: BlobRef | msgspec.UnsetType = msgspec.UNSET
    unpacked_bytes: int | msgspec.UnsetType = msgspec.UNSET
    """What the files of the archive have together: whoever unpacks it writes no more. Old workers do not say."""
    not_begun: bool | msgspec.UnsetType = msgspec.UNSET
    """The worker could not even start the program: another one may well be able to."""


class FileHead(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The fields of an InputFile that a leader needs: where it comes from. `wire/references.py` reads them."""

    cache_id: str | None = None
    content: msgspec.Raw = msgspec.Raw()
    sha256: str | None = None
    size: int | None = None


class SubmitHead(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The fields of a JobRequest that a leader needs."""

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
    """The fields of a JobRequest that a worker must know before it starts the job."""

    slots: int = 1


class AckHead(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The fields of a JobResult that a leader needs, or must not pass on if they cannot be."""

    status: Status
    reason: str | None = None
    exit_code: ExitCode | str | None = None
    """Some old workers write it as text, which some old clients read."""
    archive_blob: BlobRef | None = None
    stdout_blob: BlobRef | None = None
    stderr_blob: BlobRef | None = None
    not_begun: bool = False


class Printed(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The fields of a JobResult that tell its story."""

    stdout: str = ""
    stderr: str = ""


class HelloClient(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    client_id: str | None = None
    desired_parallelism: int | None = None
    wants: list[str] = []


class HelloWorker(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    name: str = ""
    wants: list[str] = []
    slots: int = 0
    """How many it has in all: it may be given jobs that take several of them. 0 if it does not say."""
    runs_unnamed: bool = False
    """It has a program for jobs that name none."""
    as_root: bool = False
    """Programs have the rights of root there."""


class Welcome(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A leader's answer to a hello that wanted anything: from here on both sides know what the other speaks."""

    version: str
    wants: list[str] = []
    """What the leader takes beyond what every leader with a Welcome does: `caps`, `finds` and
    `env` from a client, `blobs` from both."""
    blobs: str = ""
    """Where its blobs are, as a URL; empty if the leader itself has them, over HTTP at the address of this
    connection."""


class Refusal(msgspec.Struct, frozen=True, rename="pascal"):
    code: str
    message: str


class Load(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """What a worker's heartbeat tells: the machine's CPU use, 0 to 1."""

    cpu: float = 0.0
    held_by: float = 0.0
    """Credit was held back because others used so much of it."""


class Rest(msgspec.Struct, frozen=True, rename="pascal"):
    """Why a worker's machine is out of order; empty if it is in order again."""

    why: str


class Holding(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """What a worker still runs and which results it still has, after it connected (SPEC L4)."""

    running: list[bytes] = []
    finished: list[bytes] = []
    """Not yet confirmed: they follow by themselves."""
    kept: list[bytes] = []
    """Of an earlier life of this worker, confirmed or not: they follow if they are fetched."""


class Missing(msgspec.Struct, frozen=True, rename="pascal"):
    """What a leader has to have before it takes a job, a result or a cache: put these, and send it again."""

    blobs: list[str]


class CacheEntry(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """One file of a cache: in the frame, as old peers have it, or as a blob."""

    name: str
    content: bytes | None = None
    sha256: str | None = None
    size: int | None = None


class CachePutRequest(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A set of files for workers to have beforehand: from a client to the leader, and on to each worker."""

    cache_id: str = ""
    entries: list[CacheEntry] = []
    target_pattern: str = ""
    within_s: float | None = None
    """How long the client waits for the workers."""
    share: float | None = None
    """With this share of the workers, 0 to 1, the client is content; 1 if it does not say."""
    pinned: bool = False
    progress: bool = False
    """Tell how far it is, now and then, by answers with the status PROGRESS."""
    version: str = ""
    """From a leader: which life of this cache id it is. What a worker has of another one is dropped first."""


class CacheAckHead(msgspec.Struct, frozen=True, rename="pascal"):
    """What a leader reads of a worker's CacheAck, old or new."""

    cache_id: str = ""
    status: str = ""
    message: str = ""


class FailedWorker(msgspec.Struct, frozen=True, rename="pascal"):
    worker: str
    message: str


class CachePutResult(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A worker's answer to a CachePut, or the leader's summary of them."""

    cache_id: str
    status: str
    message: str
    sent: int = 0
    ok: int = 0
    skipped: int = 0
    failed: int = 0
    silent: int = 0
    waiting: int = 0
    """Workers that have not answered yet: only while it is under way."""
    failures: list[FailedWorker] = []
    code: str = ""
    """Why a leader failed it, if that was not for its workers: one of `errors.CODES`."""


class Stock(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """What a worker holds: all of it after its Welcome (`whole`), then what came and went."""

    whole: bool = False
    url: str = ""
    """Where other workers fetch from it; empty if they cannot."""
    key: str = ""
    """By which it checks the tokens that the leader makes for others to fetch from it."""
    blobs: list[str] = []
    gone: list[str] = []
    caches: dict[str, str] = {}
    """Caches by their ids, and the versions it has of them."""
    used_bytes: int = 0
    bytes_max: int = 0


class FetchFailure(msgspec.Struct, frozen=True, rename="pascal"):
    """Where a worker tried to fetch from, in vain, and how that ended: `dead`, `slow`, `lied` or `busy`; or
    `given-up`, whatever the source did."""

    url: str
    why: str


class Want(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """A worker needs a blob, or one file of a cache, and asks where it may fetch it."""

    sha256: str = ""
    size: int = 0
    cache_id: str = ""
    name: str = ""
    failed: FetchFailure | None = None
    """The source that it was given before, for the same want."""


class Source(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Where a worker may fetch what it wants. With a code there is no such place, and will be none."""

    sha256: str = ""
    size: int = 0
    url: str = ""
    """A worker's or a place's; empty: the leader's own place."""
    token: str = ""
    code: str = ""
    message: str = ""


class CachePutHead(msgspec.Struct, frozen=True, rename="pascal"):
    cache_id: str = ""


_encoder: Final = msgspec.json.Encoder()
encode: Final = _encoder.encode
"""Any of the records above, or an answer to a question, as JSON."""

_submit_head: Final = JsonReader(SubmitHead)
_assign_head: Final = JsonReader(AssignHead)
_ack_head: Final = JsonReader(AckHead)
_printed: Final = JsonReader(Printed)
_request: Final = JsonReader(JobRequest)
_result: Final = JsonReader(JobResult)
_question: Final[JsonReader[Question]] = JsonReader(Question)  # type: ignore[arg-type]
_parts: Final = JsonReader(list[BroadcastPart])

_ACK_OF_NOTHING: Final = AckHead(OK)


def read_submit(frame: Frame) -> tuple[JobId, SubmitHead]:
    """The job's id and routing fields. The payload's id wins over the frame's (F9). Raises Refused."""
    try:
        head = _submit_head.read(frame.payload)
        job_id = parse_job_id(head.job_id) if head.job_id else JobId(frame.msg_id)
    except ValueError as error:
        raise Refused("bad-request", f"the payload is not a job request: {error}") from None
    if job_id == NO_ID:
        raise Refused("bad-request", "the job has no id")
    return job_id, head


def read_slots(payload: bytes) -> int:
    """How many slots a job takes. A request that says nothing of them is not decoded for it."""
    # A name may be written with escapes, and leader and worker must not read it differently.
    if b"Slots" not in payload and rb"\u00" not in payload:
        return 1
    try:
        return min(max(_assign_head.read(payload).slots, 1), CREDIT_MAX)
    except Unreadable:
        return 1  # It will fail as what it is, a request that cannot be read.


def read_ack(payload: bytes) -> AckHead:
    """Status and reason of a result; an empty payload means OK without output (F9). Raises Refused."""
    if not payload:
        return _ACK_OF_NOTHING
    try:
        return _ack_head.read(payload)
    except Unreadable as error:
        raise Refused("bad-result", f"the worker's answer is not a result: {error}") from None


def output_tail(payload: bytes) -> str:
    """The end of what a FAILED result printed: its stderr or, without any, its stdout. Empty if it cannot be read."""
    try:
        printed = _printed.read(payload)
    except Unreadable:
        return ""
    return (printed.stderr or printed.stdout)[-OUTPUT_TAIL_CHARS_MAX:]


def read_request(payload: bytes) -> JobRequest:
    """A whole job, as a worker needs it. Raises Refused."""
    try:
        return _request.read(payload)
    except Unreadable as error:
        raise Refused("bad-request", f"the payload is not a job request: {error}") from None


def read_result(job_id: JobId, payload: bytes) -> JobResult:
    """A whole result, as a client needs it. Raises PeerError: the worker's fault, for a leader does not look inside."""
    if not payload:
        return empty_result(show_job_id(job_id))
    try:
        return _result.read(payload)
    except Unreadable as error:
        raise PeerError(f"the payload of Result is not a result: {error}") from None


def empty_result(job_id: str) -> JobResult:
    """What an empty payload says: OK, without output (F9)."""
    return JobResult(job_id, exit_code=0)


def job_has_blobs(payload: bytes) -> bool:
    """Does a job name blobs? Only its head is read: the rest may be anything, and is none of a leader's business."""
    try:
        return _says_blobs(payload) and any(file.sha256 for file in _submit_head.read(payload).files or ())
    except Unreadable:
        return False


def result_has_blobs(payload: bytes) -> bool:
    """Does a result name blobs? Only its head is read, as with a job."""
    if not _says_blobs(payload):
        return False
    try:
        head = _ack_head.read(payload)
    except Unreadable:
        return False
    return any((head.archive_blob, head.stdout_blob, head.stderr_blob))


def _says_blobs(payload: bytes) -> bool:
    """May it name blobs? If not, it surely does not."""
    # A name may be written with escapes.
    return b'Sha256"' in payload or rb"\u00" in payload


def read_hello_client(frame: Frame) -> tuple[ClientId, int, frozenset[str]]:
    """Client id, cap and wants (F5). Raises PeerError."""
    hello = _read(HelloClient, frame.payload, "HelloClient") if frame.payload else HelloClient()
    client_id = frame.subject or hello.client_id or ""
    if not client_id or len(client_id) > CLIENT_ID_CHARS_MAX or not is_plain_name(client_id):
        raise PeerError(f"a client id is 1 to {CLIENT_ID_CHARS_MAX} printable characters, not {client_id[:80]!r}")
    cap = CLIENT_CAP_OLD if hello.desired_parallelism is None else hello.desired_parallelism
    if not 1 <= cap <= CLIENT_CAP_MAX:
        raise PeerError(f"DesiredParallelism is 1 to {CLIENT_CAP_MAX}, not {cap}")
    return ClientId(client_id), cap, frozenset(hello.wants)


def read_hello_worker(frame: Frame) -> HelloWorker:
    """An old worker has neither name nor wants nor slots. Raises PeerError."""
    if not any(frame.msg_id):
        raise PeerError("a worker's hello carries its id, not zeros")
    hello = _read(HelloWorker, frame.payload, "HelloWorker") if frame.payload else HelloWorker()
    if len(hello.name) > WORKER_NAME_CHARS_MAX or not is_plain_name(hello.name):
        raise PeerError(f"a worker's name is at most {WORKER_NAME_CHARS_MAX} printable characters")
    if not 0 <= hello.slots <= CREDIT_MAX:
        raise PeerError(f"a worker has at most {CREDIT_MAX} slots, not {hello.slots}")
    return hello


def read_credit(payload: bytes) -> int:
    """The int32 of a Credit frame; 0, which the core refuses, for anything malformed (F7)."""
    return int.from_bytes(payload, "little", signed=True) if len(payload) == 4 else 0


def write_credit(amount: int) -> bytes:
    assert 0 < amount <= CREDIT_MAX
    return amount.to_bytes(4, "little", signed=True)


def read_cap(payload: bytes) -> int:
    """The int32 of a Cap frame; 0, which the core refuses, for anything malformed."""
    return int.from_bytes(payload, "little", signed=True) if len(payload) == 4 else 0


def write_cap(cap: int) -> bytes:
    assert 0 < cap <= CLIENT_CAP_MAX
    return cap.to_bytes(4, "little", signed=True)


def read_welcome(payload: bytes) -> Welcome:
    return _read(Welcome, payload, "Welcome")


def read_refusal(payload: bytes) -> Refusal:
    return _read(Refusal, payload, "Refusal")


def read_load(payload: bytes) -> Load:
    """The load, brought within 0 to 1, whatever a worker claims."""
    load = _read(Load, payload, "Heartbeat") if payload else Load()
    return Load(min(max(load.cpu, 0.0), 1.0), min(max(load.held_by, 0.0), 1.0))


def read_rest(payload: bytes) -> str:
    """Why a worker rests, cut to what a list can show. Raises PeerError."""
    return _read(Rest, payload, "Resting").why[:TEXT_CHARS_MAX]


def read_holding(payload: bytes) -> Holding:
    """Raises PeerError, also for ids that are not 16 bytes."""
    holding = _read(Holding, payload, "Holding")
    if any(len(job_id) != 16 for ids in (holding.running, holding.finished, holding.kept) for job_id in ids):
        raise PeerError("the payload of Holding has an id that is not 16 bytes")
    return holding


def read_missing(payload: bytes) -> list[str]:
    """The SHA-256 of each blob that a leader still needs. Raises PeerError."""
    return _read(Missing, payload, "Missing").blobs


def read_cache_put(payload: bytes) -> str:
    """The cache id of a CachePut, cut to what an answer can quote. Empty if it cannot be read."""
    try:
        return read_json(payload, CachePutHead).cache_id[:CACHE_ID_CHARS_MAX]
    except Unreadable:
        return ""


def read_cache_result(payload: bytes) -> CachePutResult:
    return _read(CachePutResult, payload, "CacheAck")


def read_put(payload: bytes) -> CachePutRequest:
    """A whole CachePut, as a worker needs it. Raises Refused."""
    try:
        return read_json(payload, CachePutRequest)
    except Unreadable as error:
        raise Refused("bad-request", f"the payload is no cache: {error}") from None


def read_source(payload: bytes) -> Source:
    return _read(Source, payload, "Source")


def read_cache_ack(frame: Frame) -> CacheAckHead:
    """A worker's answer; without an id it is about the cache of its subject. Raises PeerError."""
    head = _read(CacheAckHead, frame.payload, "CacheAck") if frame.payload else CacheAckHead(status=OK)
    if head.cache_id:
        return head
    return CacheAckHead(frame.subject.removeprefix("cache.ack."), head.status, head.message)


def read_stock(payload: bytes) -> Stock:
    return _read(Stock, payload, "Stock")


def read_want(payload: bytes) -> Want:
    return _read(Want, payload, "Want")


def read_question(payload: bytes) -> Question:
    """Raises Refused: a question of another version hurts only the one who asked."""
    try:
        return _question.read(payload)
    except Unreadable as error:
        raise Refused("unknown-question", f"the leader does not know this question: {error}") from None


def read_parts(text: str) -> list[BroadcastPart]:
    """The parts of a broadcast, which are its result. Raises PeerError."""
    try:
        return _parts.read(text)
    except Unreadable as error:
        raise PeerError(f"the list of a broadcast's parts cannot be read: {error}") from None


def write_refusal(code: str, text: str) -> bytes:
    return encode(Refusal(code, text[:TEXT_CHARS_MAX]))


def pack_ids(job_ids: Iterable[JobId]) -> bytes:
    """Any number of ids as one payload: what Receipt, Confirm, Cancel, Claim, Fetch, Find and Found carry."""
    return b"".join(job_ids)


def unpack_ids(payload: bytes) -> Sequence[JobId]:
    """Raises PeerError if the payload is not a row of ids."""
    if len(payload) == 16:
        return (JobId(payload),)
    if len(payload) % 16:
        raise PeerError(f"a row of ids has 16 bytes each, not {len(payload)} in all")
    return [JobId(payload[at : at + 16]) for at in range(0, len(payload), 16)]


def _read(record: type[T], payload: bytes, name: str) -> T:
    try:
        return read_json(payload, record)
    except Unreadable as error:
        raise PeerError(f"the payload of {name} cannot be read: {error}") from None
