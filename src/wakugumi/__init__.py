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
    from wakugumi.roles.client import Grid, connect
    from wakugumi.roles.contents import Cached
    from wakugumi.roles.executor import Executor
    from wakugumi.roles.job import Job
    from wakugumi.roles.local import local
    from wakugumi.roles.plain import Client, Handle
    from wakugumi.roles.puts import CacheSummary
    from wakugumi.roles.request import Task
    from wakugumi.roles.result import Result
    from wakugumi.wire.message import JobLimits

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
    "roles.client": ("Grid", "connect"),
    "roles.contents": ("Cached",),
    "roles.executor": ("Executor",),
    "roles.job": ("Job",),
    "roles.local": ("local",),
    "roles.plain": ("Client", "Handle"),
    "roles.puts": ("CacheSummary",),
    "roles.request": ("Task",),
    "roles.result": ("Result",),
    "wire.message": ("JobLimits",),
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
