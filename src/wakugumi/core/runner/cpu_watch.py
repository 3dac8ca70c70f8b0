"""Do other programs leave our jobs enough CPU, and when is that measured next? (SPEC W2)"""

from __future__ import annotations

from typing import Final

CPU_SAMPLE_S: Final = 0.5
"""Pause between two samples while jobs run: shorter ones see only the kernel's ticks of 10 ms."""

_NEVER: Final = float("inf")


class CpuWatch:
    """The latest sample decides, so that usually the credit goes back together with the ack."""

    __slots__ = ("_measured_at", "cap", "held_by", "measure_at", "others")

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.others = 0.0
        """Share of the CPU that other programs use, 0 to 1."""
        self.measure_at = _NEVER
        """Time of the next sample; never while none is needed."""
        self._measured_at = -_NEVER
        self.held_by = 0.0
        """Share of the CPU that others used when credit was held back, since the last heartbeat."""

    @property
    def is_crowded(self) -> bool:
        """Other programs use so much CPU that credit is held back."""
        return self.others >= self.cap

    def plan(self, now: float) -> bool:
        """Set the time of the next sample. True if it is due now."""
        is_due = self._measured_at + CPU_SAMPLE_S <= now
        if is_due:
            self._measured_at = now
        self.measure_at = self._measured_at + CPU_SAMPLE_S
        return is_due
