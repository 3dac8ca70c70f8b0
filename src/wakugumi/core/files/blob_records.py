"""Which facts are kept about a blob and the workers that have or want it? Only `sources` writes these records."""

from __future__ import annotations

from wakugumi.core.files.events import WorkerCame
from wakugumi.core.ids import ConnId, WorkerId


class FetchingWorker:
    """A connected worker that fetches and, if it has a URL, serves."""

    __slots__ = (
        "blobs",
        "conn",
        "fetching",
        "key",
        "name",
        "near",
        "near_only",
        "parked",
        "rests_until",
        "uploads",
        "url",
        "wants",
        "wants_of",
        "worker",
    )

    def __init__(self, event: WorkerCame) -> None:
        self.conn = event.conn
        self.worker = event.worker
        self.name = event.name
        self.near = event.near
        self.near_only = False
        self.url = ""
        self.key = ""
        self.blobs: dict[str, None] = {}
        self.wants: dict[bytes, BlobRequest] = {}
        self.wants_of: dict[str, dict[bytes, BlobRequest]] = {}
        """Entries of `wants` by content."""
        self.parked: dict[bytes, BlobRequest] = {}
        """Wants that stand in no line while the worker fetches as much as it can at once, so that no other want has to
        step over them."""
        self.fetching = 0
        self.uploads = 0
        self.rests_until = float("-inf")

    def add(self, want: BlobRequest) -> None:
        self.wants[want.want] = want
        self.wants_of.setdefault(want.blob.sha256, {})[want.want] = want

    def remove(self, want: BlobRequest) -> None:
        del self.wants[want.want]
        same = self.wants_of[want.blob.sha256]
        del same[want.want]
        if not same:
            del self.wants_of[want.blob.sha256]


class BlobRequest:
    """One worker's need of a blob. The request waits until `fetching`; from the leader if there is no `source`."""

    __slots__ = (
        "alarm",
        "avoid",
        "blob",
        "deadline",
        "fetching",
        "here",
        "not_before",
        "peer",
        "size",
        "source",
        "tries",
        "want",
    )

    def __init__(self, peer: FetchingWorker, want: bytes, blob: BlobRecord, size: int, here: bool) -> None:
        self.peer = peer
        self.want = want
        self.blob = blob
        self.size = size
        self.here = here
        """The leader's place has the blob, or may have it, by the last report."""
        self.fetching = False
        self.source: FetchingWorker | None = None
        self.deadline = 0.0
        self.alarm = 0
        """Alarm for the deadline while fetching; 0 once it has rung."""
        self.not_before = float("-inf")
        self.tries = 0
        self.avoid: set[WorkerId] = set()
        """Sources that failed this worker."""


class BlobRecord:
    __slots__ = ("busy_until", "copies", "free", "holders", "sha256", "size", "waiting", "wants")

    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256
        self.size: int | None = None
        """Size by the leader's place or a cache; None while neither has reported it."""
        self.holders: dict[WorkerId, FetchingWorker] = {}
        """Holders; the one that was not used longest comes first."""
        self.waiting: dict[tuple[ConnId, bytes], BlobRequest] = {}
        self.wants = 0
        """Requests that wait or fetch."""
        self.copies = 0
        """Copies that the leader sends now."""
        self.free: dict[FetchingWorker, None] = {}
        """While a request waits: holders that just got the blob or became free. They may have lost it since."""
        self.busy_until = float("-inf")
        """All holders were looked at, and the usable ones are busy: until then only workers in `free` are tried."""
