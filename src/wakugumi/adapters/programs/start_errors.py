"""Why could a program not be started, in words, and whose fault is that?"""

from __future__ import annotations

import errno
import os

from wakugumi.adapters.files import USED_UP
from wakugumi.adapters.programs.set_limits import NOT_THE_USER
from wakugumi.errors import Refused, Sick


def not_started(error: OSError | ValueError, program: bytes) -> Refused:
    """What to say of this error of a start."""
    name = os.path.basename(os.fsdecode(program))
    if isinstance(error, ValueError):
        return Refused("bad-request", f"{name!r} cannot get such arguments: {error}")
    if error.errno == errno.E2BIG:
        return Refused("bad-request", f"{name!r} cannot get so many or so long arguments")
    if error.errno in USED_UP:
        return Sick("worker-error", f"{name!r} could not be started: {error.strerror}")
    return Refused("not-executable", f"{name!r} could not be started: {_exec_error(error.errno or 0)}")


def stub_error(said: str, user: str) -> tuple[str, str] | None:
    """A code of the error table and words for what the exec stub `said` when it could not become the program. None if
    it said nothing, or ran out of memory: then the job's limits tell why."""
    if said.startswith(NOT_THE_USER):
        why = os.strerror(int(said.removeprefix(NOT_THE_USER)))
        return "worker-error", f"the program cannot be run as {user}: {why}"
    if said and int(said) == errno.E2BIG:
        return "bad-request", "the program cannot get so many or so long arguments and variables"
    if said and int(said) != errno.ENOMEM:
        return "not-executable", _exec_error(int(said))
    return None


def _exec_error(number: int) -> str:
    known = {
        errno.ENOEXEC: "it is no program for this machine, or a script without a #! line",
        errno.ENOENT: "it, or the interpreter it names, is not there",
        errno.EACCES: "it, or the interpreter it names, may not be run",
    }
    return known.get(number, os.strerror(number))
