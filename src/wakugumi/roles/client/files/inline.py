"""How does a leader that takes no blobs get a job whose files are named by SHA-256? With all content in its frame.

Only content that fits a frame can be sent this way. The new frame is not kept: most leaders never need one.
"""

from __future__ import annotations

import msgspec

from wakugumi.errors import bad_request
from wakugumi.limits.wire import FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX
from wakugumi.roles.client.files.inputs import Attached, InputBlob, ref_of_bytes
from wakugumi.wire import frame as fr
from wakugumi.wire.messages.job import InputFile, read_request
from wakugumi.wire.messages.payload import encode


def inlined(frame: bytes, attached: Attached) -> bytes | None:
    """The same job with all content in its frame; None if too large. Reads files: call it in a thread. Raises
    Refused."""
    (decoded,) = fr.Decoder(FRAME_BYTES_MAX).feed(frame)
    request = read_request(decoded.payload)
    files: list[InputFile] = []
    left = PAYLOAD_BYTES_MAX
    for file in request.files:
        content = file.content if file.sha256 is None else _content(attached[file.sha256])
        left -= len(content or b"") * 4 // 3
        if left < 0:
            return None
        files.append(InputFile(file.name, file.cache_id, content))
    payload = encode(msgspec.structs.replace(request, files=files))
    if len(payload) > PAYLOAD_BYTES_MAX:
        return None
    return fr.encode(decoded.type, decoded.msg_id, decoded.corr_id, decoded.subject, payload)


def _content(blob: InputBlob) -> bytes:
    if isinstance(blob.source, bytes):
        return blob.source
    blob.source.check(blob.ref)
    try:
        with open(blob.source.path, "rb") as file:
            content = file.read(blob.ref.size + 1)
    except OSError as error:
        raise bad_request(f"the input {blob.source.path} cannot be read: {error.strerror}") from None
    if ref_of_bytes(content) != blob.ref:
        raise bad_request(f"the input {blob.source.path} was changed since it was handed in")
    return content
