"""How far may one connection be ahead of the disk?

A leader reads from a connection while little of what came from it waits for the disk. So a client that submits as fast
as it can fills its own window and no other: the receipt of a small client waits for one window of each other connection
at most, and not for all that the flood has sent.
"""

from __future__ import annotations

from collections import deque

from wakugumi.limits.wire import AHEAD_BYTES_MAX


class Intake:
    """What one connection brought and is not safe yet. Steps are counted by whoever hands events to the machine."""

    __slots__ = ("_brought", "_max", "ahead_bytes")

    def __init__(self, ahead_bytes_max: int = AHEAD_BYTES_MAX) -> None:
        self._max = ahead_bytes_max
        self._brought: deque[tuple[int, int]] = deque()
        """The step that takes it, and its size; the oldest first."""
        self.ahead_bytes = 0

    def took(self, size: int, step: int, safe_step: int) -> bool:
        """So many bytes were read, and are handled by this step at the latest; so many steps are safe. Is its window
        full?"""
        brought, ahead_bytes = self._brought, self.ahead_bytes + size
        while brought and brought[0][0] <= safe_step:
            ahead_bytes -= brought.popleft()[1]
        brought.append((step, size))
        self.ahead_bytes = ahead_bytes
        return ahead_bytes >= self._max

    def settle(self, safe_step: int) -> None:
        """What this step and those before it kept is on the disk, and their effects were performed."""
        brought = self._brought
        while brought and brought[0][0] <= safe_step:
            self.ahead_bytes -= brought.popleft()[1]

    def must_wait(self, *, behind: bool) -> bool:
        """Is nothing more read from it for now? If the disk is `behind` in all, only those may bring more of whom it
        has everything."""
        return self.ahead_bytes >= self._max or (behind and self.ahead_bytes > 0)
