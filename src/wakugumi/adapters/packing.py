"""How is a payload made smaller on its way? (SPEC F10) As one zstd frame, between two peers that said they want that.

A zstd frame begins with bytes with which no JSON does, so a payload says by itself what it is. Only what gets smaller
is packed, and nothing is believed of a packed one: neither its size nor that it ends.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from wakugumi.errors import Refused
from wakugumi.limits import PACK_FROM_BYTES, PACK_SHARE_MAX, PAYLOAD_BYTES_MAX
from wakugumi.wire.frame import Decoder, encode

if TYPE_CHECKING:
    from types import ModuleType

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
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


def pack_frame(data: bytes) -> bytes:
    """An encoded frame with its payload packed, if that is worth it."""
    if len(data) < PACK_FROM_BYTES:
        return data
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
