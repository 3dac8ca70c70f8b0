"""How is the job of an HTTP request received? As a form with its file, or as an envelope, from another role.

    POST /dispatch/night-7?program=pricer     multipart/form-data             the query describes the job
    POST /dispatch/night-7?subject=night      application/vnd.wakugumi.job    the head of the envelope describes it

A small file stays in memory; a larger one goes to disk while it is received. docs/reference/envelopes.md has the
layout.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from hashlib import sha256
from typing import Final

from msgspec import structs

from wakugumi.adapters.http.page import HttpRequest, Page, Reply
from wakugumi.adapters.http.server import problem
from wakugumi.adapters.http.upload import Received, receive_file, receive_pieces
from wakugumi.adapters.spool import Spools
from wakugumi.core.ids import JobId, parse_job_id, show_job_id
from wakugumi.core.names import check_file_name
from wakugumi.errors import PeerError, Refused, bad_request
from wakugumi.limits.files import BLOB_BYTES_MAX
from wakugumi.roles.http.envelope_body import EnvelopeBody
from wakugumi.roles.http.job_request import JobForm, check_client, check_job, default_client, input_of, request_of
from wakugumi.wire.job_options import OPTIONS
from wakugumi.wire.messages.envelope import JOB, JOB_TYPE, TAKES
from wakugumi.wire.messages.job import JobRequest, read_request_head
from wakugumi.wire.messages.references import BlobRef, check_ref
from wakugumi.wire.untrusted_json import Unreadable

BESIDE_ENVELOPE: Final = frozenset({"subject", "async"})
"""Parameters of a query beside an envelope: the head has the others."""
_PLAIN: Final = JobRequest("")
_OPTIONS: Final = [name for name in OPTIONS if name in JobRequest.__struct_fields__]
_HINT: Final = "docs/reference/envelopes.md has the layout of this body"


def takes_envelopes(page: Page) -> Page:
    """The page of a job. Its refusal of an envelope has the header TAKES: the sender has no reason to send a form."""

    async def answered(visit: HttpRequest) -> Reply:
        try:
            return await page(visit)
        except (Refused, PeerError) as error:
            if visit.header("Content-Type") != JOB_TYPE:
                raise
            reply = problem(error if isinstance(error, Refused) else Refused("bad-request", str(error)))
            return reply._replace(headers={**reply.headers, TAKES: JOB})

    return answered


async def receive_job(
    visit: HttpRequest,
    job: JobId,
    form: JobForm,
    spools: Spools,
    bytes_max: int,
    came: Callable[[int], None] = lambda _: None,
) -> tuple[JobRequest, Received]:
    """The job, and its file, which the job holds if it is small and names by its hash otherwise. Raises Refused, or
    Lost if the sender is gone."""
    if visit.header("Content-Type") != JOB_TYPE:
        received = await receive_file(visit, spools, bytes_max, came)
        return request_of(form, job, received), received
    if not BESIDE_ENVELOPE.issuperset(visit.parameters()):
        raise _bad("the query describes a job, and so does the envelope")
    body = EnvelopeBody(visit.pieces())
    try:
        start, head_at = await body.head()
        request = _checked(read_request_head(start[head_at:]), job, form.subject, default_client(visit.identity))
    except Unreadable as error:
        raise _bad(f"the body is not an envelope with a job: {error}") from None
    (file,) = request.files
    ref = BlobRef("", file.size or 0) if file.sha256 is None else check_ref(BlobRef(file.sha256, file.size or 0))
    size = len(start) + ref.size
    if visit.content_length not in {None, size}:
        raise _bad(f"the body has {visit.content_length} bytes, and its head tells of {size}")
    if visit.content_length == size and len(body.held) == ref.size <= min(bytes_max, spools.memory_max):
        received = Received(file.name, body.held, None, "", ref.size)  # All of it is here.
        came(ref.size)
    else:
        received = await receive_pieces(_whole(body, ref.size), ref.size, file.name, spools, bytes_max, came)
    if ref.sha256 and ref.sha256 != (received.sha256 or sha256(received.content or b"").hexdigest()):
        received.drop()
        raise _bad(f"the file's content is not that of {ref.sha256}")
    return structs.replace(request, files=[input_of(received)]), received


async def _whole(body: EnvelopeBody, size: int) -> AsyncIterator[bytes]:
    """The file's content, which ends the body. Raises Refused."""
    try:
        async for piece in body.content(size):
            yield piece
        await body.end()
    except Unreadable as error:
        raise _bad(f"the body is not an envelope with a job: {error}") from None


def _checked(request: JobRequest, job: JobId, subject: str, client: str) -> JobRequest:
    """The request with the id of its path, and nothing that a form could not ask for. Raises Refused, and Unreadable if
    its id is none."""
    try:
        if request.job_id and parse_job_id(request.job_id) != job:
            raise _bad(f"the envelope has the job {request.job_id[:80]!r}, and the path another")
    except ValueError as error:
        raise Unreadable(str(error)) from None
    if len(request.files) != 1:
        raise _bad(f"a job by HTTP has one file, and this envelope has {len(request.files)}")
    (file,) = request.files
    if file.size is None or not 0 <= file.size <= BLOB_BYTES_MAX or file.content is not None or file.cache_id:
        raise _bad(f"the file of an envelope has a Size up to {BLOB_BYTES_MAX}, and neither a Content nor a CacheId")
    check_file_name(file.name)
    client = check_client(request.client_id or client)
    if request.broadcast_s is not None:
        raise _bad("a job by HTTP is no broadcast")
    fields = {name: getattr(request, name) for name in _OPTIONS if getattr(request, name) != getattr(_PLAIN, name)}
    for name in fields:
        if not OPTIONS[name].form:
            raise _bad(f"a job by HTTP has no {name}")
    _, fields = check_job(request.exec_name, request.args, {**fields, "subject": subject})
    return structs.replace(request, job_id=show_job_id(job), client_id=client, **fields)


_bad = partial(bad_request, hint=_HINT)
