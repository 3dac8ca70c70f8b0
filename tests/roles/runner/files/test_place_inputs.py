"""How does a content get into a job's directory, so that no other job is harmed by what is done to it?"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from wakugumi.adapters.blobs.file_leases import Leases
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.blobs.worker_cache import CacheFolder
from wakugumi.core.ids import JobId
from wakugumi.limits.units import KIB
from wakugumi.roles.runner.files.place_inputs import InputLinker, JobInputs
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 800
"""More than is copied."""


class World:
    def __init__(self, path: Path) -> None:
        self.jobs = path / "jobs"
        self.jobs.mkdir()
        self.folder = CacheFolder(path / "cache", 1000 * KIB)
        self.changed: list[JobId] = []
        leases = partial(Leases, asyncio.get_running_loop())
        self.lender = InputLinker(self.folder, str(self.jobs), leases, self.changed.append)
        self.folder.on_gone = self.lender.forget
        self.ref = self.bring(CONTENT)

    def bring(self, content: bytes) -> BlobRef:
        ref = ref_of_bytes(content)
        self.folder.make_room(ref)
        self.folder.write(ref, content)
        self.folder.arrived(ref)
        return ref

    def lend(self, *names: str) -> tuple[JobInputs, Path]:
        """A job that has the content under these names, and its directory."""
        contents = {}
        for name in names:
            held = self.folder.use(self.ref.sha256)
            assert held is not None
            contents[name] = (self.ref, held)
        job = JobId(os.urandom(16))
        goods = self.lender.lend(job, "program", contents)
        directory = self.jobs / job.hex()
        directory.mkdir()
        return goods, directory

    def is_linked(self, path: Path) -> bool:
        return path.stat().st_ino == os.stat(self.folder.store.path(self.ref.sha256)).st_ino


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.lender.close()
    world.folder.close()


@pytest.mark.spec("C3")
async def test_the_same_content_under_two_names_is_two_files(world: World) -> None:
    before, _ = world.lend("a")
    goods, directory = world.lend("a", "b", "c")
    for name in ("a", "b", "c"):
        goods.place(name, str(directory / name))
    assert [world.is_linked(directory / name) for name in ("a", "b", "c")] == [True, False, False]
    before.release()
    writing = await asyncio.create_subprocess_exec("sh", "-c", "echo x >> a", cwd=directory)
    assert await writing.wait() == 0
    assert (directory / "a").read_bytes() == CONTENT + b"x\n"
    assert (directory / "b").read_bytes() == (directory / "c").read_bytes() == CONTENT
    assert not world.changed, "it was the only one that had it"
    goods.release()


TWO_MOUNTS = """
import asyncio, subprocess, sys, threading, uuid
from pathlib import Path
import wakugumi.roles.runner.files.place_inputs as goods
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.blobs.worker_cache import CacheFolder
from wakugumi.adapters.programs.named_programs import Programs
from wakugumi.roles.runner.runner import Runner
from wakugumi.roles.runner.files.inputs import InputSupply
from wakugumi.roles.runner.settings import RunnerSettings
from wakugumi.wire.messages.job import InputFile, JobRequest, read_result
from wakugumi.wire.messages.payload import encode

async def main(top):
    loop = asyncio.get_running_loop()
    ends = asyncio.Queue()
    settings = RunnerSettings(jobs=top / "jobs")
    folder = CacheFolder(top / "cache", 1 << 30)
    supply = lambda jobs: InputSupply(loop, folder, jobs, lambda _: None, print)
    programs = Programs(top / "programs")
    runner = Runner(loop, settings, programs, lambda *end: ends.put_nowait(end), supply=supply)
    supply = runner.supply
    content = bytes(1 << 20)
    ref = ref_of_bytes(content)
    folder.make_room(ref)
    folder.write(ref, content)
    folder.arrived(ref)
    copied, copy_file = [], goods.copy_file

    def copy(*arguments):
        copied.append("in the loop" if threading.current_thread() is threading.main_thread() else "in a thread")
        copy_file(*arguments)

    goods.copy_file = copy

    async def run():
        job = uuid.uuid4()
        files = [InputFile("small", content=b"x"), InputFile("a", sha256=ref.sha256, size=ref.size)]
        runner.start(job.bytes_le, encode(JobRequest(str(job), exec_name="sum", files=files)))
        job_id, (payload, ok, reason, *_) = await ends.get()
        whole = read_result(job_id, payload).stdout == f"{ref.sha256}  a\\n"
        print(ok, reason or "-", "whole" if whole else payload, *copied)
        copied.clear()

    await run()
    if sys.argv[2] == "later":
        subprocess.run(["mount", "--bind", top / "cache", top / "cache"], check=True)
        await run()
        await run()
        print("links are tried:", supply._lender._can_link)
    await runner.close()
    await supply.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def with_two_mounts(folder: Path, when: str) -> list[str]:
    """Two mounts of one file system, between which there are no links."""
    for name in ("jobs", "cache", "programs"):
        (folder / name).mkdir()
    program = folder / "programs" / "sum"
    program.write_text("#!/bin/sh\nsha256sum a\n")
    program.chmod(0o755)
    mount = f"mount --bind {folder}/jobs {folder}/jobs"
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*private, "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("no private mounts allowed here")
    before = mount if when == "before" else "true"
    done = subprocess.run(
        [*private, "sh", "-c", f'{before} && exec "$0" "$@"', sys.executable, "-c", TWO_MOUNTS, str(folder), when],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_between_two_mounts_of_one_file_system_copies_are_made_in_a_thread(tmp_path: Path) -> None:
    assert with_two_mounts(tmp_path, "before") == ["True - whole in a thread"]


def test_where_links_end_while_the_worker_lives_copies_are_made_in_a_thread(tmp_path: Path) -> None:
    assert with_two_mounts(tmp_path, "later") == [
        "True - whole",
        "True - whole in a thread",
        "True - whole in a thread",
        "links are tried: False",
    ]


@pytest.mark.spec("W5")
async def test_a_link_is_taken_back_from_the_jobs_directory_and_nowhere_else(world: World, tmp_path: Path) -> None:
    for is_moved in (False, True):
        goods, directory = world.lend("sub/a")
        (directory / "sub").mkdir()
        goods.place("sub/a", str(directory / "sub/a"))
        if is_moved:  # The program puts a link in place of its folder.
            (directory / "sub").rename(tmp_path / "outside")
            (directory / "sub").symlink_to(tmp_path / "outside")
        goods.release()
        assert (directory / "sub/a").exists() == is_moved
