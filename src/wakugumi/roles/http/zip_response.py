"""How does a job's result become the answer to an HTTP request? One ZIP, and how it ended in the head.

    the program ended by itself, or broke a limit     200: its files, stdout.txt and stderr.txt; Waku-Status says how
    any other end has a code                          a problem with that code's status

So a failed program is an answer, and a proxy does not try another server for it (SPEC N2). A small ZIP that has stdout
and stderr already is passed on as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

from msgspec import UNSET

from wakugumi.adapters.http.page import HttpRefusal, Reply, Stream
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT
from wakugumi.adapters.zip.add_output import Content, Spliced, has_few_entries, passed_on, splice_counted
from wakugumi.errors import CODES, PeerError, Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX
from wakugumi.wire.messages.job import FAILED, OK, JobResult
from wakugumi.wire.messages.payload import TEXT_CHARS_MAX

ZIP: Final = "application/zip"

_OWN_ENDS: Final = frozenset({"", "exit", "output-limit", "memory-limit", "cpu-limit", "file-limit", "process-limit"})
"""Reasons of a FAILED result that are the program's own doing. An old worker gives none."""
_WORD_CHARS_MAX: Final = 200
_NO_PARTS: Final[Mapping[str, Content]] = {}


def is_answer(result: JobResult) -> bool:
    """Did the program end by itself, well or not? If not, a problem tells why there is no answer."""
    reason = result.reason or ""
    return result.status == OK or reason in _OWN_ENDS or reason not in CODES


def raise_unless_answer(name: str, result: JobResult) -> None:
    """Raises Refused for a job that has no answer of its own."""
    if not is_answer(result):
        code = result.reason or ""
        text = result.stderr.strip()[-TEXT_CHARS_MAX:] or f"job {name} ended by {code}"
        raise HttpRefusal(CODES[code].http_status, code, text, _head_of(name, result))


async def answer_of(
    name: str,
    result: JobResult,
    parts: Mapping[str, Content] = _NO_PARTS,
    done: Callable[[], None] = lambda: None,
    *,
    note: str = "",
) -> Reply:
    """`parts` are the files of large parts of the result, by their keys in `adapters.parts`. They are needed until
    `done` is called, which happens once, also if this raises. The `note` is the ZIP's comment. Raises Refused."""
    try:
        raise_unless_answer(name, result)
        archive = result.output_archive or b""
        is_here = result.archive_blob is UNSET and result.stdout_blob is UNSET and result.stderr_blob is UNSET
        body: bytes | Stream
        if is_here and result.archive_output is True:
            work = partial(passed_on, archive, note.encode())
            body, left_out = work() if has_few_entries(archive) else await asyncio.to_thread(work)
        elif is_here and len(archive) + len(result.stdout) + len(result.stderr) <= INLINE_FILE_BYTES_MAX:
            texts = {"stdout.txt": _utf8(result.stdout), "stderr.txt": _utf8(result.stderr)}
            work = partial(splice_counted, archive, texts, note.encode())
            body, left_out = work() if has_few_entries(archive) else await asyncio.to_thread(work)
        else:
            large = await asyncio.to_thread(_spliced, result, parts, note.encode())
            large.done, done = done, _nothing
            body, left_out = Stream(large.size, large), large.left_out
    except PeerError as error:
        raise Refused("bad-result", str(error)) from None
    except (OSError, KeyError) as error:
        raise Refused("expired", f"the files of job {name}'s result are gone: {error}") from None
    finally:
        done()
    head = _head_of(name, result) | {"Content-Disposition": f'attachment; filename="result-{name}.zip"'}
    if left_out:
        head["Waku-Left-Out"] = str(left_out)
    return Reply(200, body, ZIP, head)


def _spliced(result: JobResult, parts: Mapping[str, Content], note: bytes) -> Spliced:
    archive = result.output_archive or b"" if result.archive_blob is UNSET else parts[ARCHIVE]
    texts = {
        "stdout.txt": _utf8(result.stdout) if result.stdout_blob is UNSET else parts[STDOUT],
        "stderr.txt": _utf8(result.stderr) if result.stderr_blob is UNSET else parts[STDERR],
    }
    return Spliced(archive, texts, note)


def _head_of(name: str, result: JobResult) -> dict[str, str]:
    head = {"Waku-Job": name, "Waku-Status": result.status if result.status == OK else FAILED}
    if result.exit_code is not None:
        head["Waku-Exit-Code"] = str(result.exit_code)
    if result.status != OK and result.reason:
        head["Waku-Reason"] = _plain(result.reason)
    if result.run_s is not None:
        head["Waku-Run-Seconds"] = f"{result.run_s:.6f}"
    if isinstance(result.unpacked_bytes, int):
        head["Waku-Unpacked-Bytes"] = str(result.unpacked_bytes)
    if result.worker:
        head["Waku-Worker"] = _plain(result.worker)
    return head


def _plain(text: str) -> str:
    """A stranger's word as a header's value: other characters are percent-encoded."""
    return quote(text[:_WORD_CHARS_MAX], safe=" !#$&'()*+,/:;=?@[]")


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")


def _nothing() -> None:
    """Stands for a `done` that was handed on."""
