"""Which events does the files machine receive, and which effects does it return? Caches, and transfers between workers.

A *want* is a worker's need of one blob; a *source* is where the worker may fetch it; a *put* is a client's request that
workers have a cache. QuestionAsked, SendAnswer, SendNo and Complain are those of `core/leader/events.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from wakugumi.core.ids import ConnId, WorkerId
from wakugumi.core.leader.events import Complain, QuestionAsked, SendAnswer, SendNo
from wakugumi.core.subject import Pattern

OK: Final = "OK"
SKIPPED: Final = "SKIPPED"
FAILED: Final = "FAILED"
PROGRESS: Final = "PROGRESS"
GIVEN_UP: Final = "given-up"


class CacheFile(msgspec.Struct, frozen=True, gc=False):
    """One file of a cache: its name there, and its content."""

    name: str
    sha256: str
    size: int


class WorkerCame(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    worker: WorkerId
    name: str
    patterns: tuple[Pattern, ...]
    blobs: bool
    """The worker fetches by itself. An old worker is sent the content in the frame."""
    near: bool = False
    """The worker connected over loopback, so it runs on the leader's machine."""


class WorkerWent(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class ClientWent(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class Stocked(msgspec.Struct, frozen=True, gc=False):
    """A worker's stock: all of it (`whole`), or the changes."""

    conn: ConnId
    whole: bool
    url: str
    """Where other workers fetch from this one; empty if they cannot."""
    key: str
    blobs: Sequence[str]
    gone: Sequence[str]
    caches: Mapping[str, str]
    """`<version>/<number of names>` by cache id; empty for a cache that is gone."""
    near_only: bool = False
    """The URL means the machine of the asking worker: only workers with `near` can use it."""

    def __repr__(self) -> str:
        """For the log: without the key, and without thousands of hashes."""
        counts = f"blobs={len(self.blobs)} gone={len(self.gone)} caches={len(self.caches)}"
        return f"Stocked(conn={self.conn} whole={self.whole} url={self.url!r} {counts})"


class BlobWanted(msgspec.Struct, frozen=True, gc=False):
    """A worker needs a blob, by its hash or as a file of a cache; or the source of a want failed (`why`)."""

    conn: ConnId
    want: bytes
    sha256: str
    size: int
    cache_id: str
    name: str
    why: str
    """Empty, or how the last source failed: dead, slow, lied or busy; or given-up: the blob is not wanted any more."""
    here: bool
    """The leader's place has the blob, or may have it."""
    is_sure: bool = False
    """The place has the blob with this size."""


class PutAsked(msgspec.Struct, frozen=True, gc=False):
    """A client wants these files on the workers. The names are safe, and all content is in the leader's place."""

    conn: ConnId
    ask: bytes
    cache_id: str
    files: tuple[CacheFile, ...]
    targets: tuple[Pattern, ...]
    within_s: float
    share: float
    """Share of the workers that is enough: above 0, at most 1."""
    pinned: bool
    progress: bool


class PutAnswered(msgspec.Struct, frozen=True, gc=False):
    """A worker's CacheAck. Old workers may leave `put` zeros."""

    conn: ConnId
    put: bytes
    cache_id: str
    status: str
    message: str


class CacheNamed(msgspec.Struct, frozen=True, gc=False):
    """A job names this cache."""

    cache_id: str


SpreadEvent: TypeAlias = (
    WorkerCame
    | WorkerWent
    | ClientWent
    | Stocked
    | BlobWanted
    | PutAsked
    | PutAnswered
    | CacheNamed
    | QuestionAsked
)  # fmt: skip


class KeepCache(msgspec.Struct, frozen=True, gc=False):
    """A cache's new state: it replaces the record of this id."""

    cache_id: str
    version: str
    files: tuple[CacheFile, ...]
    targets: tuple[Pattern, ...]
    pinned: bool
    age_s: float
    """Time since the first put."""


class DropCache(msgspec.Struct, frozen=True, gc=False):
    cache_id: str


SpreadKeep: TypeAlias = KeepCache | DropCache


class SendSource(msgspec.Struct, frozen=True, gc=False):
    """Tells a worker its source: the worker at `url`, with a token made of its `key`; the leader's place if empty."""

    conn: ConnId
    want: bytes
    sha256: str
    size: int
    url: str
    key: str

    def __repr__(self) -> str:
        """Without the key, which gives the right to fetch from that worker."""
        return f"SendSource(conn={self.conn} want={self.want.hex()} {self.sha256} size={self.size} url={self.url!r})"


class SendNoSource(msgspec.Struct, frozen=True, gc=False):
    """No source exists for the want: `no-blob` or `no-cache`."""

    conn: ConnId
    want: bytes
    code: str
    text: str


class SendCachePut(msgspec.Struct, frozen=True, gc=False):
    """Asks a worker to have these files. `inline`: the worker is an old one, and needs the content in the frame."""

    conn: ConnId
    put: bytes
    cache_id: str
    version: str
    files: tuple[CacheFile, ...]
    pinned: bool
    inline: bool


class SendCacheDrop(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    cache_id: str


class SendSummary(msgspec.Struct, frozen=True, gc=False):
    """How a put ended or, with the status PROGRESS, how far it is. Always sent = ok + skipped + failed + silent +
    waiting."""

    conn: ConnId
    ask: bytes
    cache_id: str
    status: str
    message: str
    sent: int = 0
    ok: int = 0
    skipped: int = 0
    failed: int = 0
    silent: int = 0
    waiting: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    """The first failed workers and their messages."""
    code: str = ""
    """Why the put failed, if not because of workers."""


SpreadDo: TypeAlias = (
    SendSource
    | SendNoSource
    | SendCachePut
    | SendCacheDrop
    | SendSummary
    | SendAnswer
    | SendNo
    | Complain
)  # fmt: skip


class FilesStepBuilder:
    """Records and effects of one step, in order."""

    __slots__ = ("do", "keep")

    def __init__(self) -> None:
        self.keep: list[SpreadKeep] = []
        self.do: list[SpreadDo] = []
