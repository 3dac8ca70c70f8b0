"""What does a worker's fetching machine hear, and what does it want done? The words of `fetching`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

import msgspec

from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, Perform
from wakugumi.errors import Refused


class Need(NamedTuple):
    """Content by its hash, or the file of a cache under a name."""

    sha256: str = ""
    size: int = 0
    cache_id: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"the content {self.sha256}" if self.sha256 else f"{self.name!r} of cache {self.cache_id!r}"


class InVain(Exception):
    """A source did not deliver the content."""

    def __init__(self, why: str, text: str) -> None:
        """`why` is a word of `core/files/events.py`."""
        super().__init__(text)
        self.why = why
        self.text = text


# Events.


class ContentNeeded(msgspec.Struct, frozen=True):
    """Event: NeedEnded tells the waiter of the end, once, unless NeedDropped comes before. Needs with `soon` go
    first."""

    need: Need
    waiter: Hashable
    soon: bool = False


class NeedDropped(msgspec.Struct, frozen=True):
    """Event: the waiter does not wait any more. A transfer that has begun continues."""

    need: Need
    waiter: Hashable


class BlobsOffered(msgspec.Struct, frozen=True):
    """Event: a leader that has blobs is connected."""


class NoBlobsOffered(msgspec.Struct, frozen=True):
    """Event: a leader without blobs is connected."""


class OfferLost(msgspec.Struct, frozen=True):
    """Event: the connection is lost. Transfers continue, as their sources may be elsewhere."""


class SourceNamed(msgspec.Struct, frozen=True):
    """Event: the leader's answer to a want. The content of a want by hash is known; the leader's own place has no URL.
    With a code there is no source."""

    want: int
    sha256: str = ""
    size: int = 0
    url: str = ""
    token: str = ""
    code: str = ""
    message: str = ""


# Effects.


class SendWant(msgspec.Struct, frozen=True):
    """Effect: ask the leader for a source. Where `failed_url` is not None, that source failed because of `why`."""

    want: int
    need: Need
    failed_url: str | None = None
    why: str = ""


class SourceFailed(msgspec.Struct, frozen=True):
    """Effect, for the log: a source failed, and another try may follow."""

    need: Need
    url: str
    why: str
    text: str


class NeedEnded(msgspec.Struct, frozen=True):
    """Effect: the content is here, or will not come."""

    waiter: Hashable
    need: Need
    sha256: str = ""
    size: int = 0
    error: Refused | None = None


# Acts.


class IsBlobHere(Act[bool], frozen=True):
    """Look for the content on this worker's disk. If it is here, the leader is told."""

    sha256: str
    size: int


class FetchBlob(Act[None], frozen=True):
    """Make room for the content, fetch it from this source, verify and keep it. Raises InVain if the source is to
    blame, Refused if this worker is."""

    sha256: str
    size: int
    url: str
    token: str


FetchEvent: TypeAlias = (
    ContentNeeded | NeedDropped | BlobsOffered | NoBlobsOffered | OfferLost | SourceNamed | Answered | ActFailed
)
FetchDo: TypeAlias = SendWant | SourceFailed | NeedEnded | Perform | Abandon
