"""How does a job's result travel to another role? As it is: its envelope, and its large parts behind it.

    envelope │ archive, if it is a blob │ stdout, if it is a blob │ stderr, if it is a blob

A job without an answer of its own is a problem, as in `zip_response`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from wakugumi.adapters.files import READ, Closing
from wakugumi.adapters.http.page import Reply, Stream
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, STDERR, STDOUT
from wakugumi.adapters.sent_parts import SentPart, SentParts
from wakugumi.errors import Refused
from wakugumi.roles.http.zip_response import raise_unless_answer
from wakugumi.wire.messages.envelope import RESULT_TYPE, is_envelope
from wakugumi.wire.messages.job import JobResult, write_result
from wakugumi.wire.messages.references import BlobRef


def envelope_of(
    name: str, result: JobResult, payload: bytes, parts: Mapping[str, Path], done: Callable[[], None]
) -> Reply:
    """`payload` is the result, encoded; `parts` are the files of its large parts, needed until `done` is called, which
    happens once, also if this raises. Raises Refused."""
    try:
        raise_unless_answer(name, result)
    except Refused:
        done()
        raise
    start = payload if is_envelope(payload) else write_result(result)
    named = {ARCHIVE: result.archive_blob, STDOUT: result.stdout_blob, STDERR: result.stderr_blob}
    refs = {key: ref for key, ref in named.items() if isinstance(ref, BlobRef)}
    if not refs:
        done()
        return Reply(200, start, RESULT_TYPE)
    found = [SentPart(start, 0, len(start))]
    try:
        with ExitStack() as files:
            for key, ref in refs.items():
                file = files.enter_context(Closing(os.open(parts[key], READ)))
                found.append(SentPart(file, 0, ref.size))
            body = SentParts(found, sum(part.end for part in found), files)
    except (OSError, KeyError) as error:
        done()
        raise Refused("expired", f"the files of job {name}'s result are gone: {error}") from None
    body.done = done
    return Reply(200, Stream(body.size, body), RESULT_TYPE)
