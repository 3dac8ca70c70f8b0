"""How does a node run one job? The leader repeats the request under the same id until it is answered. (SPEC G1, N2)

    200               NodeAnswered: the ZIP becomes a result (`node_result`)
    423               the job runs there: wait, then ask again
    503, refused      GivenBack: the node has not begun the job
    connection lost   ask again for as long as for a lost worker; then NodeLost
    anything else     NodeAnswered: FAILED with the code of the problem

Each request carries its digest. A node that has another request under this id answers 409, which ends the job (SPEC
L6). A node that may know the job is first asked without the input. It answers with the result, with 423, or that the
form is missing; only then the input is sent (again). No other node gets a job that a node may have begun while that
node may return.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple, TypeAlias

from wakugumi.adapters.blobs.store import Incoming
from wakugumi.adapters.files import READ
from wakugumi.adapters.http.client import HttpAnswer, HttpClient
from wakugumi.adapters.net.compression import is_packed, unpack
from wakugumi.core.ids import show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.errors import CODES, Lost, Refused
from wakugumi.limits.leader import OUTPUT_TAIL_CHARS_MAX
from wakugumi.limits.node import NODE_AGAIN_S, NODE_QUESTION_S, NODE_RETRY_AFTER_MAX_S
from wakugumi.limits.units import KIB
from wakugumi.roles.http.job_request import seconds_in
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.nodes.node_result import readable, result_of
from wakugumi.wire.form import FORM_DATA, encode_head, encode_tail
from wakugumi.wire.messages.job import FAILED, OK, JobRequest, JobResult, read_request
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef
from wakugumi.wire.node_request import run_query
from wakugumi.wire.problem import PeerProblem, read_problem
from wakugumi.wire.request_digest import HEADER, request_digest

log = logging.getLogger("wakugumi.nodes")

_SENT_BYTES: Final = 256 * KIB
_PROBLEM_BYTES_MAX: Final = 64 * KIB
_RETRY_AFTER_S: Final = 1.0
"""Seconds until the next request when a node sends no Retry-After."""
_WHY_CHARS_MAX: Final = 500
_FAULTS: Final = frozenset({"worker-error", "disk", "disk-full", "bad-result"})
"""Codes of failures that are the node's own fault."""


class NodeAnswered(NamedTuple):
    """The node ended the job."""

    ok: bool
    reason: str
    payload: bytes
    output: str
    """The end of the job's output, unless ok."""
    blobs: tuple[str, ...] = ()
    fault: str = ""
    """Why the node is to blame for the failure; empty if it is not."""


class GivenBack(NamedTuple):
    """The node has not begun the job."""

    why: str
    unreached: bool
    """The connection was refused; otherwise the node is busy."""


class NodeLost(NamedTuple):
    """The node was lost and may have begun the job."""

    why: str


Outcome: TypeAlias = NodeAnswered | GivenBack | NodeLost


class _Running(NamedTuple):
    """The job runs on the node: ask again later."""

    after_s: float


class NodeJob:
    """One job at one node."""

    def __init__(
        self,
        calls: HttpClient,
        url: str,
        blobs: LeaderBlobs | None,
        assigned: ev.SendAssign,
        *,
        may_know: bool,
        patience_s: float,
    ) -> None:
        """`may_know`: the node may have got the job before. `patience_s`: how long to retry a node that may have begun
        the job."""
        self._calls = calls
        self._url = f"{url}/run/{show_job_id(assigned.job)}"
        self._blobs = blobs
        self._job = assigned.job
        self._payload = assigned.payload
        self._may_know = may_know
        self._patience_s = patience_s
        self._timeout: asyncio.Timeout | None = None
        self._digest = ""
        self._request = JobRequest(show_job_id(assigned.job))

    async def run(self) -> Outcome:
        """Raises only CancelledError."""
        try:
            payload = unpack(self._payload) if is_packed(self._payload) else self._payload
            self._payload = b""
            self._request = read_request(payload)
            self._digest = (await _digest_of(self._request)).hex()
            async with AsyncExitStack() as stack:
                return await self._ask_until(await _Input.of(self._request, self._blobs, stack))
        except Refused as no:
            return self._failed(no.code, no.message, ours=True)
        except Exception as error:
            log.exception("unexpected error url=%s", self._url)
            return self._failed("worker-error", f"the job could not be sent to its node: {error!r}"[:_WHY_CHARS_MAX])

    def hang_up(self) -> None:
        """Cut the connection, because the node was silent for too long."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def _ask_until(self, file: _Input) -> Outcome:
        loop = asyncio.get_running_loop()
        url = self._url + run_query(self._request)
        lost_at: float | None = None
        bare = self._may_know
        while True:
            try:
                outcome = await self._ask(url, None if bare else file)
            except Lost as lost:
                if lost.why == "refused" and not self._may_know:
                    return GivenBack(str(lost), unreached=True)
                self._may_know = bare = True
                lost_at = loop.time() if lost_at is None else lost_at
                if loop.time() - lost_at >= self._patience_s:
                    return NodeLost(str(lost))
                await asyncio.sleep(NODE_AGAIN_S)
                continue
            lost_at = None
            if isinstance(outcome, _Running):
                self._may_know = bare = True
                await asyncio.sleep(outcome.after_s)
            elif outcome is not None:
                return outcome
            else:  # The node does not know the job, so it has begun nothing of it.
                self._may_know = bare = False

    async def _ask(self, url: str, file: _Input | None) -> Outcome | _Running | None:
        """None: the node does not know the job and needs the input. Raises Lost."""
        headers, body = ({}, None) if file is None else file.form()
        headers[HEADER] = self._digest
        try:
            async with (
                asyncio.timeout(NODE_QUESTION_S if file is None else None) as self._timeout,
                self._calls.call("POST", url, headers=headers, body=body) as answer,
            ):
                self._timeout.reschedule(None)
                if answer.status == 200:
                    return await self._ended(answer)
                problem = read_problem(await answer.read(_PROBLEM_BYTES_MAX))
                return self._outcome_of(answer, problem, is_bare=file is None)
        except TimeoutError:
            raise Lost(f"{self._url} stopped answering", "slow") from None
        finally:
            self._timeout = None

    def _outcome_of(self, answer: HttpAnswer, problem: PeerProblem, *, is_bare: bool) -> Outcome | _Running | None:
        status, code = answer.status, problem.code
        # A node that shuts down finishes its jobs, but does not say which ones it has.
        if status == 423 or (code == "stopping" and self._may_know):
            return _Running(_retry_after_s(answer))
        text = problem.detail or f"the node answered with status {status}"
        if status in {401, 403, 429, 503}:
            return GivenBack(text, unreached=False)
        if is_bare and 400 <= status < 500 and code != "conflict":
            return None
        return self._failed(code if code in CODES else "worker-error", text)

    async def _ended(self, answer: HttpAnswer) -> NodeAnswered:
        """Raises Lost if the answer is cut off."""
        try:
            result, blobs = await result_of(answer, self._request, self._blobs)
        except Refused as no:
            if no.code == "bad-result":  # Another node may do better: the leader may try again.
                return self._failed("worker-error", no.message)
            return self._failed(no.code, no.message, ours=True)
        ok, reason = result.status == OK, result.reason or ""
        output = "" if ok else (result.stderr or result.stdout)[-OUTPUT_TAIL_CHARS_MAX:]
        fault = f"a job ended with {reason}" if reason in _FAULTS else ""
        return NodeAnswered(ok, reason, encode(result), output, blobs, fault)

    def _failed(self, code: str, text: str, *, ours: bool = False) -> NodeAnswered:
        """`ours`: the leader is to blame, not the node."""
        request, text = self._request, readable(text)
        failed = JobResult(
            request.job_id, request.client_id, request.exec_name, FAILED, stderr=f"wakugumi: {text}\n", reason=code
        )
        fault = text if code in _FAULTS and not ours else ""
        return NodeAnswered(False, code, encode(failed), text[-OUTPUT_TAIL_CHARS_MAX:], (), fault)


class _Input:
    """The one file of a job; `form` encodes it for each request."""

    def __init__(self, name: str, content: bytes | int, size: int) -> None:
        """`content` is the bytes, or an open file."""
        self._name = name
        self._content = content
        self._size = size

    @classmethod
    async def of(cls, request: JobRequest, blobs: LeaderBlobs | None, stack: AsyncExitStack) -> _Input:
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
        opened = await asyncio.to_thread(_open, blobs, ref)
        stack.callback(os.close, opened)
        return cls(file.name, opened, ref.size)

    def form(self) -> tuple[dict[str, str], bytes | AsyncIterator[bytes]]:
        boundary = token_hex(16)
        head, tail = encode_head(boundary.encode(), "file", self._name), encode_tail(boundary.encode())
        headers = {
            "Content-Type": f"{FORM_DATA}; boundary={boundary}",
            "Content-Length": str(len(head) + self._size + len(tail)),
        }
        if isinstance(self._content, bytes):
            return headers, b"".join((head, self._content, tail))
        return headers, self._pieces(self._content, head, tail)

    async def _pieces(self, file: int, head: bytes, tail: bytes) -> AsyncIterator[bytes]:
        yield head
        for at in range(0, self._size, _SENT_BYTES):
            yield await asyncio.to_thread(os.pread, file, min(_SENT_BYTES, self._size - at), at)
        yield tail


async def _digest_of(request: JobRequest) -> bytes:
    """Digest of the request; of a large input in a thread."""
    if sum([len(file.content or b"") for file in request.files]) <= _SENT_BYTES:
        return request_digest(request)
    return await asyncio.to_thread(request_digest, request)


def _open(blobs: LeaderBlobs, ref: BlobRef) -> int:
    """Open a blob of the leader. Raises Refused."""
    if blobs.store is not None:
        return blobs.store.open(ref.sha256)
    with tempfile.TemporaryDirectory(prefix="wakugumi-") as folder:
        path = Path(folder, ref.sha256)
        try:
            blobs.place.fetch(ref, Incoming(ref, f"{path}.part", str(path)))
        except Lost as error:
            raise Refused("worker-error", f"a blob cannot be fetched: {error}") from None
        return os.open(path, READ)


def _retry_after_s(answer: HttpAnswer) -> float:
    seconds = seconds_in(answer.header("Retry-After"))
    return _RETRY_AFTER_S if seconds is None else min(max(seconds, NODE_AGAIN_S), NODE_RETRY_AFTER_MAX_S)
