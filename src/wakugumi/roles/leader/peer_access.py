"""Which rights has the peer of a connection? Its hello proves who it is; further frames are checked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from wakugumi.adapters.net.guard import Caller
from wakugumi.core.access.decide import (
    Right,
    capped,
    check_client,
    check_need,
    check_patterns,
    check_put,
    check_question,
    check_submit,
)
from wakugumi.core.access.identity import Identity, Role, Rules, Sight
from wakugumi.core.ids import ClientId
from wakugumi.core.leader.events import Submitted
from wakugumi.core.leader.questions import Question
from wakugumi.core.subject import Pattern
from wakugumi.errors import ConfigError, Refused
from wakugumi.wire.access_line import parse_key

audit = logging.getLogger("wakugumi.audit")

ALLOWED_MAX: Final = 1024
"""Pairs of program and subject that a connection is known to be allowed."""


class PeerAccess:
    """The identity of one connection, from its hello on."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.identity: Identity
        self.sight: Sight | None = None
        """Jobs that the peer may see; None: all."""
        self._client = ClientId("")
        self._is_free = False
        """No rule limits what the peer submits."""
        self._allowed: set[tuple[str, str]] = set()

    def join_as_client(self, key: str, client: ClientId, cap: int) -> int:
        """The peer's cap. Raises Refused."""
        identity = self.identity = self._identify(key)
        check_need(identity, Right.LOOK, "be a client")
        check_client(identity, client)
        self._client = client
        self.sight = identity.sight()
        self._is_free = identity.role is Role.ADMIN and identity.rules == Rules()
        return capped(identity, cap)

    def join_as_worker(self, key: str, patterns: Sequence[Pattern]) -> None:
        """Raises Refused."""
        identity = self.identity = self._identify(key)
        check_patterns(identity, patterns)

    @property
    def worker_key(self) -> str:
        """The name to which the worker's id belongs; empty if no proof was asked for."""
        return "" if self.identity.proof in {"open", "embedded"} else self.identity.name

    def check_submit(self, event: Submitted) -> None:
        """Raises Refused."""
        if self._is_free or (event.program, event.subject) in self._allowed:
            return
        check_submit(self.identity, self._client, event.program, event.subject)
        if len(self._allowed) >= ALLOWED_MAX:
            self._allowed.clear()
        self._allowed.add((event.program, event.subject))

    def check_put(self, cache_id: str, targets: Sequence[Pattern]) -> None:
        """Raises Refused."""
        if not self._is_free:
            check_put(self.identity, cache_id, targets)

    def check_question(self, question: Question) -> None:
        """Raises Refused. An act of an administrator is logged."""
        check_question(self.identity, question)
        log_act(self.identity, question)

    def left(self) -> None:
        self._caller.left()

    def _identify(self, key: str) -> Identity:
        try:
            return self._caller.identify(parse_key(key) if key else None)
        except ConfigError as error:
            raise Refused("denied", str(error), error.hint) from None


def log_act(identity: Identity, question: Question) -> None:
    """One line for each question that changes something: who, what, on what."""
    tag = str(question.__struct_config__.tag)
    if tag in _ACTS:
        audit.info("act who=%s role=%s what=%s on=%s", identity.name, identity.role.value, tag, question)


_ACTS: Final = frozenset(
    {"cancel", "requeue", "drop", "drain", "resume", "pin", "drop-cache", "make-key", "revoke-key"}
)
