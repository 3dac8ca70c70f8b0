"""Why could a program not be started, in words, and whose fault is that?"""

from __future__ import annotations

import errno

import pytest

from wakugumi.adapters.programs.set_limits import NOT_THE_USER
from wakugumi.adapters.programs.start_errors import not_started, stub_error
from wakugumi.errors import Sick


@pytest.mark.parametrize(
    ("error", "code", "sick"),
    [
        (ValueError("an argument has a NUL"), "bad-request", False),
        (OSError(errno.E2BIG, "too big"), "bad-request", False),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "worker-error", True),
        (OSError(errno.EMFILE, "Too many open files"), "worker-error", True),
        (OSError(errno.ENOEXEC, "Exec format error"), "not-executable", False),
        (OSError(errno.ENOTDIR, "Not a directory"), "not-executable", False),
    ],
)
def test_an_error_of_a_start_is_the_jobs_the_programs_or_the_machines(
    error: OSError | ValueError, code: str, sick: bool
) -> None:
    refused = not_started(error, b"/exe/calcA")
    assert refused.code == code
    assert isinstance(refused, Sick) is sick
    assert refused.message.startswith("'calcA' ")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("", None),
        (f"{errno.ENOMEM}", None),
        (f"{errno.E2BIG}", ("bad-request", "the program cannot get so many or so long arguments and variables")),
        (f"{errno.ENOENT}", ("not-executable", "it, or the interpreter it names, is not there")),
        (
            f"{NOT_THE_USER}{errno.EPERM}",
            ("worker-error", "the program cannot be run as us: Operation not permitted"),
        ),
    ],
)
def test_what_the_stub_said_is_told_in_words(said: str, told: tuple[str, str] | None) -> None:
    assert stub_error(said, "us") == told
