"""How is a payload made smaller on its way? (SPEC F10) As one zstd frame, between two peers that said they want that.

A zstd frame begins with bytes with which no JSON does, so a payload says by itself what it is. Only what gets smaller
is packed, and nothing is believed of a packed one: neither its size nor that it ends.
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
"""The fastest one that is worth it: this happens in the loop, and a frame is at most 4 MiB."""
_SAMPLE_BYTES: Final = 64 * 1024
"""What is tried before the rest."""
_WINDOW_LOG_MAX: Final = 23
"""8 MiB: a stranger's frame may ask for no more memory than that, and none of ours needs more."""


def is_packed(payload: bytes) -> bool:
    return payload.startswith(_MAGIC)


def pack(payload: bytes) -> bytes:
    """The same in fewer bytes, or the payload itself if that is not worth it."""
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
    """What was packed; a payload that is not comes back as it is. Raises Refused."""
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
    """Encoded frames, with the payloads of jobs and results packed where that is worth it."""
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
    """A frame as it would have come without packing. What cannot be unpacked is left to fail as what it is."""
    if not is_packed(frame.payload):
        return frame
    with contextlib.suppress(Refused):
        return Frame(frame.type, frame.msg_id, frame.corr_id, frame.subject, unpack(frame.payload))
    return frame


def ask_for_packing(hello: bytes) -> bytes:
    """An encoded hello that wants `zstd` as well."""
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
    """Loaded when there is something to pack."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
