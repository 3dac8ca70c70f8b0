"""Wakugumi runs existing programs on a fleet of machines.

    import wakugumi

    with wakugumi.local(programs="./bin") as grid:           # a leader and a worker right here: no set-up at all
        for result in grid.map("calcA", Path("inputs").iterdir()):
            print(result.item, result.check().stdout)

    with wakugumi.Client("waku://grid:5000") as grid: …       # the same on a fleet
    async with wakugumi.connect("waku://grid:5000") as grid: …
    with wakugumi.Executor("waku://grid:5000") as pool: …     # concurrent.futures

What is named here is what stays. Each name is imported when it is first used, so that `import wakugumi` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # As in `typing`, which would be the only thing imported here.
if TYPE_CHECKING:
    from wakugumi.core.subject import is_valid_pattern, is_valid_subject, matches, overlaps
    from wakugumi.errors import ConfigError, JobFailed, Lost, PeerError, Refused, WakugumiError
    from wakugumi.roles.client.blocking import Client, Handle
    from wakugumi.roles.client.executor import Executor
    from wakugumi.roles.client.files.inputs import Cached
    from wakugumi.roles.client.grid import Grid, connect
    from wakugumi.roles.client.job import Job
    from wakugumi.roles.client.job_spec import Task
    from wakugumi.roles.client.put_cache import CacheSummary
    from wakugumi.roles.client.result import Result
    from wakugumi.roles.local.local import local
    from wakugumi.wire.messages.job import JobLimits

__version__ = "0.1.0"

__all__ = [
    "CacheSummary",
    "Cached",
    "Client",
    "ConfigError",
    "Executor",
    "Grid",
    "Handle",
    "Job",
    "JobFailed",
    "JobLimits",
    "Lost",
    "PeerError",
    "Refused",
    "Result",
    "Task",
    "WakugumiError",
    "connect",
    "is_valid_pattern",
    "is_valid_subject",
    "local",
    "matches",
    "overlaps",
]

_HOMES = {
    "core.subject": ("is_valid_pattern", "is_valid_subject", "matches", "overlaps"),
    "errors": ("ConfigError", "JobFailed", "Lost", "PeerError", "Refused", "WakugumiError"),
    "roles.client.grid": ("Grid", "connect"),
    "roles.client.files.inputs": ("Cached",),
    "roles.client.executor": ("Executor",),
    "roles.client.job": ("Job",),
    "roles.local.local": ("local",),
    "roles.client.blocking": ("Client", "Handle"),
    "roles.client.put_cache": ("CacheSummary",),
    "roles.client.job_spec": ("Task",),
    "roles.client.result": ("Result",),
    "wire.messages.job": ("JobLimits",),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(f"wakugumi.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'wakugumi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
