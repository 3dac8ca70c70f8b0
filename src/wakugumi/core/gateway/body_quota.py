"""How many bytes of bodies may wait? The bodies of unfinished asynchronous jobs, of all gateways on one state.

    used = last count in the store + accepted here since that count began + being received here

A count takes a moment and is made every few seconds: bodies that other gateways accept, and jobs that ended, are seen a
little later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from wakugumi.errors import Refused
from wakugumi.limits.gateway import GATEWAY_QUEUE_BYTES


class BodyQuota:
    """One gateway's view of the quota."""

    def __init__(self, bytes_max: int = GATEWAY_QUEUE_BYTES) -> None:
        self.bytes_max = bytes_max
        self._counted = 0
        self._accepted = 0
        """Bytes ever accepted here."""
        self._accepted_before = 0
        """Part of `_accepted` that the last count has seen for sure."""
        self._coming = 0

    @property
    def used(self) -> int:
        return self._counted + self._accepted - self._accepted_before + self._coming

    def count_begins(self) -> int:
        """The argument `begun` of `counted` for a count that begins now."""
        return self._accepted

    def counted(self, open_bytes: int, begun: int) -> None:
        self._counted, self._accepted_before = open_bytes, begun

    def receive(self) -> Receiving:
        """One body is being received. Close it."""
        return Receiving(self)

    def received(self, size: int) -> None:
        """Bytes that were being received count here no longer."""
        self._coming -= size

    def accepted(self, size: int, coming: int) -> None:
        """A body of this size is in the store; `coming` bytes of it were counted as being received."""
        self._accepted += size
        self._coming -= coming

    def take(self, size: int) -> None:
        """Counts bytes being received. Raises Refused."""
        if size > self.bytes_max:
            text = f"a body of {size} bytes is more than all bodies together may have here, {self.bytes_max} bytes"
            raise Refused("too-big", text, "wait for the answer instead, or raise --queue-bytes")
        if self.used + size > self.bytes_max:
            text = f"{size} bytes do not fit: jobs that have not ended take {self.used} of {self.bytes_max} bytes"
            raise Refused("full", text, "come again when some have ended, or raise --queue-bytes")
        self._coming += size


class Receiving:
    """One body that is being received."""

    def __init__(self, quota: BodyQuota) -> None:
        self._quota = quota
        self.size = 0
        """The body's part of the quota."""

    def take(self, size: int) -> None:
        """Raises Refused."""
        self._quota.take(size)
        self.size += size

    def close(self) -> None:
        self._quota.received(self.size)
        self.size = 0

    def accepted(self, size: int) -> None:
        """The body is in the store, with this size: it counts there, and no longer as being received."""
        self._quota.accepted(size, self.size)
        self.size = 0

    async def pieces(self, pieces: AsyncIterator[bytes], size: int | None) -> AsyncIterator[bytes]:
        """Passes the pieces on as long as there is room. A known size is checked before the first piece."""
        self.take(size or 0)
        received = 0
        async for piece in pieces:
            received += len(piece)
            if received > self.size:
                self.take(received - self.size)
            yield piece
