"""How does a job get a large file without a copy, and cannot harm the next job by writing to it?"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from wakugumi.adapters.blobs import file_leases as module
from wakugumi.adapters.blobs.file_leases import Leases, copy_file

pytestmark = pytest.mark.anyio

DEADLINE_S = 20.0


class World:
    """Contents under leases. When one is broken, it is looked at and removed, as a store would do it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broken: dict[str, bytes] = {}
        self.leases = Leases(asyncio.get_running_loop(), self._on_broken)

    def content(self, name: str, text: bytes = b"as it was") -> str:
        path = self.folder / name
        path.write_bytes(text)
        os.link(path, self.folder / f"{name}-link")
        return str(path)

    def _on_broken(self, name: str) -> None:
        self.broken[name] = (self.folder / name).read_bytes()
        os.unlink(self.folder / name)


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[World]:
    before = len(os.listdir("/proc/self/fd"))
    world = World(tmp_path)
    yield world
    world.leases.close()
    assert len(os.listdir("/proc/self/fd")) == before, "no file stays open"
    assert signal.getsignal(signal.SIGIO) is signal.SIG_DFL


async def python(script: str, *args: object) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", f"import sys, os\n{script}", *map(str, args))
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == 0


WRITERS = {
    "append": "open(sys.argv[1], 'ab').write(b'!')",
    "truncate when opened": "open(sys.argv[1], 'wb').close()",
    "truncate by name": "os.truncate(sys.argv[1], 3)",
    "in place": "open(sys.argv[1], 'r+b').write(b'X')",
    "by a map": "import mmap; f = open(sys.argv[1], 'r+b'); mmap.mmap(f.fileno(), 0)[0] = 1",
    "after a change of mode": "os.chmod(sys.argv[1], 0o600); open(sys.argv[1], 'r+b').write(b'X')",
    "through its open file": "f = open(sys.argv[1], 'rb'); open(f'/proc/self/fd/{f.fileno()}', 'r+b').write(b'X')",
}


@pytest.mark.spec("C3")
@pytest.mark.parametrize("script", WRITERS.values(), ids=WRITERS.keys())
async def test_who_writes_waits_until_the_content_is_taken_out(world: World, script: str) -> None:
    lease = world.leases.take("a", world.content("a"))
    assert lease is not None
    assert lease.is_whole()
    await python(script, world.folder / "a-link")
    assert world.broken == {"a": b"as it was"}, "it was told before anything was changed"
    assert (world.folder / "a-link").read_bytes() != b"as it was", "and then the writer went on"
    assert not lease.is_whole()
    assert world.leases.find("a") is None


async def test_who_reads_does_not_wait(world: World) -> None:
    lease = world.leases.take("a", world.content("a"))
    await python("open(sys.argv[1], 'rb').read(); os.chmod(sys.argv[1], 0o400)", world.folder / "a-link")
    assert lease is not None
    assert lease.is_whole()
    assert not world.broken


async def test_several_are_broken_at_once(world: World) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        world.leases.take(name, world.content(name))
    writers = [python("open(sys.argv[1], 'ab').write(b'!')", world.folder / f"{name}-link") for name in names[1:]]
    await asyncio.gather(*writers)
    assert sorted(world.broken) == names[1:]
    left = world.leases.find("a")
    assert left is not None
    assert left.is_whole()


async def test_two_workers_of_one_process_hear_of_their_own(world: World, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    world.leases.take("a", world.content("a"))
    other.leases.take("b", other.content("b"))
    await python("open(sys.argv[1], 'ab').write(b'!')", other.folder / "b-link")
    assert (world.broken, list(other.broken)) == ({}, ["b"])
    other.leases.close()
    await python("open(sys.argv[1], 'ab').write(b'!')", world.folder / "a-link")
    assert list(world.broken) == ["a"], "the other's end does not make us deaf"


async def test_one_that_nobody_uses_is_kept_until_its_place_is_needed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILES_MAX", 2)
    first, second = (world.leases.take(name, world.content(name)) for name in ("a", "b"))
    assert first is not None
    assert second is not None
    assert world.leases.take("c", world.content("c")) is None, "both are in use"
    world.leases.release(first)
    again = world.leases.take("a", str(world.folder / "a"))
    assert again is first
    world.leases.release(first)
    assert world.leases.take("c", str(world.folder / "c")) is not None
    assert world.leases.find("a") is None


async def test_a_file_that_someone_has_open_for_writing_gets_no_lease(world: World) -> None:
    path = world.content("a")
    file = os.open(path, os.O_RDWR)
    assert world.leases.take("a", path) is None
    os.close(file)


async def test_there_is_no_lease_outside_the_main_thread(world: World) -> None:
    path = world.content("a")
    assert await asyncio.to_thread(world.leases.take, "a", path) is None


def test_a_process_that_ends_lets_the_writers_go_on(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    script = f"""
import asyncio
from wakugumi.adapters.blobs.file_leases import Leases
async def main():
    assert Leases(asyncio.get_running_loop(), print).take("a", {str(tmp_path / "a")!r})
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
    with open(tmp_path / "a", "ab") as file:
        file.write(b"!")


# Copies.


def folders(tmp_path: Path) -> list[Path]:
    elsewhere = Path("/dev/shm")
    return (
        [tmp_path, elsewhere]
        if elsewhere.is_dir() and elsewhere.stat().st_dev != tmp_path.stat().st_dev
        else [tmp_path]
    )


@pytest.mark.parametrize("size", [0, 1, 3 << 20])
def test_a_copy_is_the_same_on_any_file_system(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "a").write_bytes(content)
    for folder in folders(tmp_path):
        path = folder / f"copy-{os.urandom(8).hex()}"
        source = os.open(tmp_path / "a", os.O_RDONLY)
        try:
            copy_file(source, str(path), 0o666)
            assert path.read_bytes() == content
            assert path.stat().st_ino != os.fstat(source).st_ino
        finally:
            os.close(source)
            path.unlink()


@pytest.mark.parametrize("without", ["clone", "_copy_inside"])
def test_a_copy_is_made_whatever_the_kernel_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    no: Callable[[int, int], bool] = lambda _source, _file: False  # noqa: E731
    monkeypatch.setattr(module, "clone", no)
    monkeypatch.setattr(module, without, no)
    (tmp_path / "a").write_bytes(b"content")
    with open(tmp_path / "a", "rb") as source:
        copy_file(source.fileno(), str(tmp_path / "b"), 0o666)
        with pytest.raises(FileExistsError):
            copy_file(source.fileno(), str(tmp_path / "b"), 0o666)
    assert (tmp_path / "b").read_bytes() == b"content"
