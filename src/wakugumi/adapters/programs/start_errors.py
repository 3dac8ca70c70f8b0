"""Why could a program not be started, and which side is to blame?"""

from __future__ import annotations

import errno
import os

from wakugumi.adapters.files import USED_UP
from wakugumi.adapters.programs.set_limits import NOT_THE_USER
from wakugumi.errors import Refused, Sick


def not_started(error: OSError | ValueError, program: bytes) -> Refused:
    """The refusal for an error of a start."""
    name = os.path.basename(os.fsdecode(program))
    if isinstance(error, ValueError):
        return Refused("bad-request", f"{name!r} cannot get such arguments: {error}")
    if error.errno == errno.E2BIG:
        return Refused("bad-request", f"{name!r} cannot get so many or so long arguments")
    if error.errno in USED_UP:
        return Sick("worker-error", f"{name!r} could not be started: {error.strerror}")
    return Refused("not-executable", f"{name!r} could not be started: {_exec_error(error.errno or 0)}")


def stub_error(text: str, user: str) -> tuple[str, str] | None:
    """Code and text for the exec stub's report that it could not become the program. None without a report, or if it
    ran out of memory: then the job's limits tell why."""
    if text.startswith(NOT_THE_USER):
        why = os.strerror(int(text.removeprefix(NOT_THE_USER)))
        return "worker-error", f"the program cannot be run as {user}: {why}"
    if text and int(text) == errno.E2BIG:
        return "bad-request", "the program cannot get so many or so long arguments and variables"
    if text and int(text) != errno.ENOMEM:
        return "not-executable", _exec_error(int(text))
    return None


def _exec_error(number: int) -> str:
    known = {
        errno.ENOEXEC: "it is no program for this machine, or a script without a #! line",
        errno.ENOENT: "it, or the interpreter it names, is not there",
        errno.EACCES: "it, or the interpreter it names, may not be run",
    }
    return known.get(number, os.strerror(number))
