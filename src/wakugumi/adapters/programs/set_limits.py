"""How does a program get its limits (SPEC W8) and its user (SPEC O1)? This is run in its place, sets both, and becomes
the program.

    python -I -S limited.py STATUS ENV DATA CPU FILE PROCESSES USER PROGRAM ARG…  `-` is no limit, or no other user
    python -I -S limited.py reach USER FOLDER…                                    which folders can this user not enter?
    python -I -S limited.py write USER FOLDER                                     can this user make files there?

It stands alone, on the standard library, because every such job pays for its start. If the program cannot be
started, the error's number is written to the open file STATUS; otherwise exec closes it, and that tells too.
The open file ENV holds the program's variables, where these are not our own: before we become the program's user we
have the rights of root, and a variable such as LD_PRELOAD, which a job may set, would have us run its code.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Final

CPU_GRACE_S: Final = 1
"""Between SIGXCPU, which a program may catch, and the kernel's SIGKILL."""
REACH: Final = "reach"
WRITE: Final = "write"
CLOSED_FROM: Final = 64
NOT_THE_USER: Final = "user "
"""Before the number of an error, if the program could not be given its user."""
_PR_SET_NO_NEW_PRIVS: Final = 38


def main(status: str, env: str, data: str, cpu: str, file: str, processes: str, user: str, *command: str) -> None:
    os.set_inheritable(int(status), False)
    environment = os.environb if env == "-" else read_variables(int(env))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    if cpu != "-":
        _limit(resource.RLIMIT_CPU, int(cpu), int(cpu) + CPU_GRACE_S)
    if file != "-":
        _limit(resource.RLIMIT_FSIZE, int(file), int(file))
    if user != "-":
        try:
            become(user)
        except OSError as error:
            os.write(int(status), f"{NOT_THE_USER}{error.errno}".encode())
            sys.exit(127)
    if processes != "-":
        _limit(resource.RLIMIT_NPROC, int(processes), int(processes))
    # Private memory that can be written: what a program takes for itself. The address space (RLIMIT_AS) would also
    # count what Java, Go and .NET merely reserve, and refuse them at once. Last, because we live in it ourselves.
    if data != "-":
        _limit(resource.RLIMIT_DATA, int(data), int(data))
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(int(status), str(error.errno).encode())
        sys.exit(127)


def read_variables(file: int) -> dict[bytes, bytes]:
    """NAME=VALUE, with a NUL between them. The program does not get the file."""
    pairs = [line.partition(b"=") for line in os.pread(file, os.fstat(file).st_size, 0).split(b"\0")]
    os.close(file)
    return {name: value for name, _, value in pairs}


def become(user: str) -> None:
    """This user, written as UID:GID:GROUP,…; for ever, and without a way to more rights by set-user-id programs."""
    import ctypes  # While we still may read it: the interpreter may lie where this user cannot look.

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    uid, gid, groups = user.split(":")
    os.setgroups([int(group) for group in groups.split(",")])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))


def reach(user: str, *folders: str) -> None:
    """The exit code tells which is the first one that they cannot enter, from `CLOSED_FROM` on."""
    become(user)
    for at, folder in enumerate(folders):
        if not os.access(folder, os.X_OK):
            sys.exit(min(CLOSED_FROM + at, 255))


def write(user: str, folder: str) -> None:
    """The exit code tells whether they can."""
    become(user)
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
        sys.exit(CLOSED_FROM)


def _limit(which: int, soft: int, hard: int) -> None:
    """Never above what already holds."""
    _, bound = resource.getrlimit(which)
    if bound != resource.RLIM_INFINITY:
        soft, hard = min(soft, bound), min(hard, bound)
    resource.setrlimit(which, (soft, hard))


if __name__ == "__main__":
    if sys.argv[1] == REACH:
        reach(*sys.argv[2:])
    elif sys.argv[1] == WRITE:
        write(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
