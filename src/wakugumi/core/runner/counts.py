"""How did the programs end that ran here, and how long did they take? Counts of one machine, for its metrics.

Every dictionary is bounded: exit codes go from 0 to 255, and reasons are codes of the error table.
"""

from __future__ import annotations

from bisect import bisect_right

from wakugumi.core.buckets import BOUNDS_S


class RunCounts:
    """Counts since the start of the process."""

    __slots__ = ("busy", "exit_codes", "failed", "ok", "ran", "ran_s", "reasons", "started")

    def __init__(self) -> None:
        self.started = 0
        """Jobs taken up, including those whose program could not be started."""
        self.ok = 0
        self.failed = 0
        self.busy = 0
        """Callers of this machine that were refused because all slots were taken."""
        self.exit_codes: dict[int, int] = {}
        """Programs that ended, by exit code; 128 plus its number for a signal."""
        self.reasons: dict[str, int] = {}
        """Failed jobs, by code of the error table."""
        self.ran = [0] * (len(BOUNDS_S) + 1)
        """Programs that ended, by run time: one bucket below each bound of BOUNDS_S, and one for longer runs."""
        self.ran_s = 0.0
        """Run time of all programs together."""

    def ended(self, reason: str, exit_code: int | None, run_s: float) -> None:
        """A job has ended, OK if `reason` is empty. No exit code means that no program ran."""
        if reason:
            self.failed += 1
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        else:
            self.ok += 1
        if exit_code is not None:
            self.exit_codes[exit_code] = self.exit_codes.get(exit_code, 0) + 1
            self.ran[bisect_right(BOUNDS_S, run_s)] += 1
            self.ran_s += run_s
