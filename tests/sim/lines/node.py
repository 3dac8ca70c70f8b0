"""A node's door for lines: the real rules of a connection, of receive slots, of the entrance and of the end, with other
hands than `adapters/lines/server.py` and `roles/node/lines.py`. A connection is a flow.

Its programs are a model: a job takes a slot for a while, its result is kept on the disk, and survives the node's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from wakugumi.core.connections.line_connection import LineConnection
from wakugumi.core.connections.pace import OutputPace
from wakugumi.core.connections.receive_slots import ReceiveSlots
from wakugumi.core.flows import Flow, Flows, Promise
from wakugumi.core.node.answer_drain import AnswerDrain
from wakugumi.core.node.entrance import SlotsNow, check_room, looks_for_result
from wakugumi.errors import Lost, Refused
from wakugumi.limits.units import KIB

if TYPE_CHECKING:
    from tests.sim.lines.caller import LineVisit
    from tests.sim.lines.world import LineWorld

KERNEL_BYTES: Final = 64 * KIB
"""Bytes of an answer that the system takes before the caller reads."""


class Said(NamedTuple):
    """An answer: OK with a result, BUSY, or an error's code."""

    word: str
    result: bytes = b""
    size: int = 0
    hear_out: bool = False


class LineNode:
    """One node, over all its lives."""

    def __init__(self, world: LineWorld, limit: int, receive: int) -> None:
        self.world = world
        self.clock = world.clock
        self.limit = limit
        self.receive = receive
        self.alive = False
        self.disk_is_full = False
        self.life = 0
        self.results: dict[int, bytes] = {}
        self.connections: dict[LineAtNode, None] = {}
        self.stopped_at: float | None = None
        self.start()

    def start(self) -> None:
        if self.alive:
            return
        self.alive = True
        self.life += 1
        self.stopped_at = None
        self._wake_at = float("inf")
        self.flows = Flows(self.clock.now)
        self.receive_slots: ReceiveSlots[LineAtNode] = ReceiveSlots(self.receive)
        self.drain = AnswerDrain()
        self.running: dict[int, Promise[bytes]] = {}
        self.connections = {}

    def kill(self) -> None:
        """Its programs end, and its connections."""
        if self.alive:
            self.alive = False
            self.world.judge.node_ended()
            connections, self.connections = self.connections, {}
            self.flows.close()
            for one in connections:
                one.visit.cut_off(by_rule=False)

    def stop(self) -> None:
        """No new jobs; answers that are begun have their time."""
        if self.alive and self.stopped_at is None:
            self.stopped_at = self.clock.now
            self.world.judge.stops(self)
            self.drain.stop(self.clock.now)
            life, due_at = self.life, self.drain.due_at
            assert due_at is not None
            self.clock.at(due_at, lambda: self.look_at_end() if life == self.life else None)
            self.look_at_end()

    def look_at_end(self) -> None:
        if self.alive and self.drain.is_over(self.clock.now):
            self.world.judge.drained(self)
            self.kill()
            self.clock.after(1.0 + 5.0 * self.world.faults.random(), self.start)

    def go_on(self) -> None:
        """Lets all flows go on, and wakes them at their time."""
        if not self.alive:
            return
        assert not self.flows.run(self.clock.now), "connections perform no acts"
        if (at := self.flows.wake_at()) is not None and at < self._wake_at:
            self._wake_at, life = at, self.life
            self.clock.at(max(at, self.clock.now), lambda: self._wake() if life == self.life else None)
        self.look_at_end()

    def _wake(self) -> None:
        self._wake_at = float("inf")
        self.go_on()

    def slots_now(self, job: int, size: int) -> SlotsNow:
        free, can_receive = self.limit - len(self.running), self.receive_slots.has_room(size, self.clock.now)
        return SlotsNow(self.stopped_at is not None, job in self.running, free, self.limit, can_receive)

    def run(self, job: int, takes_s: float, result: bytes) -> Promise[bytes]:
        """Raises Refused: busy, stopping."""
        running = self.running.get(job)
        if running is None:
            running = Promise(self.flows)
            if (kept := self.results.get(job)) is not None:
                running.keep(kept)
                return running
            if self.stopped_at is not None:
                raise Refused("stopping", "this machine takes no more jobs")
            if len(self.running) >= self.limit:
                raise Refused("busy", "no slot")
            self.running[job] = running
            self.world.judge.runs(job)
            life = self.life
            self.clock.after(takes_s, lambda: self._ended(job, result) if life == self.life else None)
        return running

    def _ended(self, job: int, result: bytes) -> None:
        if self.alive:
            self.results[job] = result
            self.running.pop(job).keep(result)
            self.go_on()


class LineAtNode:
    """One connection."""

    def __init__(self, node: LineNode, visit: LineVisit) -> None:
        self.node = node
        self.visit = visit
        self.rules = LineConnection(visit.name)
        self._flows = node.flows
        self._waits: list[Promise[None]] = []
        """Kept whenever the caller did something."""
        self.line: int | None = None
        """Size of the input, once the line is whole; below 0: a line that is too long."""
        self.half = 0
        self.here = 0
        """Bytes that came and were not read."""
        self.at_eof = self.is_gone = False
        self.unread = 0
        """Bytes of the answer that the caller has not read."""
        self.began_at = 0.0
        self.came = 0
        self._dropping: Flow[None] | None = None
        node.connections[self] = None
        self.flow: Flow[None] = self._flows.start(self._serve, "a connection by line")

    # The caller's doing.

    def moved(self) -> None:
        waits, self._waits = self._waits, []
        for wait in waits:
            wait.keep(None)
        self.node.go_on()

    async def _until_moved(self, seconds: float) -> float | None:
        """Waits for the caller, up to so long. Returns the time that it took; None if it took too long."""
        began_at = self._flows.now
        moved: Promise[None] = Promise(self._flows)
        self._waits.append(moved)
        timer = self._flows.call_at(began_at + max(seconds, 0.0), lambda: moved.keep(None))
        await moved
        is_late = timer.call is None and self._flows.now >= began_at + seconds
        timer.cancel()
        return None if is_late else self._flows.now - began_at

    # The connection.

    async def _serve(self) -> None:
        is_orderly = False
        try:
            try:
                said = await self._page(await self._line())
            except Refused as no:
                said = Said(no.code)
            try:
                await self._answer(said)
            finally:
                if said.word == "OK":
                    self._end_answer()
            await self._leave()
            is_orderly = not self.here and not self.rules.left  # Unread bytes would tear down the answer.
        except Lost as lost:
            self.node.world.judge.cut_off(self, lost.why)
        finally:
            if self.node.alive and self.node.connections.pop(self, self) is None:
                self.visit.cut_off(is_orderly=is_orderly)

    async def _line(self) -> int:
        due_at = self._flows.now + self.rules.line_s
        while self.line is None:
            if self.is_gone or (self.at_eof and not self.half):
                raise self.rules.no_line()
            if self.at_eof:
                raise self.rules.no_line(self.half)
            if await self._until_moved(due_at - self._flows.now) is None:
                raise self.rules.no_line(is_late=True)
        if self.line < 0:
            raise self.rules.no_line(is_long=True)
        self.rules.begin(self.line)
        return self.line

    async def _page(self, size: int) -> Said:
        node, job = self.node, self.visit.want.job
        node.drain.begin()
        is_ours = True
        kept = node.results.get(job) if node.stopped_at is None else None
        try:
            if looks_for_result(node.slots_now(job, size), size):
                if (found := node.results.get(job)) is not None:
                    is_ours = False
                    return Said("OK", found, len(found), hear_out=True)
                check_room(node.slots_now(job, size))
            if job in node.running:
                self._drop_input()
                result = await self._unless_gone(node.running[job])
            else:
                await self._receive(size)
                want = self.visit.want
                result = await self._unless_gone(node.run(job, want.takes_s, want.result))
            is_ours = False
            return Said("OK", result, len(result), hear_out=True)
        except Refused as no:
            if no.code not in {"busy", "stopping"}:
                raise
            if kept is not None:
                node.world.judge.refused_in_vain(self)
            return Said("BUSY")
        finally:
            if is_ours:
                self._end_answer()

    def _end_answer(self) -> None:
        self.node.drain.end()

    async def _receive(self, size: int) -> None:
        node, judge = self.node, self.node.world.judge
        try:
            loser = node.receive_slots.take(self, size, self._flows.now)
        except Refused:
            judge.not_received(self, size)
            raise
        node.receive_slots.check()
        if loser is not None:
            judge.loses_slot(loser)
            loser.flow.interrupt(Refused("too-slow", "others wait to send"))
        self.began_at = self._flows.now
        judge.receives(self, size)
        try:
            while self.rules.left:
                piece = await self._piece()
                node.receive_slots.came(self, piece)
                self.came += piece
                if node.disk_is_full:
                    raise Refused("disk", "no room")
        finally:
            node.receive_slots.free(self)
            judge.received(self)

    async def _piece(self) -> int:
        rules = self.rules
        waited_s = 0.0
        while not self.here:
            if self.is_gone:
                raise Lost("gone", "dead")
            if self.at_eof:
                raise rules.input_ended()
            waited = await self._until_moved(rules.pace.left_s - waited_s)
            if waited is None:
                raise rules.input_late()
            waited_s += waited
        piece = min(self.here, rules.left)
        self.here -= piece
        rules.came(piece, waited_s)
        self.node.world.tell(self.visit.name, "sent so many bytes, and lacks", rules.left)
        return piece

    def _drop_input(self) -> None:
        if self.rules.left and self._dropping is None:
            self._dropping = self._flows.start(self._drop, "drop an input")

    async def _drop(self) -> None:
        try:
            while self.rules.left:
                self.rules.dropped += await self._piece()
        except (Refused, Lost):
            pass

    async def _unless_gone(self, running: Promise[bytes]) -> bytes:
        while not running.is_kept:
            if self.is_gone:
                raise Lost("gone", "dead")
            moved: Promise[None] = Promise(self._flows)
            self._waits.append(moved)
            await self._flows.first_of(moved, running)
        return running.value

    async def _answer(self, said: Said) -> None:
        """As `_write` of the server, with one piece."""
        if said.hear_out:
            self._drop_input()
        self.node.world.tell(self.visit.name, "is answered", said.word)
        self.unread = len(said.word) + said.size
        self.visit.answer_comes(said)
        pace = OutputPace(self._held(), self.rules.dropped)
        while self._held():
            due_at = self._flows.now + pace.look_s
            while self._held() and self._flows.now < due_at and not self.is_gone:
                await self._until_moved(due_at - self._flows.now)
            if self.is_gone:
                raise Lost("gone", "dead")
            if self._held() and pace.is_too_slow(self._held(), self.rules.dropped):
                raise Lost("reads too slowly", "slow")
        if self._dropping is not None:
            await self._dropping.ended

    def _held(self) -> int:
        return max(0, self.unread - KERNEL_BYTES)

    async def _leave(self) -> None:
        self.visit.half_closed()
        if not self.rules.lingers(can_half_close=True):
            return
        due_at = self._flows.now + self.rules.linger_s
        while not (self.at_eof or self.is_gone):
            piece, self.here = self.here, 0
            if not self.rules.lingered(piece) or await self._until_moved(due_at - self._flows.now) is None:
                return
