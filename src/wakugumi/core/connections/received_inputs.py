"""How many inputs may a leader receive at once? Each takes memory; further ones are refused as busy."""

from __future__ import annotations

from wakugumi.errors import Refused
from wakugumi.limits.http import HTTP_RECEIVED_MAX


class ReceivedInputs:
    """Inputs on their way to one leader."""

    def __init__(self, most: int = HTTP_RECEIVED_MAX) -> None:
        self._most = most
        self.count = 0

    def begin(self) -> None:
        """Raises Refused: busy."""
        if self.count >= self._most:
            raise Refused("busy", f"{self.count} inputs are being received")
        self.count += 1

    def end(self) -> None:
        assert self.count
        self.count -= 1
