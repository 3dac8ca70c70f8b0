"""How far may one connection be ahead of the disk?

A leader reads from a connection while few of its bytes wait for the disk. So a client that submits as fast as it can
fills its own window and no other: the receipt of a small client waits for one window of each other connection at most,
and not for the whole flood.
"""

from __future__ import annotations

from collections import deque

from wakugumi.limits.wire import AHEAD_BYTES_MAX


class Intake:
    """Bytes of one connection that are not on the disk yet. Steps are counted by the caller, which hands events to the
    machine."""

    __slots__ = ("_brought", "_max", "ahead_bytes")

    def __init__(self, ahead_bytes_max: int = AHEAD_BYTES_MAX) -> None:
        self._max = ahead_bytes_max
        self._brought: deque[tuple[int, int]] = deque()
        """The step that handles the bytes, and their number; the oldest first."""
        self.ahead_bytes = 0

    def took(self, size: int, step: int, safe_step: int) -> bool:
        """`size` bytes were read, and are handled by `step` at the latest; all steps up to `safe_step` are on the disk.
        True if the window is full."""
        brought, ahead_bytes = self._brought, self.ahead_bytes + size
        while brought and brought[0][0] <= safe_step:
            ahead_bytes -= brought.popleft()[1]
        brought.append((step, size))
        self.ahead_bytes = ahead_bytes
        return ahead_bytes >= self._max

    def settle(self, safe_step: int) -> None:
        """All steps up to this one are on the disk, and their effects were performed."""
        brought = self._brought
        while brought and brought[0][0] <= safe_step:
            self.ahead_bytes -= brought.popleft()[1]

    def must_wait(self, *, behind: bool) -> bool:
        """Must reading pause? If the disk is `behind`, only connections without waiting bytes are read."""
        return self.ahead_bytes >= self._max or (behind and self.ahead_bytes > 0)
