"""How did the programs fare that ran here? Counts and run times of one machine, for whoever asks for its metrics.

Everything here is bounded by what it counts: exit codes go from 0 to 255, reasons are codes of the error table, and the
run times fall into the same buckets as a leader's (see `stats`).
"""

from __future__ import annotations

from bisect import bisect_right

from wakugumi.core.buckets import BOUNDS_S


class RunCounts:
    """What one machine has counted since it began."""

    __slots__ = ("busy", "exit_codes", "failed", "ok", "ran", "ran_s", "reasons", "started")

    def __init__(self) -> None:
        self.started = 0
        """Jobs that were taken up, also those whose program could not be started."""
        self.ok = 0
        self.failed = 0
        self.busy = 0
        """Callers of this machine that were sent away because all slots were taken."""
        self.exit_codes: dict[int, int] = {}
        """Of programs that ended, by themselves or not; 128 and its number if a signal ended one."""
        self.reasons: dict[str, int] = {}
        """Why jobs failed: codes of the error table."""
        self.ran = [0] * (len(BOUNDS_S) + 1)
        """Run times of programs that ended: a bucket holds what is below its bound of BOUNDS_S and not below the one
        before, the last one what is longer."""
        self.ran_s = 0.0
        """All of them together."""

    def ended(self, reason: str, exit_code: int | None, run_s: float) -> None:
        """A job has ended: OK if no reason is given. Without an exit code no program of it ran."""
        if reason:
            self.failed += 1
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        else:
            self.ok += 1
        if exit_code is not None:
            self.exit_codes[exit_code] = self.exit_codes.get(exit_code, 0) + 1
            self.ran[bisect_right(BOUNDS_S, run_s)] += 1
            self.ran_s += run_s
