"""Has a process ended, and what if no thread can be started? For tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def has_ended(pid: int) -> bool:
    """It is gone, or a zombie: who reaps it is another question. Asked once: between two looks it may vanish."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@contextmanager
def no_new_thread() -> Iterator[None]:
    """The system can start no further thread meanwhile: no machine has room for such a stack."""
    before = threading.stack_size(1 << 47)
    try:
        yield
    finally:
        threading.stack_size(before)
