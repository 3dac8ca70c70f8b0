"""What must a client say to its leader, so that every job it wants done is answered exactly once? (SPEC K1–K6)

    UNSENT ──► SENT ──► ACCEPTED ──► (gone: delivered or given up)
      ▲          │          │
      └──────────┴──────────┘   its connection was lost, or the leader was full

What a connection carried and nobody answered is sent again over the next one, under the same id and as the same bytes:
the leader attaches a job it knows and answers one it has finished. So losing a connection costs time and nothing else.
Connections are a table: with several leaders there will be several rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from wakugumi.core import failover_events as ev
from wakugumi.core.events import Step
from wakugumi.core.failover_events import ClientDo, ClientEvent, ClientStep, Result, Submit
from wakugumi.core.job import ConnId, JobId
from wakugumi.core.policy import with_jitter
from wakugumi.limits import (
    FULL_RETRY_FIRST_S,
    FULL_RETRY_MAX_S,
    HEARTBEAT_S,
    RECONNECT_FIRST_S,
    RECONNECT_MAX_S,
    SILENCE_MAX_S,
    UNFINISHED_PER_CLIENT_MAX,
)

WELCOME_WITHIN_S: Final = 1.0
"""A leader that has not said welcome by then is an old one: it gets the nine types and nothing else."""
WELCOME_AGAIN_WITHIN_S: Final = 5.0
SILENT_LEFT: Final = 3
"""Where an own leader was, one that says nothing is rather dead than old: after this long it is left and dialled again,
so often."""

CONFIRMED_MAX: Final = 10_000
"""Confirms, and cancels, that are remembered in case their connection is lost: more than its buffers hold."""


class Stage(IntEnum):
    UNSENT = 0
    SENT = 1
    ACCEPTED = 2


class _Unfinished(msgspec.Struct, gc=False, eq=False):
    """A job whose end the user has not seen."""

    frame: bytes
    """Empty for a claim."""
    stage: Stage = Stage.UNSENT
    conn: ConnId = ConnId(0)
    """The connection that carried it; 0 if none did."""
    cancelled: bool = False
    resend: bool = False
    """A connection that is gone carried it: an own leader is asked for it before it is sent again, because it may have
    its result, and would run a job anew that failed and is submitted again (L6)."""


class _Conn(msgspec.Struct, eq=False):
    """A connection that stands, from its hello on."""

    id: ConnId
    greeted_at: float
    heard_at: float
    ready: bool = False
    own: bool = False
    """The leader said welcome: it speaks our own types."""
    blocked: bool = False
    beat_at: float = 0.0
    frames: list[bytes] = []
    confirms: list[JobId] = []
    """What this step has gathered for it."""
    full: bool = False
    full_delay_s: float = 0.0
    """How long it was left alone the last time; 0 if it has since taken all that it was offered."""
    full_until: float | None = None
    probes: int = 1
    """How many jobs a full leader is offered at once: doubled while it takes them all."""
    probing: set[JobId] = set()
    waiting: str = ""
    """Why it is full, as the user was told: the code of a refusal."""


_NOT_NOW: Final = frozenset({"full", "disk-full", "stopping"})
"""Refusals that say nothing about the job: it is offered again, here or over the next connection."""

_UNSENT: Final = Stage.UNSENT
_SENT: Final = Stage.SENT
_ACCEPTED: Final = Stage.ACCEPTED


class Failover:
    """The client's state machine. `chance` gives numbers in [0, 1) for jitter.

    An `embedded` leader is our own child: it will say welcome, however long that takes on a busy machine; and neither
    side has to show signs of life, because its end is always noticed and either may well be suspended for a while.
    """

    def __init__(
        self,
        chance: Callable[[], float],
        *,
        unfinished_max: int = UNFINISHED_PER_CLIENT_MAX,
        embedded: bool = False,
    ) -> None:
        self._chance = chance
        self._unfinished_max = unfinished_max
        self._embedded = embedded
        self._jobs: dict[JobId, _Unfinished] = {}
        self._unsent: deque[JobId] = deque()
        """May also name jobs that are sent or gone by now: they are skipped when their turn comes."""
        self._asks: dict[bytes, bytes] = {}
        self._cancels: dict[JobId, None] = {}
        """Given up here while a leader may still have them. It is told over every next connection, and not only once:
        nothing that it says proves that it has kept it, and it may be another leader by then."""
        self._confirmed: deque[JobId] = deque(maxlen=CONFIRMED_MAX)
        """The last confirms. They are said again over the next connection: a leader that missed them, or died before
        it had kept them, would keep those results for us."""
        self._conns: dict[ConnId, _Conn] = {}
        self._last_conn = 0
        self._dialling: ConnId | None = None
        self._dial_at: float | None = 0.0
        self._failures = 0
        self._silent_left = 0
        """How many that do not say welcome are still left before one is taken as old."""
        self._gate = False

    def handle(self, events: Sequence[ClientEvent], now: float) -> ClientStep:
        do: list[ClientDo] = []
        results: list[Result] = []
        jobs, conns = self._jobs, self._conns
        serving = self._serving()
        for event in events:
            # The two busiest stand here in full: a call each would be a tenth of the client's time.
            if type(event) is Result:
                conn = conns.get(event.conn)
                if conn is None:
                    continue
                conn.heard_at = now
                if conn.own:
                    conn.confirms.append(event.job)
                if jobs.pop(event.job, None) is not None:
                    results.append(event)
                    if conn.full:
                        self._taken(conn, event.job)
            elif type(event) is Submit:
                assert event.job not in jobs
                if self._cancels:
                    self._cancels.pop(event.job, None)
                if serving is None or serving.blocked or serving.full:
                    jobs[event.job] = _Unfinished(event.frame)
                    self._unsent.append(event.job)
                else:
                    jobs[event.job] = _Unfinished(event.frame, _SENT, serving.id)
                    serving.frames.append(event.frame)
            else:
                # What was gathered so far comes first: a job is sent before its cancel.
                results = self._gathered(results, do)
                self._handle_rare(event, now, do)
                serving = self._serving()
        self._gathered(results, do)
        self._send_unsent(do)
        self._set_gate(do)
        return Step(do=do)

    def tick(self, now: float) -> ClientStep:
        do: list[ClientDo] = []
        if self._dial_at is not None and self._dial_at <= now:
            self._dial_at = None
            self._last_conn += 1
            self._dialling = ConnId(self._last_conn)
            do.append(ev.Dial(self._dialling))
        for conn in list(self._conns.values()):
            self._tick_conn(conn, now, do)
        self._send_unsent(do)
        self._set_gate(do)
        return Step(do=do)

    def wake_at(self) -> float | None:
        times = [] if self._dial_at is None else [self._dial_at]
        for conn in self._conns.values():
            if not self._embedded:
                if not conn.ready:
                    times.append(conn.greeted_at + self._welcome_within_s())
                elif conn.own:
                    times.append(min(conn.beat_at, conn.heard_at + SILENCE_MAX_S))
            if conn.full_until is not None:
                times.append(conn.full_until)
        return min(times, default=None)

    @property
    def unfinished(self) -> int:
        return len(self._jobs)

    def check(self) -> None:
        assert len(self._jobs) <= self._unfinished_max
        assert len(self._cancels) <= CONFIRMED_MAX
        assert not self._cancels.keys() & self._jobs.keys()
        unsent = set(self._unsent)
        for job, record in self._jobs.items():
            if record.stage is _UNSENT:
                assert record.conn == 0
                assert not record.cancelled
                assert job in unsent
            else:
                assert self._conns[record.conn].ready
        assert len(self._conns) + (self._dialling is not None) + (self._dial_at is not None) == 1
        for conn_id, conn in self._conns.items():
            assert conn.id == conn_id
            assert conn.ready or not (conn.own or conn.full)
            assert conn.full or not (conn.probing or conn.full_until is not None)
            assert conn.full == bool(conn.waiting)
            assert all(self._jobs[job].conn == conn_id for job in conn.probing)
        assert self._gate == self._may_submit()
        if self._gate:
            assert not any(record.stage is _UNSENT for record in self._jobs.values())

    def _serving(self) -> _Conn | None:
        """The connection that takes jobs now."""
        for conn in self._conns.values():
            if conn.ready:
                return conn
        return None

    def _gathered(self, results: list[Result], do: list[ClientDo]) -> list[Result]:
        """Ask for what this step has gathered; gives the list for the next results."""
        for conn in self._conns.values():
            if conn.frames:
                do.append(ev.SendFrames(conn.id, conn.frames))
                conn.frames = []
        if results:
            do.append(ev.Deliver(results))
            results = []
        for conn in self._conns.values():
            if conn.confirms:
                do.append(ev.SendConfirms(conn.id, conn.confirms))
                self._confirmed.extend(conn.confirms)
                conn.confirms = []
        return results

    def _handle_rare(self, event: ClientEvent, now: float, do: list[ClientDo]) -> None:
        match event:
            case ev.Claim(job):
                assert job not in self._jobs
                self._cancels.pop(job, None)
                self._jobs[job] = _Unfinished(b"")
                self._unsent.append(job)
            case ev.Cancel(jobs):
                self._cancel(jobs, do)
            case ev.Ask(ask, frame):
                self._asks[ask] = frame
                conn = self._serving()
                if conn is not None:
                    self._send_asks(conn, [ask], do)
            case ev.Forget(forgotten):
                self._asks.pop(forgotten, None)
                self._jobs.pop(JobId(forgotten), None)
            case ev.Connected(conn_id):
                assert conn_id == self._dialling
                self._dialling = None
                self._conns[conn_id] = _Conn(conn_id, greeted_at=now, heard_at=now)
            case ev.Disconnected(conn_id, why):
                self._lost(conn_id, why, now, do)
            case _:
                self._handle_from(event, now, do)

    def _handle_from(self, event: ClientEvent, now: float, do: list[ClientDo]) -> None:
        """Something a leader said or did. What a connection says after it was hung up is nobody's any more."""
        assert isinstance(event, ev.Welcomed | ev.Heard | ev.Blocked | ev.Receipts | ev.Refusal | ev.Answered)
        conn = self._conns.get(event.conn)
        if conn is None:
            return
        if isinstance(event, ev.Blocked):
            conn.blocked = event.on
            return
        conn.heard_at = now
        match event:
            case ev.Welcomed() if not conn.own:
                conn.own = True
                conn.beat_at = now + HEARTBEAT_S
                self._ready(conn, do)
            case ev.Receipts(jobs=jobs):
                do.append(ev.Accepted(jobs))
                for job in jobs:
                    record = self._jobs.get(job)
                    if record is not None and record.stage is _SENT:
                        record.stage = _ACCEPTED
                    if conn.full:
                        self._taken(conn, job)
            case ev.Refusal(job=job, code=code, text=text):
                self._refused(conn, job, code, text, now, do)
            case ev.Answered(ask=ask, refused=refused, payload=payload):
                if self._asks.pop(ask, None) is not None:
                    do.append(ev.Answer(ask, refused, payload))
            case _:
                pass

    def _tick_conn(self, conn: _Conn, now: float, do: list[ClientDo]) -> None:
        if conn.full_until is not None and conn.full_until <= now:
            conn.full_until = None
        if self._embedded:
            return
        if not conn.ready:
            if conn.greeted_at + self._welcome_within_s() > now:
                return
            if self._silent_left:
                self._silent_left -= 1
                self._hang_up(conn, f"the leader did not greet within {WELCOME_AGAIN_WITHIN_S:.0f} s", now, do)
            else:
                self._ready(conn, do)
        elif conn.own and conn.heard_at + SILENCE_MAX_S <= now:
            self._hang_up(conn, f"the leader was silent for {SILENCE_MAX_S:.0f} s", now, do)
        elif conn.own and conn.beat_at <= now:
            conn.beat_at = now + HEARTBEAT_S
            do.append(ev.SendHeartbeat(conn.id))

    def _ready(self, conn: _Conn, do: list[ClientDo]) -> None:
        """The greeting is over. A welcome that comes late makes an old leader an own one."""
        conn.ready = True
        self._failures = 0
        do.append(ev.Ready(conn.id, not conn.own))
        if conn.own:
            self._silent_left = SILENT_LEFT
            if self._cancels:
                do.append(ev.SendCancels(conn.id, list(self._cancels)))
            # An id that is under way again must not be confirmed for what it was before.
            if confirmed := [job for job in self._confirmed if job not in self._jobs]:
                do.append(ev.SendConfirms(conn.id, confirmed))
        self._send_asks(conn, list(self._asks), do)

    def _welcome_within_s(self) -> float:
        return WELCOME_AGAIN_WITHIN_S if self._silent_left else WELCOME_WITHIN_S

    def _hang_up(self, conn: _Conn, why: str, now: float, do: list[ClientDo]) -> None:
        do.append(ev.HangUp(conn.id, why))
        self._lost(conn.id, why, now, do)

    def _lost(self, conn_id: ConnId, why: str, now: float, do: list[ClientDo]) -> None:
        if conn_id == self._dialling:
            self._dialling = None
        elif self._conns.pop(conn_id, None) is None:
            return
        for job, record in list(self._jobs.items()):
            if record.conn != conn_id:
                continue
            if record.cancelled:
                self._remember_cancel(job)
                self._give_up(job, "cancelled", "it was cancelled, and its connection was lost", do)
            else:
                record.stage = _UNSENT
                record.conn = ConnId(0)
                record.resend = True
        # In the order in which they were handed in, and without those that are gone.
        self._unsent = deque(job for job, record in self._jobs.items() if record.stage is _UNSENT)
        delay_s = with_jitter(min(RECONNECT_FIRST_S * 2 ** min(self._failures, 16), RECONNECT_MAX_S), self._chance())
        self._failures += 1
        self._dial_at = now + delay_s
        do.append(ev.Away(why, delay_s))

    def _send_unsent(self, do: list[ClientDo]) -> None:
        conn = self._serving()
        if conn is None or conn.blocked or not (self._unsent or conn.full):
            return
        room = len(self._unsent)
        if conn.full:
            if conn.full_until is not None or conn.probing:
                return
            room = conn.probes
        frames: list[bytes] = []
        claims: list[JobId] = []
        while self._unsent and len(frames) < room:
            job = self._unsent.popleft()
            record = self._jobs.get(job)
            if record is None or record.stage is not _UNSENT:
                continue
            if not record.frame and not conn.own:
                self._give_up(job, "not-supported", "an old leader cannot be asked for a job of someone else", do)
                continue
            record.stage = _SENT
            record.conn = conn.id
            if not record.frame or (record.resend and conn.own):
                claims.append(job)
                continue
            frames.append(record.frame)
            if conn.full:
                conn.probing.add(job)
        if conn.full and not conn.probing:
            conn.full = False
            conn.waiting = ""
            do.append(ev.WaitingOver(taken=not conn.full_delay_s))
        if frames:
            do.append(ev.SendFrames(conn.id, frames))
        if claims:
            do.append(ev.SendClaims(conn.id, claims))

    def _send_asks(self, conn: _Conn, asks: Sequence[bytes], do: list[ClientDo]) -> None:
        if conn.own:
            if asks:
                do.append(ev.SendFrames(conn.id, [self._asks[ask] for ask in asks]))
            return
        for ask in asks:
            del self._asks[ask]
            do.append(ev.NoAnswer(ask, "not-supported", "the leader is an old one and answers no questions"))

    def _refused(self, conn: _Conn, job: JobId, code: str, text: str, now: float, do: list[ClientDo]) -> None:
        record = self._jobs.get(job)
        if record is None or record.conn != conn.id:
            return
        if record.cancelled:
            self._give_up(job, "cancelled", "it was cancelled before the leader took it", do)
        elif code == "unknown-job" and record.resend and record.frame:
            record.resend = False
            record.stage = _UNSENT
            record.conn = ConnId(0)
            self._unsent.append(job)
        elif code not in _NOT_NOW:
            self._give_up(job, code, text, do)
        else:
            record.stage = _UNSENT
            record.conn = ConnId(0)
            self._unsent.append(job)
            conn.full = True
            if conn.waiting != code:  # Said once, and not for every job and every probe.
                conn.waiting = code
                do.append(ev.Waiting(code, text))
            if conn.full_until is None:  # The first refusal of this round; the others only follow it.
                conn.full_delay_s = min(max(2 * conn.full_delay_s, FULL_RETRY_FIRST_S), FULL_RETRY_MAX_S)
                conn.full_until = now + with_jitter(conn.full_delay_s, self._chance())
                conn.probes = 1
        conn.probing.discard(job)

    def _taken(self, conn: _Conn, job: JobId) -> None:
        """A leader that was full took a job. When it took all it was offered, it is offered twice as many."""
        if job in conn.probing:
            conn.probing.remove(job)
            if not conn.probing and conn.full_until is None:
                conn.probes *= 2
                conn.full_delay_s = 0.0

    def _remember_cancel(self, job: JobId) -> None:
        self._cancels[job] = None
        if len(self._cancels) > CONFIRMED_MAX:
            del self._cancels[next(iter(self._cancels))]

    def _cancel(self, jobs: Sequence[JobId], do: list[ClientDo]) -> None:
        told: list[JobId] = []
        conn = self._serving()
        for job in jobs:
            record = self._jobs.get(job)
            if record is None or record.cancelled:
                continue
            if record.stage is _UNSENT:
                # A leader may have it all the same: from a connection before this one, or from an earlier life.
                self._remember_cancel(job)
                if conn is not None and conn.own:
                    told.append(job)
                self._give_up(job, "cancelled", "it was cancelled before it was sent", do)
            elif conn is None or not conn.own:
                self._remember_cancel(job)  # It may turn out to be one of ours, whose welcome was slow.
                self._give_up(job, "cancelled", "it was cancelled here; an old leader cannot be told", do)
            else:
                record.cancelled = True
                told.append(job)
        if conn is not None and told:
            do.append(ev.SendCancels(conn.id, told))

    def _give_up(self, job: JobId, code: str, text: str, do: list[ClientDo]) -> None:
        for conn in self._conns.values():
            conn.probing.discard(job)  # A full leader that is waited for on its account would be waited for for ever.
        del self._jobs[job]
        do.append(ev.GiveUp(job, code, text))

    def _may_submit(self) -> bool:
        conn = self._serving()
        return conn is not None and not conn.blocked and not conn.full

    def _set_gate(self, do: list[ClientDo]) -> None:
        may = self._may_submit()
        if may != self._gate:
            self._gate = may
            do.append(ev.Gate(may))
