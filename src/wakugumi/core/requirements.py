"""What may a job ask for besides being run? A home, a place in its client's queue, room.

    key         the same key, the same worker, where the policy is sticky: its caches are warm
    priority    before or after other jobs of the same client and subject; between clients it changes nothing
    slots       so many of one worker's slots at once
    files       the blobs and caches it names: to a worker that holds them, if one of those is free
    unnamed     it names no program, so only workers that have one for such jobs can run it
    simple      it is one file and one program's arguments: a node that is known by its address can run it, too
    by_http     somebody asked for it who may not come again: its result is taken for them
    env         it sets variables: only for workers that give them to its program
    shuns       workers that could not start it: it goes to another one

Most jobs ask for nothing, and have no Wants at all.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wakugumi.core.ids import WorkerId
from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import bad_request
from wakugumi.limits.scheduling import CREDIT_MAX, KEY_CHARS_MAX, PRIORITY_MAX

CACHE: Final = "cache:"
"""What a cache's name begins with, among the files of a job; a blob's is its SHA-256."""


class Requirements(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All that a job asks for. What is not asked for has its default."""

    key: str = ""
    priority: int = 0
    slots: int = 1
    files: tuple[str, ...] = ()
    """Blobs by their SHA-256, and caches by their id; blobs first."""
    unnamed: bool = False
    simple: bool = False
    """What can be told over HTTP is all that there is to it. Who says nothing of this is run by workers only."""
    by_http: bool = False
    """It came by HTTP, also in an earlier life of the leader."""
    shuns: tuple[WorkerId, ...] = ()
    """Workers that could not start it, while there are others to wait for (`not_started`). No journal has these."""
    env: bool = False
    """It sets variables: a worker that does not know of them would run something else."""

    @property
    def blobs(self) -> bool:
        """Some of its files are blobs: a worker that does not know them cannot run it."""
        return bool(self.files) and not self.files[0].startswith(CACHE)


_NO_REQUIREMENTS: Final = Requirements()


def without_shuns(wants: Requirements | None) -> Requirements | None:
    """What its client asked for; None for nothing."""
    if wants is not None and wants.shuns:
        wants = msgspec.structs.replace(wants, shuns=())
    return None if wants == _NO_REQUIREMENTS else wants


def check_wants(key: str, priority: object, slots: object) -> None:
    """Raises Refused if nobody could want that."""
    if key and (len(key) > KEY_CHARS_MAX or not is_plain_name(key)):
        raise bad_request(f"a key is 1 to {KEY_CHARS_MAX} printable characters, not {key[:80]!r}")
    if type(priority) is not int or not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise bad_request(
            f"a priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}, not {priority!r}"[:300]
        )
    if type(slots) is not int or not 1 <= slots <= CREDIT_MAX:
        raise bad_request(f"slots are a whole number from 1 to {CREDIT_MAX}, not {slots!r}"[:300])
