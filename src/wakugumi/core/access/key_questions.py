"""What may an administrator ask about keys, and what is the answer? In the style of `core/leader/questions.py`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wakugumi.core.access.identity import Role, Rules
from wakugumi.limits.leader import LIST_ROWS_DEFAULT


class AskKeys(msgspec.Struct, frozen=True, tag_field="ask", tag="keys"):
    """Which keys are there? The newest come last."""

    limit: int = LIST_ROWS_DEFAULT


class AskKey(msgspec.Struct, frozen=True, tag_field="ask", tag="key"):
    """Which role, rules and uses has this key?"""

    name: str


class AskMakeKey(msgspec.Struct, frozen=True, tag_field="ask", tag="make-key"):
    """Make a key. Its secret is made at the leader's edge."""

    name: str
    role: Role
    rules: Rules = Rules()
    expires_s: float = 0.0
    """Seconds until it expires; 0: never."""


class AskRevokeKey(msgspec.Struct, frozen=True, tag_field="ask", tag="revoke-key"):
    """End this key, and close its connections."""

    name: str


KeyQuestion: TypeAlias = AskKeys | AskKey | AskMakeKey | AskRevokeKey
"""Questions for `core/access/key_ring.py`, not for `core/leader/machine.py`."""


class KeyRow(msgspec.Struct, frozen=True):
    name: str
    role: Role
    rules: Rules
    state: str
    """valid, expired or revoked"""
    connections: int
    made_s: float
    """Time since it was made."""
    expires_s: float | None = None
    """Time until it expires, below 0 since then; None: never."""
    revoked_s: float | None = None
    """Time since it was revoked."""
    used_s: float | None = None
    """Time since its last use; None: unused."""


class KeysAnswer(msgspec.Struct, frozen=True):
    rows: list[KeyRow]
    total: int
    """Number of all keys; `rows` are the newest."""


class MadeKey(msgspec.Struct, frozen=True):
    """A new key. The edge makes this answer of the ring's row: no machine knows the secret."""

    row: KeyRow
    key: str
    """The whole key with its secret, which no later answer has."""
    hosts: list[str]
    """Names and addresses of the leader's machine, the best ones first."""

    def __repr__(self) -> str:
        return f"MadeKey({self.row.name})"


KeyAnswer: TypeAlias = KeyRow | KeysAnswer
"""Answers of the ring."""
