"""When is content packed on its way, and how? With zstd, a piece at a time, and only if its beginning gets smaller.

Nothing that comes packed is trusted: what comes out is bounded by whoever takes it, and the memory for it by us.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from wakugumi.errors import Refused
from wakugumi.limits.units import MIB

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SHRINKS_BELOW_SHARE: Final = 0.9
"""What shrinks less is not worth the time."""
_LEVEL: Final = 1
"""Some 500 MB/s: a network that is faster than that needs no packing."""
_WINDOW_LOG_MAX: Final = 23
"""What unpacking may look back: 8 MiB, which is as much as zstd asks for below its highest levels."""
_PIECE_BYTES: Final = 1 * MIB


def shrinks(sample: bytes) -> bool:
    """Does it get so much smaller that packing it pays?"""
    return bool(sample) and len(zstd.compress(sample, _LEVEL)) < len(sample) * SHRINKS_BELOW_SHARE


class ZstdPacker:
    """Packs one content."""

    def __init__(self) -> None:
        self._zstd = zstd.ZstdCompressor(_LEVEL)

    def pack(self, data: bytes | memoryview) -> bytes:
        return self._zstd.compress(data)

    def end(self) -> bytes:
        return self._zstd.flush()


class ZstdUnpacker:
    """Unpacks one content into whoever takes it, at most a MiB at a time; what that refuses ends it."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._zstd = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX})

    def write(self, data: bytes | memoryview) -> None:
        """Raises Refused("blob-broken") for what is not zstd."""
        try:
            while True:
                if self._zstd.eof:
                    if data or self._zstd.unused_data:
                        raise Refused("blob-broken", "something follows the end of the packed content")
                    return
                out = self._zstd.decompress(data, _PIECE_BYTES)
                data = b""
                if out:
                    self._take(out)
                if self._zstd.needs_input:
                    return
        except zstd.ZstdError as error:
            raise Refused("blob-broken", f"the packed content cannot be unpacked: {error}") from None
