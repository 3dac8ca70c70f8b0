"""What can be said to more than one command? The flags they share, with the same words everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from wakugumi.app.client_settings import CONNECTION, ClientSettings
from wakugumi.app.flags import Only
from wakugumi.core.setting import read_bytes

Asking = Annotated[ClientSettings, Only("leader old_leader output log_level log_json", without_flag=CONNECTION)]
"""Whom to ask, and how to show the answer."""
Submitting = Annotated[
    ClientSettings, Only("leader old_leader client_id output log_level log_json", without_flag=CONNECTION)
]
"""Which leader gets jobs, from whom, and how to show the answer."""
Shown = Annotated[ClientSettings, Only("output log_level log_json")]
Program = Annotated[
    str, Parameter(help="A path, or a name on PATH. With a leader: the name of a program that its workers have.")
]
ProgramArgs = Annotated[tuple[str, ...], Parameter(parse=False)]
"""What stands after `--`: cut off before anything is parsed, so that no flag of the program is taken for ours."""


@Parameter(name="*")
@dataclass(frozen=True)
class Unpacking:
    """What may be written of a result's files."""

    max_bytes: Annotated[
        str | None,
        Parameter(
            help="Size limit of one job's files, such as 500MB; more is an error. [default: the size that its worker "
            "told]"
        ),
    ] = None
    dot_files: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Write dot-files too; no worker of Wakugumi sends them.",
        ),
    ] = False

    def bytes_max(self) -> int | None:
        """Raises ConfigError."""
        if self.max_bytes is None:
            return None
        return read_bytes(self.max_bytes, "--max-bytes")


UNPACKING: Final = Unpacking()
"""Nothing was said."""
