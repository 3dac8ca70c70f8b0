"""How slow may the sender of an input be, and the reader of an answer? (SPEC N3)

Both must move BODY_RECEIVED_MIN_BYTES in BODY_RECEIVED_MIN_S, over HTTP and by line: a slower one holds a slot that
others wait for.
"""

from __future__ import annotations

from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_S


class InputPace:
    """The time that a sender has left. Our own time with a piece is not the sender's fault."""

    __slots__ = ("_came", "left_s")

    def __init__(self) -> None:
        self.left_s = BODY_RECEIVED_MIN_S
        self._came = 0

    def came(self, size: int, waited_s: float = 0.0) -> None:
        """A piece came after so long."""
        self.left_s -= waited_s
        self._came += size
        if self._came >= BODY_RECEIVED_MIN_BYTES:
            self.left_s, self._came = BODY_RECEIVED_MIN_S, 0

    @staticmethod
    def why_late() -> str:
        """Said to a sender without time left."""
        return f"less than {BODY_RECEIVED_MIN_BYTES} bytes came in {BODY_RECEIVED_MIN_S:g} s"


class OutputPace:
    """Does a client read its answer? One that sends meanwhile may read afterwards."""

    __slots__ = ("_dropped", "_unread", "look_s")

    def __init__(self, unread: int, dropped: int) -> None:
        """`unread` bytes of the answer wait for the client; `dropped` bytes of its input were received and dropped."""
        self.look_s = BODY_RECEIVED_MIN_S
        """Time until `is_too_slow` is asked, and asked again."""
        self._unread = unread
        self._dropped = dropped

    def is_too_slow(self, unread: int, dropped: int) -> bool:
        """Neither was enough read nor sent since the last look."""
        moved = max(self._unread - unread, dropped - self._dropped)
        self._unread, self._dropped = unread, dropped
        return moved < BODY_RECEIVED_MIN_BYTES
