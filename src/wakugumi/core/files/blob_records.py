"""What is remembered of a blob that somebody has or wants? The books of `sources`, which alone writes in them."""

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
        """The same by content."""
        self.parked: dict[bytes, BlobRequest] = {}
        """While it fetches as much as it can at once: wants that stand in no line, so that nobody steps over them."""
        self.fetching = 0
        self.uploads = 0
        self.rests_until = float("-inf")


class BlobRequest:
    """What one worker needs. It waits until it is `fetching`, from the leader if there is no `source`."""

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
        """The leader's place has it, or may have it, as far as we heard last."""
        self.fetching = False
        self.source: FetchingWorker | None = None
        self.deadline = 0.0
        self.alarm = 0
        """Set for the deadline while it is fetching; 0 once it has rung."""
        self.not_before = float("-inf")
        self.tries = 0
        self.avoid: set[WorkerId] = set()
        """Those that failed this worker."""


class BlobRecord:
    __slots__ = ("busy_until", "copies", "free", "holders", "sha256", "size", "waiting", "wants")

    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256
        self.size: int | None = None
        """As the leader's place or a cache has it; None while neither has said so."""
        self.holders: dict[WorkerId, FetchingWorker] = {}
        """Who was not asked for longest comes first."""
        self.waiting: dict[tuple[ConnId, bytes], BlobRequest] = {}
        self.wants = 0
        """Waiting or fetching."""
        self.copies = 0
        """Which the leader gives just now."""
        self.free: dict[FetchingWorker, None] = {}
        """While somebody waits: holders that have just come to have it, or time for it. They may have none any more."""
        self.busy_until = float("-inf")
        """All holders were looked at, and those that could serve have no time: until then only who is `free` does."""
