"""Which flags do several commands share, with the same help?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from wakugumi.app.client_settings import CONNECTION, ClientSettings
from wakugumi.app.flags import Only
from wakugumi.core.setting import read_bytes

Asking = Annotated[ClientSettings, Only("leader access old_leader output log_level log_json", without_flag=CONNECTION)]
"""Which leader is asked, and how its answer is shown."""
Submitting = Annotated[
    ClientSettings, Only("leader access old_leader client_id output log_level log_json", without_flag=CONNECTION)
]
"""Which leader gets jobs, from which client, and how the answer is shown."""
Shown = Annotated[ClientSettings, Only("output log_level log_json")]
Program = Annotated[
    str, Parameter(help="A path, or a name on PATH. With a leader: the name of a program that its workers have.")
]
JobArgument = Annotated[str, Parameter(help="Id or name of a job.")]
CacheArgument = Annotated[str, Parameter(help="Id of a cache.")]
WorkerArgument = Annotated[str, Parameter(help="Id or name of a worker.")]
ProgramName = Annotated[str, Parameter(help="Name of a program that the workers have.")]
ProgramArgs = Annotated[tuple[str, ...], Parameter(parse=False)]
"""Words after `--`, cut off before parsing: they may look like flags of ours."""


@Parameter(name="*")
@dataclass(frozen=True)
class Unpacking:
    """Limits for writing a result's files."""

    max_bytes: Annotated[
        str | None,
        Parameter(
            help="Size limit of one job's files, such as 500MB; more is an error. [default: the size that its worker "
            "reported]"
        ),
    ] = None
    dot_files: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Write dot-files too. Workers of Wakugumi send none.",
        ),
    ] = False

    def bytes_max(self) -> int | None:
        """Raises ConfigError."""
        if self.max_bytes is None:
            return None
        return read_bytes(self.max_bytes, "--max-bytes")


UNPACKING: Final = Unpacking()
"""The defaults."""
