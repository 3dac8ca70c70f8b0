"""How many bytes of bodies may wait? Those of asynchronous jobs that have not ended, of all gateways on one state.

    used = as last counted in the store + accepted here since that count began + just coming in here

A count takes a moment and is made every few seconds, so that what others accept is seen a little later, and what has
ended is given back a little later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from wakugumi.adapters.http.page import HttpRefusal
from wakugumi.limits.gateway import GATEWAY_QUEUE_BYTES, GATEWAY_RETRY_AFTER_S


class BodyQuota:
    """One gateway's view of it."""

    def __init__(self, bytes_max: int = GATEWAY_QUEUE_BYTES) -> None:
        self.bytes_max = bytes_max
        self._counted = 0
        self._accepted = 0
        """Ever, here."""
        self._accepted_before = 0
        """Of these, what the last count has seen for sure."""
        self._coming = 0

    @property
    def used(self) -> int:
        return self._counted + self._accepted - self._accepted_before + self._coming

    def count_begins(self) -> int:
        """What to hand to `counted` with the outcome."""
        return self._accepted

    def counted(self, open_bytes: int, begun: int) -> None:
        self._counted, self._accepted_before = open_bytes, begun

    @contextmanager
    def receiving(self) -> Iterator[Receiving]:
        """While one body comes in."""
        one = Receiving(self)
        try:
            yield one
        finally:
            self._coming -= one.size

    def accepted(self, size: int, coming: int) -> None:
        """A body of this size is in the store; while it came in it had `coming` bytes."""
        self._accepted += size
        self._coming -= coming

    def take(self, size: int) -> None:
        """So much more comes in. Raises Refusal."""
        if size > self.bytes_max:
            text = f"a body of {size} bytes is more than all bodies together may have here, {self.bytes_max} bytes"
            raise HttpRefusal(413, "too-big", text, {}, "wait for the answer instead, or raise --queue-bytes")
        if self.used + size > self.bytes_max:
            text = f"{size} bytes do not fit: jobs that have not ended take {self.used} of {self.bytes_max} bytes"
            headers = {"Retry-After": f"{GATEWAY_RETRY_AFTER_S:.0f}"}
            raise HttpRefusal(503, "full", text, headers, "come again when some have ended, or raise --queue-bytes")
        self._coming += size


class Receiving:
    """One body that comes in."""

    def __init__(self, quota: BodyQuota) -> None:
        self._quota = quota
        self.size = 0
        """What it has of the quota."""

    def take(self, size: int) -> None:
        """Raises Refusal."""
        self._quota.take(size)
        self.size += size

    def accepted(self, size: int) -> None:
        """It is in the store, with this size: from now on it counts there, and no longer as coming in."""
        self._quota.accepted(size, self.size)
        self.size = 0

    async def pieces(self, pieces: AsyncIterator[bytes], size: int | None) -> AsyncIterator[bytes]:
        """The same pieces, as long as there is room. With its size known, that is seen before any of them."""
        self.take(size or 0)
        came = 0
        async for piece in pieces:
            came += len(piece)
            if came > self.size:
                self.take(came - self.size)
            yield piece
