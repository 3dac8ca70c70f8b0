"""What does the simulated network promise? What TCP promises, and no more.

A Link is a connection: two Pipes of ordered messages, one each way. A message is the event that the other side's
state machine will hear; a frame that was torn by a cut never becomes an event, so a cut loses a suffix of the messages
that are under way, and that is the whole of what a cut at any byte can do. Each message is delayed by chance and none
overtakes another; a pipe may stall; two processes may be parted, one way or both; a link may be cut so that the two
sides hear of it at different times, or so late that silence tells them first. What a side says after its link was cut
goes nowhere.

    Wire ──► Pipe up ──► Wire      a Wire is one side's end: `on_open`, `on_message`, `on_blocked`, `on_lost`
         ◄── Pipe down ◄──
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from tests.sim.clock import Clock

CONNECT_DEADLINE_S: Final = 10.0
KEEPALIVE_S: Final = 60.0
"""The latest at which a side notices that its link is cut, by the kernel's own probes."""
BLOCKED_AT: Final = 24
"""Messages under way beyond which the sender is told that its peer does not read."""
UNBLOCKED_AT: Final = 4


Ends: TypeAlias = tuple[str, str]
"""The names of who dialled and who listened."""


class Wire(Protocol):
    """One side's end of a link."""

    def on_open(self, link: Link) -> None: ...
    def on_message(self, message: object) -> None: ...
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
        "_clock",
        "_due",
        "_last_at",
        "_net",
        "blocked",
        "closed",
        "held",
        "parted",
        "receiver",
        "sender",
        "under_way",
    )

    def __init__(self, net: Net, sender: Wire, receiver: Wire) -> None:
        self._net = net
        self._clock = net.clock
        self.sender = sender
        self.receiver = receiver
        self.under_way: deque[tuple[float, object]] = deque()
        self._last_at = 0.0
        self._due = False
        self.held = 0
        """How many reasons there are not to deliver: stalls, a reader that pauses."""
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
        for message in messages:
            under_way.append((at, message))
        self._wake()
        if len(under_way) >= BLOCKED_AT and not self.blocked:
            self.blocked = True
            self.sender.on_blocked(True)

    def end(self, after_s: float, lose: bool) -> None:
        """The last of it: what is under way (or by chance only the first part of it), then the end."""
        if self.closed:
            return
        self.closed = True
        self.held = 0
        if lose and self.under_way:
            for _ in range(self._net.random.randrange(len(self.under_way) + 1)):
                self.under_way.pop()
        self._last_at = max(self._last_at, self._clock.now + after_s)
        self.under_way.append((self._last_at, _FIN))
        self._wake()

    def hold(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held = max(0, self.held - 1)
        self._wake()

    def part(self) -> None:
        self.parted += 1

    def join(self) -> None:
        self.parted -= 1
        self._wake()

    def _wake(self) -> None:
        if not self._due and not self.held and not self.parted and self.under_way:
            self._due = True
            self._clock.at(self.under_way[0][0], self._deliver)

    def _deliver(self) -> None:
        self._due = False
        now, under_way = self._clock.now, self.under_way
        while under_way and under_way[0][0] <= now and not self.held and not self.parted:
            message = under_way.popleft()[1]
            if message is _FIN:
                self.receiver.on_lost("the connection ended")
            else:
                self.receiver.on_message(message)
        if self.blocked and len(under_way) <= UNBLOCKED_AT:
            self.blocked = False
            if not self.closed:
                self.sender.on_blocked(False)
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
        self.up = Pipe(net, dialler, listener)
        self.down = Pipe(net, listener, dialler)

    @property
    def busy(self) -> bool:
        """Something is under way on it."""
        return bool(self.up.under_way or self.down.under_way)

    def close(self, by: Wire, *, lose: bool) -> None:
        """One side's process closed it, or ended: the other hears so. With `lose`, what is under way may be lost."""
        mine, other = (self.up, self.down) if self.up.sender is by else (self.down, self.up)
        mine.end(self.net.delay_s(), lose)
        other.closed = True
        other.under_way.clear()
        self.net.links.pop(self.number, None)

    def cut(self, soon: bool) -> None:
        """The network cut it: a part of what was under way arrives. Sides notice soon, or only after a long while."""
        random = self.net.random
        for pipe in (self.up, self.down):
            notice_s = random.random() * (1.0 if soon or random.random() < 0.5 else KEEPALIVE_S)
            pipe.end(notice_s, lose=True)
        self.net.links.pop(self.number, None)


class Net:
    """All links of one world, and who may dial at all."""

    def __init__(self, clock: Clock, random: Random, delay_max_s: float) -> None:
        self.clock = clock
        self.random = random
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
