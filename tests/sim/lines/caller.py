"""A caller by line: it sends a line and an input, reads an answer, and comes again until it has a result; or it does so
badly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.sim.lines.node import LineAtNode, Said

from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_S
from wakugumi.limits.node import RECEIVE_BYTES_PER_S_MIN

if TYPE_CHECKING:
    from tests.sim.lines.world import LineWorld

FAST: Final = 20e6
STEADY: Final = 2.0 * RECEIVE_BYTES_PER_S_MIN
"""Fast enough for every slot."""
SLOW: Final = 2.0 * BODY_RECEIVED_MIN_BYTES / BODY_RECEIVED_MIN_S
"""Fast enough while no other waits."""
DRIP: Final = 0.3 * BODY_RECEIVED_MIN_BYTES / BODY_RECEIVED_MIN_S
PIECES_S: Final = 0.25
"""Time between two pieces."""


class LineWant(NamedTuple):
    """A job, as its caller thought of it."""

    job: int
    size: int
    takes_s: float
    result: bytes


class Manner(NamedTuple):
    """How one visit goes."""

    line: str = "whole"
    """`whole`, `none`, `half`, `long`, or `mute` for ever."""
    sends: float = FAST
    ends_at: float = 1.0
    """Share of the input after which its end comes."""
    end: str = "whole"
    """`whole`, `eof`: the half is closed; `gone`: without a word to the user; `stall`: nothing comes any more."""
    reads: float = FAST
    reads_late: bool = False
    """It reads once it has sent all."""
    leaves_s: float = 0.0
    """It leaves after so long; 0: never."""

    @property
    def is_honest(self) -> bool:
        fine = self.line == "whole" and self.end == "whole" and not self.leaves_s
        return fine and self.sends >= STEADY and self.reads >= SLOW


HONEST: Final = Manner()


class LineCaller:
    """One caller with one job."""

    def __init__(self, world: LineWorld, number: int, want: LineWant, manners: list[Manner]) -> None:
        self.world = world
        self.name = f"caller{number}"
        self.want = want
        self._manners = manners
        """Of its first visits; all further ones are honest."""
        self.visits = 0
        self.is_over = False

    def come(self) -> None:
        if self.is_over:
            return
        if not self.world.node.alive:
            self.again(1.0)
            return
        self.visits += 1
        manner = self._manners.pop(0) if self._manners else HONEST
        LineVisit(self, manner)

    def again(self, seconds: float) -> None:
        self.world.clock.after(seconds * (0.5 + self.world.random.random()), self.come)


class LineVisit:
    """One connection, as its caller sees it."""

    def __init__(self, caller: LineCaller, manner: Manner) -> None:
        self.caller = caller
        self.want = caller.want
        self.manner = manner
        self.world = caller.world
        self.clock = caller.world.clock
        self.name = f"{caller.name}.{caller.visits}"
        self.sent = 0
        self.is_closed = self.has_sent = False
        self.said: Said | None = None
        self.waits_since = self.clock.now
        self.node = LineAtNode(self.world.node, self)
        self.world.tell(self.name, "comes", manner)
        self.world.judge.comes(self)
        self.node.node.go_on()
        self._after(0.02, self._say_line)
        if manner.leaves_s:
            self._after(manner.leaves_s, self._leave)

    def _after(self, seconds: float, call: object) -> None:
        self.clock.after(seconds, lambda: None if self.is_closed else call())  # type: ignore[operator]

    def _say_line(self) -> None:
        node = self.node
        match self.manner.line:
            case "whole":
                node.line = self.want.size
                self._after(0.01, self._send)
            case "long":
                node.line = -1
            case "half":
                node.half = 7
            case "none":
                node.at_eof = True
            case _:
                pass
        if self.manner.line in {"half", "none"}:
            node.at_eof = True
        self.has_sent = self.manner.line != "whole"
        node.moved()

    def _send(self) -> None:
        manner, node = self.manner, self.node
        goal = int(self.want.size * manner.ends_at)
        if self.sent >= goal:
            self.has_sent = True
            if manner.end == "eof" and goal < self.want.size:
                node.at_eof = True
            elif manner.end == "gone":
                self._leave()
                return
            node.moved()
            self._read()
            return
        piece = min(goal - self.sent, max(1, int(manner.sends * PIECES_S)))
        self.sent += piece
        node.here += piece
        node.moved()
        self._after(PIECES_S if manner.sends < FAST else 0.05, self._send)

    # The answer.

    def answer_comes(self, said: Said) -> None:
        self.said = said
        self._after(0.01, self._read)

    def _read(self) -> None:
        manner, node = self.manner, self.node
        if self.said is None or (manner.reads_late and not self.has_sent) or not manner.reads:
            return
        if node.unread:
            node.unread -= min(node.unread, max(1, int(manner.reads * PIECES_S)))
            node.moved()
            self._after(PIECES_S if manner.reads < FAST else 0.01, self._read)

    def half_closed(self) -> None:
        """No more follows. The caller closes once it has read all."""
        self._after(0.01, self._finish)

    def _finish(self) -> None:
        if self.node.unread or (self.manner.reads_late and not self.has_sent):
            self._after(0.1, self._finish)
        else:
            self._close()
            self.node.at_eof = True
            self.node.moved()
            self._heard()

    def _heard(self) -> None:
        assert self.said is not None
        self.world.tell(self.name, "hears", self.said.word)
        self.world.judge.hears(self, self.said)
        if self.said.word == "OK":
            self.caller.is_over = True
        else:
            self.caller.again(5.0 if self.said.word == "BUSY" else 2.0)

    def _leave(self) -> None:
        self._close()
        self.node.is_gone = True
        self.node.moved()
        self.caller.again(2.0)

    def cut_off(self, *, is_orderly: bool = False, by_rule: bool = True) -> None:
        """The node closes the connection, by its rules or by its end. After an orderly close the system still has the
        rest of the answer."""
        if self.is_closed or (is_orderly and self.manner.reads):
            return
        self._close()
        if by_rule:
            self.world.judge.torn(self)
        self.caller.again(2.0)

    def _close(self) -> None:
        self.is_closed = True
        self.world.tell(self.name, "leaves", None)
        self.world.judge.leaves(self)
