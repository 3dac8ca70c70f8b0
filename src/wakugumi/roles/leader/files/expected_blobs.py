"""Which blobs will soon be needed? Blobs named just now, and all blobs of a frame of which some are missing.

    named    for a minute, while the job, the result or the cache that names them is checked
    asked    until the frame is sent again or its sender leaves, however long the upload takes

All blobs of such a frame must still be there when its last one arrives; else its sender would be asked again and again.
Both sets are bounded; a forgotten blob may have to be put again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from wakugumi.core.ids import ConnId
from wakugumi.limits.files import BLOB_NAMED_S, BLOBS_ASKED_MAX
from wakugumi.wire.messages.references import BlobRef

_NAMED_MAX: Final = 100_000
"""Most blobs named just now; beyond this number the oldest are forgotten."""


class ExpectedBlobs:
    """Blobs that the peers of one leader have named and may not have put yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._named: dict[str, float] = {}
        """Blobs named just now, and until when each is expected."""
        self._asked: dict[tuple[ConnId, bytes], tuple[str, ...]] = {}
        """All blobs of each frame of which some were missing, the oldest frame first."""
        self._about: dict[ConnId, set[bytes]] = {}
        self._counts: dict[str, int] = {}
        """Number of frames in `_asked` that name each blob."""
        self._total = 0

    @property
    def asked(self) -> int:
        """Number of frames that will be sent again."""
        return len(self._asked)

    @property
    def named(self) -> int:
        """Number of blobs named just now, and of some whose minute is over."""
        return len(self._named)

    def check(self) -> None:
        assert self._counts == Counter(blob for names in self._asked.values() for blob in names)
        assert self._total == sum(map(len, self._asked.values()))
        assert {(conn, about) for conn, frames in self._about.items() for about in frames} == self._asked.keys()
        assert all(self._about.values())

    def __contains__(self, blob: str) -> bool:
        return blob in self._counts or self._named.get(blob, 0.0) > self._clock()

    def name(self, blobs: Sequence[BlobRef]) -> None:
        """A peer has just named these."""
        now = self._clock()
        if len(self._named) + len(blobs) > _NAMED_MAX:
            fresh = [(blob, until) for blob, until in self._named.items() if until > now]
            self._named = dict(fresh[-_NAMED_MAX // 2 :])
        for ref in blobs:
            self._named.pop(ref.sha256, None)  # The newest is last.
            self._named[ref.sha256] = now + BLOB_NAMED_S

    def ask(self, conn: ConnId, about: bytes, blobs: Sequence[BlobRef]) -> None:
        """A peer got the list of blobs missing from its frame and will send it again. `blobs`: all that the frame
        names."""
        self.settle(conn, about)
        self._asked[conn, about] = names = tuple(ref.sha256 for ref in blobs)
        self._about.setdefault(conn, set()).add(about)
        self._total += len(names)
        for blob in names:
            self._counts[blob] = self._counts.get(blob, 0) + 1
        while self._total > BLOBS_ASKED_MAX and len(self._asked) > 1:
            self.settle(*next(iter(self._asked)))

    def settle(self, conn: ConnId, about: bytes) -> None:
        """Expect these no longer: the frame is complete now, or will not be sent again."""
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
        """Expect no blobs from this peer; it names them again when it reconnects."""
        for about in list(self._about.get(conn, ())):
            self.settle(conn, about)
