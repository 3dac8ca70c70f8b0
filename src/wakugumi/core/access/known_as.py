"""As whom is a peer known, by which proof, and what may it do? Asked at the edge of a role: no machine knows it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from wakugumi.core.access.decide import Right, may
from wakugumi.core.access.identity import ALL_NAMES, Identity, Role, Rules
from wakugumi.core.access.rule_lists import allows_all_names, shown


class Degree(StrEnum):
    """The proof that the ports of a role ask for."""

    OPEN = "open"
    """None."""
    THIS_USER = "this user"
    """The kernel names the user of this machine; others are shut out."""
    KEYS = "keys over TLS"
    """A key of the grid; on this machine the user is enough."""
    CERTIFICATES = "certificates"
    """A certificate of the operator's own authority."""


class AskMe(msgspec.Struct, frozen=True, tag_field="ask", tag="me"):
    """As whom am I known, and what may I do?"""


class KnownAs(msgspec.Struct, frozen=True):
    name: str
    role: str
    """A role of `identity.Role`, or of a newer version."""
    proof: str
    """`user`, `key`, `certificate`, `cookie`, `embedded`, or `open`: none was asked for."""
    degree: str
    """Proof that the leader asks for, as `Degree` has it."""
    may: list[str]
    """Acts that are allowed, in words."""
    rules: Rules = Rules()


def known_as(identity: Identity, degree: Degree) -> KnownAs:
    return KnownAs(
        identity.name, identity.role.value, identity.proof, degree.value, allowed_acts(identity), identity.rules
    )


def allowed_acts(identity: Identity) -> list[str]:
    """All that its role and rules allow, in words for people."""
    if identity.role is Role.ADMIN and identity.rules in (Rules(), Rules(clients=ALL_NAMES)):
        return ["do everything"]
    acts: list[str] = []
    if may(identity, Right.LOOK):
        acts.append("see all jobs" if identity.sight() is None or identity.sees_all() else "see own jobs")
    if may(identity, Right.RUN):
        acts.append(f"run {_jobs(identity)} as {_any(identity.clients(), 'any client')}")
        acts.append(f"put {_any(identity.caches(), 'all caches', 'the caches ')}")
    if may(identity, Right.WORK):
        subjects = f" for {shown(identity.subjects())}" if identity.rules.subjects else ""
        acts.append(f"be a worker{subjects}")
    if may(identity, Right.CHANGE):
        acts.append("change workers and caches")
    if may(identity, Right.KEYS):
        acts.append("make and revoke keys")
    if identity.rules.cap and may(identity, Right.RUN):
        acts.append(f"have {identity.rules.cap} jobs at once")
    return acts


def _jobs(identity: Identity) -> str:
    programs = f" of the programs {shown(identity.programs())}" if identity.rules.programs else ""
    subjects = f" on {shown(identity.subjects())}" if identity.rules.subjects else ""
    return f"jobs{programs}{subjects}"


def _any(entries: tuple[str, ...], every: str, some: str = "") -> str:
    return every if allows_all_names(entries) else f"{some}{shown(entries)}"
