"""How busy do others keep this machine? (SPEC W2) Its use of CPU, without the worker's own jobs and the worker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

import psutil

LOOK_S: Final = 0.25
"""The kernel counts CPU time in steps of 10 ms: over less than this, a share means little."""


class OthersCpu:
    def __init__(self, own_cpu_s: Callable[[], float]) -> None:
        """`own_cpu_s` returns the CPU seconds of our jobs so far, beside this process itself."""
        self._own_cpu_s = own_cpu_s
        self._looked_at = 0.0
        self._total_s = self._others_s = 0.0
        self._share = 0.0
        with contextlib.suppress(OSError):
            self._total_s, self._others_s = self._read()

    def share(self, now: float) -> float:
        """0 to 1, since the last call; called too soon, or without access, the value of the last call."""
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            try:
                total_s, others_s = self._read()
            except OSError:  # No descriptor is left: that is no reason for a worker to die.
                return self._share
            if total_s > self._total_s:
                self._share = min(max((others_s - self._others_s) / (total_s - self._total_s), 0.0), 1.0)
            self._total_s, self._others_s = total_s, others_s
        return self._share

    def _read(self) -> tuple[float, float]:
        """CPU seconds the machine had to give since it started, and what others took of them."""
        times = psutil.cpu_times()
        # Guests are already counted as user and nice. Stolen time is what the machine below gave to other machines: it
        # was never this one's to give, and its neighbours' load is no reason to hold credit back.
        not_given = ("guest", "guest_nice", "steal")
        total_s = sum(times) - sum(getattr(times, name, 0.0) for name in not_given)
        unused_s = times.idle + getattr(times, "iowait", 0.0)
        own = os.times()
        return total_s, total_s - unused_s - self._own_cpu_s() - own.user - own.system


def busy_share() -> float:
    """Share of the machine's CPU in use since the last call, 0 to 1; 0 without access."""
    try:
        return psutil.cpu_percent() / 100
    except OSError:
        return 0.0
