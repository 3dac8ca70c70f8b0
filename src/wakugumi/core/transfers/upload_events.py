"""What does a client's uploads machine hear, and what does it want done? The words of `uploads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, Perform
from wakugumi.core.ids import ConnId
from wakugumi.errors import Refused
from wakugumi.limits.wire import HELLO_DEADLINE_S

NO_VARIABLES: Final = "not-supported"
"""Code of a leader that does not support variables."""


class SendableBlob(Protocol):
    """Content of a job. The machine does not look at its source."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def is_in_memory(self) -> bool: ...


Blobs: TypeAlias = Mapping[str, SendableBlob]
"""Content by SHA-256."""


class JobHeld(msgspec.Struct, frozen=True):
    """Event: from now on a leader may ask for this content of a job or a put. With `env`, only leaders that support
    variables get the job."""

    about: bytes
    frame: bytes
    blobs: Blobs
    env: bool = False


class HeldEnded(msgspec.Struct, frozen=True):
    """Event: the job or put has ended."""

    about: bytes


class HeldCancelled(msgspec.Struct, frozen=True):
    """Event: the job is not wanted. A leader that waits for its files does not know the job, and will not answer."""

    about: bytes


class LeaderOpened(msgspec.Struct, frozen=True):
    """Event: a connection is established; the Welcome will tell what the leader takes."""

    conn: ConnId


class LeaderTakes(msgspec.Struct, frozen=True):
    """Event: the leader takes blobs at `url`, none if None, and variables if `env`. May come late, but only once."""

    conn: ConnId
    url: str | None
    env: bool


class LeaderGone(msgspec.Struct, frozen=True):
    """Event: the connection is lost."""

    conn: ConnId


class SubmitDue(msgspec.Struct, frozen=True):
    """Event: the job should go to this leader now. SendJob follows at once if the leader understands it."""

    conn: ConnId
    about: bytes


class BlobsAsked(msgspec.Struct, frozen=True):
    """Event: a leader asks for these blobs."""

    conn: ConnId
    about: bytes
    blobs: Sequence[str]


class SendJob(msgspec.Struct, frozen=True):
    """Effect: write the frame to the connection."""

    conn: ConnId
    frame: bytes


class RefuseJob(msgspec.Struct, frozen=True):
    """Effect: content for this id cannot be sent to the leader."""

    conn: ConnId
    about: bytes
    no: Refused


class JobUnfit(msgspec.Struct, frozen=True):
    """Effect: the leader does not take such a job: another one may."""

    conn: ConnId
    about: bytes
    no: Refused


class UploadWaits(msgspec.Struct, frozen=True):
    """Effect: log that an upload is tried again."""

    url: str
    name: str
    error: Exception
    tries: int


class InlineBlobs(Act["bytes | None"], frozen=True):
    """The same job with all content in its frame; None if too large. Raises Refused."""

    frame: bytes
    blobs: Blobs


UploadsEvent: TypeAlias = (
    JobHeld
    | HeldEnded
    | HeldCancelled
    | LeaderOpened
    | LeaderTakes
    | LeaderGone
    | SubmitDue
    | BlobsAsked
    | Answered
    | ActFailed
)
UploadsDo: TypeAlias = SendJob | RefuseJob | JobUnfit | UploadWaits | Perform | Abandon


def no_variables() -> Refused:
    return Refused(
        NO_VARIABLES,
        "the job sets variables, and this leader may give it to a worker that does not",
        hint="bring the leader up to date, or leave --env out",
    )


def too_big_for_old() -> Refused:
    return Refused(
        "too-big",
        "the job's files do not all fit its frame, and the leader is an old one that takes only what does (one that "
        f"takes more says so within {HELLO_DEADLINE_S:.0f} s)",
    )
