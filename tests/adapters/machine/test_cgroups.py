"""Jobs with limits have cgroups where the machine gives us some, and run without elsewhere."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.kit.cgroup_tree import CgroupTree
from tests.kit.program_world import ProgramWorld

from wakugumi.adapters.machine.cgroups import JobCgroups, claim
from wakugumi.adapters.programs.program_rules import ProgramRules
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.job import JobLimits

pytestmark = pytest.mark.spec("W8")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CgroupTree:
    monkeypatch.setattr(os, "getxattr", lambda _, name: b"1" if name == "user.delegate" else None)
    return CgroupTree(tmp_path, monkeypatch)


def test_a_worker_moves_into_a_child_of_its_cgroup_and_claims_the_rest(tree: CgroupTree) -> None:
    ours = tree.ours()
    os.mkdir(ours / "waku-left")
    assert claim(str(tree.proc)) is not None
    assert (ours / "waku/cgroup.procs").read_text() == str(os.getpid())
    assert (ours / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert not (ours / "waku-left").exists(), "an earlier worker's job has ended"


def test_a_container_owns_the_cgroup_that_it_sees_as_its_root(
    tree: CgroupTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.ours("/")
    monkeypatch.delattr(os, "getxattr")
    assert claim(str(tree.proc)) is not None


def test_on_this_machine_a_cgroup_that_is_not_ours_is_left_alone() -> None:
    """Tests run beside others, so that this process never has a cgroup to itself."""
    before = Path("/proc/self/cgroup").read_text()
    assert claim() is None
    assert Path("/proc/self/cgroup").read_text() == before


@pytest.mark.parametrize(
    "what", ["no v2", "no mount", "root", "shared", "no memory", "not marked", "climbs", "no proc"]
)
def test_where_no_cgroup_is_delegated_there_are_none(
    tree: CgroupTree, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tree.ours(controllers="cpu pids" if what == "no memory" else "memory pids")
    if what == "no v2":
        (tree.proc / "cgroup").write_text("2:memory:/grid.service\n")
    elif what == "no mount":
        (tree.proc / "mountinfo").write_text("22 1 0:20 / /proc rw - proc proc rw\n")
    elif what == "root":
        (ours / "cgroup.type").unlink()
    elif what == "shared":
        (ours / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    elif what == "not marked":
        monkeypatch.setattr(os, "getxattr", lambda *_: b"0")
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    elif what == "climbs":
        (tree.proc / "cgroup").write_text("0::/../grid.service\n")
    elif what == "no proc":
        (tree.proc / "cgroup").unlink()
    assert claim(str(tree.proc)) is None
    assert not (ours / "waku").exists()


def test_a_cgroup_of_another_user_is_not_ours(tree: CgroupTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.ours()
    owner = os.stat(tree.root).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert claim(str(tree.proc)) is None


def test_a_kernel_that_gives_no_limits_leaves_the_worker_where_it_was(tree: CgroupTree) -> None:
    ours = tree.ours()
    (ours / "cgroup.subtree_control").unlink()
    (ours / "cgroup.subtree_control").mkdir()
    assert claim(str(tree.proc)) is None
    assert (ours / "cgroup.procs").read_text().strip() == str(os.getpid())
    assert not (ours / "waku").exists()


def test_a_job_has_the_limits_and_its_end_is_told(tree: CgroupTree) -> None:
    ours = tree.ours()
    cgroups = JobCgroups(str(ours))
    job = cgroups.make("a", 5 * MIB, 70)
    assert job is not None
    folder = ours / "waku-a"
    files = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max")
    assert [(folder / name).read_text() for name in files] == [str(5 * MIB), "0", "1", "70"]
    job.add(7)
    assert (folder / "cgroup.procs").read_text() == "7"
    assert not job.ran_out_of_memory
    assert not job.ran_out_of_tasks
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (folder / "pids.events").write_text("max 1\n")
    assert job.ran_out_of_memory
    assert job.ran_out_of_tasks
    job.kill()
    assert (folder / "cgroup.kill").read_text() == "1"
    cgroups.give_back(job)
    assert not folder.exists()


def test_a_cgroup_that_the_kernel_still_holds_is_removed_with_the_next_job(tree: CgroupTree) -> None:
    ours = tree.ours()
    cgroups = JobCgroups(str(ours))
    tree.busy.add("waku-a")
    job = cgroups.make("a", None, 70)
    assert job is not None
    cgroups.give_back(job)
    assert (ours / "waku-a").exists()
    tree.busy.clear()
    assert cgroups.make("b", MIB, None) is not None
    assert not (ours / "waku-a").exists()


def test_a_job_whose_cgroup_the_kernel_refuses_has_none(tree: CgroupTree) -> None:
    assert JobCgroups(str(tree.root / "none")).make("a", MIB, 70) is None


@pytest.mark.anyio
async def test_a_program_is_in_its_cgroup_and_the_kernels_reason_is_the_jobs(tree: CgroupTree, tmp_path: Path) -> None:
    ours = tree.ours()
    (tmp_path / "jobs").mkdir()
    world = ProgramWorld(tmp_path / "jobs", rules=ProgramRules(cgroups=JobCgroups(str(ours))))
    limits = JobLimits(memory_bytes=500 * MIB, processes=20)
    where = f"{ours}/waku-$WAKU_JOB_ID"
    wait = f"until [ -s {where}/cgroup.procs ]; do sleep 0.01; done"
    try:
        child = await world.run(f"{wait}; cp {where}/cgroup.procs {where}/pids.max .", limits=limits)
        assert (child.exit_code, child.reason) == (0, "")
        assert (world.cwd(child) / "cgroup.procs").read_text() == str(child.pid)
        assert (world.cwd(child) / "pids.max").read_text() == "84"
        child = await world.run(f"echo oom_kill 1 > {where}/memory.events; kill -9 $$", limits=limits)
        assert child.reason == "memory-limit"
        assert child.why == f"the job needed more than {500 * MIB} bytes of memory, the limit that it asked for"
        child = await world.run(f"echo max 1 > {where}/pids.events; exit 1", limits=limits)
        assert child.reason == "process-limit"
        child = world.start(f"{wait}; exec sleep 1000", limits=limits)
        killed = ours / f"waku-{child.job}" / "cgroup.kill"
        world.processes.kill(child, "cancelled", "the test says so", at_once=True)
        assert killed.read_text() == "1"
        await world.end(child)
        child = await world.run("exit 0")
        assert not list(ours.glob("waku-*")), "jobs without limits have none, and ended ones are gone"
    finally:
        async with asyncio.timeout(30):
            await world.processes.close()
