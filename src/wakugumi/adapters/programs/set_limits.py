"""How does a program get its limits (SPEC W8) and its user (SPEC O1)? This stub sets both, and becomes the program.

    python -I -S set_limits.py STATUS ENV DATA CPU FILE PROCESSES USER PROGRAM ARG…  `-` is no limit, or no other user
    python -I -S set_limits.py reach USER FOLDER…                                    which folders can this user not
    enter?
    python -I -S set_limits.py write USER FOLDER                                     can this user make files there?

It needs only the standard library, because every such job pays for its start. If the program cannot be started, the
error's number is written to the open file STATUS; otherwise exec closes it. The open file ENV holds the program's
variables, if they differ from the stub's: the stub has root's rights until it becomes the user, and a job's variable
such as LD_PRELOAD would make it run the job's code.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from typing import Final

CPU_GRACE_S: Final = 1
"""Seconds between SIGXCPU, which a program may catch, and the kernel's SIGKILL."""
REACH: Final = "reach"
WRITE: Final = "write"
CLOSED_FROM: Final = 64
NOT_THE_USER: Final = "user "
"""Before the number of an error, if the stub could not become the user."""
_PR_SET_NO_NEW_PRIVS: Final = 38
_KEYCTL: Final = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280, "armv7l": 311}
"""The kernel's number of `keyctl`, by machine."""
_JOIN_NEW_SESSION: Final = 1


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
    # Private writable memory, which a program uses itself. The address space (RLIMIT_AS) would also count memory that
    # Java, Go and .NET only reserve, and they would fail at once. It is set last, because it applies to the stub, too.
    if data != "-":
        _limit(resource.RLIMIT_DATA, int(data), int(data))
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(int(status), str(error.errno).encode())
        sys.exit(127)


def read_variables(file: int) -> dict[bytes, bytes]:
    """NAME=VALUE pairs separated by NUL. The file is closed for the program."""
    pairs = [line.partition(b"=") for line in os.pread(file, os.fstat(file).st_size, 0).split(b"\0")]
    os.close(file)
    return {name: value for name, _, value in pairs}


def become(user: str) -> None:
    """Become UID:GID:GROUP,…; for ever, and without more rights by set-user-id programs."""
    import ctypes  # Before the change: this user may not be able to read the interpreter's files.

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    # A program has the keys of its session, whatever its user: a new session has none. Root's quota pays for it.
    keyctl = _KEYCTL.get(os.uname().machine)
    if keyctl is not None and libc.syscall(keyctl, _JOIN_NEW_SESSION, None) < 0:
        number = ctypes.get_errno()
        if number not in {errno.ENOSYS, errno.EPERM}:  # There, nobody can read keys.
            raise OSError(number, "session keyring")
    uid, gid, groups = user.split(":")
    os.setgroups([int(group) for group in groups.split(",")])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))


def reach(user: str, *folders: str) -> None:
    """The exit code is CLOSED_FROM plus the number of the first folder that the user cannot enter; 0 if there is
    none."""
    become(user)
    for at, folder in enumerate(folders):
        if not os.access(folder, os.X_OK):
            sys.exit(min(CLOSED_FROM + at, 255))


def write(user: str, folder: str) -> None:
    """The exit code is 0 if the user can."""
    become(user)
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
        sys.exit(CLOSED_FROM)


def _limit(which: int, soft: int, hard: int) -> None:
    """Set a limit, never above the current one."""
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
