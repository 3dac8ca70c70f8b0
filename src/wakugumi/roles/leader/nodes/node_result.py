"""How does a node's answer become a result in the form of a worker's?

An envelope is a result; its large parts follow it. A ZIP becomes one:

    headers   Waku-Status, Waku-Exit-Code, …   fields of the result
    ZIP       stdout.txt and stderr.txt        its texts
              all other entries                its archive

A small answer stays in memory. A larger one is written to the incoming folder of the leader's blobs as it arrives, and
its parts that do not fit a frame become blobs there. Headers without a usable value are left out.

Job, client and program of a result are those of the request, and its worker has the name that the leader gave the node.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import ExitStack, closing
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Final

import msgspec

from wakugumi.adapters.files import Refusing
from wakugumi.adapters.http.client import HttpAnswer
from wakugumi.adapters.spool import Spool, Spools
from wakugumi.adapters.zip.take_output import unsplice
from wakugumi.core.ids import JobId, parse_job_id
from wakugumi.core.visible_text import readable
from wakugumi.errors import CODES, Refused
from wakugumi.limits.runner import RESULT_BYTES_MAX
from wakugumi.limits.units import KIB
from wakugumi.limits.wire import PAYLOAD_BYTES_MAX
from wakugumi.roles.http.envelope_body import EnvelopeBody
from wakugumi.roles.http.job_request import seconds_in
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.wire.frame import payload_max
from wakugumi.wire.messages.envelope import RESULT_TYPE, seal
from wakugumi.wire.messages.job import FAILED, OK, JobRequest, JobResult, read_result_head, write_result
from wakugumi.wire.messages.payload import encode
from wakugumi.wire.messages.references import BlobRef, blobs_of_result
from wakugumi.wire.percent import percent_decoded
from wakugumi.wire.untrusted_json import Unreadable

_AT_ONCE_BYTES: Final = 16 * KIB
"""A ZIP up to this size is read in the loop, which is faster than a thread. Even if it grows a thousandfold, the loop
is not blocked for long."""
_TAIL_BYTES: Final = 64 * KIB
"""Length of stdout and stderr in a result whose texts are blobs."""
_WORD_CHARS_MAX: Final = 200
_EXIT_CODE: Final = re.compile(r"-?[0-9]{1,9}")
_COUNT: Final = re.compile(r"[0-9]{1,15}")


async def result_of(
    answer: HttpAnswer, request: JobRequest, blobs: LeaderBlobs | None, node: str = ""
) -> tuple[bytes, JobResult, tuple[str, ...]]:
    """The result in an envelope, the record of its head, and the blobs it names. `node` is the node's name, if it was
    given one. Raises Lost if the answer is cut off,
    Refused `bad-result` if the node is to blame, and Refused with another code if the leader is."""
    if answer.header("Content-Type") == RESULT_TYPE:
        return await _opened(EnvelopeBody(answer.pieces()), request, blobs, node)
    spools = Spools(Path(tempfile.gettempdir())) if blobs is None else blobs.spools
    with closing(spools.new(RESULT_BYTES_MAX, is_answer=True)) as spool:
        await spool.fill(answer.pieces())
        bare = _bound(_bare(answer, request), request, node)
        result, names = await _from_zip(bare, spool, blobs, spools)
    return write_result(result), result, names


def _bare(answer: HttpAnswer, request: JobRequest) -> JobResult:
    """The result that an answer's headers tell."""
    ok = answer.header("Waku-Status") == OK
    return JobResult(
        request.job_id,
        status=OK if ok else FAILED,
        exit_code=_exit_code(answer.header("Waku-Exit-Code")),
        reason=None if ok else _word(answer, "Waku-Reason"),
        run_s=seconds_in(answer.header("Waku-Run-Seconds")),
        worker=_word(answer, "Waku-Worker"),
        unpacked_bytes=_count(answer.header("Waku-Unpacked-Bytes")),
    )


def _bound(result: JobResult, request: JobRequest, node: str) -> JobResult:
    """The result of this request at this node, whatever else the node says. Raises Unreadable if it is that of another
    job."""
    if _job_of(result.job_id) != _job_of(request.job_id):
        raise Unreadable(f"it is the result of job {result.job_id[:80]!r}")
    reason = None if result.status == OK else result.reason or "exit"
    return msgspec.structs.replace(
        result,
        job_id=request.job_id,
        client_id=request.client_id,
        exec_name=request.exec_name,
        reason=reason if reason is None or reason in CODES else "worker-error",
        worker=node or readable((result.worker or "")[:_WORD_CHARS_MAX]) or None,
    )


def _job_of(text: str) -> JobId:
    try:
        return parse_job_id(text)
    except ValueError as error:
        raise Unreadable(str(error)) from None


async def _from_zip(
    bare: JobResult, answer: Spool, blobs: LeaderBlobs | None, spools: Spools
) -> tuple[JobResult, tuple[str, ...]]:
    """The result with the parts of a ZIP, and the blobs it names. Raises Refused."""
    with ExitStack() as stack:
        new = partial(spools.new, RESULT_BYTES_MAX, is_answer=True, is_hashed=True)
        stdout, stderr, archive = (stack.enter_context(closing(new())) for _ in range(3))
        split = partial(_split, bare, answer, stdout, stderr, archive)
        is_small = answer.data is not None and answer.size <= _AT_ONCE_BYTES
        result, large = split() if is_small else await spools.beside(split)
        refs = {name: await _kept(blobs, part) for name, part in large.items()}
    return msgspec.structs.replace(result, **refs), tuple(ref.sha256 for ref in refs.values())


def _split(
    bare: JobResult, answer: Spool, stdout: Spool, stderr: Spool, archive: Spool
) -> tuple[JobResult, dict[str, Spool]]:
    """Writes the parts of a ZIP to these spools. The result, and its parts that do not fit a frame. Raises Refused."""
    data, content, large = answer.data, None, {}
    texts = {"stdout": stdout, "stderr": stderr}
    with Refusing("the node's answer cannot be written"):
        with answer.file() if data is None else BytesIO(data) as file:
            size = file.seek(0, os.SEEK_END) if unsplice(file, texts) else 0
            is_whole = 4 * size // 3 + 6 * (stdout.size + stderr.size) < PAYLOAD_BYTES_MAX - KIB
            if is_whole or size <= _TAIL_BYTES:
                file.seek(0)
                content = file.read() if size else None
            else:
                large["archive_blob"] = answer if data is None else archive
                archive.write(file.getvalue() if isinstance(file, BytesIO) else b"")
        for part in (stdout, stderr, archive):
            part.finish()
        if not is_whole:
            large |= {f"{name}_blob": text for name, text in texts.items() if text.size > _TAIL_BYTES}
        ends = {name: text.end(PAYLOAD_BYTES_MAX if is_whole else _TAIL_BYTES) for name, text in texts.items()}
    said = {name: end.decode(errors="replace") for name, end in ends.items()}
    return msgspec.structs.replace(bare, output_archive=content, **said), large


async def _kept(blobs: LeaderBlobs | None, part: Spool) -> BlobRef:
    if blobs is None:
        raise Refused("too-big", "the result does not fit a frame, and this leader keeps no blobs")
    return await blobs.keep(part)


async def _opened(
    body: EnvelopeBody, request: JobRequest, blobs: LeaderBlobs | None, node: str
) -> tuple[bytes, JobResult, tuple[str, ...]]:
    """Raises Lost, and Refused."""
    try:
        start, head_at = await body.head()
        told = read_result_head(start[head_at:])
        result = _bound(told, request, node)
        if result != told:
            start = seal(encode(result))
        size = result.archive_size if isinstance(result.archive_size, int) else 0
        if size < 0 or len(start) + 4 * size // 3 > payload_max(""):
            raise Unreadable(f"an archive of {size} bytes does not fit a frame"[:200])
        payload = start + await body.take(size)
        refs = [
            ref for ref in (result.archive_blob, result.stdout_blob, result.stderr_blob) if isinstance(ref, BlobRef)
        ]
        blobs_of_result(refs)
        if sum(ref.size for ref in refs) > RESULT_BYTES_MAX:
            raise Refused("too-big", f"the node answers with more than {RESULT_BYTES_MAX} bytes")
        for ref in refs:
            if blobs is None:
                raise Refused("too-big", "the result does not fit a frame, and this leader keeps no blobs")
            with closing(blobs.spools.new(ref.size, is_answer=True, is_hashed=True)) as spool:
                await spool.fill(body.content(ref.size))
                if await blobs.keep(spool) != ref:
                    raise Unreadable("a large part has another content than its hash")
        await body.end()
    except Unreadable as error:
        raise Refused("bad-result", f"the node's answer is no envelope with a result: {error}") from None
    return payload, result, tuple(dict.fromkeys(ref.sha256 for ref in refs))


def _word(answer: HttpAnswer, name: str) -> str:
    try:
        return percent_decoded(answer.header(name) or "")
    except Refused:
        return ""


def _exit_code(text: str | None) -> int | None:
    return int(text) if text is not None and _EXIT_CODE.fullmatch(text) else None


def _count(text: str | None) -> int | msgspec.UnsetType:
    return int(text) if text is not None and _COUNT.fullmatch(text) else msgspec.UNSET
