"""Which events does the ring of keys take, and which records and effects does it return? (`core/step.py`)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from wakugumi.core.access.identity import Role, Rules
from wakugumi.core.access.key_questions import AskKey, AskKeys, AskRevokeKey, KeyAnswer
from wakugumi.core.ids import ConnId
from wakugumi.core.step import LogLine

# Events.


class KeyWanted(msgspec.Struct, frozen=True):
    """An AskMakeKey, with the hash of the secret that the edge has made for it."""

    conn: ConnId
    ask_id: bytes
    name: str
    role: Role
    rules: Rules
    expires_s: float
    secret_hash: bytes


class KeyAsked(msgspec.Struct, frozen=True):
    conn: ConnId
    ask_id: bytes
    question: AskKeys | AskKey | AskRevokeKey


class KeyUsed(msgspec.Struct, frozen=True):
    """A connection has shown this key, and `identify` took it."""

    conn: ConnId
    name: str


class ConnectionLeft(msgspec.Struct, frozen=True):
    """A connection that may have shown a key is closed."""

    conn: ConnId


class RingClosed(msgspec.Struct, frozen=True):
    """The process ends: last uses are kept."""


KeyEvent: TypeAlias = KeyWanted | KeyAsked | KeyUsed | ConnectionLeft | RingClosed

# Records.


class KeyKept(msgspec.Struct, frozen=True):
    """A whole key: it replaces the record of the same name."""

    name: str
    role: Role
    secret_hash: bytes
    """SHA-256 of the secret."""
    made_at: float
    """Times are those of the wall clock, in seconds since 1970."""
    rules: Rules = Rules()
    expires_at: float = 0.0
    """0: never."""
    revoked_at: float = 0.0
    """0: it is not revoked."""
    last_used: float = 0.0
    """0: unused. Up to an hour older than the true one."""

    def __repr__(self) -> str:
        return f"KeyKept({self.name!r}, {self.role.value})"


class KeyForgotten(msgspec.Struct, frozen=True):
    """The record of this name goes."""

    name: str


KeyKeep: TypeAlias = KeyKept | KeyForgotten

# Effects.


class AnswerKeys(msgspec.Struct, frozen=True):
    conn: ConnId
    ask_id: bytes
    answer: KeyAnswer


class RefuseKeys(msgspec.Struct, frozen=True):
    """The question is refused, and why."""

    conn: ConnId
    ask_id: bytes
    code: str
    text: str
    hint: str = ""


class CloseConnections(msgspec.Struct, frozen=True):
    conns: Sequence[ConnId]
    why: str


KeyDo: TypeAlias = AnswerKeys | RefuseKeys | CloseConnections | LogLine
