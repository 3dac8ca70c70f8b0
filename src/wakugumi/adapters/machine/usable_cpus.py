"""How many CPUs may this process use? (SPEC W2) Fewer than the machine has, if the process is bound to some of them, or
a container or service has a quota.

This file imports next to nothing: each command uses it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

_QuotaOf: TypeAlias = Callable[[str], float | None]
_UNLIMITED: Final = "max"


def usable_cpus(proc: str = "/proc/self/cgroup", mounted: str = "/sys/fs/cgroup") -> int:
    """At least one. A quota of one and a half is two: the rest is for this process itself."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *(math.ceil(quota) for quota in _quotas(proc, mounted))]))


def _quotas(proc: str, mounted: str) -> Iterator[float]:
    """Quotas of the control group of this process, and of all visible groups above it."""
    for line in _read(proc).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _of_each(mounted, path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for name in (controllers, "cpu"):
                yield from _of_each(f"{mounted}/{name}", path, _quota_v1)


def _of_each(root: str, path: str, quota_of: _QuotaOf) -> Iterator[float]:
    # Inside a container the path may be the host's, while the visible tree begins at the container's own group.
    names = [name for name in path.split("/") if name and name != ".."]
    for count in range(len(names) + 1):
        quota = quota_of("/".join([root, *names[:count]]))
        if quota is not None:
            yield quota


def _quota_v2(folder: str) -> float | None:
    return _share(*(_read(f"{folder}/cpu.max").split() or [_UNLIMITED, "1"])[:2])


def _quota_v1(folder: str) -> float | None:
    quota, period = _read(f"{folder}/cpu.cfs_quota_us").strip(), _read(f"{folder}/cpu.cfs_period_us").strip()
    return _share(quota or "-1", period or "1")


def _share(quota: str, period: str = "100000") -> float | None:
    """None for no limit, and for unreadable text."""
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return ""
