"""How long do jobs wait while no leader serves their client? For ever, unless a time is set."""

from __future__ import annotations


class LeaderPatience:
    """Of one client."""

    def __init__(self) -> None:
        self.patience_s: float | None = None
        """None: for ever."""
        self._since: float | None = None
        """Time since which no leader serves; None while one does, or no job waits."""

    def look(self, now: float, *, waits: bool) -> None:
        """`waits`: no leader serves, and jobs may wait for one."""
        self._since = (now if self._since is None else self._since) if waits else None

    @property
    def due_at(self) -> float | None:
        """The jobs end at this time, if no leader serves until then."""
        return None if self._since is None or self.patience_s is None else self._since + self.patience_s
