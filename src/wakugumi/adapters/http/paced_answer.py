"""How slowly may a source send? Some bytes in half a minute, or the answer ends with TooSlow."""

from __future__ import annotations

import http.client
import io
import time
from typing import Any

from wakugumi.limits.files import BLOB_RECEIVED_MIN_BYTES, BLOB_RECEIVED_MIN_S


class TooSlow(TimeoutError):
    """Bytes arrive, but too few."""


class _Pace(io.RawIOBase):
    """A connection that raises TooSlow after too long a wait for too few bytes."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._waited_s = 0.0
        self._received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int | None:
        began = time.monotonic()
        count = self._raw.readinto(room)
        self._waited_s += time.monotonic() - began
        self._received += count or 0
        if self._received >= BLOB_RECEIVED_MIN_BYTES:
            self._waited_s, self._received = 0.0, 0
        elif self._waited_s > BLOB_RECEIVED_MIN_S:
            raise TooSlow(f"sent less than {BLOB_RECEIVED_MIN_BYTES} bytes in {BLOB_RECEIVED_MIN_S:g} s")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class PacedAnswer(http.client.HTTPResponse):
    """An answer that may not trickle: a slow source would block its thread and callers without end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fp = io.BufferedReader(_Pace(self.fp.detach()))
