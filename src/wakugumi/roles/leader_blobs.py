"""Which blobs does a leader have, and which does it still need?

A job, a result or a cache that names blobs is taken only once all of them are in the leader's place: until then its
sender is told what is missing, puts it there, and sends the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wakugumi.adapters.places import Place
from wakugumi.wire.message import BlobRef


class LeaderBlobs:
    """A leader's place for blobs. `url` is what its peers are told of it: empty if it is the leader itself."""

    def __init__(self, place: Place, *, url: str) -> None:
        self.place = place
        self.url = url
        self.is_held: Callable[[str], bool] = lambda _: True
        """Is this blob still needed? The leader says; what nobody needs may be removed."""

    def missing(self, refs: Sequence[BlobRef], then: Callable[[list[str]], None]) -> None:
        """Tell which of these are not there: now, or later in the loop if that takes a look elsewhere."""
        then([ref.sha256 for ref in refs if not self.place.has(ref)])
