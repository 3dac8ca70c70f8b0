"""What have clients and workers in common that send blobs? Acts that take their time, and lines to leaders.

Like the roles with other hands. An act that is abandoned may have been done, and an answer may come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.sim.process import Process
from tests.sim.transfers.place import File, Put

from wakugumi.core.flows import ActFailed, Answered
from wakugumi.core.ids import ConnId
from wakugumi.core.step import Step
from wakugumi.core.transfers.transfers import PutBlob, PutEnd

if TYPE_CHECKING:
    from tests.sim.transfers.leader import AskingLeader
    from tests.sim.transfers.world import TransferWorld


class Heard:
    """A machine whose events the judge hears when the machine does."""

    def __init__(self, machine: Any, hear: Callable[[Any], None]) -> None:
        self.inner = machine
        self._hear = hear
        self.tick, self.wake_at, self.check = machine.tick, machine.wake_at, machine.check

    def handle(self, events: Sequence[Any], now: float) -> Step[Any, Any]:
        for event in events:
            self._hear(event)
        step: Step[Any, Any] = self.inner.handle(events, now)
        return step


class Line:
    """One connection to a leader: what is said arrives in order, unless the line is lost before."""

    def __init__(self, sender: Sender, leader: AskingLeader, conn: ConnId) -> None:
        self.sender = sender
        self.leader = leader
        self.conn = conn
        self.place = leader.place
        self.is_open = True
        self._there_at = self._here_at = 0.0

    def to_leader(self, call: Callable[[], None]) -> None:
        self._there_at = self._send(self._there_at, call)

    def to_sender(self, call: Callable[[], None]) -> None:
        self._here_at = self._send(self._here_at, call)

    def _send(self, not_before: float, call: Callable[[], None]) -> float:
        clock, random = self.sender.clock, self.sender.random
        at = max(not_before, clock.now + 0.02 * random.random())
        clock.at(at, lambda: call() if self.is_open else None)
        return at

    def cut(self) -> None:
        if self.is_open:
            self.is_open = False
            self.leader.lines.discard(self)
            self.sender.lost(self)


class Sender(Process):
    """A process that puts blobs."""

    def __init__(self, world: TransferWorld, name: str, at_once: int) -> None:
        super().__init__(world, name)  # type: ignore[arg-type]
        self.here = world
        self.lines: dict[ConnId, Line] = {}
        self.puts: dict[int, Put] = {}
        self._at_once = at_once
        self._asks: dict[int, float] = {}
        """When the leader missed the blobs of a question that was not handled yet."""

    def open_line(self, leader: AskingLeader) -> Line:
        self.here.conns += 1
        line = self.lines[ConnId(self.here.conns)] = Line(self, leader, ConnId(self.here.conns))
        leader.lines.add(line)
        return line

    def asks(self, event: Any, at: float) -> None:
        """A leader asks for blobs that it missed at that time."""
        self._asks[id(event)] = at
        self.post(event)

    def asked_at(self, event: Any) -> float:
        return self._asks.pop(id(event))

    def lost(self, line: Line) -> None:
        raise NotImplementedError

    def died(self, power: bool) -> None:
        del power
        for put in self.puts.values():
            put.stop()
        self.puts.clear()
        self._asks.clear()
        for line in list(self.lines.values()):
            line.is_open = False
            line.leader.lines.discard(line)
        self.lines.clear()
        self.machine.inner.close()  # type: ignore[attr-defined]

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Unless this life ends before."""
        life = self.life
        self.clock.after(seconds * self.random.random(), lambda: call() if self.alive and life == self.life else None)

    def put(self, number: int, act: PutBlob, file: File) -> None:
        life = self.life

        def answer(end: PutEnd | Exception) -> None:
            if life != self.life or self.puts.pop(number, None) is None:
                return
            if isinstance(end, Exception):
                self.post(ActFailed(number, end))
            else:
                self.answer(number, self.translated(end))

        self.here.judge.put(self.name, act.url, file.sha256)
        self.puts[number] = Put(self.name, self.here.place_at(act.url), file, answer)
        if len(self.puts) > self._at_once:
            self.here.judge.broken(f"{self.name} sends {len(self.puts)} blobs at once")

    def translated(self, end: PutEnd) -> PutEnd:
        """As the role does."""
        return end

    def answer(self, number: int, answer: Any) -> None:
        for _ in range(2 if self.here.is_stormy and self.here.faults.random() < 0.02 else 1):
            self.post(Answered(number, answer))

    def abandon(self, number: int) -> None:
        if (put := self.puts.pop(number, None)) is not None:
            put.stop()
