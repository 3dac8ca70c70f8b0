"""The ring of keys: identities, connections that end with their key, and what is kept."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from wakugumi.core.access.identity import Role, Rules
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
from wakugumi.core.access.key_questions import AskKey, AskKeys, AskRevokeKey, KeyAnswer, KeyRow, KeysAnswer
from wakugumi.core.access.key_ring import KeyRefused, KeyRing, have_rules
from wakugumi.core.ids import ConnId
from wakugumi.core.step import LogLine
from wakugumi.limits.access import CERTIFICATE_SKEW_S, KEY_LIFE_S_MAX, KEY_LOOK_S, KEY_USE_KEPT_S

ADMIN = ConnId(99)
WALL = 1_700_000_000.0
NO_RULES = Rules()


def hashed(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


class Bench:
    """A ring with a clock, and a file that has what it keeps."""

    def __init__(self, keys_max: int = 5) -> None:
        self.now = 100.0
        self.jump = 0.0
        self.keys_max = keys_max
        self.file: dict[str, KeyKept] = {}
        self.kept: list[KeyKeep] = []
        self.closed: dict[ConnId, str] = {}
        self.ring = self.begin()

    @property
    def wall(self) -> float:
        return WALL + self.now + self.jump

    def begin(self) -> KeyRing:
        self.ring = KeyRing(lambda: self.wall, self.now, keys_max=self.keys_max)
        self.ring.recover(self.file.values())
        return self.ring

    def tell(self, *events: KeyEvent) -> list[KeyDo]:
        return self.done(*self.step(self.ring.handle(events, self.now)))

    def step(self, step: object) -> tuple[list[KeyKeep], list[KeyDo]]:
        return list(step.keep), list(step.do)  # type: ignore[attr-defined]

    def done(self, keep: list[KeyKeep], do: list[KeyDo]) -> list[KeyDo]:
        for record in keep:
            if isinstance(record, KeyForgotten):
                del self.file[record.name]
            else:
                self.file[record.name] = record
        self.kept += keep
        for effect in do:
            if isinstance(effect, CloseConnections):
                self.closed.update(dict.fromkeys(effect.conns, effect.why))
        self.ring.check()
        return do

    def wait(self, seconds: float) -> None:
        """Time passes; the ring is woken when it asked to be."""
        end = self.now + seconds
        while (at := self.ring.wake_at()) is not None and at <= end:
            self.now = max(self.now, at)
            self.done(*self.step(self.ring.tick(self.now)))
            later = self.ring.wake_at()
            assert later is not None
            assert later > self.now
        self.now = end

    def make(
        self, name: str, role: Role = Role.CLIENT, rules: Rules = NO_RULES, expires_s: float = 0.0, secret: str = ""
    ) -> KeyDo:
        secret_hash = hashed(secret or name)
        return self.tell(KeyWanted(ADMIN, b"q", name, role, rules, expires_s, secret_hash))[-1]

    def ask(self, question: AskKeys | AskKey | AskRevokeKey) -> KeyAnswer:
        done = self.tell(KeyAsked(ADMIN, b"q", question))[0]
        assert isinstance(done, AnswerKeys), done
        return done.answer

    def row(self, name: str) -> KeyRow:
        row = self.ask(AskKey(name))
        assert isinstance(row, KeyRow)
        return row

    def why_not(self, name: str, secret: str = "") -> str:
        with pytest.raises(KeyRefused) as refused:
            self.ring.identify(name, hashed(secret or name), self.wall)
        assert (refused.value.code, refused.value.message) == ("denied", "the key is not valid here")
        return refused.value.why


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_made_key_is_kept_and_identifies(bench: Bench) -> None:
    rules = Rules(subjects=("risk",), cap=4)
    done = bench.make("desk-1", Role.CLIENT, rules)
    assert isinstance(done, AnswerKeys)
    assert isinstance(done.answer, KeyRow)
    assert done.answer.state == "valid"
    assert list(bench.file) == ["desk-1"]
    identity = bench.ring.identify("desk-1", hashed("desk-1"), bench.wall)
    assert (identity.name, identity.key, identity.role, identity.proof) == ("desk-1", "desk-1", Role.CLIENT, "key")
    assert identity.rules == Rules(subjects=("job.assign.risk", "job.assign.risk.>"), cap=4)
    bench.begin()
    assert bench.ring.identify("desk-1", hashed("desk-1"), bench.wall) == identity


def test_a_stranger_gets_the_same_words_for_every_reason(bench: Bench) -> None:
    bench.make("old", expires_s=60)
    bench.make("bad")
    bench.ask(AskRevokeKey("bad"))
    bench.wait(61)
    assert bench.why_not("nobody-knows") == "unknown"
    assert bench.why_not("old", "guess") == "wrong secret"
    assert bench.why_not("old") == "expired"
    assert bench.why_not("bad") == "revoked"
    with pytest.raises(KeyRefused):
        bench.ring.identify("bad", b"", bench.wall)
    with pytest.raises(KeyRefused):
        bench.ring.identify("nobody-knows", bytes(32), bench.wall)


def test_a_certificate_counts_as_its_key(bench: Bench) -> None:
    bench.make("rack-7", Role.WORKER)
    identity = bench.ring.identify_certificate("rack-7", bench.wall, bench.wall)
    assert (identity.name, identity.proof) == ("rack-7", "certificate")
    for name, issued_at in (("rack-8", bench.wall), ("rack-7", bench.wall - CERTIFICATE_SKEW_S - 1)):
        with pytest.raises(KeyRefused):
            bench.ring.identify_certificate(name, bench.wall, issued_at)
    bench.ask(AskRevokeKey("rack-7"))
    with pytest.raises(KeyRefused):
        bench.ring.identify_certificate("rack-7", bench.wall, bench.wall)


def test_a_certificate_of_an_earlier_key_of_the_name_is_not_valid(bench: Bench) -> None:
    bench.make("rack-7", Role.WORKER)
    issued_at = bench.wall
    bench.ask(AskRevokeKey("rack-7"))
    bench.wait(2 * CERTIFICATE_SKEW_S)
    bench.make("rack-7", Role.ADMIN)
    with pytest.raises(KeyRefused) as refused:
        bench.ring.identify_certificate("rack-7", bench.wall, issued_at)
    assert refused.value.why == "certificate older than the key"


def test_a_revoked_key_closes_its_connections_after_the_answer(bench: Bench) -> None:
    bench.make("desk-1")
    bench.make("desk-2")
    bench.tell(KeyUsed(ConnId(1), "desk-1"), KeyUsed(ConnId(2), "desk-1"), KeyUsed(ConnId(3), "desk-2"))
    bench.tell(ConnectionLeft(ConnId(2)), ConnectionLeft(ConnId(7)))
    done = bench.tell(KeyAsked(ConnId(1), b"q", AskRevokeKey("desk-1")))
    assert [type(effect) for effect in done] == [AnswerKeys, CloseConnections, LogLine]
    assert done[1] == CloseConnections([ConnId(1)], "the key was revoked")
    assert bench.file["desk-1"].revoked_at == bench.wall
    bench.begin()
    assert bench.why_not("desk-1") == "revoked"


def test_a_key_that_ended_between_proof_and_use_closes_the_connection(bench: Bench) -> None:
    bench.make("desk-1")
    bench.ask(AskRevokeKey("desk-1"))
    bench.tell(KeyUsed(ConnId(1), "desk-1"))
    bench.tell(KeyUsed(ConnId(2), "gone"))
    assert bench.closed == {1: "the key was revoked", 2: "the key was revoked"}
    assert bench.row("desk-1").connections == 0


def test_an_expired_key_closes_its_connections_in_time(bench: Bench) -> None:
    bench.make("short", expires_s=90)
    bench.make("long", expires_s=9_000)
    bench.tell(KeyUsed(ConnId(1), "short"), KeyUsed(ConnId(2), "long"))
    bench.wait(89.9)
    assert not bench.closed
    bench.wait(0.2)
    assert bench.closed == {1: "the key has expired"}
    assert bench.row("short").state == "expired"


def test_a_wall_clock_that_jumps_is_noticed(bench: Bench) -> None:
    bench.make("short", expires_s=9_000)
    bench.tell(KeyUsed(ConnId(1), "short"))
    bench.jump = 10_000
    bench.wait(KEY_LOOK_S)
    assert bench.closed == {1: "the key has expired"}


def test_a_last_use_is_kept_once_an_hour_and_at_the_end(bench: Bench) -> None:
    bench.make("desk-1")
    kept = len(bench.kept)
    bench.wait(10)
    for conn in range(50):
        bench.tell(KeyUsed(ConnId(conn), "desk-1"))
    used_at = bench.wall
    assert len(bench.kept) == kept, "a use costs no write"
    assert bench.row("desk-1").used_s == 0
    bench.wait(KEY_USE_KEPT_S)
    assert len(bench.kept) == kept + 1
    assert bench.file["desk-1"].last_used == used_at
    bench.tell(KeyUsed(ConnId(1), "desk-1"))
    bench.tell(RingClosed())
    assert bench.file["desk-1"].last_used == bench.wall
    bench.wait(2 * KEY_USE_KEPT_S)
    assert len(bench.kept) == kept + 2


def test_keys_are_listed_with_the_newest_last(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.make(name)
        bench.wait(1)
    bench.tell(KeyUsed(ConnId(1), "b"))
    answer = bench.ask(AskKeys(limit=2))
    assert isinstance(answer, KeysAnswer)
    assert [(row.name, row.connections, row.made_s) for row in answer.rows] == [("b", 1, 2.0), ("c", 0, 1.0)]
    assert answer.total == 3
    bench.begin()
    assert bench.ask(AskKeys()) == KeysAnswer([bench.row(name) for name in "abc"], 3)


@pytest.mark.parametrize(
    ("name", "rules", "expires_s", "code"),
    [
        ("Desk", Rules(), 0.0, "bad-request"),
        ("desk", Rules(subjects=("a..b",)), 0.0, "bad-subject"),
        ("desk", Rules(sees="some"), 0.0, "bad-request"),
        ("desk", Rules(), -1.0, "bad-request"),
        ("desk", Rules(), KEY_LIFE_S_MAX + 1, "bad-request"),
        ("desk", Rules(), float("nan"), "bad-request"),
        ("taken", Rules(), 0.0, "conflict"),
    ],
)
def test_a_key_that_cannot_be_is_refused(bench: Bench, name: str, rules: Rules, expires_s: float, code: str) -> None:
    bench.make("taken")
    done = bench.make(name, rules=rules, expires_s=expires_s, secret="other")
    assert isinstance(done, RefuseKeys)
    assert done.code == code
    assert list(bench.file) == ["taken"]
    assert bench.ring.identify("taken", hashed("taken"), bench.wall)


@pytest.mark.parametrize("question", [AskKey("x"), AskRevokeKey("x" * 1_000)])
def test_a_question_about_no_key_is_refused(bench: Bench, question: AskKey | AskRevokeKey) -> None:
    (done,) = bench.tell(KeyAsked(ADMIN, b"q", question))
    assert isinstance(done, RefuseKeys)
    assert done.code == "unknown-key"
    assert len(done.text) < 200


def test_the_name_of_an_ended_key_can_be_given_again(bench: Bench) -> None:
    bench.make("a")
    bench.ask(AskRevokeKey("a"))
    bench.make("b", expires_s=10)
    bench.tell(KeyUsed(ConnId(1), "b"))
    bench.jump = 20
    for name in "ab":
        assert isinstance(bench.make(name, secret="new"), AnswerKeys)
        assert bench.why_not(name) == "wrong secret"
        assert bench.ring.identify(name, hashed("new"), bench.wall)
    assert bench.closed == {1: "the key has expired"}, "the connection had proven another key"


def test_the_oldest_ended_key_gives_way_to_a_new_one(bench: Bench) -> None:
    for name in "abcde":
        bench.make(name)
    refused = bench.make("f")
    assert isinstance(refused, RefuseKeys)
    assert refused.code == "full"
    bench.ask(AskRevokeKey("d"))
    bench.ask(AskRevokeKey("b"))
    assert isinstance(bench.make("f"), AnswerKeys)
    assert set(bench.file) == set("acdef")
    assert len(bench.ring) == 5


def test_a_record_shows_no_hash(bench: Bench) -> None:
    bench.make("a")
    assert repr(bench.file["a"]) == "KeyKept('a', client)"


NAMES = st.sampled_from(["a", "b", "c", "d"])
CONNS = st.integers(1, 6).map(ConnId)


class RingAgainstAModel(RuleBasedStateMachine):
    """Keys as a plain table: no connection outlives its key, and each valid key is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(keys_max=3)
        self.secrets: dict[str, tuple[str, float, bool]] = {}
        """Secret, expiry and whether it is revoked, by name."""
        self.open: dict[ConnId, tuple[str, str]] = {}
        """Name and secret that a connection has shown."""
        self.count = 0

    def is_valid(self, name: str, secret: str) -> bool:
        now, expires_at, revoked = self.secrets.get(name, ("", 0.0, True))
        return now == secret and not revoked and (not expires_at or self.bench.wall < expires_at)

    @rule(name=NAMES, expires_s=st.sampled_from([0.0, 30.0, 100.0]))
    def make(self, name: str, expires_s: float) -> None:
        self.count += 1
        secret = str(self.count)
        was_valid = name in self.secrets and self.is_valid(name, self.secrets[name][0])
        done = self.bench.make(name, expires_s=expires_s, secret=secret)
        assert isinstance(done, AnswerKeys) or was_valid or len(self.bench.ring) == 3
        if isinstance(done, AnswerKeys):
            assert not was_valid
            self.secrets[name] = (secret, self.bench.wall + expires_s if expires_s else 0.0, False)
            for gone in self.secrets.keys() - self.bench.file.keys():
                assert not self.is_valid(gone, self.secrets.pop(gone)[0])

    @rule(name=NAMES, conn=CONNS, is_right=st.booleans())
    def connect(self, name: str, conn: ConnId, is_right: bool) -> None:
        secret = self.secrets.get(name, ("none", 0.0, True))[0] if is_right else "guess"
        try:
            self.bench.ring.identify(name, hashed(secret), self.bench.wall)
        except KeyRefused:
            assert not self.is_valid(name, secret)
        else:
            assert self.is_valid(name, secret)
            self.bench.tell(KeyUsed(conn, name))
            self.open[conn] = (name, secret)

    @rule(conn=CONNS)
    def leave(self, conn: ConnId) -> None:
        self.bench.tell(ConnectionLeft(conn))
        self.open.pop(conn, None)

    @rule(name=NAMES)
    def revoke(self, name: str) -> None:
        self.bench.tell(KeyAsked(ADMIN, b"q", AskRevokeKey(name)))
        if name in self.secrets:
            self.secrets[name] = (*self.secrets[name][:2], True)

    @rule(seconds=st.sampled_from([1.0, 40.0, 4_000.0]))
    def wait(self, seconds: float) -> None:
        self.bench.wait(seconds)

    @precondition(lambda self: not self.open)
    @rule()
    def restart(self) -> None:
        self.bench.begin()

    @invariant()
    def connections_end_with_their_key(self) -> None:
        for conn in self.bench.closed:
            name, secret = self.open.pop(conn)
            assert not self.is_valid(name, secret)
        self.bench.closed.clear()
        assert all(self.is_valid(*shown) for shown in self.open.values())


RingAgainstAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTheRingAgainstAModel = RingAgainstAModel.TestCase


def test_only_valid_keys_that_may_run_some_jobs_count_as_rules() -> None:
    first = [KeyKept(role.value, role, bytes(32), 1.0, Rules(clients=("*",))) for role in Role]
    worker = KeyKept("rack-1", Role.WORKER, bytes(32), 1.0, Rules(subjects=("job.assign.risk.>",)))
    assert not have_rules([*first, worker], 5.0)
    desk = KeyKept("desk-1", Role.CLIENT, bytes(32), 1.0, Rules(programs=("calc*",)), expires_at=9.0)
    assert have_rules([*first, desk], 5.0)
    assert not have_rules([*first, desk], 9.0)
    assert not have_rules([*first, replace(desk, revoked_at=4.0)], 5.0)
