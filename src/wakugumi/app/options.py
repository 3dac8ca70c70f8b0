"""What can be said to more than one command? The flags they share, with the same words everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from cyclopts import Parameter

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


LOGGING: Final = Logging()
ASKING: Final = Asking()
UNPACKING: Final = Unpacking()
"""Nothing was said."""
