"""How does a folder of any size become a ZIP?"""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakugumi.adapters.zip.extract import unpack
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.records import line_of
from wakugumi.adapters.zip.write_file import FileZip
from wakugumi.adapters.zip.write_memory import CHUNK_BYTES, TooBig, walk
from wakugumi.limits.runner import ARCHIVE_DEFLATE_FROM_BYTES
from wakugumi.limits.units import MIB

GIB = 1024 * MIB


class World:
    """A folder to pack, and a file to pack it to."""

    def __init__(self, path: Path) -> None:
        self.made = path / "made"
        self.made.mkdir()
        self.packed = path / "packed.zip"
        self.scratch = path / "scratch"
        self.scratch.mkdir()
        self.folder = os.open(self.made, os.O_RDONLY)

    def pack(self, bytes_max: int = 1 << 50, start: int = 0) -> zipfile.ZipFile:
        """As another program, which knows nothing of ours, reads it. `start` is how much stands before it."""
        file = os.open(self.packed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.lseek(file, start, os.SEEK_SET)
        writer = FileZip(file, str(self.scratch), bytes_max)
        try:
            for found in walk(self.folder, frozenset()):
                writer.add(self.folder, found)
            ref = writer.finish()
        finally:
            writer.close()
            os.close(file)
        assert ref.size == self.packed.stat().st_size - start
        if not start:
            with self.packed.open("rb") as packed:
                assert hashlib.file_digest(packed, "sha256").hexdigest() == ref.sha256
        return zipfile.ZipFile(self.packed)

    def unpack(self, target: Path) -> list[Path]:
        target.mkdir()
        with self.packed.open("rb") as packed:
            return unpack(Archive.of_file(packed.fileno()), target)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    os.close(world.folder)


def test_small_large_packable_and_packed_files_are_all_there(world: World, tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(3 * CHUNK_BYTES // 2)
    contents = {
        "empty": b"",
        "small": b"a" * (ARCHIVE_DEFLATE_FROM_BYTES - 1),
        "middle": b"a" * ARCHIVE_DEFLATE_FROM_BYTES,
        "chunk": b"ab" * (CHUNK_BYTES // 2),
        "chunks": b"abc" * CHUNK_BYTES,
        "noise": noise,
        "begins well": bytes(2 * CHUNK_BYTES) + noise,
        "結果 – naïve.txt": b"any language",
    }
    for name, content in contents.items():
        (world.made / name).write_bytes(content)
    with world.pack() as packed:
        assert packed.testzip() is None
        assert {name: packed.read(name) for name in packed.namelist()} == contents
        stored = {info.filename for info in packed.infolist() if info.compress_type == zipfile.ZIP_STORED}
    assert stored == {"empty", "small", "noise", "結果 – naïve.txt"}
    world.unpack(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == contents


@pytest.mark.spec("W5")
def test_links_folders_and_run_bits_survive_and_what_leads_out_does_not(world: World, tmp_path: Path) -> None:
    (world.made / "empty").mkdir()
    (world.made / "run.sh").write_text("#!/bin/sh\n")
    (world.made / "run.sh").chmod(0o755)
    (world.made / "inside").symlink_to("run.sh")
    (world.made / "outside").symlink_to("/etc/passwd")
    (world.made / "up").symlink_to("../secret")
    with world.pack() as packed:
        assert sorted(packed.namelist()) == ["empty/", "inside", "run.sh"]
        assert stat.S_ISLNK(packed.getinfo("inside").external_attr >> 16)
    out = tmp_path / "out"
    world.unpack(out)
    assert (out / "inside").readlink() == Path("run.sh")
    assert os.access(out / "run.sh", os.X_OK)
    assert (out / "empty").is_dir()


def test_names_that_are_no_text_stay_apart_also_those_of_folders(world: World, tmp_path: Path) -> None:
    for raw in (b"\xff.txt", b"\xfe.txt"):
        with open(os.fsencode(world.made) + b"/" + raw, "wb") as file:
            file.write(raw)
    for raw in (b"\xff", b"\xfe"):
        os.mkdir(os.fsencode(world.made) + b"/" + raw)
    with world.pack() as packed:
        contents = {packed.read(name) for name in packed.namelist() if not name.endswith("/")}
        assert len({name for name in packed.namelist() if name.endswith("/")}) == 2
    assert contents == {b"\xff.txt", b"\xfe.txt"}
    world.unpack(tmp_path / "out")
    assert sorted(path.is_dir() for path in (tmp_path / "out").iterdir()) == [False, False, True, True]


def test_a_file_of_more_than_4_gib_is_packed_and_its_holes_are_holes_again(world: World, tmp_path: Path) -> None:
    size = 4 * GIB + 12_345
    with (world.made / "big").open("wb") as big:
        big.write(b"the beginning")
        big.seek(size - 7)
        big.write(b"the end")
    (world.made / "then").write_text("after it")
    with world.pack() as packed:
        info = packed.getinfo("big")
        assert info.file_size == size
        assert packed.read("then") == b"after it"
        with packed.open("big") as opened:
            assert opened.read(13) == b"the beginning"
    assert world.packed.stat().st_size < 8 * MIB
    world.unpack(tmp_path / "out")
    found = (tmp_path / "out" / "big").stat()
    assert found.st_size == size
    assert found.st_blocks * 512 < 2 * MIB, "zeros take no room"
    with (tmp_path / "out" / "big").open("rb") as again:
        assert again.read(16) == b"the beginning\0\0\0"
        again.seek(size - 8)
        assert again.read() == b"\0the end"


def test_a_file_that_ends_with_a_hole_has_its_size(world: World, tmp_path: Path) -> None:
    with (world.made / "tail").open("wb") as tail:
        tail.write(b"x" * 5_000)
        tail.truncate(10 * MIB)
    with world.pack() as packed:
        assert packed.testzip() is None
    world.unpack(tmp_path / "out")
    assert (tmp_path / "out/tail").read_bytes() == b"x" * 5_000 + bytes(10 * MIB - 5_000)


def test_what_begins_beyond_4_gib_is_found(world: World) -> None:
    (world.made / "a").write_text("one")
    (world.made / "b").write_bytes(b"two" * CHUNK_BYTES)
    with world.pack(start=5 * GIB) as packed:  # As if so much had been packed before.
        assert packed.testzip() is None
        assert packed.getinfo("a").header_offset == 5 * GIB
        assert (packed.read("a"), packed.read("b")) == (b"one", b"two" * CHUNK_BYTES)
    with world.packed.open("rb") as file:
        archive = Archive.of_file(file.fileno())
        assert {entry.name: archive.read(entry)[:3] for entry in archive.entries()} == {"a": b"one", "b": b"two"}


def test_sizes_and_places_beyond_4_gib_are_told_in_their_order(world: World) -> None:
    with world.packed.open("wb") as file:
        file.seek(14 * GIB)
        writer = FileZip(file.fileno(), str(world.scratch), 1 << 40)
        writer.add_line(line_of(b"both", 0o644, 0x800, 0, (0, 33), 7, 5 * GIB, 6 * GIB, 8 * GIB), 6 * GIB)
        writer.add_line(line_of(b"place", 0o644, 0x800, 0, (0, 33), 7, 5, 6, 8 * GIB), 6)
        writer.finish()
        writer.close()
    told = [("both", 6 * GIB, 5 * GIB, 8 * GIB), ("place", 6, 5, 8 * GIB)]
    with zipfile.ZipFile(world.packed) as packed:
        rows = [(info.filename, info.file_size, info.compress_size, info.header_offset) for info in packed.infolist()]
    assert rows == told
    with world.packed.open("rb") as file:
        entries = list(Archive.of_file(file.fileno()).entries())
    assert [(entry.name, entry.size, entry.packed_bytes, entry.at) for entry in entries] == told


def test_a_long_list_of_entries_waits_on_the_disk(world: World) -> None:
    with world.packed.open("wb") as file:
        writer = FileZip(file.fileno(), str(world.scratch), 1 << 40)
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20_000):
            writer.add_line(line_of(b"%0100d" % number, 0o644, 0x800, 0, (0, 33), 0, 0, 0, 0), 0)
        assert len(os.listdir("/proc/self/fd")) == before + 1
        writer.finish()
        writer.close()
        assert len(os.listdir("/proc/self/fd")) == before
    with zipfile.ZipFile(world.packed) as packed:
        assert len(packed.infolist()) == 20_000


def test_more_than_65535_files_are_packed_and_read_again(world: World, tmp_path: Path) -> None:
    folders, each = 7, 10_000
    for folder in range(folders):
        (world.made / str(folder)).mkdir()
        (tmp_path / str(folder)).write_bytes(b"%d" % folder)
        for number in range(each):  # Links, because to make so many files takes longer than all the rest.
            os.link(tmp_path / str(folder), f"{world.made}/{folder}/{number}")
    with world.pack() as packed:
        assert len(packed.infolist()) == folders * each
        assert [packed.read(f"{folder}/9999") for folder in range(folders)] == [b"%d" % it for it in range(folders)]
    with world.packed.open("rb") as file:
        archive = Archive.of_file(file.fileno())
        assert len({entry.name for entry in archive.entries()}) == archive.count == folders * each


def test_what_is_more_than_allowed_is_noticed_before_it_is_read(world: World) -> None:
    with (world.made / "typing error").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(TooBig):
        world.pack(bytes_max=1 << 40)
    assert world.packed.stat().st_size == 0


def test_it_ends_when_it_is_told_to(world: World) -> None:
    (world.made / "big").write_bytes(bytes(10 * MIB))
    calls = []

    def go_on() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise KeyError("stop")

    with world.packed.open("wb") as file:
        writer = FileZip(file.fileno(), str(world.scratch), 1 << 40, go_on)
        (found,) = walk(world.folder, frozenset())
        with pytest.raises(KeyError):
            writer.add(world.folder, found)
        writer.close()


_PACK = """
import os, resource, sys
from wakugumi.adapters.zip.write_memory import walk
from wakugumi.adapters.zip.write_file import FileZip
from wakugumi.adapters.zip.extract import unpack_counted
from wakugumi.adapters.zip.read import Archive
from pathlib import Path
made, packed, out = sys.argv[1:]
folder = os.open(made, os.O_RDONLY)
file = os.open(packed, os.O_RDWR | os.O_CREAT)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
writer = FileZip(file, os.path.dirname(packed), 1 << 40)
for found in walk(folder, frozenset()):
    writer.add(folder, found)
writer.finish()
writer.close()
packed_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count, _ = unpack_counted(Archive.of_file(file), Path(out))
print(packed_kib - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, count)
"""


def grown_mib(world: World, out: Path) -> tuple[float, float, int]:
    """By how much a process that packs it grows, and one that unpacks it too."""
    out.mkdir()
    command = [sys.executable, "-c", _PACK, str(world.made), str(world.packed), str(out)]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    return int(told[0]) / 1024, int(told[1]) / 1024, int(told[2])


def test_memory_stays_flat_however_large_a_file_is(world: World, tmp_path: Path) -> None:
    noise = random.Random(3).randbytes(8 * MIB)
    with (world.made / "noise").open("wb") as file:
        for _ in range(48):
            file.write(noise)
    with (world.made / "zeros").open("wb") as file:
        for _ in range(16):
            file.write(bytes(8 * MIB))
    packing, unpacking, _ = grown_mib(world, tmp_path / "out")
    assert packing <= 32
    assert unpacking <= 64


def test_memory_stays_flat_however_many_files_there_are(world: World, tmp_path: Path) -> None:
    source = world.made / "0"
    source.touch()
    for number in range(1, 30_000):
        os.link(source, world.made / f"{number:0100}")
    packing, unpacking, count = grown_mib(world, tmp_path / "out")
    assert count == 30_000
    assert packing <= 8, "a list of them would take twice that"
    assert unpacking <= 8
