"""Which keys may use a role's ports? The ring of keys (`core/access/key_ring.py`) with its file, and the certificate of
the ports.

A role on this machine alone has no keys until the first one is made; an authority and a certificate are made then, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from wakugumi.adapters.loop.drive import Drive
from wakugumi.adapters.loop.tasks import Tasks
from wakugumi.adapters.net.gate import gate
from wakugumi.core.access.identity import Identity
from wakugumi.core.access.key_events import (
    AnswerKeys,
    CloseConnections,
    ConnectionLeft,
    KeyAsked,
    KeyDo,
    KeyEvent,
    KeyForgotten,
    KeyKeep,
    KeyUsed,
    KeyWanted,
    RefuseKeys,
    RingClosed,
)
from wakugumi.core.access.key_questions import AskMakeKey, KeyAnswer, KeyQuestion, KeyRow, MadeKey
from wakugumi.core.access.key_ring import KeyRefused, KeyRing
from wakugumi.core.ids import ConnId
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.access import CERTIFICATE_LOOK_S, JOINED_CERTIFICATE_DAYS_MAX
from wakugumi.wire.access_line import Key, secret_hash

if TYPE_CHECKING:
    import ssl

    from wakugumi.adapters.access.keys_file import KeysFile
    from wakugumi.adapters.access.state_folder import AccessFolder
    from wakugumi.adapters.net.tls import PeerCertificate, RenewedContext

log = logging.getLogger("wakugumi.access")
audit = logging.getLogger("wakugumi.audit")

CERTIFIED: Final = frozenset({"worker", "gateway"})
"""Roles of keys that get certificates."""
_ASKED: Final = ConnId(0)
"""The connection of questions, whose answers are told apart by their ids alone."""


class KeyPlace(msgspec.Struct, frozen=True):
    """An open folder of access files."""

    folder: AccessFolder
    file: KeysFile
    context: RenewedContext
    hosts: list[str]


class GridKeys:
    """The keys of one role. Create it inside a running loop."""

    def __init__(self, make: Callable[[], KeyPlace], place: KeyPlace | None) -> None:
        """`place`: None until the first key is made, by `make`, which is called in a thread and raises ConfigError."""
        self._make = make
        self._place = place
        self.version = 0
        self.on_ended: Callable[[str], None] = lambda _name: None
        """Called with the name of each key that was revoked or forgotten, or that a new one replaces."""
        self._ring = KeyRing(time.time, asyncio.get_running_loop().time())
        if place is not None:
            self._ring.recover(place.file.keys)
        self._have_rules = (-1, False)
        self._closers: dict[ConnId, Callable[[str], None]] = {}
        self._asked: dict[bytes, asyncio.Future[KeyAnswer]] = {}
        self._numbers = count(1)
        self._writing: asyncio.Future[None] | None = None
        self._unwritten: list[KeyKeep] = []
        self._waiting: list[Callable[[], None]] = []
        self._making = asyncio.Lock()
        self._tasks = Tasks()
        self.drive: Drive[KeyEvent, KeyKeep, KeyDo] = Drive(self._ring, self._perform, name="keys", keeper=self)
        self._tasks.start_loop(self._renew_often, name="renew the certificate")

    # Asked by the guard.

    def tls(self) -> ssl.SSLContext | None:
        return None if self._place is None else self._place.context()

    @property
    def ca_pem(self) -> bytes | None:
        """The certificate of the authority, which is public."""
        return None if self._place is None else self._place.folder.ca_pem

    @property
    def have_rules(self) -> bool:
        """Does a valid key allow only some jobs?"""
        if self._have_rules[0] != self.version:
            self._have_rules = self.version, self._ring.have_rules()
        return self._have_rules[1]

    def identify(self, key: Key) -> Identity:
        """Raises Refused."""
        try:
            if self._place is None or key.digest != self._place.folder.digest:
                raise KeyRefused("of another grid")
            return self._ring.identify(key.name, secret_hash(key), time.time())
        except KeyRefused as no:
            raise _noted(no, key.name) from None

    def identify_certificate(self, shown: PeerCertificate) -> Identity:
        """Raises Refused."""
        try:
            return self._ring.identify_certificate(shown.name, time.time(), shown.issued_at)
        except KeyRefused as no:
            raise _noted(no, shown.name) from None

    def made_at(self, name: str) -> float:
        """Raises Refused."""
        return self._ring.made_at(name)

    def identify_again(self, name: str, made_at: float) -> Identity:
        """Raises Refused."""
        try:
            return self._ring.identify_again(name, made_at, time.time())
        except KeyRefused as no:
            raise _noted(no, name) from None

    def used(self, conn: int, name: str, close: Callable[[str], None]) -> None:
        self._closers[ConnId(conn)] = close
        self.drive.post(KeyUsed(ConnId(conn), name))

    def left(self, conn: int) -> None:
        self._closers.pop(ConnId(conn), None)
        self.drive.post(ConnectionLeft(ConnId(conn)))

    # Asked by administrators, and by joining machines.

    async def ask(self, question: KeyQuestion) -> KeyAnswer | MadeKey:
        """Raises Refused."""
        if not isinstance(question, AskMakeKey):
            return await self._answer(lambda ask_id: KeyAsked(_ASKED, ask_id, question))
        place = await self._made_place()
        from wakugumi.adapters.access.state_folder import new_key

        key = new_key(question.name, place.folder.digest)
        wanted = (question.name, question.role, question.rules, question.expires_s, secret_hash(key))
        row = await self._answer(lambda ask_id: KeyWanted(_ASKED, ask_id, *wanted))
        assert isinstance(row, KeyRow)
        return MadeKey(row, key.text, place.hosts)

    async def certify(self, identity: Identity, request: bytes) -> bytes:
        """A certificate for this key, for a request in PEM. Raises Refused."""
        if self._place is None or not identity.key or identity.proof == "cookie":  # It would outlive the cookie.
            raise Refused("denied", "a certificate is made for a key", "show a key")
        from wakugumi.adapters.access.certificates import sign_csr

        folder, role = self._place.folder, identity.role.value
        if role not in CERTIFIED:
            raise Refused("denied", f"a key with the role {role} gets no certificate", "use one of a worker or gateway")
        audit.info("certificate made key=%s role=%s", identity.key, role)
        try:
            return await asyncio.to_thread(
                lambda: sign_csr(folder.ca(), request, role, identity.key, JOINED_CERTIFICATE_DAYS_MAX)
            )
        except ConfigError as error:
            raise Refused("worker-error", f"no certificate can be made here: {error}", error.hint or "") from None

    async def close(self) -> None:
        await self._tasks.close()
        self.drive.post_now(RingClosed())
        while self._writing is not None:
            await asyncio.wait([self._writing])
            await asyncio.sleep(0)
        self.drive.close()

    async def _made_place(self) -> KeyPlace:
        async with self._making:
            if self._place is None:
                try:
                    place = await asyncio.to_thread(self._make)
                except ConfigError as error:
                    raise Refused("worker-error", f"keys cannot be made here: {error}", error.hint or "") from None
                self._ring.recover(place.file.keys)
                self._place = place
                self.version += 1
                log.info("the port has a certificate now, and keys in %s", place.folder.path)
            return self._place

    async def _answer(self, event: Callable[[bytes], KeyAsked | KeyWanted]) -> KeyAnswer:
        ask_id = next(self._numbers).to_bytes(16, "little")
        answer: asyncio.Future[KeyAnswer] = asyncio.get_running_loop().create_future()
        self._asked[ask_id] = answer
        try:
            self.drive.post(event(ask_id))
            return await answer
        finally:
            del self._asked[ask_id]

    async def _renew_often(self) -> None:
        while True:
            await asyncio.sleep(CERTIFICATE_LOOK_S)
            if self._place is not None:
                try:
                    await asyncio.to_thread(self._place.folder.renew_if_due)
                except ConfigError as error:
                    log.warning("certificate not renewed: %s", error)

    # The keeper of the ring's records: they are written in a thread, one batch after the other.

    @property
    def idle(self) -> bool:
        return self._writing is None

    def commit(self, records: Sequence[KeyKeep], done: Callable[[], None] | None, *, patient: bool = False) -> None:
        del patient  # Keys change rarely.
        self._unwritten += records
        self.version += bool(records)
        if done is not None:
            self._waiting.append(done)
        if self._writing is None:
            self._write()

    def _write(self) -> None:
        assert self._place is not None
        waiting, self._waiting = self._waiting, []
        records, self._unwritten = self._unwritten, []
        self._writing = asyncio.get_running_loop().run_in_executor(None, self._place.file.keep, records)

        def written(writing: asyncio.Future[None]) -> None:
            self._writing = None
            if isinstance(error := writing.exception(), Exception):
                self.drive.fail(error)
                return
            for record in records:
                if isinstance(record, KeyForgotten) or record.revoked_at or not record.last_used:
                    self.on_ended(record.name)
            for done in waiting:
                done()
            if self._unwritten or self._waiting:
                self._write()

        self._writing.add_done_callback(written)

    # Effects of the ring.

    def _perform(self, effects: Sequence[KeyDo]) -> None:
        for effect in effects:
            match effect:
                case AnswerKeys(_, ask_id, answer):
                    _settle(self._asked.get(ask_id), answer)
                case RefuseKeys(_, ask_id, code, text, hint):
                    _settle(self._asked.get(ask_id), Refused(code, text, hint))
                case CloseConnections(conns, why):
                    self.version += 1
                    for conn in conns:
                        if (close := self._closers.pop(conn, None)) is not None:
                            close(why)
                case _:
                    audit.info("%s", effect.text)


def _noted(no: KeyRefused, name: str) -> KeyRefused:
    """The stranger gets the same words for all reasons; the audit log has the true one."""
    if gate().may_say("key"):
        audit.info("key refused key=%s why=%s", name, no.why)
    return no


def _settle(asked: asyncio.Future[KeyAnswer] | None, outcome: KeyAnswer | Refused) -> None:
    if asked is None or asked.done():
        return
    if isinstance(outcome, Refused):
        asked.set_exception(outcome)
    else:
        asked.set_result(outcome)
