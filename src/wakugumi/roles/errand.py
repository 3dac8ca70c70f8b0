"""What becomes of one job at a node? It is asked for until there is an answer, always under the same id. (SPEC G1, N2)

    200            Ended: the ZIP becomes a result, as a worker would have written it
    423            it runs there: wait, and ask again
    503, refused   GivenBack: the node has not begun it
    cut off        ask again, for the time that a lost worker has; then Gone
    anything else  Ended, FAILED with the code of the problem

A node that may know the job is first asked without the input: it answers with the result, or 423, or that the form is
missing, and only then is the input sent (again). What a node has begun is given to nobody else while it may be there.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from typing import IO, Final, NamedTuple, TypeAlias, cast

import msgspec

from wakugumi.adapters.blobs import Incoming, ref_of_file
from wakugumi.adapters.calls import Answer, Calls
from wakugumi.adapters.files import READ
from wakugumi.adapters.packing import is_packed, unpack
from wakugumi.adapters.unspliced import unsplice
from wakugumi.core import events as ev
from wakugumi.core.job import show_job_id
from wakugumi.errors import CODES, Lost, Refused
from wakugumi.limits import (
    KIB,
    MIB,
    NODE_AGAIN_S,
    NODE_RETRY_AFTER_MAX_S,
    OUTPUT_TAIL_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    RESULT_BYTES_MAX,
)
from wakugumi.roles.leader_blobs import LeaderBlobs
from wakugumi.wire import message as ms
from wakugumi.wire.message import BlobRef, JobRequest, JobResult
from wakugumi.wire.multipart import FORM_DATA, encode_head, encode_tail
from wakugumi.wire.percent import percent_decoded
from wakugumi.wire.run_query import run_query

_SENT_BYTES: Final = 256 * KIB
_HELD_BYTES: Final = 1 * MIB
"""Of an answer, in memory: what is larger goes to the disk as it comes."""
_AT_ONCE_BYTES: Final = 16 * KIB
"""A ZIP of this size is taken apart sooner than another thread would be found for it."""
_TAIL_BYTES: Final = 64 * KIB
"""What a result tells of stdout and stderr where it cannot tell all."""
_PROBLEM_BYTES_MAX: Final = 64 * KIB
_RETRY_AFTER_S: Final = 1.0
"""If a node does not say."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_EXIT_CODE: Final = re.compile(r"-?[0-9]{1,9}")


class Ended(NamedTuple):
    """There is an answer."""

    ok: bool
    reason: str
    payload: bytes
    output: str
    """The end of what it printed, if it is not OK."""
    blobs: tuple[str, ...] = ()


class GivenBack(NamedTuple):
    """The node has not begun it."""

    why: str
    unreached: bool
    """Nobody is there; otherwise it is only busy."""


class Gone(NamedTuple):
    """The node was lost, and may have begun it."""

    why: str


Outcome: TypeAlias = Ended | GivenBack | Gone


class _Running(NamedTuple):
    """It runs there: ask again after a while."""

    after_s: float


class _Problem(msgspec.Struct, frozen=True, gc=False):
    code: str = ""
    detail: str = ""


class Errand:
    """One job at one node."""

    def __init__(
        self,
        calls: Calls,
        url: str,
        blobs: LeaderBlobs | None,
        assigned: ev.SendAssign,
        *,
        may_know: bool,
        patience_s: float,
    ) -> None:
        """`may_know`: it was there before. `patience_s`: how long a node that may have begun it is looked for."""
        self._calls = calls
        self._url = f"{url}/run/{show_job_id(assigned.job)}"
        self._blobs = blobs
        self._job = assigned.job
        self._payload = assigned.payload
        self._may_know = may_know
        self._patience_s = patience_s
        self._timeout: asyncio.Timeout | None = None
        self._request = JobRequest(show_job_id(assigned.job))

    async def run(self) -> Outcome:
        """Never raises but for being cancelled."""
        try:
            payload = unpack(self._payload) if is_packed(self._payload) else self._payload
            self._payload = b""
            self._request = ms.read_request(payload)
            async with AsyncExitStack() as stack:
                return await self._ask_until(await _Input.of(self._request, self._blobs, stack))
        except Refused as no:
            return self._failed(no.code, no.message)

    def hang_up(self) -> None:
        """Nothing was heard of the node for long: the connection is as good as dead."""
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def _ask_until(self, file: _Input) -> Outcome:
        loop = asyncio.get_running_loop()
        url = self._url + run_query(self._request)
        lost_at: float | None = None
        bare = self._may_know
        while True:
            try:
                said = await self._ask(url, None if bare else file)
            except Lost as lost:
                if lost.why == "refused" and not self._may_know:
                    return GivenBack(str(lost), unreached=True)
                self._may_know = bare = True
                lost_at = loop.time() if lost_at is None else lost_at
                if loop.time() - lost_at >= self._patience_s:
                    return Gone(str(lost))
                await asyncio.sleep(NODE_AGAIN_S)
                continue
            lost_at = None
            if isinstance(said, _Running):
                self._may_know = bare = True
                await asyncio.sleep(said.after_s)
            elif said is not None:
                return said
            else:  # It does not know the job, so nothing of it has begun there.
                self._may_know = bare = False

    async def _ask(self, url: str, file: _Input | None) -> Outcome | _Running | None:
        """None: it does not know the job, and was not told. Raises Lost."""
        headers, body = ({}, None) if file is None else file.form()
        try:
            async with (
                asyncio.timeout(None) as self._timeout,
                self._calls.call("POST", url, headers=headers, body=body) as answer,
            ):
                if answer.status == 200:
                    return await self._result_of(answer)
                problem = _problem_of(await answer.read(_PROBLEM_BYTES_MAX))
                return self._said(answer, problem, asked=file is None)
        except TimeoutError:
            raise Lost(f"{self._url} says nothing any more", "slow") from None
        finally:
            self._timeout = None

    def _said(self, answer: Answer, problem: _Problem, *, asked: bool) -> Outcome | _Running | None:
        status, code = answer.status, problem.code
        # One that shuts down lets its jobs finish, and does not say which it has.
        if status == 423 or (code == "stopping" and self._may_know):
            return _Running(_retry_after_s(answer))
        text = problem.detail or f"the node answered with status {status}"
        if status in {401, 403, 503}:
            return GivenBack(text, unreached=False)
        if asked and 400 <= status < 500:
            return None
        return self._failed(code if code in CODES else "worker-error", text)

    # The answer becomes a result.

    async def _result_of(self, answer: Answer) -> Ended:
        """Raises Lost if it is cut off: then it is asked for again."""
        ok = answer.header("Waku-Status") == ms.OK
        bare = JobResult(
            self._request.job_id,
            self._request.client_id,
            self._request.exec_name,
            ms.OK if ok else ms.FAILED,
            exit_code=_exit_code(answer.header("Waku-Exit-Code")),
            reason=None if ok else _word(answer, "Waku-Reason") or "exit",
            run_s=_seconds(answer.header("Waku-Run-Seconds")),
            worker=_word(answer, "Waku-Worker") or None,
        )
        if bare.reason is not None and bare.reason not in CODES:
            bare = msgspec.structs.replace(bare, reason="worker-error")
        with _Scratch(self._blobs) as scratch:
            file = await scratch.receive(answer)
            try:
                if isinstance(file, BytesIO) and len(file.getbuffer()) <= _AT_ONCE_BYTES:
                    result, blobs = scratch.result(bare, file)
                else:
                    result, blobs = await asyncio.to_thread(scratch.result, bare, file)
            except Refused as no:
                return self._failed(no.code, no.message)
        output = "" if ok else (result.stderr or result.stdout)[-OUTPUT_TAIL_CHARS_MAX:]
        return Ended(ok, bare.reason or "", ms.encode(result), output, blobs)

    def _failed(self, code: str, text: str) -> Ended:
        request = self._request
        failed = JobResult(
            request.job_id, request.client_id, request.exec_name, ms.FAILED, stderr=f"wakugumi: {text}\n"
        )
        payload = ms.encode(msgspec.structs.replace(failed, reason=code))
        return Ended(False, code, payload, text[-OUTPUT_TAIL_CHARS_MAX:])


class _Input:
    """The one file of a job, and the form in which it is sent, as often as it takes."""

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


class _Scratch:
    """Where an answer is taken apart: in memory if it is small, else in a folder that is gone afterwards."""

    def __init__(self, blobs: LeaderBlobs | None) -> None:
        self._blobs = blobs
        self._loop = asyncio.get_running_loop()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[IO[bytes]] = []

    def __enter__(self) -> _Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()
        if self._folder is not None:
            self._folder.cleanup()

    async def receive(self, answer: Answer) -> IO[bytes]:
        """All of it. Raises Lost, or Refused if it is more than anyone takes."""
        held = bytearray()
        file: IO[bytes] | None = None
        size = 0
        async for piece in answer.pieces():
            held += piece
            size += len(piece)
            if size > RESULT_BYTES_MAX:
                raise Refused("too-big", f"the node answers with more than {RESULT_BYTES_MAX} bytes")
            if len(held) >= _HELD_BYTES:
                if file is None:
                    file = await asyncio.to_thread(self._new, "answer")
                await asyncio.to_thread(file.write, held)
                held = bytearray()
        if file is None:
            return BytesIO(held)
        await asyncio.to_thread(file.write, held)
        return file

    def result(self, bare: JobResult, file: IO[bytes]) -> tuple[JobResult, tuple[str, ...]]:
        """The result, and the blobs it names: what does not fit a frame. Raises Refused."""
        large = not isinstance(file, BytesIO)
        texts = {name: self._new(name) if large else BytesIO() for name in ("stdout", "stderr")}
        entries = unsplice(file, texts)
        sizes = {name: text.seek(0, os.SEEK_END) for name, text in texts.items()}
        archive_bytes = file.seek(0, os.SEEK_END) if entries else 0
        if 4 * archive_bytes // 3 + 6 * sum(sizes.values()) < PAYLOAD_BYTES_MAX - KIB:
            return self._whole(bare, texts, file if entries else None), ()
        if isinstance(file, BytesIO):  # Small as a ZIP, and large as what is in it.
            texts = {name: self._moved(name, cast(BytesIO, text)) for name, text in texts.items()}
            file = self._moved("answer", file)
        blobs: dict[str, BlobRef] = {}
        if archive_bytes > _TAIL_BYTES:
            blobs["archive_blob"] = self._put(file)
        for name, text in texts.items():
            if sizes[name] > _TAIL_BYTES:
                blobs[f"{name}_blob"] = self._put(text)
        result = self._whole(bare, texts, file if 0 < archive_bytes <= _TAIL_BYTES else None)
        return msgspec.structs.replace(result, **blobs), tuple(ref.sha256 for ref in blobs.values())

    def _whole(self, bare: JobResult, texts: dict[str, IO[bytes]], archive: IO[bytes] | None) -> JobResult:
        """With what fits; of a long text the end."""
        size_max = PAYLOAD_BYTES_MAX if isinstance(texts["stdout"], BytesIO) else _TAIL_BYTES
        ends = {name: _end(text, size_max) for name, text in texts.items()}
        content = None if archive is None else _end(archive, PAYLOAD_BYTES_MAX)
        return msgspec.structs.replace(
            bare,
            stdout=ends["stdout"].decode(errors="replace"),
            stderr=ends["stderr"].decode(errors="replace"),
            output_archive=content,
        )

    def _put(self, file: IO[bytes]) -> BlobRef:
        if self._blobs is None:
            raise Refused("too-big", "the result does not fit a frame, and this leader keeps no blobs")
        file.flush()
        path = Path(file.name)
        try:
            ref = ref_of_file(path)
            self._loop.call_soon_threadsafe(self._blobs.expected.name, [ref])
            self._blobs.place.put(ref, path)
        except (Lost, OSError) as error:
            raise Refused("worker-error", f"the result cannot be put into the leader's place: {error}") from None
        return ref

    def _moved(self, name: str, content: BytesIO) -> IO[bytes]:
        file = self._new(name)
        file.write(content.getbuffer())
        return file

    def _new(self, name: str) -> IO[bytes]:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="wakugumi-")
        file = open(Path(self._folder.name, name), "w+b")  # noqa: SIM115 -- closed with the others
        self._files.append(file)
        return file


def _open(blobs: LeaderBlobs, ref: BlobRef) -> int:
    """A blob of the leader's as an open file. Raises Refused."""
    if blobs.store is not None:
        return blobs.store.open(ref.sha256)
    with tempfile.TemporaryDirectory(prefix="wakugumi-") as folder:
        path = Path(folder, ref.sha256)
        try:
            blobs.place.fetch(ref, Incoming(ref, f"{path}.part", str(path)))
        except Lost as error:
            raise Refused("worker-error", f"a blob cannot be fetched: {error}") from None
        return os.open(path, READ)


def _problem_of(body: bytes) -> _Problem:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except (ValueError, RecursionError):
        return _Problem()


def _retry_after_s(answer: Answer) -> float:
    said = _seconds(answer.header("Retry-After"))
    return _RETRY_AFTER_S if said is None else min(max(said, NODE_AGAIN_S), NODE_RETRY_AFTER_MAX_S)


def _word(answer: Answer, name: str) -> str:
    try:
        return percent_decoded(answer.header(name) or "")[:200]
    except Refused:
        return ""


def _seconds(text: str | None) -> float | None:
    """What a stranger's head says, if that is a number of any use."""
    return float(text) if text is not None and _SECONDS.fullmatch(text) else None


def _exit_code(text: str | None) -> int | None:
    return int(text) if text is not None and _EXIT_CODE.fullmatch(text) else None


def _end(file: IO[bytes], size_max: int) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - size_max))
    return file.read()
