"""Can a job be started on this machine? The probe needs what a job needs, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pytest

from wakugumi.adapters.machine.start_probe import FILES, a_program, check_machine, check_room
from wakugumi.errors import Refused, Sick


def test_a_sound_machine_passes_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / ".probe" / "of a worker that was killed").mkdir(parents=True)
    check_machine(str(tmp_path), 0)
    assert os.listdir(tmp_path) == []


def test_a_disk_without_room_is_sick(tmp_path: Path) -> None:
    for check in (check_room, check_machine):
        with pytest.raises(Sick) as told:
            check(str(tmp_path), 1 << 62)
        assert told.value.code == "disk"


def test_a_folder_that_is_gone_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(Refused) as told:
        check_machine(str(tmp_path / "file" / "gone"), 0)
    assert "no job can be kept" in told.value.message


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    free = islice((number for number in count() if number not in used), more)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_machine_without_descriptors_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with few_descriptors(FILES // 2), pytest.raises(Refused):
        check_machine(str(tmp_path), 0)
    check_machine(str(tmp_path), 0)
    assert os.listdir(tmp_path) == []


def test_the_program_of_a_probe_does_nothing_and_ends_well() -> None:
    program = a_program()
    assert program is not None
    assert subprocess.run(program, capture_output=True).returncode == 0
