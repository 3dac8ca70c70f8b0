"""How does a node's answer become a result in the form of a worker's?

    headers   Waku-Status, Waku-Exit-Code, …   fields of the result
    ZIP       stdout.txt and stderr.txt        its texts
              all other entries                its archive

A small answer stays in memory. A larger one is written to the incoming folder of the leader's blobs as it arrives, and
its parts that do not fit a frame become blobs there. Headers without a usable value are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from typing import IO, Final, cast

import msgspec

from wakugumi.adapters.blobs.store import ref_of_file
from wakugumi.adapters.files import refused
from wakugumi.adapters.http.client import HttpAnswer
from wakugumi.adapters.zip.take_output import unsplice
from wakugumi.errors import CODES, Lost, Refused
from wakugumi.limits.runner import RESULT_BYTES_MAX
from wakugumi.limits.units import KIB, MIB
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.roles.http.job_request import seconds_in
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.wire.messages.job import FAILED, OK, JobRequest, JobResult
from wakugumi.wire.messages.references import BlobRef
from wakugumi.wire.percent import percent_decoded

_HELD_BYTES: Final = 1 * MIB
"""Largest part of an answer in memory; a larger answer goes to disk in such parts."""
_AT_ONCE_BYTES: Final = 16 * KIB
"""A ZIP up to this size is read in the loop, which is faster than a thread. Even if it grows a thousandfold, the loop
is not blocked for long."""
_TAIL_BYTES: Final = 64 * KIB
"""Length of stdout and stderr in a result whose texts are blobs."""
_EXIT_CODE: Final = re.compile(r"-?[0-9]{1,9}")
_COUNT: Final = re.compile(r"[0-9]{1,15}")


async def result_of(
    answer: HttpAnswer, request: JobRequest, blobs: LeaderBlobs | None
) -> tuple[JobResult, tuple[str, ...]]:
    """The result and the blobs it names. Raises Lost if the answer is cut off, Refused `bad-result` if the node is to
    blame, and Refused with another code if the leader is."""
    ok = answer.header("Waku-Status") == OK
    reason = None if ok else _word(answer, "Waku-Reason") or "exit"
    bare = JobResult(
        request.job_id,
        request.client_id,
        request.exec_name,
        OK if ok else FAILED,
        exit_code=_exit_code(answer.header("Waku-Exit-Code")),
        reason=reason if reason is None or reason in CODES else "worker-error",
        run_s=seconds_in(answer.header("Waku-Run-Seconds")),
        worker=_word(answer, "Waku-Worker") or None,
        unpacked_bytes=_count(answer.header("Waku-Unpacked-Bytes")),
    )
    with _Scratch(blobs) as scratch:
        file = await scratch.receive(answer)
        if isinstance(file, BytesIO) and len(file.getbuffer()) <= _AT_ONCE_BYTES:
            return scratch.result(bare, file)
        return await asyncio.to_thread(scratch.result, bare, file)


def readable(text: str) -> str:
    """`text` with each undecodable byte of a header (a lone surrogate) replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()


class _Scratch:
    """Holds an answer while it is read: in memory if small, else in files that are removed at the end."""

    def __init__(self, blobs: LeaderBlobs | None) -> None:
        self._blobs = blobs
        self._loop = asyncio.get_running_loop()
        self._files: list[IO[bytes]] = []
        self._closed = False

    def __enter__(self) -> _Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        for file in self._files:
            with contextlib.suppress(OSError):  # A failed write fails again when flushed.
                file.close()
            with contextlib.suppress(OSError):  # The file is gone if it became a blob.
                os.unlink(file.name)

    async def receive(self, answer: HttpAnswer) -> IO[bytes]:
        """The whole body. Raises Lost, or Refused if it is too large."""
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
                    file = await asyncio.to_thread(self._new)
                await asyncio.to_thread(_write, file, held)
                held = bytearray()
        if file is None:
            return BytesIO(held)
        await asyncio.to_thread(_write, file, held)
        return file

    def result(self, bare: JobResult, file: IO[bytes]) -> tuple[JobResult, tuple[str, ...]]:
        """The result and the blobs it names, which do not fit a frame. Raises Refused."""
        large = not isinstance(file, BytesIO)
        texts = {name: self._new() if large else BytesIO() for name in ("stdout", "stderr")}
        entries = unsplice(file, texts)
        sizes = {name: text.seek(0, os.SEEK_END) for name, text in texts.items()}
        archive_bytes = file.seek(0, os.SEEK_END) if entries else 0
        if 4 * archive_bytes // 3 + 6 * sum(sizes.values()) < PAYLOAD_BYTES_MAX - KIB:
            return self._whole(bare, texts, file if entries else None), ()
        if isinstance(file, BytesIO):  # A small ZIP with large content.
            texts = {name: self._moved(cast(BytesIO, text)) for name, text in texts.items()}
            file = self._moved(file)
        blobs: dict[str, BlobRef] = {}
        if archive_bytes > _TAIL_BYTES:
            blobs["archive_blob"] = self._put(file)
        for name, text in texts.items():
            if sizes[name] > _TAIL_BYTES:
                blobs[f"{name}_blob"] = self._put(text)
        result = self._whole(bare, texts, file if 0 < archive_bytes <= _TAIL_BYTES else None)
        return msgspec.structs.replace(result, **blobs), tuple(ref.sha256 for ref in blobs.values())

    def _whole(self, bare: JobResult, texts: dict[str, IO[bytes]], archive: IO[bytes] | None) -> JobResult:
        """The result with its archive, if small, and the end of long texts."""
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
        store, path = self._blobs.store, Path(file.name)
        try:
            file.flush()
            ref = ref_of_file(path)
            self._loop.call_soon_threadsafe(self._blobs.expected.name, [ref])
            if store is None:
                self._blobs.place.put(ref, path)
            else:
                store.adopt(ref, path)
        except Lost as error:
            raise Refused("worker-error", f"the result cannot be put into the leader's place: {error}") from None
        except OSError as error:
            raise refused(error, "the result cannot be kept by the leader") from None
        return ref

    def _moved(self, content: BytesIO) -> IO[bytes]:
        file = self._new()
        _write(file, content.getbuffer())
        return file

    def _new(self) -> IO[bytes]:
        store = None if self._blobs is None else self._blobs.store
        folder = Path(tempfile.gettempdir()) if store is None else store.incoming
        try:
            path = folder / f"wakugumi-answer-{token_hex(16)}"
            file = open(path, "x+b", opener=_private)  # noqa: SIM115 -- closed with the others
        except OSError as error:
            raise refused(error, "the node's answer cannot be written") from None
        self._files.append(file)
        if self._closed:  # The caller was cancelled meanwhile.
            self.__exit__()
            raise Refused("cancelled", "the request for this answer was cancelled")
        return file


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(file: IO[bytes], data: bytes | bytearray | memoryview) -> None:
    try:
        file.write(data)
    except OSError as error:
        raise refused(error, "the node's answer cannot be written") from None


def _word(answer: HttpAnswer, name: str) -> str:
    try:
        return readable(percent_decoded(answer.header(name) or "")[:200])
    except Refused:
        return ""


def _exit_code(text: str | None) -> int | None:
    return int(text) if text is not None and _EXIT_CODE.fullmatch(text) else None


def _count(text: str | None) -> int | msgspec.UnsetType:
    return int(text) if text is not None and _COUNT.fullmatch(text) else msgspec.UNSET


def _end(file: IO[bytes], size_max: int) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - size_max))
    return file.read()
