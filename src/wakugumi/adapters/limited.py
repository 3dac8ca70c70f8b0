"""How does a program get its limits (SPEC W8)? This is run in its place, sets them, and becomes the program.

    python -I -S limited.py STATUS DATA CPU FILE PROCESSES PROGRAM ARG…      `-` is no limit

It stands alone, on the standard library, because every limited job pays for its start. If the program cannot be
started, the error's number is written to the open file STATUS; otherwise exec closes it, and that tells too.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Final

CPU_GRACE_S: Final = 1
"""Between SIGXCPU, which a program may catch, and the kernel's SIGKILL."""


def main(status: str, data: str, cpu: str, file: str, processes: str, *command: str) -> None:
    os.set_inheritable(int(status), False)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    if cpu != "-":
        _limit(resource.RLIMIT_CPU, int(cpu), int(cpu) + CPU_GRACE_S)
    if file != "-":
        _limit(resource.RLIMIT_FSIZE, int(file), int(file))
    if processes != "-":
        _limit(resource.RLIMIT_NPROC, int(processes), int(processes))
    # Private memory that can be written: what a program takes for itself. The address space (RLIMIT_AS) would also
    # count what Java, Go and .NET merely reserve, and refuse them at once. Last, because we live in it ourselves.
    if data != "-":
        _limit(resource.RLIMIT_DATA, int(data), int(data))
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(int(status), str(error.errno).encode())
        sys.exit(127)


def _limit(which: int, soft: int, hard: int) -> None:
    """Never above what already holds."""
    _, bound = resource.getrlimit(which)
    if bound != resource.RLIM_INFINITY:
        soft, hard = min(soft, bound), min(hard, bound)
    resource.setrlimit(which, (soft, hard))


if __name__ == "__main__":
    main(*sys.argv[1:])
