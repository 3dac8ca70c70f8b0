"""What does a peer get in place of packed payloads, envelopes and blobs that it does not take? (SPEC F10, F11, C7)

    envelope, any peer by frames         the payload as JSON, without output in the archive of a result
    packed payload, peer without zstd    the payload unpacked
    blobs, peer without blobs            their content in the frame if all of it fits; else FAILED with the reason

An old worker never gets a job that it could not run: the leader answers in its place and returns its credit. An old
client gets the archive of a result and the end of stdout and stderr. A cut stdout makes the result FAILED, because the
client would take the end for the whole; a cut stderr does not. `Stderr` reports both.

The sent content is larger than the core counted, up to one frame each. Each old peer therefore has a line: one job or
result at a time is unpacked or read, after the peer has read the ones before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec

from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.compression import is_packed, unpack
from wakugumi.adapters.zip.take_output import result_for_frames
from wakugumi.core.ids import ConnId, JobId, show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.leader import ENVELOPE_IN_LOOP_BYTES_MAX, KEPT_RESULT_TTL_S, OUTPUT_TAIL_CHARS_MAX
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.hub import Hub, Peer
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.envelope import is_envelope
from wakugumi.wire.messages.job import (
    FAILED,
    OK,
    InputFile,
    JobRequest,
    JobResult,
    job_has_blobs,
    read_request,
    read_result,
    read_slots,
    request_as_json,
    result_has_blobs,
)
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef

_SlowPart: TypeAlias = Callable[[], Awaitable[None]]
_Work: TypeAlias = Callable[[], _SlowPart | None]
"""Sends something, or returns the slow part that will send it."""


class _Line(NamedTuple):
    work: deque[_Work]
    task: asyncio.Task[None]


class OldPeers:
    """Frames of one leader for old peers."""

    def __init__(self, hub: Hub, blobs: LeaderBlobs | None) -> None:
        self._hub = hub
        self._blobs = blobs
        self._tasks = Tasks()
        self._lines: dict[ConnId, _Line] = {}
        """Frames that peers still have to get, each with the task that sends them."""

    async def close(self) -> None:
        await self._tasks.close()

    # In line.

    def when_written(self, peer: Peer, then: Callable[[], None]) -> None:
        """Call `then` once all frames for this peer so far are written."""
        line = self._lines.get(peer.conn)
        if line is None:
            peer.link.when_written(then)
        else:
            line.work.append(partial(peer.link.when_written, then))

    def disconnect(self, peer: Peer) -> None:
        line = self._lines.pop(peer.conn, None)
        if line is not None:
            line.task.cancel()

    def _in_line(self, peer: Peer, work: _Work) -> None:
        """Do `work` now if the line is empty, the peer reads, and the work is fast; else in the line's task."""
        line = self._lines.get(peer.conn)
        if line is not None:
            line.work.append(work)
            return
        if not peer.link.is_blocked:
            slow_part = work()
            if slow_part is None:
                return
            work = partial(_same, slow_part)
        todo = deque([work])
        task = self._tasks.start(self._send_in_line(peer, todo), name=f"frames for old peer {peer.link.peer}")
        self._lines[peer.conn] = _Line(todo, task)

    async def _send_in_line(self, peer: Peer, todo: deque[_Work]) -> None:
        try:
            while todo:
                if peer.link.is_blocked:
                    written = asyncio.get_running_loop().create_future()
                    peer.link.when_written(partial(written.set_result, None))
                    await written
                slow_part = todo.popleft()()
                if slow_part is not None:
                    await slow_part()
        except Exception as error:
            peer.fail("frames for an old peer", error)
        self._lines.pop(peer.conn, None)

    # A job to a worker.

    def send_job(self, peer: Peer, effect: ev.SendAssign) -> None:
        """Send the job, now or after its content was read."""
        if peer.zstd and peer.blobs:
            _send_job(peer, effect, effect.payload)
        else:
            self._in_line(peer, partial(self._assign, peer, effect))

    def send_without_envelope(self, peer: Peer, effect: ev.SendAssign) -> None:
        """Send a job that is in an envelope as JSON."""
        try:
            payload = request_as_json(effect.payload)
            if len(payload) > fr.payload_max(effect.subject):
                raise Refused("too-big", f"a request of {len(payload)} bytes does not fit a frame to a worker")
        except Refused as no:
            self._answer_for(peer, effect, JobRequest(show_job_id(effect.job)), no)
        else:
            self.send_job(peer, msgspec.structs.replace(effect, payload=payload))

    def _assign(self, peer: Peer, effect: ev.SendAssign) -> _SlowPart | None:
        payload = effect.payload if peer.zstd else _plain(effect.payload)
        if not peer.blobs and job_has_blobs(_plain(payload)):
            return partial(self._inline_job, peer, effect)
        _send_job(peer, effect, payload)
        return None

    async def _inline_job(self, peer: Peer, effect: ev.SendAssign) -> None:
        request = JobRequest(show_job_id(effect.job))
        try:
            request = read_request(_plain(effect.payload))
            payload = await self._with_content(request, fr.payload_max(effect.subject))
        except Refused as no:
            self._answer_for(peer, effect, request, no)
            return
        if self._is_here(peer):
            _send_job(peer, effect, payload)

    async def _with_content(self, request: JobRequest, bytes_max: int) -> bytes:
        """Raises Refused."""
        refs = [BlobRef(file.sha256, file.size or 0) for file in request.files if file.sha256]
        contents = await self._read(refs, bytes_max)
        files = [InputFile(file.name, content=contents[file.sha256]) if file.sha256 else file for file in request.files]
        payload = encode(msgspec.structs.replace(request, files=files))
        if len(payload) > bytes_max:
            raise _too_big(sum(ref.size for ref in refs))
        return payload

    def _answer_for(self, peer: Peer, effect: ev.SendAssign, request: JobRequest, no: Refused) -> None:
        """Answer FAILED in the worker's place and return its credit: the worker never received the job."""
        if not self._is_here(peer):
            return
        failed = JobResult(request.job_id, request.client_id, request.exec_name, FAILED, "", no.message)
        payload = encode(msgspec.structs.replace(failed, reason=no.code))
        self._hub.drive.post(ev.Acked(effect.conn, effect.job, False, no.code, payload, no.message))
        self._hub.drive.post(ev.Credited(effect.conn, read_slots(_plain(effect.payload))))

    # A result to a client.

    def send_result(self, peer: Peer, job: JobId, result: bytes) -> None:
        """Send the result, now or after its envelope was opened or its archive read."""
        if is_envelope(result):
            self._in_line(peer, partial(self._open, peer, job, result))
        elif peer.zstd and peer.blobs:
            self._send_result(peer, job, result)
        else:
            self._in_line(peer, partial(self._result, peer, job, result))

    def _open(self, peer: Peer, job: JobId, result: bytes) -> _SlowPart | None:
        if len(result) > ENVELOPE_IN_LOOP_BYTES_MAX:
            return partial(self._open_beside, peer, job, result)
        return self._result(peer, job, _without_envelope(peer, job, result))

    async def _open_beside(self, peer: Peer, job: JobId, result: bytes) -> None:
        plain = await asyncio.to_thread(_without_envelope, peer, job, result)
        if self._is_here(peer) and (slow_part := self._result(peer, job, plain)) is not None:
            await slow_part()

    def _result(self, peer: Peer, job: JobId, result: bytes) -> _SlowPart | None:
        if not peer.zstd:
            result = _plain(result)
        if not peer.blobs and result_has_blobs(_plain(result)):
            return partial(self._inline_result, peer, job, _plain(result))
        self._send_result(peer, job, result)
        return None

    async def _inline_result(self, peer: Peer, job: JobId, result: bytes) -> None:
        try:
            record = read_result(job, result)
        except PeerError as error:
            record = _bad_result(peer, job, error)
        archive = record.archive_blob
        record = _without_large_texts(record, job)
        if isinstance(archive, BlobRef):
            try:
                contents = await self._read([archive], fr.payload_max("") - len(encode(record)))
                record = msgspec.structs.replace(record, output_archive=contents[archive.sha256])
            except Refused as no:
                record = _failed(record, no, _kept(job))
        if self._is_here(peer):
            self._send_result(peer, job, encode(record))

    def _send_result(self, peer: Peer, job: JobId, result: bytes) -> None:
        peer.link.send(fr.encode(fr.RESULT, job, job, payload=result))
        if not peer.receipts:  # The peer cannot confirm: written counts as delivered (F9).
            self._hub.drive.post(ev.Confirmed(peer.conn, (job,)))

    def _is_here(self, peer: Peer) -> bool:
        return self._hub.peers.get(peer.conn) is peer

    async def _read(self, refs: Sequence[BlobRef], bytes_max: int) -> dict[str, bytes]:
        """Content of all `refs` if it fits `bytes_max` bytes of a frame. Raises Refused."""
        size = sum(ref.size for ref in refs)
        if 4 * size // 3 > bytes_max:
            raise _too_big(size)
        if self._blobs is None:
            raise Refused("no-blob", "this leader keeps no blobs any more")
        return await asyncio.to_thread(self._blobs.read, refs)


def _bad_result(peer: Peer, job: JobId, error: PeerError) -> JobResult:
    return JobResult(show_job_id(job), peer.client_id, status=FAILED, stderr=str(error), reason="bad-result")


def _without_envelope(peer: Peer, job: JobId, result: bytes) -> bytes:
    """A result as JSON; FAILED if its envelope cannot be read, or if it does not fit a frame."""
    try:
        plain = result_for_frames(job, result)
        if len(plain) > fr.payload_max(""):
            raise PeerError(f"a result of {len(plain)} bytes does not fit a frame")
    except PeerError as error:
        return encode(_bad_result(peer, job, error))
    return plain


def _same(slow_part: _SlowPart) -> _SlowPart:
    return slow_part


def _send_job(peer: Peer, effect: ev.SendAssign, payload: bytes) -> None:
    peer.link.send(fr.encode(fr.ASSIGN_JOB, effect.job, fr.NO_ID, effect.subject, payload))


def _plain(payload: bytes) -> bytes:
    return unpack(payload) if is_packed(payload) else payload


def _too_big(size: int) -> Refused:
    return Refused("too-big", f"{size} bytes of files do not fit a frame, and the peer is too old for blobs")


def _without_large_texts(record: JobResult, job: JobId) -> JobResult:
    """The result without its blobs; its stderr reports each cut text."""
    cut = {name: ref for name in ("stdout", "stderr") if isinstance(ref := getattr(record, f"{name}_blob"), BlobRef)}
    unset = msgspec.UNSET
    record = msgspec.structs.replace(record, archive_blob=unset, stdout_blob=unset, stderr_blob=unset)
    for name, ref in cut.items():
        text = f"{ref.size} bytes of {name} do not fit a frame: {name.capitalize()} holds their end"
        if name == "stdout" and record.status == OK:
            record = _failed(record, Refused("too-big", text), _kept(job))
        else:
            record = msgspec.structs.replace(record, stderr=f"wakugumi: {text}. {_kept(job)}\n{record.stderr}")
    if len(encode(record)) > fr.payload_max(""):  # Another worker's program: it left no room for our text.
        end = OUTPUT_TAIL_CHARS_MAX
        record = msgspec.structs.replace(record, stdout=record.stdout[-end:], stderr=record.stderr[-end:])
    return record


def _failed(record: JobResult, no: Refused, where: str) -> JobResult:
    stderr = f"{record.stderr}\nwakugumi: {no.message}. {where}\n".lstrip("\n")
    return msgspec.structs.replace(record, status=FAILED, stderr=stderr, reason=no.code)


def _kept(job: JobId) -> str:
    return f"All of it is kept for {KEPT_RESULT_TTL_S:.0f} s: waku jobs wait {show_job_id(job)}"
