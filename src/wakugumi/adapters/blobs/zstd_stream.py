"""When and how is content compressed in transit? With zstd, a piece at a time, if its beginning gets smaller.

Compressed input is not trusted: its receiver limits the output, and this module limits the memory.
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
"""Content that shrinks less is sent as it is."""
_LEVEL: Final = 1
"""Compresses some 500 MB/s: a faster network needs no compression."""
_WINDOW_LOG_MAX: Final = 23
"""Window for decompression: 8 MiB, as much as zstd needs below its highest levels."""
_PIECE_BYTES: Final = 1 * MIB


def shrinks(sample: bytes) -> bool:
    """Whether a sample shrinks enough."""
    return bool(sample) and len(zstd.compress(sample, _LEVEL)) < len(sample) * SHRINKS_BELOW_SHARE


class ZstdPacker:
    def __init__(self) -> None:
        self._zstd = zstd.ZstdCompressor(_LEVEL)

    def pack(self, data: bytes | memoryview) -> bytes:
        return self._zstd.compress(data)

    def end(self) -> bytes:
        return self._zstd.flush()


class ZstdUnpacker:
    """Decompresses one content into `take`, at most a MiB at a time; an exception of `take` ends it."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._zstd = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX})

    def write(self, data: bytes | memoryview) -> None:
        """Raises Refused("blob-broken") if the data is not zstd."""
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
