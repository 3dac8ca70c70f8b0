"""How much memory may this process use? The lowest of its limits and those of its cgroups.

Much of a limited address space is used from the start: libraries, and some 70 MiB for each thread. The rest counts as
room. A system without /proc or cgroups has no known limits.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from wakugumi.errors import ConfigError
from wakugumi.limits.leader import ADDRESS_SPACE_MIN_BYTES, MEMORY_ROOM_MIN_BYTES, PROCESS_BYTES
from wakugumi.limits.units import MIB

_UNLIMITED_FROM: Final = 1 << 50
"""cgroups of version 1 express "no limit" by a number near 2⁶³."""


class MemoryRoom(NamedTuple):
    """Room for a leader's data, and the limit that sets it."""

    room_bytes: int
    limit_bytes: int
    limit: str


def memory_room(root: Path = Path("/")) -> MemoryRoom | None:
    """None if there is no limit. Raises ConfigError if an address space is too small to begin with."""
    rooms = [
        MemoryRoom(size - PROCESS_BYTES, size, f"the memory limit of its cgroup ({path})")
        for path, size in _cgroups(root)
    ]
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        if space < ADDRESS_SPACE_MIN_BYTES:
            raise ConfigError(
                f"the address space is limited to {space // MIB} MiB (ulimit -v), and a leader needs "
                f"{ADDRESS_SPACE_MIN_BYTES // MIB} MiB: it would end while it works",
                "raise that limit, or limit its memory by a cgroup instead (MemoryMax= of a service)",
            )
        rooms.append(MemoryRoom(space - ADDRESS_SPACE_MIN_BYTES, space, "the limit of its address space (ulimit -v)"))
    if not rooms:
        return None
    least = min(rooms)
    return least._replace(room_bytes=max(least.room_bytes, MEMORY_ROOM_MIN_BYTES))


def _cgroups(root: Path) -> Iterator[tuple[str, int]]:
    """Every limit that holds for this process: its own cgroup's and those of all above it."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        own = PurePosixPath(path.lstrip("/"))
        for folder in (own, *own.parents):
            if ".." in folder.parts:
                continue
            try:
                said = (base / folder / name).read_text(encoding="ascii", errors="replace").strip()
            except OSError:
                continue
            if said.isdecimal() and int(said) < _UNLIMITED_FROM:
                yield f"/{folder}" if str(folder) != "." else "/", int(said)
