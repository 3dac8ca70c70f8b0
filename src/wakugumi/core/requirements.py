"""What may a job ask for besides being run? A home, a place in its client's queue, room.

    key         the same key, the same worker, where the policy is sticky: its caches are warm
    priority    before or after other jobs of the same client and subject; between clients it changes nothing
    slots       so many of one worker's slots at once
    files       the blobs and caches it names: a free worker that holds them goes first
    unnamed     the job names no program: only workers with a program for such jobs can run it
    simple      one file and one program's arguments: a node that is known by its address can run it, too
    by_http     the job came over HTTP: its result is taken for a caller that may not come again
    env         the job sets variables: only for workers that pass them to its program
    shuns       workers that could not start the job: another one gets it

Most jobs ask for none of these, and have no Requirements at all.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.ids import WorkerId
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import bad_request
from wakugumi.limits.scheduling import CREDIT_MAX, KEY_CHARS_MAX, PRIORITY_MAX

CACHE: Final = "cache:"
"""Prefix of a cache among the files of a job; a blob is named by its SHA-256 alone."""


class Requirements(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All that a job asks for. Each field has the default of a job that does not ask."""

    key: str = ""
    priority: int = 0
    slots: int = 1
    files: tuple[str, ...] = ()
    """Blobs by their SHA-256, and caches by their id; blobs first."""
    unnamed: bool = False
    simple: bool = False
    """The job can be written as a request over HTTP. Jobs without this mark are run by workers only."""
    by_http: bool = False
    """The job came by HTTP, also if the leader was restarted since."""
    shuns: tuple[WorkerId, ...] = ()
    """Workers that could not start the job, while there are others to wait for (`not_started`). Not kept in the
    journal."""
    env: bool = False
    """The job sets variables: a worker that does not know of them would run something else."""

    @property
    def blobs(self) -> bool:
        """Some of the files are blobs: a worker that does not know blobs cannot run the job."""
        return bool(self.files) and not self.files[0].startswith(CACHE)


_NO_REQUIREMENTS: Final = Requirements()


def without_shuns(wants: Requirements | None) -> Requirements | None:
    """The requirements of the client; None if there are none."""
    if wants is not None and wants.shuns:
        wants = msgspec.structs.replace(wants, shuns=())
    return None if wants == _NO_REQUIREMENTS else wants


def check_wants(key: str, priority: object, slots: object) -> None:
    """Raises Refused for a value out of bounds."""
    if key and (len(key) > KEY_CHARS_MAX or not is_plain_name(key)):
        raise bad_request(f"a key is 1 to {KEY_CHARS_MAX} printable characters, not {key[:80]!r}")
    if type(priority) is not int or not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise bad_request(
            f"a priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}, not {priority!r}"[:300]
        )
    if type(slots) is not int or not 1 <= slots <= CREDIT_MAX:
        raise bad_request(f"slots are a whole number from 1 to {CREDIT_MAX}, not {slots!r}"[:300])
