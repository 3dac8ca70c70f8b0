"""How does one exchange with a node pass? The request is encoded, and the answer decoded. (SPEC G1, N2)

    request   an envelope, or a form; without the job's file it is only a question whether the node knows the job
    answer    200: an envelope, or a ZIP, that becomes a result (`node_result`); otherwise a problem

`core/leader/nodes/jobs.py` decides what is sent, and what an answer means.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from secrets import token_hex
from typing import Final

from msgspec import structs

from wakugumi.adapters.http.client import HttpAnswer, HttpClient
from wakugumi.adapters.net.compression import is_packed, unpack
from wakugumi.adapters.sent_parts import SentPart, SentParts
from wakugumi.core.ids import show_job_id
from wakugumi.core.leader.events import SendAssign
from wakugumi.core.leader.nodes.events import NodeAnswered, NodeReply
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.leader import OUTPUT_TAIL_CHARS_MAX
from wakugumi.limits.units import KIB
from wakugumi.roles.http.peer_answers import refusal_in
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.nodes.node_result import result_of
from wakugumi.wire.form import FORM_DATA, encode_head, encode_tail
from wakugumi.wire.messages.envelope import JOB_TYPE, RESULT_TYPE, is_envelope
from wakugumi.wire.messages.job import FAILED, OK, JobRequest, JobResult, read_request, write_request
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef
from wakugumi.wire.node_request import run_query
from wakugumi.wire.request_digest import HEADER, request_digest

_SENT_BYTES: Final = 256 * KIB


class NodeExchange:
    """The exchanges with one node about one job."""

    def __init__(
        self, calls: HttpClient, url: str, blobs: LeaderBlobs | None, assigned: SendAssign, name: str = ""
    ) -> None:
        """`name` is the node's, if it was given one."""
        self._name = name
        self.url = f"{url}/run/{show_job_id(assigned.job)}"
        self._calls = calls
        self._blobs = blobs
        self._payload = assigned.payload
        self._request = JobRequest(show_job_id(assigned.job))
        self._digest = assigned.request.hex()
        self._is_read = False
        self._file: _Input | None = None
        self._stack = ExitStack()
        self._answer: HttpAnswer | None = None

    @property
    def awaited_at(self) -> int | None:
        """Bytes of the answer so far, if the node is to send more now; None if it is not."""
        return None if self._answer is None else self._answer.awaited_at

    async def _read(self) -> None:
        """Raises Refused."""
        payload = unpack(self._payload) if is_packed(self._payload) else self._payload
        self._request = structs.replace(read_request(payload), job_id=self._request.job_id)
        self._digest = self._digest or (await _digest_of(self._request)).hex()
        self._is_read = True
        self._payload = payload if is_envelope(payload) else b""

    def close(self) -> None:
        self._stack.close()

    async def ask(self, began: Callable[[], None], *, is_bare: bool, as_form: bool) -> NodeAnswered | NodeReply:
        """`is_bare`: ask without the input. `began` is called when the node begins to answer. Raises Lost, PeerError,
        Refused."""
        if not self._is_read:
            await self._read()
        if self._file is None and not is_bare:
            self._file = await _Input.of(self._request, self._blobs, self._stack)
        file = None if is_bare else self._file
        url, headers = self.url, {HEADER: self._digest}
        body: bytes | AsyncIterator[bytes] | None = None
        if as_form:
            url += run_query(self._request)
        else:
            headers["Accept"] = RESULT_TYPE
        if file is not None:
            if not as_form and not self._payload:
                self._payload = write_request(self._request)
            more, body = file.form() if as_form else file.behind(self._payload)
            headers |= more
        async with self._calls.call("POST", url, headers=headers, body=body) as answer:
            began()
            self._answer = answer
            if answer.status == 200:
                return await self._ended(answer)
            problem, again_s, takes_envelopes = await refusal_in(answer)
            text = problem.detail or f"the node answered with status {answer.status}"
            return NodeReply(answer.status, problem.code, text, again_s, takes_envelopes)

    async def _ended(self, answer: HttpAnswer) -> NodeAnswered:
        """Raises Lost if the answer is cut off, PeerError if it is no result."""
        try:
            payload, result, blobs = await result_of(answer, self._request, self._blobs, self._name)
        except Refused as no:
            if no.code == "bad-result":
                raise PeerError(no.message) from None
            raise
        ok = result.status == OK
        output = "" if ok else (result.stderr or result.stdout)[-OUTPUT_TAIL_CHARS_MAX:]
        return NodeAnswered(ok, result.reason or "", payload, output, blobs)

    def failed(self, code: str, text: str) -> bytes:
        """The result of an attempt that the leader ended."""
        request, stderr = self._request, f"wakugumi: {text}\n" if text else ""
        return encode(
            JobResult(request.job_id, request.client_id, request.exec_name, FAILED, stderr=stderr, reason=code)
        )


class _Input:
    """The one file of a job; `behind` and `form` encode it for each request."""

    def __init__(self, name: str, content: bytes | int, size: int) -> None:
        """`content` is the bytes, or an open file."""
        self._name = name
        self._content = content
        self._size = size

    @classmethod
    async def of(cls, request: JobRequest, blobs: LeaderBlobs | None, stack: ExitStack) -> _Input:
        """Raises Refused."""
        if len(request.files) != 1:
            raise Refused("bad-request", f"a node takes a job with one file, and this one has {len(request.files)}")
        (file,) = request.files
        if not file.sha256:
            content = file.content or b""
            return cls(file.name, content, len(content))
        if blobs is None:
            raise Refused("no-blob", "this leader keeps no blobs any more")
        ref = BlobRef(file.sha256, file.size or 0)
        opened = stack.enter_context(await asyncio.to_thread(blobs.open, ref))
        return cls(file.name, opened.fileno(), ref.size)

    def behind(self, envelope: bytes) -> tuple[dict[str, str], bytes | AsyncIterator[bytes]]:
        """The job's envelope, with the file in it or behind it."""
        if isinstance(self._content, bytes):
            return {"Content-Type": JOB_TYPE, "Content-Length": str(len(envelope))}, envelope
        headers = {"Content-Type": JOB_TYPE, "Content-Length": str(len(envelope) + self._size)}
        return headers, self._body(self._content, envelope, b"")

    def form(self) -> tuple[dict[str, str], bytes | AsyncIterator[bytes]]:
        boundary = token_hex(16)
        head, tail = encode_head(boundary.encode(), "file", self._name), encode_tail(boundary.encode())
        headers = {
            "Content-Type": f"{FORM_DATA}; boundary={boundary}",
            "Content-Length": str(len(head) + self._size + len(tail)),
        }
        if isinstance(self._content, bytes):
            return headers, b"".join((head, self._content, tail))
        return headers, self._body(self._content, head, tail)

    def _body(self, file: int, head: bytes, tail: bytes) -> AsyncIterator[bytes]:
        """The body has a descriptor of its own: it may still be read when the exchange ends, by an early answer."""
        files, own = ExitStack(), os.dup(file)
        files.callback(os.close, own)
        parts = [SentPart(head, 0, len(head)), SentPart(own, 0, self._size), SentPart(tail, 0, len(tail))]
        return SentParts(parts, sum(part.end for part in parts), files)


async def _digest_of(request: JobRequest) -> bytes:
    """Digest of the request; of a large input in a thread."""
    if sum([len(file.content or b"") for file in request.files]) <= _SENT_BYTES:
        return request_digest(request)
    return await asyncio.to_thread(request_digest, request)
