"""Has a process ended? For tests that must not ask twice: between two looks it may vanish."""

from __future__ import annotations

from pathlib import Path


def has_ended(pid: int) -> bool:
    """It is gone, or a zombie: who reaps it is another question."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
