"""Which state do several gateways share? One row per job.

    queued ──► running(group) ──► done | failed          a failed job that is submitted again gets a new row

A row is changed only with its version known (compare-and-set), so the first accepted result wins. A row belongs to its
owner as long as that gateway's lease holds. `adapters/gateway_store` keeps the rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from wakugumi.core.access.identity import Sight
from wakugumi.core.ids import HTTP_CLIENT, JobId
from wakugumi.errors import Refused

QUEUED: Final = "queued"
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
STATES: Final = (QUEUED, RUNNING, DONE, FAILED)

DIGEST_FORM: Final = "2:"
"""Prefix of a row's digest. Digests without it included the subject: such rows are matched by their id alone."""


class InputAt(NamedTuple):
    """Where the form of a body has its file, and the job without it."""

    head: bytes
    """The job as a group takes it, with the name and size of the file (`wire/messages/envelope.py`)."""
    at: int
    size: int


class Content(msgspec.Struct, frozen=True):
    """A body or an answer: in the row itself, or the name of a file."""

    size: int
    data: bytes | None = None
    file: str = ""
    input: InputAt | None = None
    """Of a body. None in rows of older versions."""


class GatewayJob(msgspec.Struct, frozen=True):
    """All that gateways know of a job."""

    job: JobId
    name: str
    """The id as its first client wrote it."""
    owner: str
    """The gateway that forwards the job."""
    state: str = QUEUED
    group: str = ""
    """The group of the job now, or last."""
    is_async: bool = False
    """The job was accepted for good: a gateway that takes it over forwards it."""
    key: str = ""
    """The key by which a group is chosen, where the choice is by hash; empty: the name."""
    query: str = ""
    headers: dict[str, str] = {}
    """Headers for the group."""
    body: Content | None = None
    tries: int = 0
    status: int = 0
    """HTTP status of the answer, once there is one."""
    head: dict[str, str] = {}
    """Headers of the answer; of a problem its code, detail and hint."""
    answer: Content | None = None
    """None for a problem."""
    version: int = 0
    """0: the row is not in the store yet."""
    accepted_at: float = 0.0
    changed_at: float = 0.0
    """By the clock of the store, which sets `accepted_at` and `changed_at`."""
    request: str = ""
    """The digest of the request. Empty while its body is being received, and in rows of older versions."""
    client: str = HTTP_CLIENT
    """Client id of the job: it belongs to all identities that may speak for this client."""

    @property
    def is_final(self) -> bool:
        return self.state in {DONE, FAILED}

    @property
    def files(self) -> set[str]:
        return {content.file for content in (self.body, self.answer) if content is not None and content.file}

    def is_seen(self, sight: Sight | None) -> bool:
        return sight is None or sight.sees(self.client)

    def check_seen(self, sight: Sight | None) -> None:
        """Raises Refused if the id was taken by a client that is out of sight."""
        if not self.is_seen(sight):
            raise _taken(self.name)

    def check_owned(self, sight: Sight | None) -> None:
        """Raises Refused if the job is another client's: it may be seen, and not changed."""
        if sight is not None and not sight.owns(self.client):
            raise _taken(self.name)

    def check_repeat(self, request: str, sight: Sight | None) -> None:
        """May this request have the outcome of this row? Raises Refused."""
        self.check_seen(sight)
        self.check_same(request)

    def check_same(self, request: str) -> None:
        """Raises Refused if the id was used for another request (SPEC L6), as far as both digests are known."""
        if self.request.startswith(DIGEST_FORM) and request and self.request != request:
            raise Refused("conflict", f"the job id {self.name} was used for another request")


def _taken(name: str) -> Refused:
    return Refused("denied", f"the job id {name} belongs to another client", "choose another id")


class Totals(NamedTuple):
    """Numbers of rows and bytes in the store."""

    queued: int = 0
    running: int = 0
    ended: int = 0
    ended_bytes: int = 0
    """Bytes of the answers of ended jobs, in rows and in files."""
    open_bytes: int = 0
    """Bytes of the bodies of open jobs, in rows and in files."""


class OpenJob(NamedTuple):
    """A job that is not final, with its place in the order of all open jobs."""

    accepted_at: float
    job: JobId
