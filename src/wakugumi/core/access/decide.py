"""May this identity do this? Each check returns, or raises Refused with a sentence that explains itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from wakugumi.core.access.identity import Identity, Role
from wakugumi.core.access.rule_lists import Entries, allows_name, allows_pattern, denies_name, shown
from wakugumi.core.subject import Pattern
from wakugumi.errors import Refused


class Right(StrEnum):
    """A kind of act, which a role has or lacks."""

    OPEN = "open"
    """Health, OpenAPI, the CA: for strangers, too."""
    KNOWN = "known"
    """Ask as whom one is known: for every peer with a proof."""
    LOOK = "look"
    """Status, metrics, lists."""
    RUN = "run"
    """Submit, claim, fetch results, cancel own jobs, put caches."""
    WORK = "work"
    """Be a worker."""
    CONTENT = "content"
    """Put content by its hash, and fetch that of own jobs."""
    CHANGE = "change"
    """Drain, resume, pin, drop caches."""
    KEYS = "keys"
    """Make, list and revoke keys."""


RIGHTS_OF: Final[Mapping[Role, frozenset[Right]]] = {
    Role.ADMIN: frozenset(Right),
    Role.CLIENT: frozenset({Right.OPEN, Right.KNOWN, Right.LOOK, Right.RUN, Right.CONTENT}),
    Role.GATEWAY: frozenset({Right.OPEN, Right.KNOWN, Right.LOOK, Right.RUN, Right.CONTENT}),
    Role.READER: frozenset({Right.OPEN, Right.KNOWN, Right.LOOK}),
    Role.WORKER: frozenset({Right.OPEN, Right.KNOWN, Right.WORK, Right.CONTENT}),
}
RIGHT_OF_QUESTION: Final[Mapping[str, Right]] = {
    "me": Right.KNOWN,
    **dict.fromkeys(("status", "top", "jobs", "job", "story", "explain", "workers", "link"), Right.LOOK),
    **dict.fromkeys(("dead", "letter", "caches", "cache"), Right.LOOK),
    **dict.fromkeys(("cancel", "requeue", "drop"), Right.RUN),
    **dict.fromkeys(("keys", "key", "make-key", "revoke-key"), Right.KEYS),
    **dict.fromkeys(("drain", "resume", "pin", "drop-cache"), Right.CHANGE),
}
"""By the tag of a question; any other question is for administrators. Whose jobs it may touch is the sight's matter."""


def may(identity: Identity, need: Right) -> bool:
    return need in RIGHTS_OF[identity.role]


def check_need(identity: Identity, need: Right, what: str) -> None:
    """`what` is the act: "drain workers"."""
    if not may(identity, need):
        able = [role.value for role, rights in RIGHTS_OF.items() if need in rights]
        raise _denied(
            f"{identity.name} has the role {identity.role.value} and may not {what}",
            f"use a key with the role {' or '.join(able)}",
        )


def check_client(identity: Identity, client: str) -> None:
    """May it speak for this client id?"""
    if not allows_name(identity.clients(), client):
        raise _not_allowed(identity, "speak for the clients", identity.clients(), f"for {_quoted(client)}")


def check_submit(identity: Identity, client: str, program: str, subject: str) -> None:
    check_need(identity, Right.RUN, "submit jobs")
    check_client(identity, client)
    if identity.rules.programs:
        programs = identity.programs()
        # A worker without the program takes `<program>.exe`, so a denial of that file denies both names.
        if not allows_name(programs, program) or denies_name(programs, f"{program}.exe"):
            raise _not_allowed(identity, "run", programs, _quoted(program) if program else "a job without a program")
    if identity.rules.subjects and not allows_pattern(identity.subjects(), subject):
        raise _not_allowed(identity, "submit to", identity.subjects(), f"to {subject}")


def check_patterns(identity: Identity, patterns: Iterable[Pattern]) -> None:
    """May it be a worker with these patterns?"""
    check_need(identity, Right.WORK, "be a worker")
    if identity.rules.subjects:
        _check_inside(identity, patterns, "take jobs of", "of")


def check_put(identity: Identity, cache_id: str, targets: Iterable[Pattern]) -> None:
    """May it put this cache on the workers of these patterns?"""
    check_need(identity, Right.RUN, "put caches")
    if not allows_name(identity.caches(), cache_id):
        raise _not_allowed(identity, "put the caches", identity.caches(), _quoted(cache_id))
    if identity.rules.subjects:
        _check_inside(identity, targets, "put caches on workers of", "of")


def check_question(identity: Identity, question: msgspec.Struct) -> None:
    tag = question.__struct_config__.tag
    check_need(identity, RIGHT_OF_QUESTION.get(str(tag), Right.KEYS), f"ask for {tag!r}")


def capped(identity: Identity, cap: int) -> int:
    """The cap of a connection that declares this one."""
    most = identity.rules.cap
    return min(cap, most) if most else cap


def _check_inside(identity: Identity, patterns: Iterable[Pattern], act: str, preposition: str) -> None:
    subjects = identity.subjects()
    for pattern in patterns:
        if not allows_pattern(subjects, pattern):
            raise _not_allowed(identity, act, subjects, f"{preposition} {pattern}")


def _not_allowed(identity: Identity, act: str, entries: Entries, wanted: str) -> Refused:
    return _denied(f"{identity.name} may {act} {shown(entries)}, not {wanted}", _ASK)


def _denied(text: str, hint: str) -> Refused:
    return Refused("denied", text, hint)


def _quoted(text: str) -> str:
    """A name as it is, if it cannot be taken for words of the sentence."""
    return text if len(text) <= 80 and text.isascii() and text.isprintable() and " " not in text else repr(text[:80])


_ASK: Final = "use another key, or ask the operator for a key with wider rules"
