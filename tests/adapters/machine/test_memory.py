"""How much memory a process may use: its limits, and the cgroups that it is in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wakugumi.adapters.machine.memory import memory_room
from wakugumi.limits.leader import ADDRESS_SPACE_MIN_BYTES, MEMORY_ROOM_MIN_BYTES, PROCESS_BYTES
from wakugumi.limits.units import MIB

LOOK = "from wakugumi.adapters.machine.memory import memory_room; print(memory_room())"


def cgroups(root: Path, lines: str, **limits: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    for path, said in limits.items():
        file = root / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{said}\n")
    return root


def test_a_process_without_limits_has_none(tmp_path: Path) -> None:
    assert memory_room(tmp_path) is None
    files = {"memory.max": "max", "jobs/memory.max": "max"}
    assert memory_room(cgroups(tmp_path, "0::/jobs/leader\n", **files)) is None


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("0::/jobs/leader\n", {"jobs/leader/memory.max": "max", "jobs/memory.max": f"{500 * MIB}"}),
        ("0::/jobs/leader\n", {"jobs/leader/memory.max": f"{500 * MIB}", "jobs/memory.max": f"{900 * MIB}"}),
        (
            "2:cpu:/\n1:hugetlb,memory:/jobs/leader\n0::/\n",
            {
                "memory/jobs/leader/memory.limit_in_bytes": f"{500 * MIB}",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
        ),
        ("0::/../outside\n", {"memory.max": f"{500 * MIB}", "outside/memory.max": "1"}),
    ],
)
def test_the_least_limit_of_its_cgroup_and_of_those_above_it_holds(
    tmp_path: Path, lines: str, files: dict[str, str]
) -> None:
    room = memory_room(cgroups(tmp_path, lines, **files))
    assert room is not None
    assert room.limit_bytes == 500 * MIB
    assert room.room_bytes == 500 * MIB - PROCESS_BYTES
    assert "cgroup" in room.limit


def test_however_small_a_cgroup_is_some_room_is_counted_on(tmp_path: Path) -> None:
    room = memory_room(cgroups(tmp_path, "0::/\n", **{"memory.max": f"{64 * MIB}"}))
    assert room is not None
    assert room.room_bytes == MEMORY_ROOM_MIN_BYTES


@pytest.mark.parametrize("more", [-1, 200 * MIB])
def test_a_limited_address_space_is_room_or_too_small(more: int) -> None:
    limit = (ADDRESS_SPACE_MIN_BYTES + more) // 1024
    words = ["sh", "-c", f'ulimit -v {limit}; exec "$0" -c "$1"', sys.executable, LOOK]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if more > 0:
        assert "(ulimit -v)" in done.stdout or "cgroup" in done.stdout
    else:
        assert "ConfigError" in done.stderr
        assert "a leader needs 512 MiB" in done.stderr
