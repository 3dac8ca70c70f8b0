"""What a process's memory grew by while something happened, and what is needed to make something happen."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

MIB = 1024 * 1024


@contextmanager
def growth(processes: dict[str, list[int]]) -> Iterator[dict[str, float]]:
    """How far each one's memory grew at most, in MiB."""
    before = {name: sum(_reset_peak(pid) for pid in pids) for name, pids in processes.items()}
    grown: dict[str, float] = {}
    yield grown
    for name, pids in processes.items():
        grown[name] = (sum(_peak(pid) for pid in pids) - before[name]) / MIB


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def timed(work: Callable[[], object]) -> float:
    begun_at = time.perf_counter()
    work()
    return time.perf_counter() - begun_at


def random_file(path: Path, size: int) -> Path:
    """One that cannot be packed, and of which no two pieces are the same."""
    piece = os.urandom(min(size, 64 * MIB))
    with path.open("wb") as file:
        for number in range(max(1, size // len(piece))):
            file.write(number.to_bytes(8, "little") + piece[8:])
    return path


def shell_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _reset_peak(pid: int) -> int:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return int(psutil.Process(pid).memory_info().rss)


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
