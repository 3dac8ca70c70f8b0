"""How does a command run whose processes must not outlive it? Below a guardian, which is where its errors are told."""

from __future__ import annotations

from collections.abc import Callable

from wakugumi.adapters.programs.guardian import guard
from wakugumi.app.show.output import say_error
from wakugumi.errors import WakugumiError


def guarded(work: Callable[[], int]) -> int:
    """Do this in a child process; returns its exit code once nothing is left of what it started."""
    return guard(lambda: _told(work))


def _told(work: Callable[[], int]) -> int:
    """Below a guardian nobody else reports a mistake of the user."""
    try:
        return work()
    except WakugumiError as error:
        say_error(str(error), error.hint)
        return error.exit_code
