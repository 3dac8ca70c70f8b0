"""Is a request for a job served, before any of its input is read? (SPEC N1–N4)

stopping              refused
the job runs          its protocol decides: wait for it, or come again
full, no small input  the disk is searched first: a kept result needs no slot of any kind
another client's      refused as denied, if the sender may not see it (SPEC O1)
kept and OK           the answer, unless it is of another request (SPEC L6)
full                  refused as busy
"""

from __future__ import annotations

from typing import NamedTuple

from wakugumi.core.access.identity import Sight
from wakugumi.errors import Refused
from wakugumi.limits.files import INLINE_FILE_BYTES_MAX


class SlotsNow(NamedTuple):
    """The machine's slots, and where the wanted job is."""

    is_stopping: bool
    is_running: bool
    """The job runs, or is about to run."""
    free: int
    limit: int
    can_receive: bool = True
    """There is a receive slot for the input."""


def looks_for_result(now: SlotsNow, size: int | None) -> bool:
    """Is the disk searched for a kept result, before an input of this size is received? Raises Refused: stopping."""
    if now.is_stopping:
        raise Refused("stopping", "this node takes no more jobs")
    # For a small input the run finds out by itself; a request without input asks only for a known job.
    is_full = now.free <= 0 or not now.can_receive
    return not now.is_running and (is_full or not size or size > INLINE_FILE_BYTES_MAX)


def check_room(now: SlotsNow) -> None:
    """No kept result is the answer. Raises Refused: busy."""
    if now.free <= 0 and not now.is_running:
        raise Refused("busy", f"all {now.limit} slots are taken")


def check_request(wanted: bytes, known: bytes, kept_since: str = "") -> None:
    """Is the result of the `known` request the answer to the `wanted` one? Either may be unknown. Raises Refused:
    conflict."""
    if wanted and known and wanted != known:
        since = f" since {kept_since}" if kept_since else ""
        raise Refused("conflict", f"this node has the result of another request under this id{since}")


class KnownJob(NamedTuple):
    """A job that runs here or is kept, as far as its client matters."""

    client: str
    """Empty if unknown: then it is nobody's own."""
    has_failed: bool = False


def check_owner(sight: Sight, known: KnownJob | None) -> None:
    """May a sender with this sight have the known job, and run it anew if it failed? Raises Refused: denied."""
    if known is not None and not (sight.owns if known.has_failed else sight.sees)(known.client):
        raise Refused("denied", "the job id belongs to another client", "choose another id")


def check_cancel(sight: Sight, known: KnownJob | None, name: str) -> None:
    """May a sender with this sight cancel the known job? Raises Refused: a job out of sight is unknown."""
    if known is None or not sight.sees(known.client):
        raise unknown_job(name)
    if not sight.owns(known.client):
        raise Refused("denied", f"job {name} belongs to another client", "")


def unknown_job(name: str) -> Refused:
    return Refused("unknown-job", f"no job {name} runs here, or is kept", "")
