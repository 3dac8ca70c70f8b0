"""When does a worker try again to connect? Soon at first, then after growing pauses, and soon again once a leader has
served it, or has held the connection for long."""

from __future__ import annotations

from wakugumi.core.backoff import next_redial_s, with_jitter
from wakugumi.limits.client import RECONNECT_MAX_S, WORKER_RECONNECT_FIRST_S


class Redial:
    """Tries of one worker to connect: `begin`, then `pause`, in turns."""

    def __init__(self, now: float) -> None:
        self.base_s = 0.0
        """The pause before its jitter."""
        self._lost_at = self._began_at = now

    def begin(self, now: float) -> None:
        """A try begins."""
        self._began_at = now
        self.base_s = next_redial_s(self.base_s, now - self._lost_at) if self.base_s else WORKER_RECONNECT_FIRST_S

    def pause(self, now: float, chance: float, *, served: bool) -> float:
        """The try has failed, or its connection has ended; `served` if a leader greeted. Seconds until the next."""
        if served or now - self._began_at > RECONNECT_MAX_S:
            self.base_s = WORKER_RECONNECT_FIRST_S
            self._lost_at = now
        return with_jitter(self.base_s, chance)
