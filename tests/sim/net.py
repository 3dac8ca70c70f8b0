"""What does the simulated network promise? What TCP promises, and no more.

A Link is a connection: two Pipes of ordered messages, one each way. A message is the event that the other side's
state machine will hear; a frame that was torn by a cut never becomes an event, so a cut loses a suffix of the messages
that are under way, and that is the whole of what a cut at any byte can do. Each message is delayed by chance and none
overtakes another; a pipe may stall; two processes may be parted, one way or both; a link may be cut so that the two
sides hear of it at different times, or so late that silence tells them first. What a side says after its link was cut
goes nowhere.

A pipe holds bytes. Beyond what a buffer takes its sender is *blocked*; a peer to which much is sent all the same is cut
off, as in `adapters/net/link.py`, only that here every byte counts that is sent while it is blocked: so nobody is saved
by what happens to fall into one turn. A peer that reads must never be cut off, however slowly it reads.

    Wire ──► Pipe up ──► Wire      a Wire is one side's end, and hears of its link by `on_open`, `on_message`, …
         ◄── Pipe down ◄──
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from wakugumi.core.client import events as fev
from wakugumi.core.leader import events as lev
from wakugumi.core.runner import events as sev
from wakugumi.limits.wire import ALIVE_TOLD_S

if TYPE_CHECKING:
    from tests.sim.clock import Clock

CONNECT_DEADLINE_S: Final = 10.0
KEEPALIVE_S: Final = 60.0
"""The latest at which a side notices that its link is cut, by the kernel's own probes."""
HEAD_BYTES: Final = 16
"""Of a message beside its payload."""
_PAYLOADS: Final = {
    kind: attrgetter("ticket" if kind is sev.Assigned else "payload")
    for kind in (lev.Submitted, lev.Acked, sev.Assigned, fev.ResultReceived)
}


class Buffers(NamedTuple):
    """How much one direction of a link takes."""

    buffer_bytes: int
    """Under way; beyond it the sender is told that its peer does not read, and below a quarter that it does."""
    backlog_bytes: int
    """Sent to a peer all the same, before it is cut off."""


Ends: TypeAlias = tuple[str, str]
"""The names of who dialled and who listened."""


class Wire(Protocol):
    """One side's end of a link."""

    def on_open(self, link: Link) -> None: ...
    def on_message(self, message: object) -> None: ...
    def on_alive(self) -> None: ...
    def on_blocked(self, blocked: bool) -> None: ...
    def on_lost(self, why: str) -> None: ...


class Listener(Protocol):
    """Who takes connections."""

    name: str

    @property
    def listening(self) -> bool: ...
    def accept(self) -> Wire: ...


class _Fin:
    """The end of what a side has to say."""


_FIN: Final = _Fin()


class Pipe:
    """One direction of a link."""

    __slots__ = (
        "_backlog",
        "_began_at",
        "_clock",
        "_due",
        "_last_at",
        "_link",
        "_net",
        "_when_written",
        "blocked",
        "bytes",
        "bytes_per_s",
        "closed",
        "held",
        "parted",
        "receiver",
        "sender",
        "stalls",
        "under_way",
    )

    def __init__(self, link: Link, sender: Wire, receiver: Wire) -> None:
        self._link = link
        self._net = net = link.net
        self._clock = net.clock
        self.sender = sender
        self.receiver = receiver
        self.under_way: deque[tuple[float, object, int]] = deque()
        self.bytes = 0
        """Of all that is under way."""
        self._backlog = 0
        """Sent since it is blocked."""
        self._when_written: list[Callable[[], None]] = []
        self.bytes_per_s = 0.0
        """How fast its receiver reads; 0 for as fast as it comes."""
        self._began_at = 0.0
        """When the first message that is under way began to arrive."""
        self._last_at = 0.0
        self._due = False
        self.held = 0
        """For how many reasons its receiver does not read. It does not hear of the end either until it reads on."""
        self.stalls = 0
        """How many delays of the network lie in its way. Its end is not delayed by them."""
        self.parted = 0
        """How many partitions lie in its way: not even its end comes through."""
        self.blocked = False
        self.closed = False
        """Nothing that is sent from now on arrives."""

    def send(self, messages: Sequence[object]) -> None:
        if self.closed:
            return
        at = self._clock.now + self._net.delay_s()
        if at < self._last_at:
            at = self._last_at
        self._last_at = at
        under_way = self.under_way
        if not under_way:
            self._began_at = self._clock.now
        sent = 0
        for message in messages:
            payload_of = _PAYLOADS.get(type(message))
            size = HEAD_BYTES + (0 if payload_of is None else len(payload_of(message)))
            under_way.append((at, message, size))
            sent += size
        self.bytes += sent
        self._wake()
        if self.blocked:
            self._backlog += sent
            if self._backlog > self._net.buffers.backlog_bytes:
                self._link.cut_off(self)
        elif self.bytes >= self._net.buffers.buffer_bytes:
            self.blocked = True
            self._backlog = 0
            self.sender.on_blocked(True)

    def when_written(self, tell: Callable[[], None]) -> None:
        """Now, or when the peer has read enough; never, if the link ends before."""
        if self.blocked:
            self._when_written.append(tell)
        elif not self.closed:
            tell()

    def end(self, after_s: float, lose: bool) -> None:
        """The last of it: what is under way (or by chance only the first part of it), then the end."""
        if self.closed:
            return
        self.closed = True
        self.stalls = 0
        self._when_written.clear()
        if lose and self.under_way:
            for _ in range(self._net.random.randrange(len(self.under_way) + 1)):
                self.under_way.pop()
        self._last_at = max(self._last_at, self._clock.now + after_s)
        self.under_way.append((self._last_at, _FIN, 0))
        self._wake()

    def hold(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1
        self._began_at = self._clock.now
        self._wake()

    def stall(self) -> None:
        self.stalls += 1

    def flow(self) -> None:
        self.stalls = max(0, self.stalls - 1)
        self._began_at = self._clock.now
        self._wake()

    def part(self) -> None:
        self.parted += 1

    def join(self) -> None:
        self.parted -= 1
        self._began_at = self._clock.now
        self._wake()

    def _wake(self) -> None:
        if not self._due and not self._is_stopped() and self.under_way:
            self._due = True
            at = self._arrives_at()
            if self.bytes_per_s:
                at = min(at, self._clock.now + ALIVE_TOLD_S)
            self._clock.at(at, self._deliver)

    def _is_stopped(self) -> bool:
        return bool(self.held or self.stalls or self.parted)

    def _arrives_at(self) -> float:
        """When the first of what is under way is there as a whole."""
        at, _, size = self.under_way[0]
        return max(at, self._began_at + size / self.bytes_per_s) if self.bytes_per_s else at

    def _deliver(self) -> None:
        self._due = False
        now, under_way = self._clock.now, self.under_way
        while under_way and not self._is_stopped():
            if self._arrives_at() > now:
                if self.bytes_per_s:
                    self.receiver.on_alive()
                break
            _, message, size = under_way.popleft()
            self.bytes -= size
            self._began_at = now
            if message is _FIN:
                self.receiver.on_lost("the connection ended")
            else:
                self.receiver.on_message(message)
        if self.blocked and self.bytes <= self._net.buffers.buffer_bytes // 4:
            self.blocked = False
            if not self.closed:
                self.sender.on_blocked(False)
                tell_all, self._when_written = self._when_written, []
                for tell in tell_all:
                    tell()
        self._wake()


class Link:
    """One connection. `up` leads from who dialled to who listened."""

    __slots__ = ("down", "ends", "harm", "net", "number", "up")

    def __init__(self, net: Net, number: int, ends: Ends, dialler: Wire, listener: Wire) -> None:
        self.net = net
        self.number = number
        self.ends = ends
        self.harm = ""
        """What the network did to it: whoever loses it later loses it because of this."""
        self.up = Pipe(self, dialler, listener)
        self.down = Pipe(self, listener, dialler)

    @property
    def busy(self) -> bool:
        """Something is under way on it."""
        return bool(self.up.under_way or self.down.under_way)

    def close(self, by: Wire, *, lose: bool) -> None:
        """One side's process closed it, or ended: the other hears so. With `lose`, what is under way may be lost."""
        mine, other = (self.up, self.down) if self.up.sender is by else (self.down, self.up)
        if mine.bytes_per_s and mine.under_way:
            self.harm = self.harm or "its end came behind what is read slowly"
        mine.end(self.net.delay_s(), lose)
        other.closed = True
        other.under_way.clear()
        self.net.links.pop(self.number, None)

    def cut_off(self, pipe: Pipe) -> None:
        """Its sender has had enough of a peer that does not read."""
        if not pipe.closed:
            self.net.on_cut_off(self, pipe)
            self.cut(soon=True)

    def cut(self, soon: bool) -> None:
        """The network cut it: a part of what was under way arrives. Sides notice soon, or only after a long while."""
        random = self.net.random
        for pipe in (self.up, self.down):
            notice_s = random.random() * (1.0 if soon or random.random() < 0.5 else KEEPALIVE_S)
            pipe.end(notice_s, lose=True)
        self.net.links.pop(self.number, None)


class Net:
    """All links of one world, and who may dial at all."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        delay_max_s: float,
        buffers: Buffers,
        on_cut_off: Callable[[Link, Pipe], None],
        speeds: Callable[[], tuple[float, float]],
    ) -> None:
        """`speeds` gives how fast the two sides of a new link read, the one that dialled first."""
        self.clock = clock
        self.random = random
        self.buffers = buffers
        self.on_cut_off = on_cut_off
        self._speeds = speeds
        self.links: dict[int, Link] = {}
        self.unreachable: dict[str, int] = {}
        """Names of those whose packets go nowhere, and for how many reasons."""
        self.parted: dict[Ends, int] = {}
        """Pairs that a partition lies between, and how many."""
        self._delay_max_s = delay_max_s
        self._numbers = 0

    def delay_s(self) -> float:
        """Mostly short, now and then long."""
        chance = self.random.random()
        return self._delay_max_s * (chance * chance * chance)

    def dial(self, name: str, wire: Wire, listener: Listener) -> None:
        """Ends in `on_open` or in `on_lost`."""
        self.clock.after(2 * self.delay_s(), lambda: self._dialled(name, wire, listener))

    def _dialled(self, name: str, wire: Wire, listener: Listener) -> None:
        ends = (name, listener.name)
        if name in self.unreachable or ends in self.parted:
            self.clock.after(CONNECT_DEADLINE_S, lambda: wire.on_lost("nobody answers"))
        elif not listener.listening:
            wire.on_lost("connection refused")
        else:
            self._numbers += 1
            other = listener.accept()
            link = self.links[self._numbers] = Link(self, self._numbers, ends, wire, other)
            link.down.bytes_per_s, link.up.bytes_per_s = self._speeds()
            other.on_open(link)
            wire.on_open(link)

    def isolate(self, name: str) -> None:
        self.unreachable[name] = self.unreachable.get(name, 0) + 1

    def rejoin(self, name: str) -> None:
        count = self.unreachable.get(name, 0) - 1
        if count > 0:
            self.unreachable[name] = count
        else:
            self.unreachable.pop(name, None)

    def part(self, ends: Ends, *, up: bool, down: bool) -> Callable[[], None]:
        """A partition between the two, in one direction or both: what is said waits, and nobody can dial, for that
        takes both. Gives what ends it."""
        self.parted[ends] = self.parted.get(ends, 0) + 1
        links = [link for link in self.links.values() if link.ends == ends]
        pipes = [link.up for link in links if up] + [link.down for link in links if down]
        for pipe in pipes:
            pipe.part()

        def join() -> None:
            self.parted[ends] -= 1
            if not self.parted[ends]:
                del self.parted[ends]
            for pipe in pipes:
                pipe.join()

        return join
