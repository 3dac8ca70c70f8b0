"""The words of the gateway's machine: events that it hears, acts that its flows await (`core/flows.py`), effects.

Numbers stand for what lives outside: a request is an HTTP request with the body that is being received, a try is one
connection to a group with the answer that is being received.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from wakugumi.core.access.identity import Sight
from wakugumi.core.flows import Act, FlowDo, FlowEvent
from wakugumi.core.gateway.groups import Capacity
from wakugumi.core.gateway.outcomes import Outcome
from wakugumi.core.gateway.rows import Content, GatewayJob, OpenJob, Totals
from wakugumi.core.ids import HTTP_CLIENT, JobId
from wakugumi.core.step import LogLine
from wakugumi.errors import Lost

# Events.


class GatewayStarts(msgspec.Struct, frozen=True):
    """The first event."""


class JobSubmitted(msgspec.Struct, frozen=True):
    """A client sends a job."""

    request: int
    job: JobId
    name: str
    is_async: bool
    key: str
    query: str
    headers: dict[str, str]
    job_s: float
    """Time that the job may run, with all its retries."""
    size: int | None
    """Size of the body, if declared."""
    is_short: bool
    """The store's disk has hardly any room."""
    received: BodyReceived | None = None
    """The whole body, if it has arrived; None: it has not been read."""
    client: str = HTTP_CLIENT
    sight: Sight | None = None
    """The clients whose jobs the sender may see; None: all."""


class JobAsked(msgspec.Struct, frozen=True):
    """A client asks about a job."""

    request: int
    job: JobId
    name: str
    question: str
    """`status`, `result`, `events` or `cancel`."""
    sight: Sight | None = None
    """The clients whose jobs the sender may see; None: all."""


class CallerLeft(msgspec.Struct, frozen=True):
    """The request ended before its answer."""

    request: int


class HeadCame(msgspec.Struct, frozen=True):
    """A group has begun to answer: the job takes no slot there any more. Not needed if the reply follows at once."""

    number: int


class GatewayStops(msgspec.Struct, frozen=True):
    """No new jobs, please. `leaves`: jobs under way are given up as well, and others may take them over."""

    leaves: bool = False


GatewayEvent: TypeAlias = GatewayStarts | JobSubmitted | JobAsked | CallerLeft | HeadCame | GatewayStops | FlowEvent

# Acts on the store. Each may fail with Refused, without any change.


class GetRow(Act[GatewayJob | None], frozen=True):
    job: JobId
    contents: bool = True


class AddRow(Act[tuple[GatewayJob, bool]], frozen=True):
    """The row in the store, and whether it is this one."""

    row: GatewayJob


class ReplaceRow(Act[GatewayJob | None], frozen=True):
    """None if the old row is not the current one."""

    old: GatewayJob
    new: GatewayJob


class RemoveRow(Act[bool], frozen=True):
    """False if the row is not the current one."""

    row: GatewayJob


class FlushRows(Act[None], frozen=True):
    """Earlier writes survive power loss when this is answered."""


class HoldLease(Act[None], frozen=True):
    lease_s: float


class IsHeld(Act[bool], frozen=True):
    owner: str


class FindOrphans(Act[list[JobId]], frozen=True):
    """Open jobs of dead gateways."""

    most: int


class FindOpen(Act[list[OpenJob]], frozen=True):
    """Open jobs of this gateway."""

    most: int
    after: OpenJob | None


class FindOldest(Act[list[GatewayJob]], frozen=True):
    """Ended jobs, the oldest first."""

    most: int
    age_s: float | None = None


class CountRows(Act[Totals], frozen=True):
    pass


class TidyStore(Act[None], frozen=True):
    pass


# Acts on contents.


class BodyReceived(NamedTuple):
    """A body as far as it was received."""

    is_whole: bool
    size: int
    digest: str = ""
    """The digest of the request, once the body is whole."""


class BeginBody(Act[BodyReceived], frozen=True):
    """Receive the body until it is whole, or too large for memory. Fails with Refused or Lost."""

    request: int


class FinishBody(Act[BodyReceived], frozen=True):
    """Receive the rest."""

    request: int


class KeepBody(Act[Content], frozen=True):
    """Give the body a name, for good."""

    request: int
    job: JobId


class FinishAnswer(Act[int], frozen=True):
    """Receive the rest of a large answer; its size. Fails with Lost."""

    number: int


class KeepAnswer(Act[Content], frozen=True):
    """Give the answer a name, for good."""

    number: int
    job: JobId


class OpenAnswer(Act[bool], frozen=True):
    """Open an answer for this request to read, also one that is being received. False if it is gone."""

    request: int
    body: Content | int


class ListFiles(Act[list[tuple[str, JobId]]], frozen=True):
    """Files that were not written for so long, and their jobs."""

    age_s: float


class RemoveFiles(Act[None], frozen=True):
    names: tuple[str, ...]


# Acts on groups. They fail with Lost.


class GroupReply(NamedTuple):
    """A group's answer to a job."""

    status: int
    head: dict[str, str]
    """Headers of a result that are kept."""
    size: int | None
    """Declared size of the body."""
    retry_after_s: float | None = None
    code: str = ""
    detail: str = ""
    hint: str = ""
    """Code, detail and hint of the problem, if the status is not 200."""
    content: Content | None = None
    """The whole answer, if it is small."""
    digest: str = ""
    """The digest of the request whose body was sent, if the body is whole."""
    takes_files: bool = False
    """A refusal itself says so: the file was understood without a form."""


class NoBodyLost(Lost):
    """The body that was to be sent could not be read: no group is at fault."""


class Dispatch(Act[GroupReply], frozen=True):
    """Send a job to a group. A large answer is received up to what fits in memory."""

    number: int
    group: str
    path: str
    headers: dict[str, str]
    size: int | None
    request: int
    """The request whose body is sent; 0 if `content` is."""
    content: Content | None
    as_file: bool = False
    """The file of the body's form is sent as it is, if its place is known; otherwise the form, as received."""


class SinceMoved(Act[float], frozen=True):
    """Seconds since a byte moved on a try."""

    number: int


class CancelAt(Act[None], frozen=True):
    group: str
    name: str


class PollGroup(Act[Capacity], frozen=True):
    group: str


# Acts on callers.


class FindGone(Act[tuple[int, ...]], frozen=True):
    """Which of these requests have lost their client?"""

    requests: tuple[int, ...]


class SendState(Act[None], frozen=True):
    """Tell a watching client of the job's state; None: nothing has changed."""

    request: int
    row: GatewayJob | None


# Effects.


class JobAccepted(NamedTuple):
    """The job is in the store, for good."""

    row: GatewayJob


class OpenedAnswer(NamedTuple):
    """An answer in memory, or one that was opened for the request."""

    status: int
    head: dict[str, str]
    size: int | None
    data: bytes | None = None
    """None: the answer was opened."""


class KnownRow(NamedTuple):
    row: GatewayJob


class JobCancelled(NamedTuple):
    is_cancelled: bool


Answer: TypeAlias = Outcome | JobAccepted | OpenedAnswer | KnownRow | JobCancelled | Exception


class ReplyTo(msgspec.Struct, frozen=True):
    """The answer of a request."""

    request: int
    answer: Answer


class DropBody(msgspec.Struct, frozen=True):
    """The request's body is not needed any more."""

    request: int


class BodyAccepted(msgspec.Struct, frozen=True):
    """The request's body is in the store: it counts there."""

    request: int
    size: int


class CloseTry(msgspec.Struct, frozen=True):
    number: int


class ReleaseAnswer(msgspec.Struct, frozen=True):
    """A large answer that was read while it was received: its row is stored (`is_kept`), so readers get the last byte;
    or it will not be, and readers are cut off."""

    number: int
    is_kept: bool


class DropFiles(msgspec.Struct, frozen=True):
    names: tuple[str, ...]


class GatewayLeft(msgspec.Struct, frozen=True):
    """No job is under way any more."""


GatewayDo: TypeAlias = (
    FlowDo | ReplyTo | DropBody | BodyAccepted | CloseTry | ReleaseAnswer | DropFiles | LogLine | GatewayLeft
)
