"""What can be said to more than one command? The flags they share, with the same words everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from cyclopts import Parameter, validators

from wakugumi.core.environment import check_env
from wakugumi.errors import ConfigError, Refused
from wakugumi.limits.leader import RETRIES_MAX
from wakugumi.limits.scheduling import CREDIT_MAX, PRIORITY_MAX

Program = Annotated[
    str, Parameter(help="A path, or a name on PATH. With a leader: the name of a program that its workers have.")
]
Leader = Annotated[
    str | None, Parameter(help="The leader's address, host:port; several with commas between them. [WAKU_LEADER]")
]
OldLeader = Annotated[
    bool | None,
    Parameter(
        name="--old-leader",
        negative="",
        help="A leader that says nothing when we connect is one of the first version: send it jobs or results all the "
        "same. [WAKU_OLD_LEADER]",
    ),
]
Files = Annotated[
    tuple[str, ...],
    Parameter(
        name=["--file", "-f"],
        negative="",
        consume_multiple=False,
        show_default=False,
        help="A file for the job's directory, under its own name; NAME=PATH gives it another. Of any size; may be "
        "repeated.",
    ),
]
CachedFiles = Annotated[
    tuple[str, ...],
    Parameter(
        name="--cached",
        negative="",
        consume_multiple=False,
        show_default=False,
        help="A file that the workers have already: ID/NAME, its cache and its name there (see `waku caches put`). May "
        "be repeated.",
    ),
]
Env = Annotated[
    tuple[str, ...],
    Parameter(
        name="--env",
        negative="",
        consume_multiple=False,
        show_default=False,
        help="NAME=VALUE: a variable for the program, which goes before the worker's own. Part of the job, as its "
        "arguments are. May be repeated.",
    ),
]
Timeout = Annotated[
    float | None,
    Parameter(
        name="--timeout",
        help="Seconds a job may run; 15 minutes if nothing is said. A job that takes longer has failed, by the reason "
        "timeout. [WAKU_TIMEOUT]",
    ),
]
Retries = Annotated[
    int,
    Parameter(
        name="--retries",
        validator=validators.Number(gte=0, lte=RETRIES_MAX),
        show_default=False,
        help="How often a program that ends with a non-zero exit or takes too long is run again; never if nothing is "
        "said.",
    ),
]
Key = Annotated[
    str | None, Parameter(help="Jobs with the same key go to the same worker, if the leader's policy is sticky.")
]
Priority = Annotated[
    int,
    Parameter(
        validator=validators.Number(gte=-PRIORITY_MAX, lte=PRIORITY_MAX),
        show_default=False,
        help="-100 to 100: before or after your other jobs for the same subject; 0 if nothing is said.",
    ),
]
JobSlots = Annotated[
    int,
    Parameter(
        name="--job-slots",
        validator=validators.Number(gte=1, lte=CREDIT_MAX),
        show_default=False,
        help="How many of one worker's slots a job takes; one if nothing is said.",
    ),
]
Cap = Annotated[int | None, Parameter(help="Jobs that the leader may run for you at once. [WAKU_CAP]")]
LocalSlots = Annotated[
    int | None,
    Parameter(help="Without a leader: jobs that run here at once; as many as CPUs if nothing is said. [WAKU_SLOTS]"),
]
Patience = Annotated[
    float | None,
    Parameter(
        name="--patience",
        help="With a leader: seconds without any after which what is unfinished is given up; never if nothing is said. "
        "[WAKU_PATIENCE]",
    ),
]
ClientId = Annotated[
    str | None, Parameter(help="Who you are to the leader; user@host if nothing is said. [WAKU_CLIENT_ID]")
]
Subject = Annotated[
    str, Parameter(show_default=False, help="Where the job goes; to the workers for its program if nothing is said.")
]
Output = Annotated[
    Literal["table", "json", "quiet"] | None, Parameter(name=["--output", "-o"], help="How to show it. [WAKU_OUTPUT]")
]
ProgramArgs = Annotated[tuple[str, ...], Parameter(parse=False)]
"""What stands after `--`: cut off before anything is parsed, so that no flag of the program is taken for ours."""


@Parameter(name="*")
@dataclass(frozen=True)
class Logging:
    """What a command logs, and how."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Parameter(help="What to log on stderr. [WAKU_LOG_LEVEL]"),
    ] = None
    log_json: Annotated[
        bool | None,
        Parameter(negative="", show_default=False, help="Log JSON, one object per line. [WAKU_LOG_JSON]"),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class Unpacking:
    """What may be written of a result's files."""

    max_bytes: Annotated[
        str | None,
        Parameter(
            help="Write at most so much of one job's files, such as 500MB; more is an error. What its worker said that "
            "they have if nothing is said."
        ),
    ] = None
    dot_files: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Also write dot-files, which are left out otherwise: no worker of Wakugumi sends them.",
        ),
    ] = False

    def bytes_max(self) -> int | None:
        """Raises ConfigError."""
        if self.max_bytes is None:
            return None
        from wakugumi.app.serve.leader_blobs import parse_bytes

        return parse_bytes(self.max_bytes, "--max-bytes")


@Parameter(name="*")
@dataclass(frozen=True)
class Asking(Logging):
    """Whom to ask, and how to show the answer."""

    leader: Leader = None
    old_leader: OldLeader = None
    output: Output = None


def variables(words: tuple[str, ...]) -> dict[str, str]:
    """What --env says. Raises ConfigError."""
    env: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name in env:
            raise ConfigError(
                f"--env {word[:80]}: " + ("this name is given twice" if equals else "there is no ="), _ENV
            )
        env[name] = value
    try:
        check_env(env)
    except Refused as no:
        raise ConfigError(f"--env: {no.message}", _ENV) from None
    return env


_ENV: Final = "write --env NAME=VALUE, once for each variable"
LOGGING: Final = Logging()
ASKING: Final = Asking()
UNPACKING: Final = Unpacking()
"""Nothing was said."""
