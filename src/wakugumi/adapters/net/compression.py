"""How is a payload compressed in transit? (SPEC F10) As one zstd frame, between two peers that both want it.

A zstd frame begins with bytes that no JSON begins with, so a payload itself shows whether it is packed. Payloads are
packed only if they get smaller. A packed payload is not trusted: neither its stated size nor its completeness.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wakugumi.errors import Refused
from wakugumi.limits.wire import PACK_FROM_BYTES, PACK_SHARE_MAX, PAYLOAD_BYTES_MAX
from wakugumi.wire.frame import ACK_JOB, SUBMIT_JOB, Decoder, Frame, encode
from wakugumi.wire.messages.hello import ZSTD
from wakugumi.wire.untrusted_json import read_json

if TYPE_CHECKING:
    from types import ModuleType

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_PACKED_TYPES: Final = (SUBMIT_JOB, ACK_JOB)
_LEVEL: Final = 1
"""The fastest level that pays off: packing runs in the loop, on frames of at most 4 MiB."""
_SAMPLE_BYTES: Final = 64 * 1024
"""Bytes that are packed first as a sample of a large payload."""
_WINDOW_LOG_MAX: Final = 23
"""8 MiB: most memory that a foreign frame may need; our own need no more."""


def is_packed(payload: bytes) -> bool:
    return payload.startswith(_MAGIC)


def pack(payload: bytes) -> bytes:
    """The payload packed, or unchanged if packing saves too little."""
    size = len(payload)
    if size < PACK_FROM_BYTES or is_packed(payload):
        return payload
    compress = _zstd().compress
    if size > 2 * _SAMPLE_BYTES:
        middle = (size - _SAMPLE_BYTES) // 2
        if len(compress(payload[middle : middle + _SAMPLE_BYTES], _LEVEL)) >= PACK_SHARE_MAX * _SAMPLE_BYTES:
            return payload
    packed: bytes = compress(payload, _LEVEL)
    return packed if len(packed) < PACK_SHARE_MAX * size else payload


def unpack(payload: bytes, bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
    """The payload unpacked, or unchanged if it is not packed. Raises Refused."""
    if not is_packed(payload):
        return payload
    zstd = _zstd()
    try:
        size = zstd.get_frame_info(payload).decompressed_size
        if size is not None and size > bytes_max:
            raise Refused("too-big", f"a packed payload of {size} bytes is more than fits a frame")
        options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
        unpacker = zstd.ZstdDecompressor(options=options)
        plain: bytes = unpacker.decompress(payload, bytes_max + 1)
    except (zstd.ZstdError, ValueError, EOFError) as error:
        raise Refused("bad-request", f"a packed payload cannot be unpacked: {str(error)[:200]}") from None
    if len(plain) > bytes_max:
        raise Refused("too-big", f"a packed payload has more than the {bytes_max} bytes that fit a frame")
    if not unpacker.eof or unpacker.unused_data:
        raise Refused("bad-request", "a packed payload cannot be unpacked: it is not one whole frame of zstd")
    return plain


def pack_frames(data: bytes) -> bytes:
    """Encoded frames, with payloads of jobs and results packed if it pays off."""
    if len(data) < PACK_FROM_BYTES:
        return data
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        is_large = end - at > PACK_FROM_BYTES and data[at + 4] in _PACKED_TYPES
        parts.append(_pack_frame(data[at:end]) if is_large else data[at:end])
        at = end
    return b"".join(parts)


def unpack_frame(frame: Frame) -> Frame:
    """The frame with its payload unpacked; unchanged if that fails, so that its reader refuses it."""
    if not is_packed(frame.payload):
        return frame
    with contextlib.suppress(Refused):
        return Frame(frame.type, frame.msg_id, frame.corr_id, frame.subject, unpack(frame.payload))
    return frame


def ask_for_packing(hello: bytes) -> bytes:
    """An encoded hello with `zstd` added to its wants."""
    decoder = Decoder()
    decoder.trust()
    frame = next(iter(decoder.feed(hello)))
    fields = read_json(frame.payload, dict[str, Any])
    fields["Wants"] = [*fields.get("Wants", ()), ZSTD]
    return encode(frame.type, frame.msg_id, frame.corr_id, frame.subject, msgspec.json.encode(fields))


def _pack_frame(data: bytes) -> bytes:
    decoder = Decoder()
    decoder.trust()
    frame = next(iter(decoder.feed(data)))
    packed = pack(frame.payload)
    if packed is frame.payload:
        return data
    return encode(frame.type, frame.msg_id, frame.corr_id, frame.subject, packed)


def _zstd() -> ModuleType:
    """Imported when a payload is packed or unpacked."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
