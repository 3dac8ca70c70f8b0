"""What can be set where jobs run? Each field once, with its flag, variable, default, bounds and help.

A worker and a node (`roles.node.settings`) share `RunnerSettings`; each adds its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.adapters.net.address import Address, parse_address
from wakugumi.adapters.net.link import Link, LinkOwner
from wakugumi.adapters.programs.program_rules import RULES, ProgramRules
from wakugumi.core.runner.programs.separation import UNJUDGED, Separation
from wakugumi.core.setting import Setting, read_bytes
from wakugumi.limits.runner import (
    CPU_CAP,
    CPU_CAP_MAX,
    CPU_CAP_MIN,
    DISK_FREE_MIN_BYTES,
    DONE_TTL_S,
    JOB_TIMEOUT_S,
    KILL_GRACE_S,
    OUTPUT_BYTES_MAX,
)
from wakugumi.limits.scheduling import CREDIT_MAX
from wakugumi.roles.settings import AccessPath, read_absolute, read_address, read_path

Dial: TypeAlias = Callable[[LinkOwner], Awaitable[Link]]
"""Connects for this owner. Raises Lost if a retry may succeed."""


def _serve(text: str, _where: str) -> Address:
    return parse_address(f"0.0.0.0:{text}" if text.isascii() and text.isdigit() else text)


def _metrics(text: str, _where: str) -> Address:
    return parse_address(f"127.0.0.1:{text}" if text.isascii() and text.isdigit() else text)


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a machine that runs jobs."""

    programs: Annotated[Path, Setting("Folder with the programs.", read=read_path)] = Path("/opt/grid/exe")
    jobs: Annotated[Path, Setting("Folder for the job directories.", read=read_path)] = Path("/tmp/jobs")  # noqa: S108 -- the contract's default (W1)
    slots: Annotated[int, Setting("Jobs at once.", shown="one per CPU", least=1, most=CREDIT_MAX)] = msgspec.field(
        default_factory=usable_cpus
    )
    cpu_cap: Annotated[
        float | None,
        Setting(
            "Share of the CPU, 0.1 to 0.95, that other programs may use before each next job waits: as long as the "
            "last one ran, at most 2 s. off: jobs never wait.",
            also=("WORKER_CPU_CAP",),
            least=CPU_CAP_MIN,
            most=CPU_CAP_MAX,
            off=True,
        ),
    ] = CPU_CAP
    cache: Annotated[
        Path | None,
        Setting(
            "Folder for caches and large inputs.",
            shown="/opt/grid/cache, else in the jobs folder",
            read=read_absolute,
        ),
    ] = None
    cache_bytes: Annotated[
        int,
        Setting(
            "Size limit of the cache folder, such as 200GB; beyond it, files unused for longest are removed.",
            shown="a quarter of the disk",
            read=read_bytes,
        ),
    ] = 0
    copy_program: Annotated[
        bool, Setting("Copy the program into each job directory, beside the inputs.", only_flag=True)
    ] = False
    old_leader: Annotated[
        bool,
        Setting("Send results to a leader that stays silent on connecting, as leaders of the first version do."),
    ] = False

    access: AccessPath = None

    leader: Address | Dial | None = None
    """The leader to connect to."""
    patterns: str = ""
    """Subjects of the jobs that this worker runs."""
    name: str = ""
    serve: Address | None = None
    advertise: Address | None = None
    rules: ProgramRules = RULES
    """Rights, variables and user of the programs."""
    where_rules: Separation = UNJUDGED
    """How far programs are apart, judged as where keys have rules: a leader may turn out to have such keys."""
    rests: bool = True
    """Take no jobs while the machine is out of order; otherwise jobs are taken, and fail."""
    done_ttl_s: float = DONE_TTL_S
    """Seconds for which results of finished jobs are kept."""
    interrupted_ttl_s: float = 0.0
    """Seconds for which files of interrupted jobs stay."""
    shares_folder: bool = True
    """If another process uses the jobs folder, use a folder inside it; that process's jobs are then unknown."""
    timeout_s: float = JOB_TIMEOUT_S
    """Time limit of jobs without one."""
    output_bytes_max: int = OUTPUT_BYTES_MAX
    kill_grace_s: float = KILL_GRACE_S
    disk_free_min_bytes: int = DISK_FREE_MIN_BYTES


class WorkerSettings(RunnerSettings, frozen=True, kw_only=True):
    """One worker's settings."""

    slots: Annotated[
        int, Setting("Jobs at once.", shown="one per CPU", also=("WORKER_MAX_PAR",), least=1, most=CREDIT_MAX)
    ] = msgspec.field(default_factory=usable_cpus)
    name: Annotated[str, Setting("Name of the worker, which is also a subject of its own.")] = ""
    serve: Annotated[
        Address | None,
        Setting(
            "[HOST:]PORT at which other workers may fetch contents from this one, each with a token of the leader; "
            "nothing can be written or run there. Wider than this machine needs --allow-open.",
            shown="127.0.0.1 with a leader on this machine, else none",
            read=_serve,
        ),
    ] = None
    advertise: Annotated[
        Address | None,
        Setting("HOST:PORT at which other workers reach --serve, if that is another address.", read=read_address),
    ] = None
    metrics: Annotated[
        Address | None,
        Setting(
            "[HOST:]PORT for /metrics, /health and /capacity, on 127.0.0.1 unless a host is named; wider needs "
            "--allow-open. No job can be run or changed there.",
            read=_metrics,
        ),
    ] = None
    allow_open: Annotated[
        bool, Setting("Let --serve and --metrics listen wider than this machine.", only_flag=True)
    ] = False
