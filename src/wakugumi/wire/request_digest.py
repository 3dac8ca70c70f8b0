"""Are two requests the same job? (SPEC L6) A digest of all that decides the answer, however the request is sent.

The digest covers the program, the arguments, the variables, and the names and contents of the files; a file in the
request, the same content as a blob and the same form by HTTP give the same digest. Options of how the job is run are
not covered: timeout, limits, retries, priority, slots, key, client and subject. The digest of an unreadable request, or
of a peer that sends none, is empty; in a frame it is zeros.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from wakugumi.errors import Refused, bad_request
from wakugumi.wire.messages.job import InputFile, JobRequest, read_request

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL first, which most clients do not need
except ImportError:
    from hashlib import blake2b

DIGEST_BYTES: Final = 16
HEADER: Final = "Waku-Request"
"""Header with the digest in hexadecimal digits, from a leader to a node."""

_REMEMBERED_FROM_BYTES: Final = 4_096
"""All jobs of a map may share a file, as one object: files from this size on are hashed once."""
_REMEMBERED_MAX: Final = 4

_encode: Final = msgspec.msgpack.Encoder().encode
_empty: Final = blake2b(digest_size=DIGEST_BYTES).copy
"""A copy costs less than a new hash, whose parameters are parsed each time."""


def request_digest(request: JobRequest) -> bytes:
    files = sorted([(file.name, *_content_of(file)) for file in request.files]) if request.files else ()
    fields: list[object] = [request.exec_name, request.args, files]
    # Rare fields are appended with their names: a request without them keeps its digest.
    if request.broadcast_s:
        fields.append("broadcast")
    if request.env:
        fields.append(("env", sorted(request.env.items())))
    digest = _empty()
    digest.update(_encode(fields))
    return digest.digest()


def payload_digest(payload: bytes) -> bytes:
    """Digest of an encoded request. Empty if unreadable: the worker reports the error."""
    try:
        return request_digest(read_request(payload))
    except Refused:
        return b""


def submitted_digest(payload: bytes) -> bytes:
    """Digest of an encoded request for a leader, of its bytes if unreadable: such a job fails at its worker, and is not
    confused with another one until then."""
    return payload_digest(payload) or blake2b(payload, digest_size=DIGEST_BYTES, person=b"unreadable").digest()


def digest_in(text: str | None) -> bytes:
    """Digest in a header. Raises Refused."""
    if text is None:
        return b""
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != DIGEST_BYTES:
        raise bad_request(f"{HEADER} has {2 * DIGEST_BYTES} hexadecimal digits, not {text[:80]!r}")
    return digest


def _content_of(file: InputFile) -> tuple[str, str]:
    if file.content is not None:
        return "sha256", (_sha256 if len(file.content) < _REMEMBERED_FROM_BYTES else _remembered_sha256)(file.content)
    if file.sha256 is not None:
        return "sha256", file.sha256
    return "cache", file.cache_id or ""


def _sha256(content: bytes) -> str:
    from hashlib import sha256

    return sha256(content).hexdigest()


_remembered_sha256: Final = lru_cache(_REMEMBERED_MAX)(_sha256)
