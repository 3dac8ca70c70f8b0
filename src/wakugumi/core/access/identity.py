"""Which identity does a peer have, and which jobs may it see?"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from wakugumi.core.access.rule_lists import (
    Entries,
    allows_all_names,
    allows_name,
    allows_pattern,
    name_entries,
    pattern_entries,
    with_default,
)
from wakugumi.errors import bad_request
from wakugumi.limits.leader import CLIENT_CAP_MAX

ALL_NAMES: Final = ("*",)
ALL_SUBJECTS: Final = (">",)
KEY_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}")


class Role(StrEnum):
    ADMIN = "admin"
    CLIENT = "client"
    WORKER = "worker"
    GATEWAY = "gateway"
    READER = "reader"


class Rules(msgspec.Struct, frozen=True):
    """Limits of a key inside its role. An entry that begins with `!` denies, and wins; an empty list is the role's
    default."""

    clients: tuple[str, ...] = ()
    """Globs of client ids that it may speak for. Default: of a client and a reader its name and `name.*`, else all."""
    programs: tuple[str, ...] = ()
    """Globs of programs that its jobs may name. Default: all."""
    subjects: tuple[str, ...] = ()
    """Patterns: a client's jobs and caches go there, a worker's patterns lie inside. Default: all."""
    caches: tuple[str, ...] = ()
    """Globs of caches that it may put. Default: all."""
    sees: str = ""
    """`own` or `all` jobs. Default: own for a client, else all."""
    cap: int = 0
    """Upper bound of a connection's cap; 0: none."""


class Sight(msgspec.Struct, frozen=True):
    """Jobs of which clients an identity may see, and of which it may cancel. None in its place means: all."""

    owned: Entries
    sees_all: bool = False

    def sees(self, client_id: str) -> bool:
        return self.sees_all or allows_name(self.owned, client_id)

    def owns(self, client_id: str) -> bool:
        return allows_name(self.owned, client_id)


class Identity(msgspec.Struct, frozen=True):
    """A peer with a proven name. Its rules are checked (`checked_rules`)."""

    name: str
    role: Role
    rules: Rules = Rules()
    key: str = ""
    """Name of the key that it has shown; empty for a user of this machine."""
    proof: str = "user"
    """`user`, `key`, `certificate`, `cookie`, `embedded`, or `open`: none was asked for."""

    def clients(self) -> Entries:
        owns_all = self.role in (Role.ADMIN, Role.GATEWAY)
        return with_default(self.rules.clients, ALL_NAMES if owns_all else (self.name, f"{self.name}.*"))

    def programs(self) -> Entries:
        return with_default(self.rules.programs, ALL_NAMES)

    def subjects(self) -> Entries:
        return with_default(self.rules.subjects, ALL_SUBJECTS)

    def caches(self) -> Entries:
        return with_default(self.rules.caches, ALL_NAMES)

    def sees_all(self) -> bool:
        return (self.rules.sees or ("own" if self.role is Role.CLIENT else "all")) == "all"

    def is_narrowed(self) -> bool:
        """Do its rules deny client ids, programs or subjects that the first keys allow?"""
        names = (self.clients(), self.programs())
        return not all(map(allows_all_names, names)) or not allows_pattern(self.subjects(), ALL_SUBJECTS[0])

    def sight(self) -> Sight | None:
        """None: all jobs are its own."""
        owned = self.clients()
        return None if allows_all_names(owned) else Sight(owned, self.sees_all())


EMBEDDED: Final = Identity("embedded", Role.ADMIN, proof="embedded")
"""A client or worker in the leader's own process."""


def anybody() -> Identity:
    """A peer of an open leader, which asks for no proof."""
    return Identity("anybody", Role.ADMIN, proof="open")


def check_key_name(name: str) -> str:
    """Returns the name if a key can have it. Raises Refused."""
    if not KEY_NAME.fullmatch(name):
        raise bad_request(
            f"{name[:80]!r} cannot name a key",
            "1 to 32 of a-z, 0-9, '_', '.' and '-', beginning with a letter or digit",
        )
    return name


def checked_rules(rules: Rules) -> Rules:
    """The rules with subjects as patterns. Raises Refused."""
    if rules.sees not in ("", "own", "all"):
        raise bad_request(f"a key sees 'own' or 'all', not {rules.sees[:80]!r}")
    if not 0 <= rules.cap <= CLIENT_CAP_MAX:
        raise bad_request(f"the cap of a key is 1 to {CLIENT_CAP_MAX}, or 0 for none")
    return Rules(
        name_entries("clients", rules.clients),
        name_entries("programs", rules.programs),
        pattern_entries("subjects", rules.subjects),
        name_entries("caches", rules.caches),
        rules.sees,
        rules.cap,
    )
