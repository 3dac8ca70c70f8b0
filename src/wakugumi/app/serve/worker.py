"""`waku worker`: how does a worker start, and end without leaving programs behind? They run below a guardian."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from wakugumi.adapters.access.dialled import AccessSources
from wakugumi.adapters.machine.cgroups import claim
from wakugumi.adapters.machine.open_files import open_files_max, raise_open_files
from wakugumi.adapters.machine.usable_cpus import usable_cpus
from wakugumi.adapters.net.address import Address, is_loopback
from wakugumi.adapters.programs.linux import hide_from_programs
from wakugumi.app.flags import server
from wakugumi.app.program_settings import ProgramSettings
from wakugumi.app.serve.binding import check_port
from wakugumi.app.serve.guarded import guarded
from wakugumi.app.serve.worker_cache import cache_folder, check_ports
from wakugumi.core.access.known_as import Degree
from wakugumi.core.runner.programs.job_limits import OperatorLimits
from wakugumi.errors import ConfigError
from wakugumi.limits.runner import OPEN_FILES_BESIDE_MIN, OPEN_FILES_PER_SLOT_MAX
from wakugumi.roles.runner.settings import RunnerSettings, WorkerSettings
from wakugumi.roles.runner.worker import main_worker

log = logging.getLogger("wakugumi.app")

S = TypeVar("S", bound=RunnerSettings)


@server
def worker(
    host: str,
    port: int,
    pattern: str = "",
    /,
    *,
    settings: WorkerSettings,
    programs: ProgramSettings,
) -> int:
    """waku worker HOST PORT [PATTERN] [--programs DIR] [--slots N] [OPTIONS]

    A worker runs only programs of the folder --programs, each job in a directory of its own below --jobs. PATTERN
    chooses its jobs: `groupA`, `job.assign.calcA`, `job.assign.>` (all, the default), or several with commas. The
    first SIGTERM or Ctrl-C lets running jobs finish, the second ends the worker at once.

    Examples:
      waku worker 127.0.0.1 5000 --programs ./bin
      waku worker grid 5000 groupA --slots 8 --name rack1-7
    """
    hide_from_programs()
    check_ports(settings)
    leader = Address(host, check_port(port, least=1))
    settings = replace(settings, leader=leader, patterns=pattern)
    settings = ready("worker", settings, programs, dialled_degree(leader, settings.access))
    return guarded(lambda: main_worker(settings))


def dialled_degree(leader: Address, access: Path | None) -> Degree:
    """The proof that a worker has for this leader. Raises ConfigError."""
    if AccessSources(access).key_name(leader):
        return Degree.KEYS
    return Degree.THIS_USER if is_loopback(leader.host) else Degree.OPEN


def ready(role: str, settings: S, programs: ProgramSettings, degree: Degree, *, keys_have_rules: bool = False) -> S:
    """The settings of a machine that can run jobs like this, which its log tells, with its degree of access.
    `keys_have_rules`: its own; those of a leader are known later. Raises ConfigError."""
    check_programs(settings)
    cache = cache_folder() if settings.cache is None and settings.leader is not None else settings.cache
    rules = programs.rules()
    apart = programs.separation(rules, keys_have_rules=keys_have_rules)
    where_rules = programs.judged(rules, keys_have_rules=True)
    _say_limits(role, settings, rules.limits, degree, apart.said)
    settings = replace(settings, cache=cache, rules=rules._replace(cgroups=claim()), where_rules=where_rules)
    raise_open_files()
    _check_open_files(settings.slots)
    return settings


def check_programs(settings: RunnerSettings) -> Path:
    """Where the programs are. Raises ConfigError if that is no folder."""
    if not settings.programs.is_dir():
        raise ConfigError(
            f"the folder with the programs, {settings.programs}, does not exist",
            "name one with --programs, or make it and fill it",
        )
    return settings.programs


def _say_limits(role: str, settings: RunnerSettings, limits: OperatorLimits, degree: Degree, apart: str) -> None:
    """The first line of its log: how much a machine will take, its degree of access, and as whom programs run, if that
    is a surprise."""
    cap = "off" if settings.cpu_cap is None else f"{settings.cpu_cap:g}"
    words = [f"slots={settings.slots} usable-cpus={usable_cpus()} cpu-cap={cap}"]
    names = {"job-memory": limits.memory_bytes, "job-processes": limits.processes, "job-cpu": limits.cpu_s}
    words += [f"{name}={value:.15g}" for name, value in names.items() if value is not None]
    words.append(f"access={degree.value!r}")
    log.info("%s: %s", role, " ".join([*words, apart] if apart else words))


def _check_open_files(slots: int) -> None:
    """Raises ConfigError if so many jobs at once cannot be."""
    needs, most = OPEN_FILES_PER_SLOT_MAX * slots + OPEN_FILES_BESIDE_MIN, open_files_max()
    if needs > most:
        fit = max(1, (most - OPEN_FILES_BESIDE_MIN) // OPEN_FILES_PER_SLOT_MAX)
        raise ConfigError(
            f"{slots} slots may need {needs} open files at once, and this process may have {most}",
            f"raise the limit (ulimit -n), or say --slots {fit}",
        )
