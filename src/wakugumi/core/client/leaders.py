"""Is each of a client's leaders connected, and how many jobs may it get? (SPEC K2, K6)

    dial_at ──► dialling ──► conn, greeting ──► conn, ready: it serves
       ▲            │               │                 │
       └────────────┴───────────────┴─────────────────┘   0.5, 1, 2 … 30 s later, each leader by itself

Each serving leader gets its share of the cap. This file knows how many jobs a leader has; `jobs` knows which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

from wakugumi.core.backoff import with_jitter
from wakugumi.core.client import events as ev
from wakugumi.core.client.events import ANY_LEADER, ClientDo, LeaderNo
from wakugumi.core.client.leader_row import CONFIRMED_MAX, KnownLeader, LeaderConnection, LeaderRow
from wakugumi.core.client.stages import Sent
from wakugumi.core.greeting import SILENT_LEFT, WELCOME_AGAIN_WITHIN_S, WELCOME_WITHIN_S
from wakugumi.core.ids import ConnId, JobId
from wakugumi.limits.client import (
    FIND_LEAD_SHARE,
    FULL_RETRY_FIRST_S,
    FULL_RETRY_MAX_S,
    MUTE_MAX_S,
    RECONNECT_FIRST_S,
    RECONNECT_MAX_S,
)
from wakugumi.limits.wire import GIVEN_BYTES_MAX, HEARTBEAT_S, SILENCE_MAX_S

SAYS_NOTHING: Final = "it takes connections and says nothing"
"""A silent port may belong to any program: the user's jobs are not sent there, unless `old_leader` is set."""

_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
_BITS_64: Final = 2**64 - 1
"""Multiplicative hashing: a product's high bits depend on all bits of its factors."""

Choice: TypeAlias = Literal["least", "round-robin"]
"""The next job goes to the leader with the smallest part of its share in flight, or to each in turn."""


class Leaders:
    """The table of leaders. An `embedded` leader is our own child: see `failover`."""

    def __init__(
        self,
        chance: Callable[[], float],
        leaders: Iterable[LeaderNo],
        names: Iterable[str] = (),
        *,
        cap: int,
        choice: Choice,
        grace_s: float,
        embedded: bool,
        old_leader: bool = False,
    ) -> None:
        """`old_leader`: a silent leader counts as an old one even if it has never sent a result."""
        assert cap > 0
        self._trusts_old = old_leader
        self.rows: dict[LeaderNo, LeaderRow] = {}
        self.conns: dict[ConnId, LeaderConnection] = {}
        self.takers: list[LeaderRow] = []
        """Leaders that take jobs now, in the order of their numbers."""
        self._chance = chance
        self._grace_s = grace_s
        self._cap = cap
        self._in_turn = choice == "round-robin"
        self._last_turn = LeaderNo(0)
        self._last_conn = 0
        self._embedded = embedded
        for no, name in zip_longest(leaders, names, fillvalue=""):
            assert not isinstance(no, str)
            self.add(no, 0.0, name)

    def add(self, no: LeaderNo, now: float, name: str = "") -> None:
        if no in self.rows:
            self.rows[no].removed = False
        else:
            self.rows[no] = LeaderRow(
                no, _mixed((name or str(no)).encode()), Sent(no), Sent(no, accepted=True), dial_at=now
            )

    def drop(self, leader: LeaderRow) -> None:
        """The leader is removed for good."""
        del self.rows[leader.no]
        if leader.conn is not None:
            del self.conns[leader.conn.id]

    # Connections.

    def dial(self, now: float, do: list[ClientDo]) -> None:
        """Connect to leaders whose pause is over."""
        due = [leader for leader in self.rows.values() if leader.dial_at is not None and leader.dial_at <= now]
        for leader in due:
            leader.dial_at = None
            if not leader.failures:
                leader.tried_at = now
            self._last_conn += 1
            leader.dialling = ConnId(self._last_conn)
        for leader in due:
            assert leader.dialling is not None
            leader.hello_cap = max(1, self._expected_share(leader))
            do.append(ev.Dial(leader.dialling, leader.no, leader.hello_cap))

    def connected(self, conn_id: ConnId, now: float, do: list[ClientDo], *, secured: bool = False) -> None:
        for leader in self.rows.values():
            if leader.dialling == conn_id:
                leader.dialling = None
                leader.conn = LeaderConnection(
                    conn_id, leader, greeted_at=now, received_at=now, sent_cap=leader.hello_cap, secured=secured
                )
                self.conns[conn_id] = leader.conn
                return
        do.append(ev.HangUp(conn_id, "the leader was removed while it was dialled"))

    def ready(self, conn: LeaderConnection, now: float, do: list[ClientDo]) -> None:
        """The greeting is over. A late Welcome turns an old leader into one of our own."""
        leader = conn.leader
        conn.ready = True
        leader.refused = False
        if conn.own:
            conn.beat_at = now + HEARTBEAT_S
            leader.silent_left = SILENT_LEFT
        if conn.own or len(self.rows) == 1:
            leader.failures = 0
        do.append(ev.Ready(leader.no, conn.id, not conn.own))
        self.divide(do)

    def prove(self, conn: LeaderConnection) -> None:
        """The leader sent a result, so it is a leader, though an old one."""
        conn.proven = conn.leader.answered = True
        conn.given_at = None
        conn.leader.failures = 0

    def lost(
        self, conn_id: ConnId, why: str, now: float, do: list[ClientDo]
    ) -> tuple[LeaderRow, LeaderConnection | None] | None:
        """The leader, and the connection if it was established; None if the connection is unknown."""
        conn = self.conns.pop(conn_id, None)
        if conn is None:
            found = next((leader for leader in self.rows.values() if leader.dialling == conn_id), None)
            if found is None:
                return None
            leader = found
            leader.dialling = None
        else:
            leader = conn.leader
            leader.conn = None
            leader.in_flight = 0
            if conn.ready:
                leader.lost_at = now
                self.divide(do)
        delay_s = with_jitter(min(RECONNECT_FIRST_S * 2 ** min(leader.failures, 16), RECONNECT_MAX_S), self._chance())
        leader.failures += 1
        leader.dial_at = now + delay_s
        if not leader.removed:
            do.append(ev.Away(leader.no, why, delay_s))
        return leader, conn

    def check_alive(self, conn: LeaderConnection, now: float, do: list[ClientDo]) -> str:
        """Send a heartbeat if due. Returns why the connection must be closed, or empty."""
        if conn.full_until is not None and conn.full_until <= now:
            conn.full_until = None
        if self._embedded or not conn.ready:
            return ""
        if conn.own:
            if conn.received_at + SILENCE_MAX_S <= now:
                return f"the leader was silent for {SILENCE_MAX_S:.0f} s"
            if conn.beat_at <= now:
                conn.beat_at = now + HEARTBEAT_S
                do.append(ev.SendClientHeartbeat(conn.id))
        elif (mute_at := self._mute_at(conn)) is not None and mute_at <= now:
            return f"the leader has said nothing for {MUTE_MAX_S:.0f} s, and has a job"
        return ""

    def greeted(self, conn: LeaderConnection, now: float) -> str | None:
        """The time for a Welcome is over: empty for an old leader, or why the connection is closed. None if not yet."""
        leader = conn.leader
        if conn.ready or self._embedded or conn.greeted_at + self._welcome_within_s(conn) > now:
            return None
        if leader.silent_left:
            leader.silent_left -= 1
            return f"the leader did not greet within {WELCOME_AGAIN_WITHIN_S:.0f} s"
        return "" if self._may_be_old(conn) else SAYS_NOTHING

    def watch_trials(self, now: float) -> None:
        """Note since when each unproven leader has had a job."""
        for conn in self.conns.values():
            if not conn.own and conn.ready:
                if not conn.leader.in_flight or conn.proven:
                    conn.given_at = None
                elif conn.given_at is None:
                    conn.given_at = now

    def wake_at(self) -> float | None:
        times: list[float] = []
        for leader in self.rows.values():
            if leader.dial_at is not None:
                times.append(leader.dial_at)
            if leader.has_stranded and len(self.rows) > 1:
                times.append(leader.lost_at + self._grace_s)
        for conn in self.conns.values():
            if conn.full_until is not None:
                times.append(conn.full_until)
            if self._embedded:
                continue
            if not conn.ready:
                times.append(conn.greeted_at + self._welcome_within_s(conn))
            elif conn.own:
                times.append(min(conn.beat_at, conn.received_at + SILENCE_MAX_S))
            elif (mute_at := self._mute_at(conn)) is not None:
                times.append(mute_at)
        return min(times, default=None)

    def is_awaited(self, leader: LeaderRow, now: float) -> bool:
        """May the leader still come back to its jobs? The only leader always may."""
        return now < leader.lost_at + self._grace_s or len(self.rows) == 1

    def expects_leader(self, now: float) -> bool:
        """May another leader still connect? A lost one may during its grace; sets `has_stranded` to wake at its end."""
        is_expected = False
        for leader in self.rows.values():
            if not leader.serves and not leader.removed and now < leader.lost_at + self._grace_s:
                leader.has_stranded = is_expected = True
            is_expected |= leader.is_coming
        return is_expected

    def call_off(self, job: JobId, leaders: Iterable[LeaderNo]) -> None:
        """Cancel the job at these leaders; a disconnected one gets the cancel when it is back."""
        for no in leaders:
            leader = self.rows[no]
            leader.remember_cancel(job)
            if (line := leader.line) is not None:
                line.cancels.append(job)

    def states(self) -> list[KnownLeader]:
        return [KnownLeader(row.no, row.share, row.in_flight, row.adopted, row.removed) for row in self.rows.values()]

    @property
    def all_refuse(self) -> bool:
        """Does no leader let this client in?"""
        return all(leader.refused for leader in self.rows.values() if not leader.removed)

    def _may_be_old(self, conn: LeaderConnection) -> bool:
        return (self._trusts_old or conn.leader.answered) and not conn.secured

    def _welcome_within_s(self, conn: LeaderConnection) -> float:
        is_waited_for = conn.leader.silent_left or not self._may_be_old(conn)
        return WELCOME_AGAIN_WITHIN_S if is_waited_for else WELCOME_WITHIN_S

    def _mute_at(self, conn: LeaderConnection) -> float | None:
        """When an unproven, silent leader is disconnected, because others could do its job."""
        if conn.given_at is None or len(self.rows) == 1:
            return None
        if not any(other is not conn and other.ready and (other.own or other.proven) for other in self.conns.values()):
            return None
        return max(conn.given_at, conn.received_at) + MUTE_MAX_S

    # Shares and choice.

    def divide(self, do: list[ClientDo]) -> None:
        """Divide the cap evenly over serving leaders: the first ones get the remainder (SPEC K2)."""
        serving = [leader for leader in self.rows.values() if leader.serves and not leader.removed]
        for leader in self.rows.values():
            leader.share = 0
        for at, leader in enumerate(serving):
            leader.share = self._cap // len(serving) + (at < self._cap % len(serving))
            conn = leader.conn
            assert conn is not None
            if conn.takes_cap and leader.share and leader.share != conn.sent_cap:
                conn.sent_cap = leader.share
                do.append(ev.SendCap(conn.id, leader.share))

    def _expected_share(self, dialled: LeaderRow) -> int:
        """Share of a leader that is being dialled, if all that are connected or dialled will serve."""
        there = [
            leader
            for leader in self.rows.values()
            if not leader.removed and (leader.conn is not None or leader.dialling is not None)
        ]
        return self._cap // len(there) + (there.index(dialled) < self._cap % len(there))

    def find_takers(self) -> list[LeaderRow]:
        """Find the leaders that take jobs now."""
        several = len(self.rows) > 1
        takers: list[LeaderRow] = []
        for leader in self.rows.values():
            conn = leader.conn
            if conn is None or not conn.ready:
                continue
            leader.on_trial = several and not (conn.own or conn.proven)
            # `is_written_to`, written out: this runs seven times per step.
            if conn.blocked or conn.unwritten_bytes >= GIVEN_BYTES_MAX:
                continue
            if conn.full or leader.removed or not leader.share:
                continue
            if not (leader.on_trial and leader.in_flight):
                takers.append(leader)
        self.takers = takers
        return takers

    def choose(self, needs: int = 0, given: JobId | None = None, first: LeaderNo = ANY_LEADER) -> LeaderRow | None:
        """The leader that gets the next job (SPEC K2), of those that meet its `needs`. A job whose id was `given` goes
        to the leader of its hash, or to the one that had it `first`, unless that has more load than the others."""
        takers = self._takers_of(needs) if needs else self.takers
        if len(takers) <= 1:
            return takers[0] if takers else None
        if self._in_turn:
            chosen = next((leader for leader in takers if leader.no > self._last_turn), takers[0])
            self._last_turn = chosen.no
            return chosen
        if given is not None:
            return _by_hash(takers, given, first)
        chosen, least = takers[0], math.inf
        for leader in takers:
            load = leader.in_flight / leader.share
            if load < least:
                chosen, least = leader, load
        return chosen

    def _takers_of(self, needs: int) -> list[LeaderRow]:
        """If the whole cap is with others, one fitting leader gets a single job all the same: no other can take it."""
        takers = [leader for leader in self.takers if leader.conn is not None and leader.conn.takes(needs)]
        if takers:
            return takers
        for leader in self.rows.values():
            conn = leader.conn
            if conn is None or not conn.takes(needs) or conn.is_written_to or conn.full_until is not None:
                continue
            if not (leader.share or leader.in_flight or leader.removed):
                return [leader]
        return []

    # Full leaders.

    def to_probe(self) -> list[LeaderConnection]:
        """Full leaders that may be offered a few jobs again."""
        return [
            conn
            for conn in self.conns.values()
            if conn.full
            and conn.full_until is None
            and not (conn.probing or conn.is_written_to or conn.leader.removed)
            and conn.leader.share
        ]

    def refused(self, conn: LeaderConnection, code: str, text: str, now: float, do: list[ClientDo]) -> None:
        """The leader takes no jobs now."""
        conn.full = True
        if conn.waiting != code:  # Reported once, not for every job and every probe.
            conn.waiting = code
            do.append(ev.Waiting(conn.leader.no, code, text))
        if conn.full_until is None:  # The first refusal of this round.
            conn.full_delay_s = min(max(2 * conn.full_delay_s, FULL_RETRY_FIRST_S), FULL_RETRY_MAX_S)
            conn.full_until = now + with_jitter(conn.full_delay_s, self._chance())
            conn.probes = 1

    def full_over(self, conn: LeaderConnection, do: list[ClientDo]) -> None:
        conn.full = False
        conn.waiting = ""
        do.append(ev.WaitingOver(conn.leader.no, taken=not conn.full_delay_s))

    def check(self) -> None:
        for no, leader in self.rows.items():
            assert leader.no == no
            conn = leader.conn
            assert (conn is not None) + (leader.dialling is not None) + (leader.dial_at is not None) == 1
            assert not leader.removed or leader.serves
            assert leader.in_flight == 0 or leader.serves
            assert leader.share == 0 or (leader.serves and not leader.removed)
            assert len(leader.cancels) <= CONFIRMED_MAX
            assert conn is None or self.conns[conn.id] is conn
            assert not leader.serves or not leader.has_stranded
        for conn_id, conn in self.conns.items():
            assert conn.id == conn_id
            assert conn.leader.conn is conn
            assert conn.ready or not (conn.own or conn.full)
            assert conn.full or not (conn.probing or conn.full_until is not None)
            assert conn.full == bool(conn.waiting)
            assert not any((conn.frames, conn.claims, conn.cancels, conn.confirms, conn.finds))
            assert conn.awaits_written == (conn.unwritten_bytes >= GIVEN_BYTES_MAX)
            assert conn.awaits_written or not conn.later
        shares = [leader.share for leader in self.rows.values() if leader.serves and not leader.removed]
        assert not shares or sum(shares) == self._cap
        assert not shares or max(shares) - min(shares) <= 1
        assert self.takers == list(self.find_takers())


def _by_hash(takers: list[LeaderRow], job: JobId, first: LeaderNo) -> LeaderRow:
    """Rendezvous hashing, bounded: the same leader in every life of the client, as long as the load is even."""
    least = math.inf
    for leader in takers:
        if (load := leader.in_flight / leader.share) < least:
            least = load
    chosen, highest = takers[0], -1
    mixed = _mixed(job)
    for leader in takers:
        if leader.in_flight / leader.share <= least + FIND_LEAD_SHARE:
            if leader.no == first:
                return leader
            weight = (mixed ^ leader.key) * _GOLDEN & _BITS_64
            if weight > highest:
                chosen, highest = leader, weight
    return chosen


def _mixed(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
