"""What does a leader's second machine hear, and what does it ask for? The words of the files machine: caches, and who
fetches what from whom.

A *want* is a worker's need of one blob; a *source* is where it may fetch it; a *put* is a client's wish that workers
have a cache. Asked, SendAnswer, SendNo and Complain are the same as in `events`.
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
    """One file of a cache: what it is called there, and which content it has."""

    name: str
    sha256: str
    size: int


class WorkerCame(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId
    worker: WorkerId
    name: str
    patterns: tuple[Pattern, ...]
    blobs: bool
    """It fetches by itself. An old one is sent the content in the frame."""
    near: bool = False
    """It came over loopback, so it runs on the leader's machine."""


class WorkerWent(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class ClientWent(msgspec.Struct, frozen=True, gc=False):
    conn: ConnId


class Stocked(msgspec.Struct, frozen=True, gc=False):
    """What a worker holds: all of it (`whole`), or what came and went since."""

    conn: ConnId
    whole: bool
    url: str
    """Where others fetch from it; empty if they cannot."""
    key: str
    blobs: Sequence[str]
    gone: Sequence[str]
    caches: Mapping[str, str]
    """`<version>/<number of names>` by cache id; empty for one that is gone."""
    near_only: bool = False
    """The URL means the machine of those who ask: of use only to those that are near."""

    def __repr__(self) -> str:
        """For the log, which is no place for a key, nor for thousands of hashes."""
        counts = f"blobs={len(self.blobs)} gone={len(self.gone)} caches={len(self.caches)}"
        return f"Stocked(conn={self.conn} whole={self.whole} url={self.url!r} {counts})"


class BlobWanted(msgspec.Struct, frozen=True, gc=False):
    """A worker needs a blob, by its hash or as a file of a cache; or the source that it was given failed it (`why`)."""

    conn: ConnId
    want: bytes
    sha256: str
    size: int
    cache_id: str
    name: str
    why: str
    """Empty, or how its last source failed: dead, slow, lied or busy; or given-up: it wants it no more."""
    here: bool
    """The leader's place has it, or may have it."""
    is_sure: bool = False
    """The place has it with this size."""


class PutAsked(msgspec.Struct, frozen=True, gc=False):
    """A client wants these files on the workers. Their names are safe, and all content is in the leader's place."""

    conn: ConnId
    ask: bytes
    cache_id: str
    files: tuple[CacheFile, ...]
    targets: tuple[Pattern, ...]
    within_s: float
    share: float
    """With this share of the workers it is content: above 0, at most 1."""
    pinned: bool
    progress: bool


class PutAnswered(msgspec.Struct, frozen=True, gc=False):
    """A worker's CacheAck. Old ones may leave `put` zeros."""

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
    """A cache as it is from now on: it takes the place of what was kept under this id."""

    cache_id: str
    version: str
    files: tuple[CacheFile, ...]
    targets: tuple[Pattern, ...]
    pinned: bool
    age_s: float
    """How long ago it was put first."""


class DropCache(msgspec.Struct, frozen=True, gc=False):
    cache_id: str


SpreadKeep: TypeAlias = KeepCache | DropCache


class SendSource(msgspec.Struct, frozen=True, gc=False):
    """Fetch it there: from the worker at `url`, with a token made of its `key`; from the leader's place if empty."""

    conn: ConnId
    want: bytes
    sha256: str
    size: int
    url: str
    key: str

    def __repr__(self) -> str:
        """Without the key: whoever has it may fetch from that worker."""
        return f"SendSource(conn={self.conn} want={self.want.hex()} {self.sha256} size={self.size} url={self.url!r})"


class SendNoSource(msgspec.Struct, frozen=True, gc=False):
    """There is no such place, and will be none: `no-blob` or `no-cache`."""

    conn: ConnId
    want: bytes
    code: str
    text: str


class SendCachePut(msgspec.Struct, frozen=True, gc=False):
    """Have these files. `inline`: the worker is an old one, and needs the content in the frame."""

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
    """Workers and what they said, the first of them."""
    code: str = ""
    """Why it failed, if that was not for them."""


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
    """What one step keeps and does, in order."""

    __slots__ = ("do", "keep")

    def __init__(self) -> None:
        self.keep: list[SpreadKeep] = []
        self.do: list[SpreadDo] = []
