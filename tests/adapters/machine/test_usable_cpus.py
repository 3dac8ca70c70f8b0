"""The CPUs that a process may use: its affinity, and the quota of its control group or of one above it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakugumi.adapters.machine.usable_cpus import usable_cpus

pytestmark = pytest.mark.spec("W2")

BOUND = len(os.sched_getaffinity(0))


def cpus(top: Path, group: str, **files: str) -> int:
    """With these files of the control groups, whose names have `__` for a slash and `_` for a dot."""
    (top / "cgroup").write_text(group)
    for name, text in files.items():
        path = top / "fs" / name.replace("__", "/").replace("cpu_max", "cpu.max").replace("cpu_cfs", "cpu.cfs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return usable_cpus(str(top / "cgroup"), str(top / "fs"))


def test_without_a_quota_it_is_what_the_process_is_bound_to(tmp_path: Path) -> None:
    assert cpus(tmp_path, "0::/a/b\n", a__b__cpu_max="max 100000\n") == BOUND
    assert usable_cpus(str(tmp_path / "nothing"), str(tmp_path / "nowhere")) == BOUND
    assert cpus(tmp_path, "not a line\n0::\n", cpu_max="what\n") == BOUND


def test_a_quota_counts_and_so_does_one_of_a_group_above(tmp_path: Path) -> None:
    assert cpus(tmp_path, "0::/a/b\n", a__b__cpu_max="50000 100000\n") == 1
    assert cpus(tmp_path, "0::/a/b\n", a__b__cpu_max="max 100000\n", a__cpu_max="100000 100000\n") == 1
    assert cpus(tmp_path, "0::/../other\n", other__cpu_max="max 1\n", cpu_max="100000 100000\n") == 1


def test_one_and_a_half_are_two(tmp_path: Path) -> None:
    assert cpus(tmp_path, "0::/\n", cpu_max="150000 100000\n") == min(2, BOUND)


def test_the_first_version_of_control_groups_has_other_files(tmp_path: Path) -> None:
    group = "5:cpu,cpuacct:/job\n3:cpuset:/\n"
    quota = {"cpu__job__cpu_cfs_quota_us": "100000\n", "cpu__job__cpu_cfs_period_us": "100000\n"}
    assert cpus(tmp_path, group, **quota) == 1
    assert cpus(tmp_path, group, cpu__job__cpu_cfs_quota_us="-1\n") == BOUND


def test_a_process_that_is_bound_to_one_cpu_has_one(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cpus(str(tmp_path / "nothing")) == 1
    finally:
        os.sched_setaffinity(0, before)
