"""Which blobs are about to be needed? Those that were just named, and all of a frame whose rest is still on its way.

    named    for a minute: the job, the result or the cache that needs it is being looked at
    asked    until the frame that needs it comes again or its sender leaves: an upload takes as long as it takes

What a peer was asked for, and what was there already, must all still be there when the last of it has come: else it
would be asked again and again. Both are bounded; what is forgotten for that may have to be put again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from wakugumi.core.ids import ConnId
from wakugumi.limits.files import BLOB_NAMED_S, BLOBS_ASKED_MAX
from wakugumi.wire.messages.references import BlobRef

_NAMED_MAX: Final = 100_000
"""Blobs that were named just now; beyond it the oldest are forgotten."""


class ExpectedBlobs:
    """What the peers of one leader have named and not brought yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._named: dict[str, float] = {}
        """Blobs that were just said to be there, or were asked for, and until when that counts."""
        self._asked: dict[tuple[ConnId, bytes], tuple[str, ...]] = {}
        """All blobs of a frame of which some were missing, the oldest such frame first."""
        self._about: dict[ConnId, set[bytes]] = {}
        self._counts: dict[str, int] = {}
        """How many of these frames name it."""
        self._total = 0

    def __contains__(self, blob: str) -> bool:
        return blob in self._counts or self._named.get(blob, 0.0) > self._clock()

    def name(self, blobs: Sequence[BlobRef]) -> None:
        """Someone has just named these."""
        now = self._clock()
        if len(self._named) + len(blobs) > _NAMED_MAX:
            fresh = [(blob, until) for blob, until in self._named.items() if until > now]
            self._named = dict(fresh[-_NAMED_MAX // 2 :])
        for ref in blobs:
            self._named.pop(ref.sha256, None)  # What was named last stands last.
            self._named[ref.sha256] = now + BLOB_NAMED_S

    def ask(self, conn: ConnId, about: bytes, blobs: Sequence[BlobRef]) -> None:
        """A peer was told what is missing of its frame, and will send that again. These are all that it names."""
        self.settle(conn, about)
        self._asked[conn, about] = names = tuple(ref.sha256 for ref in blobs)
        self._about.setdefault(conn, set()).add(about)
        self._total += len(names)
        for blob in names:
            self._counts[blob] = self._counts.get(blob, 0) + 1
        while self._total > BLOBS_ASKED_MAX and len(self._asked) > 1:
            self.settle(*next(iter(self._asked)))

    def settle(self, conn: ConnId, about: bytes) -> None:
        """Expect these no longer: the frame came again and is complete, or will not come any more."""
        names = self._asked.pop((conn, about), None)
        if names is None:
            return
        self._total -= len(names)
        self._about[conn].remove(about)
        if not self._about[conn]:
            del self._about[conn]
        for blob in names:
            self._counts[blob] -= 1
            if not self._counts[blob]:
                del self._counts[blob]

    def disconnect(self, conn: ConnId) -> None:
        """This peer is gone. Whoever it was names all of it again when it is back."""
        for about in list(self._about.get(conn, ())):
            self.settle(conn, about)
