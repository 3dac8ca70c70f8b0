"""Which processes are below which, and what does /proc say of one, there or gone?"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.processes import has_ended

from wakugumi.adapters.programs.process_tree import (
    JOB_VARIABLE,
    OwnChildren,
    children_of,
    job_of,
    kill_with_all_below,
    read_environment,
    send,
    send_to_group,
    session_of,
    start_of,
    state_of,
    usage_of,
    with_all_below,
)

GONE = 2**22 + 1
"""No process has such a number."""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A shell with a child and a grandchild, which have become their programs."""
    script = "sh -c 'sleep 1000 & echo $!; wait' & wait"
    env = {**os.environ, JOB_VARIABLE: "job-7"}
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True, env=env) as shell:
        assert shell.stdout is not None
        sleeper = int(shell.stdout.readline())
        give_up_at = time.monotonic() + 30
        while Path(f"/proc/{sleeper}/comm").read_text() != "sleep\n" or not read_environment(sleeper):
            assert time.monotonic() < give_up_at
        yield shell
        send_to_group(shell.pid, signal.SIGKILL)


def test_a_tree_is_the_process_and_all_below_it(family: subprocess.Popen[bytes]) -> None:
    tree = with_all_below([family.pid])
    assert tree[0] == family.pid
    assert len(tree) == 3
    assert children_of(tree[0]) == [tree[1]]
    assert children_of(tree[1]) == [tree[2]]
    assert {session_of(pid) for pid in tree} == {family.pid}
    children = OwnChildren()
    assert children.known
    assert family.pid in children.pids()
    children.close()
    assert children.pids() == []


def test_the_job_of_a_process_is_read_from_its_environment(family: subprocess.Popen[bytes]) -> None:
    assert [job_of(pid) for pid in with_all_below([family.pid])] == ["job-7"] * 3
    assert job_of(os.getpid()) == ""
    assert job_of(GONE) is None


def test_a_tree_is_killed_whole(family: subprocess.Popen[bytes]) -> None:
    tree = with_all_below([family.pid])
    assert kill_with_all_below([family.pid]) == 3
    family.wait()
    assert family.returncode == -signal.SIGKILL
    give_up_at = time.monotonic() + 30
    while not all(map(has_ended, tree)):
        assert time.monotonic() < give_up_at


def test_a_process_is_the_one_of_its_number_and_its_start(family: subprocess.Popen[bytes]) -> None:
    assert start_of(family.pid) >= start_of(os.getpid()) > 0
    assert state_of(family.pid) in "RSD"


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    assert usage_of(GONE) is None
    assert read_environment(GONE) is None
    assert (state_of(GONE), start_of(GONE), session_of(GONE), children_of(GONE)) == ("", 0, 0, [])
    assert not send(GONE, 0)
    assert not send_to_group(GONE, 0)


def test_the_usage_of_a_process_is_what_it_has_used() -> None:
    usage = usage_of(os.getpid())
    assert usage is not None
    assert usage.resident_bytes > 0
    assert usage.data_bytes > 0
    assert usage.cpu_s >= 0.0
