"""Is this a job that a gateway can pass on? Query and form are checked, and passed on unchanged.

A form that a group would refuse is refused here, before any of it is kept: the pieces go on as received, while a parser
reads them. It finds the file's place in the body, so that the file can be sent without its form.

While a body is being received, the size of its file follows from the declared size of the body, if nothing stands
behind the last boundary, as with all usual clients. The end of the body tells whether that was right.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Final

from msgspec import structs

from wakugumi.adapters.http.page import HttpRequest
from wakugumi.adapters.http.upload import FileForm, too_large
from wakugumi.core.gateway.rows import DIGEST_FORM, InputAt
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.errors import bad_request
from wakugumi.limits.runner import JOB_TIMEOUT_S
from wakugumi.limits.units import MIB
from wakugumi.roles.http.job_request import CLIENT_HEADER, JobForm, args_of
from wakugumi.wire.form import encode_tail
from wakugumi.wire.messages.job import InputFile, JobRequest
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.percent import percent_decoded
from wakugumi.wire.request_digest import request_digest

ASYNC: Final = "async"
"""The one parameter of the gateway itself."""
_HASHED_BYTES: Final = 1 * MIB
"""Bytes hashed at once in a thread: a smaller body is hashed in the loop."""
_YES: Final = frozenset({"1", "true", "yes"})
_NO: Final = frozenset({"0", "false", "no"})


def wants_async(visit: HttpRequest) -> bool:
    """Will the client fetch the answer later? Raises Refused."""
    said = visit.query(ASYNC)
    if said and said[-1] not in _YES | _NO:
        raise bad_request(f"async is 1 or 0, not {said[-1][:80]!r}")
    if said:
        return said[-1] in _YES
    wishes = (visit.header("Prefer") or "").lower().replace(";", ",").split(",")
    return "respond-async" in [wish.strip() for wish in wishes]


def query_for_group(visit: HttpRequest) -> str:
    """The query without the gateway's own parameter."""
    pairs = visit.query_text.split("&")
    return "&".join(pair for pair in pairs if pair and percent_decoded(pair.partition("=")[0]) != ASYNC)


def path_beside_file(path: str) -> str:
    """The path for a group that gets the file as it is: the head before the file has all of the query but the
    subject."""
    path, _, query = path.partition("?")
    kept = [pair for pair in query.split("&") if percent_decoded(pair.partition("=")[0]) == "subject"] if query else []
    return "?".join((path, *kept))


def headers_for_group(visit: HttpRequest, client: str) -> dict[str, str]:
    """Headers for the group, which believes a gateway the client id. Raises Refused for a header that is not UTF-8."""
    headers = {CLIENT_HEADER: client}
    if (content_type := visit.header("Content-Type")) is not None:
        headers["Content-Type"] = content_type
    for name, value in headers.items():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise bad_request(f"the header {name} is not UTF-8") from None
    return headers


def job_s_of(query: str) -> float:
    """The time that a job with this query may run, with all its retries."""
    if not query:
        return JOB_TIMEOUT_S
    said = {percent_decoded(name): value for name, _, value in (pair.partition("=") for pair in query.split("&"))}
    try:
        timeout_s = float(percent_decoded(said.get("timeout", "")) or JOB_TIMEOUT_S)
        return timeout_s * (1 + int(percent_decoded(said.get("retries", "")) or 0))
    except ValueError:  # The group will refuse the bad value.
        return JOB_TIMEOUT_S


class Seen:
    """Computes the digest of a request while its body passes, and finds the file."""

    def __init__(self, form: JobForm, job: JobId) -> None:
        self._form = form
        self._job = job
        self._sha256 = hashlib.sha256()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._size = 0
        self.digest = ""
        """`DIGEST_FORM` and hexadecimal digits, once the body is whole."""
        self.input: InputAt | None = None
        """Where the file is: once the body is whole, and before as far as the declared size of the body tells."""

    async def data(self, data: bytes) -> None:
        """Data of the file. Large amounts are hashed in a thread."""
        self._size += len(data)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _HASHED_BYTES:
            content = b"".join(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
            await asyncio.to_thread(self._sha256.update, content)

    def expect(self, form: FileForm, length: int) -> None:
        """The head of the file was received, of a body with this declared size."""
        if self.input is None and form.file_name is not None:
            size = length - form.content_at - len(encode_tail(form.boundary))
            if size >= 0:
                self._found(form.file_name, form.content_at, size)

    def finish(self, name: str, at: int) -> None:
        """The body is whole, with a file of this name at this place."""
        self._sha256.update(b"".join(self._waiting))
        self._waiting = []
        request = self._found(name, at, self._size)
        file = InputFile(name, sha256=self._sha256.hexdigest(), size=0)
        self.digest = DIGEST_FORM + request_digest(structs.replace(request, files=[file])).hex()

    def _found(self, name: str, at: int, size: int) -> JobRequest:
        form, file = self._form, InputFile(name, size=size)
        job = show_job_id(self._job)
        request = JobRequest(job, form.client, form.program, args_of(form, name), [file], **form.fields)
        self.input = InputAt(encode(request), at, size)
        return request


async def form_pieces(visit: HttpRequest, bytes_max: int, seen: Seen) -> AsyncIterator[bytes]:
    """The body's pieces, if it is a form with one file. Raises Refused, or Lost if the sender is gone."""
    form = FileForm(visit)
    length = visit.content_length
    if length is not None and length > bytes_max:
        raise too_large(length, bytes_max)
    came = 0
    async for piece in visit.pieces():
        came += len(piece)
        if came > bytes_max:
            raise too_large(came, bytes_max)
        for data in form.feed(piece):
            await seen.data(data)
        if length is not None and came < length:
            seen.expect(form, length)
        yield piece
    seen.finish(form.finish(), form.content_at)
