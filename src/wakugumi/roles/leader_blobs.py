"""Which blobs does a leader have, and which does it still need?

A job, a result or a cache that names blobs is taken only once all of them are in the leader's place: until then its
sender is told what is missing, puts it there, and sends the same again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from wakugumi.adapters.places import Place
from wakugumi.errors import WakugumiError
from wakugumi.wire.message import BlobRef

log = logging.getLogger("wakugumi.leader")


class LeaderBlobs:
    """A leader's place for blobs. `url` is what its peers are told of it: empty if it is the leader itself."""

    def __init__(self, place: Place, *, url: str) -> None:
        self.place = place
        self.url = url
        self.is_held: Callable[[str], bool] = lambda _: True
        """Is this blob still needed? The leader says; what nobody needs may be removed."""

    def freed(self, blobs: Sequence[str]) -> None:
        """Results that had these are forgotten: what nobody needs by now goes at once."""
        loose = [blob for blob in blobs if not self.is_held(blob)]
        if loose:
            asyncio.get_running_loop().run_in_executor(None, _remove, self.place, loose)

    def missing(self, refs: Sequence[BlobRef], then: Callable[[list[str]], None]) -> None:
        """Tell which of these are not there: now, or later in the loop if that takes a look elsewhere."""
        then([ref.sha256 for ref in refs if not self.place.has(ref)])


def _remove(place: Place, blobs: Sequence[str]) -> None:
    try:
        for blob in blobs:
            place.remove(blob)
    except WakugumiError as error:  # They stay until the sweep.
        log.warning("blobs that nobody needs any more cannot be removed: %s", error)
