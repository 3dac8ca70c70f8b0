"""Which content may a peer of a leader read? That of jobs, results and caches in its sight, and what it brought itself.

Other content is as if it were not there: neither a page nor a submit tells whether the leader has it. A client that
names it is asked for it, and must send all of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from wakugumi.core.access.identity import Identity, Role, Sight
from wakugumi.limits.files import BLOB_BROUGHT_S, BLOBS_BROUGHT_MAX

_ALL: Final = frozenset({Role.ADMIN, Role.WORKER})
"""A worker runs the jobs of others: it is sent the names of what it needs."""


class LeaderBlobReaders:
    """`may_read` asks the leader's machine, `pins` that of its caches; `clock` is monotonic."""

    def __init__(
        self,
        may_read: Callable[[str, Sight | None], bool],
        pins: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._may_read = may_read
        self._pins = pins
        self._clock = clock
        self._brought: OrderedDict[tuple[str, str], float] = OrderedDict()
        """Until when content counts as brought by an identity, the oldest first."""

    def may_read(self, identity: Identity, sha256: str) -> bool:
        if identity.role in _ALL or (sight := identity.sight()) is None:
            return True
        is_brought = self._brought.get((identity.name, sha256), 0.0) > self._clock()
        return is_brought or self._pins(sha256) or self._may_read(sha256, sight)

    def brings(self, identity: Identity, sha256: str) -> None:
        """The content is received from this identity, whole or in part."""
        if identity.role in _ALL or identity.sight() is None:
            return
        now = self._clock()
        self._brought[identity.name, sha256] = now + BLOB_BROUGHT_S
        self._brought.move_to_end((identity.name, sha256))
        while self._brought and (len(self._brought) > BLOBS_BROUGHT_MAX or next(iter(self._brought.values())) <= now):
            self._brought.popitem(last=False)
