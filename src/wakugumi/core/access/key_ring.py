"""Which keys are there, and which connections use them? A machine with the four doors of `core/step.py`.

    identify ──► KeyUsed ──► connections of a key ── revoked or expired ──► CloseConnections

`identify` looks and changes nothing; the edge asks it before it takes a peer. A key that ends in between closes the
connection with its KeyUsed. Expiry is a time of the wall clock, which may jump: it is looked at again every minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hmac import compare_digest
from itertools import islice
from typing import Final

from msgspec.structs import replace

from wakugumi.core.access.decide import Right, may
from wakugumi.core.access.identity import Identity, check_key_name, checked_rules
from wakugumi.core.access.key_events import (
    AnswerKeys,
    CloseConnections,
    ConnectionLeft,
    KeyAsked,
    KeyDo,
    KeyEvent,
    KeyForgotten,
    KeyKeep,
    KeyKept,
    KeyUsed,
    KeyWanted,
    RefuseKeys,
    RingClosed,
)
from wakugumi.core.access.key_questions import AskKeys, AskRevokeKey, KeyRow, KeysAnswer
from wakugumi.core.ids import ConnId
from wakugumi.core.step import INFO, LogLine, Step
from wakugumi.errors import Refused, bad_request
from wakugumi.limits.access import CERTIFICATE_SKEW_S, KEY_LIFE_S_MAX, KEY_LOOK_S, KEY_USE_KEPT_S, KEYS_MAX
from wakugumi.limits.leader import LIST_ROWS_MAX

HASH_BYTES: Final = 32
_NO_HASH: Final = bytes(HASH_BYTES)
"""Compared with the hash of a stranger's secret, so that an unknown name takes as long as a known one."""
_SOON_S: Final = 0.01
_NAMES: Final = {"expired": "the key has expired", "revoked": "the key was revoked"}


class KeyRefused(Refused):
    """A key is not valid. Its words are the same for all reasons; `why` is for the audit log."""

    def __init__(self, why: str) -> None:
        super().__init__("denied", "the key is not valid here", "ask the operator for a new key")
        self.why = why


class KeyRing:
    """All keys of one grid. `wall` is the wall clock."""

    def __init__(self, wall: Callable[[], float], now: float, *, keys_max: int = KEYS_MAX) -> None:
        self._wall = wall
        self._keys_max = keys_max
        self._keys: dict[str, KeyKept] = {}
        """In the order in which they were made."""
        self._key_of: dict[ConnId, str] = {}
        self._conns: dict[str, set[ConnId]] = {}
        """Connections by key, without empty sets."""
        self._used: set[str] = set()
        """Keys with a last use that is not kept yet."""
        self._look_at = now + KEY_LOOK_S
        self._write_at = now + KEY_USE_KEPT_S
        self._keep: list[KeyKeep] = []
        self._do: list[KeyDo] = []

    def recover(self, keys: Iterable[KeyKept]) -> None:
        """Load the keys of the file, before the first event."""
        self._keys = {key.name: key for key in sorted(keys, key=lambda key: key.made_at)}

    # Lookups.

    def identify(self, name: str, secret_hash: bytes, wall_now: float) -> Identity:
        """The identity of a peer that has shown this key. Raises Refused."""
        key = self._keys.get(name)
        is_right = compare_digest(_NO_HASH if key is None else key.secret_hash, secret_hash)
        if key is None:
            raise KeyRefused("unknown")
        if not is_right:
            raise KeyRefused("wrong secret")
        return self._identity(key, wall_now, "key")

    def identify_certificate(self, name: str, wall_now: float, issued_at: float) -> Identity:
        """The identity of a peer whose certificate, which the grid's CA has signed, names this key. Raises Refused.

        A certificate of an earlier key of the same name is not valid.
        """
        key = self._keys.get(name)
        if key is None:
            raise KeyRefused("unknown")
        if issued_at < key.made_at - CERTIFICATE_SKEW_S:
            raise KeyRefused("certificate older than the key")
        return self._identity(key, wall_now, "certificate")

    def made_at(self, name: str) -> float:
        """Time when the key was made, which tells it from another one of its name. Raises Refused."""
        key = self._keys.get(name)
        if key is None:
            raise KeyRefused("unknown")
        return key.made_at

    def identify_again(self, name: str, made_at: float, wall_now: float) -> Identity:
        """The identity of a browser that was let in for the key that was made then. Raises Refused."""
        key = self._keys.get(name)
        if key is None or key.made_at != made_at:
            raise KeyRefused("unknown")
        return self._identity(key, wall_now, "cookie")

    def have_rules(self) -> bool:
        return have_rules(self._keys.values(), self._wall())

    def __len__(self) -> int:
        return len(self._keys)

    # The four doors.

    def handle(self, events: Sequence[KeyEvent], now: float) -> Step[KeyKeep, KeyDo]:
        for event in events:
            match event:
                case KeyUsed():
                    self._use(event, now)
                case ConnectionLeft():
                    self._left(event.conn)
                case KeyWanted() | KeyAsked():
                    self._answer(event)
                case RingClosed():
                    self._write_uses()
        return self._step()

    def tick(self, now: float) -> Step[KeyKeep, KeyDo]:
        wall = self._wall()
        for name in [name for name in self._conns if _state(self._keys[name], wall) == "expired"]:
            self._close(name, "expired")
        if self._write_at <= now:
            self._write_at = now + KEY_USE_KEPT_S
            self._write_uses()
        self._look_at = now + KEY_LOOK_S
        for name in self._conns:
            self._look_before(self._keys[name], now, wall)
        return self._step()

    def wake_at(self) -> float | None:
        return min(self._look_at, self._write_at)

    def check(self) -> None:
        assert not self._keep
        assert not self._do
        assert len(self._keys) <= self._keys_max
        assert self._used <= self._keys.keys()
        assert sorted(self._key_of.items()) == sorted(
            (conn, name) for name in self._conns for conn in self._conns[name]
        )
        for name, conns in self._conns.items():
            assert conns
            assert not self._keys[name].revoked_at, "its connections were closed"

    # Events.

    def _use(self, event: KeyUsed, now: float) -> None:
        wall = self._wall()
        key = self._keys.get(event.name)
        state = "revoked" if key is None else _state(key, wall)
        if key is None or state != "valid":
            self._do.append(CloseConnections((event.conn,), _NAMES[state]))
            return
        self._left(event.conn)
        self._key_of[event.conn] = key.name
        self._conns.setdefault(key.name, set()).add(event.conn)
        self._keys[key.name] = replace(key, last_used=wall)
        self._used.add(key.name)
        self._look_before(key, now, wall)

    def _look_before(self, key: KeyKept, now: float, wall: float) -> None:
        """Look again when this key expires, at the latest."""
        if key.expires_at:
            self._look_at = min(self._look_at, now + max(_SOON_S, key.expires_at - wall))

    def _left(self, conn: ConnId) -> None:
        name = self._key_of.pop(conn, None)
        if name is not None:
            self._conns[name].remove(conn)
            if not self._conns[name]:
                del self._conns[name]

    def _answer(self, event: KeyWanted | KeyAsked) -> None:
        wall = self._wall()
        try:
            if isinstance(event, KeyWanted):
                answer: KeyRow | KeysAnswer = self._make(event, wall)
            elif isinstance(event.question, AskKeys):
                limit = max(1, min(event.question.limit, LIST_ROWS_MAX))
                newest = [self._row(key, wall) for key in islice(reversed(self._keys.values()), limit)]
                answer = KeysAnswer(newest[::-1], len(self._keys))
            else:
                key = self._keys.get(event.question.name)
                if key is None:
                    raise Refused("unknown-key", f"the leader knows no key {event.question.name[:80]!r}")
                if isinstance(event.question, AskRevokeKey):
                    self._revoke(event, key, wall)
                    return
                answer = self._row(key, wall)
        except Refused as no:
            self._do.append(RefuseKeys(event.conn, event.ask_id, no.code, no.message, no.hint))
        else:
            self._do.append(AnswerKeys(event.conn, event.ask_id, answer))

    def _make(self, event: KeyWanted, wall: float) -> KeyRow:
        name = check_key_name(event.name)
        if not 0 <= event.expires_s <= KEY_LIFE_S_MAX:
            raise bad_request(f"a key expires after at most {KEY_LIFE_S_MAX:.0f} s, or never (0)")
        assert len(event.secret_hash) == HASH_BYTES
        rules = checked_rules(event.rules)
        before = self._keys.get(name)
        if before is not None and _state(before, wall) == "valid":
            raise Refused("conflict", f"there is a key {name} already", "choose another name, or revoke that key first")
        if before is not None:
            self._close(name, "expired")
            del self._keys[name]
            self._used.discard(name)
        elif len(self._keys) >= self._keys_max:
            self._forget_one(wall)
        expires_at = wall + event.expires_s if event.expires_s else 0.0
        key = self._keys[name] = KeyKept(name, event.role, event.secret_hash, wall, rules, expires_at)
        self._keep.append(key)
        return self._row(key, wall)

    def _forget_one(self, wall: float) -> None:
        ended = next((name for name, key in self._keys.items() if _state(key, wall) != "valid"), None)
        if ended is None:
            raise Refused("full", f"there are {len(self._keys)} keys", "revoke keys that are not used any more")
        self._close(ended, "expired")
        del self._keys[ended]
        self._used.discard(ended)
        self._keep.append(KeyForgotten(ended))

    def _revoke(self, event: KeyAsked, key: KeyKept, wall: float) -> None:
        """The answer goes first: the connection that asks may be one of those that are closed."""
        if not key.revoked_at:
            key = self._keys[key.name] = replace(key, revoked_at=wall)
            self._used.discard(key.name)
            self._keep.append(key)
        self._do.append(AnswerKeys(event.conn, event.ask_id, self._row(key, wall)))
        self._close(key.name, "revoked")

    def _close(self, name: str, state: str) -> None:
        conns = sorted(self._conns.pop(name, ()))
        for conn in conns:
            del self._key_of[conn]
        if conns:
            self._do.append(CloseConnections(conns, _NAMES[state]))
            self._do.append(LogLine(INFO, f"key {state} key={name} connections={len(conns)}"))

    def _write_uses(self) -> None:
        self._keep += [self._keys[name] for name in sorted(self._used)]
        self._used.clear()

    def _step(self) -> Step[KeyKeep, KeyDo]:
        step = Step(self._keep, self._do)
        self._keep, self._do = [], []
        return step

    # Rows.

    def _identity(self, key: KeyKept, wall: float, proof: str) -> Identity:
        state = _state(key, wall)
        if state != "valid":
            raise KeyRefused(state)
        return Identity(key.name, key.role, key.rules, key.name, proof)

    def _row(self, key: KeyKept, wall: float) -> KeyRow:
        return KeyRow(
            key.name,
            key.role,
            key.rules,
            _state(key, wall),
            len(self._conns.get(key.name, ())),
            wall - key.made_at,
            key.expires_at - wall if key.expires_at else None,
            wall - key.revoked_at if key.revoked_at else None,
            wall - key.last_used if key.last_used else None,
        )


def _state(key: KeyKept, wall: float) -> str:
    if key.revoked_at:
        return "revoked"
    return "expired" if key.expires_at and key.expires_at <= wall else "valid"


def have_rules(keys: Iterable[KeyKept], wall_now: float) -> bool:
    """Is there a valid key that may run jobs, but not all (`core/runner/programs/separation.py`)?"""
    valid = (Identity(key.name, key.role, key.rules, key.name) for key in keys if _state(key, wall_now) == "valid")
    return any(may(identity, Right.RUN) and identity.is_narrowed() for identity in valid)
