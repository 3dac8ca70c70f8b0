"""What may one connection by line send, and how long is it waited for? (SPEC N1) It carries one job: a line and its
input are received, a line and its bytes are sent, and the rest is read and dropped for a while.

    no line yet ──► begin ──► came … ──► the answer ──► lingers, lingered … ──► closed
         └──► no_line           └──► input_ended, input_late
"""

from __future__ import annotations

from wakugumi.core.connections.pace import InputPace
from wakugumi.errors import Lost, Refused, bad_request
from wakugumi.limits.http import LINE_BYTES_MAX, LINE_GONE_S, LINGER_BYTES_MAX, LINGER_S
from wakugumi.limits.wire import HELLO_DEADLINE_S


class LineConnection:
    """One connection by line."""

    __slots__ = ("_lingered", "dropped", "has_line", "left", "line_s", "linger_s", "look_s", "pace", "peer", "size")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.line_s = HELLO_DEADLINE_S
        """Time until the line is whole."""
        self.look_s = LINE_GONE_S
        """Time between two looks whether a client that waits is gone."""
        self.linger_s = LINGER_S
        """Time in which further bytes are read after the answer."""
        self.pace = InputPace()
        self.has_line = False
        self.size = 0
        self.left = 0
        """Bytes of the input that did not come yet."""
        self.dropped = 0
        """Bytes of the input that were received and dropped."""
        self._lingered = 0

    # The line.

    def no_line(self, partial: int = 0, *, is_late: bool = False, is_long: bool = False) -> Refused | Lost:
        """There is no whole line: so many bytes came until the end, unless it is late or too long."""
        if is_late:
            return Refused("too-slow", f"no whole line came in {self.line_s:g} s")
        if is_long:
            return bad_request(f"the line is longer than {LINE_BYTES_MAX} bytes")
        return bad_request("the line has no end") if partial else Lost(f"{self.peer} sent no line")

    # The input.

    def begin(self, size: int) -> None:
        """The line is whole, and an input of this size follows."""
        self.has_line = True
        self.size = self.left = size

    def came(self, size: int, waited_s: float) -> None:
        """A piece of the input came after so long."""
        self.left -= size
        self.pace.came(size, waited_s)

    def input_ended(self) -> Refused:
        """The client sends no more, and the input is not whole."""
        return bad_request(f"{self.size - self.left} bytes came, and the line says {self.size}")

    def input_late(self) -> Refused:
        return Refused("too-slow", self.pace.why_late())

    # After the answer.

    def lingers(self, *, can_half_close: bool) -> bool:
        """Are further bytes read and dropped? A close with unread bytes would tear down the answer. Over TLS, which
        cannot close a half, only the close tells the client that no more follows: if the input is whole, it comes at
        once."""
        return can_half_close or not self.has_line or self.left > 0

    def lingered(self, size: int) -> bool:
        """So many further bytes were dropped. May more follow?"""
        self._lingered += size
        return self._lingered < LINGER_BYTES_MAX
