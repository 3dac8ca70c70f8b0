"""How does a folder of any size become a ZIP, in memory or in a file?"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.kit.archives_made import pack, zip_of

from wakugumi.adapters.zip import write
from wakugumi.adapters.zip.add_output import splice
from wakugumi.adapters.zip.extract import unpack
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.records import CHUNK_BYTES, line_of
from wakugumi.adapters.zip.walk import FoundFile, open_found, walk
from wakugumi.adapters.zip.write import HashedFile, TooBig, ZipWriter
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

    def pack(self, bytes_max: int = 1 << 50, start: int = 0, *, uses_up: bool = False) -> zipfile.ZipFile:
        """As another program, which knows nothing of ours, reads it. `start` is how much stands before it."""
        file = os.open(self.packed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.lseek(file, start, os.SEEK_SET)
        out = HashedFile(file)
        try:
            scratch = str(self.scratch)
            with closing(
                ZipWriter(out, files_bytes_max=bytes_max, scratch=scratch, at=start, uses_up=uses_up)
            ) as writer:
                for found in walk(self.folder, frozenset()):
                    writer.add(self.folder, found)
                writer.finish()
            ref = out.finish()
        finally:
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
        out = HashedFile(file.fileno())
        writer = ZipWriter(out, scratch=str(world.scratch), at=14 * GIB)
        writer.add_line(line_of(b"both", 0o644, 0x800, 0, (0, 33), 7, 5 * GIB, 6 * GIB, 8 * GIB), 6 * GIB)
        writer.add_line(line_of(b"place", 0o644, 0x800, 0, (0, 33), 7, 5, 6, 8 * GIB), 6)
        writer.finish()
        writer.close()
        out.finish()
    told = [("both", 6 * GIB, 5 * GIB, 8 * GIB), ("place", 6, 5, 8 * GIB)]
    with zipfile.ZipFile(world.packed) as packed:
        rows = [(info.filename, info.file_size, info.compress_size, info.header_offset) for info in packed.infolist()]
    assert rows == told
    with world.packed.open("rb") as file:
        entries = list(Archive.of_file(file.fileno()).entries())
    assert [(entry.name, entry.size, entry.packed_bytes, entry.at) for entry in entries] == told


@pytest.mark.parametrize("how", ["used up", "linked elsewhere", "not to be written", "not asked for"])
def test_large_files_give_their_space_back_while_they_are_packed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(write, "USED_UP_BYTES", 8 * MIB)
    content = {"a": os.urandom(MIB), "large": os.urandom(10 * MIB + 5)}
    for name, data in content.items():
        (world.made / name).write_bytes(data)
    if how == "linked elsewhere":
        os.link(world.made / "large", tmp_path / "mine")
    elif how == "not to be written":

        def opened(folder: int, found: FoundFile, more: int = 0) -> int:
            if more:
                raise PermissionError(errno.EACCES, "no")
            return open_found(folder, found)

        monkeypatch.setattr(write, "open_found", opened)
    packed = world.pack(uses_up=how != "not asked for")
    assert {name: packed.read(name) for name in packed.namelist()} == content
    whole = (world.made / "large").stat().st_blocks * 512 >= 10 * MIB
    assert whole == (how != "used up")
    assert (world.made / "a").read_bytes() == content["a"], "small files stay"


def test_a_long_list_of_entries_waits_on_the_disk(world: World) -> None:
    with world.packed.open("wb") as file:
        out = HashedFile(file.fileno())
        writer = ZipWriter(out, scratch=str(world.scratch))
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20_000):
            writer.add_line(line_of(b"%0100d" % number, 0o644, 0x800, 0, (0, 33), 0, 0, 0, 0), 0)
        assert len(os.listdir("/proc/self/fd")) == before + 1
        writer.finish()
        writer.close()
        out.finish()
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
        writer = ZipWriter(HashedFile(file.fileno(), go_on), scratch=str(world.scratch))
        (found,) = walk(world.folder, frozenset())
        with pytest.raises(KeyError):
            writer.add(world.folder, found)
        writer.close()


def test_in_memory_small_files_are_stored_and_larger_ones_deflated_if_it_helps(world: World) -> None:
    noise = random.Random(1).randbytes(3 * CHUNK_BYTES // 2)
    contents = {
        "empty": b"",
        "small": b"a" * (ARCHIVE_DEFLATE_FROM_BYTES - 1),
        "large": b"a" * ARCHIVE_DEFLATE_FROM_BYTES,
        "chunk": b"ab" * (CHUNK_BYTES // 2),
        "chunks": b"abc" * CHUNK_BYTES,
        "noise": noise,
    }
    for name, content in contents.items():
        (world.made / name).write_bytes(content)
    archive = pack(world.folder)
    assert {name: archive.read(name) for name in archive.namelist()} == contents
    stored = {info.filename for info in archive.infolist() if info.compress_type == zipfile.ZIP_STORED}
    assert stored == {"empty", "small", "noise"}
    assert archive.getinfo("chunks").compress_size < 100_000


def test_run_bits_times_and_names_survive(world: World) -> None:
    name = "結果 – naïve.sh"
    (world.made / name).write_text("#!/bin/sh\n")
    (world.made / name).chmod(0o4755)
    os.utime(world.made / name, (1_600_000_000, 1_600_000_000))
    info = pack(world.folder).getinfo(name)
    assert info.external_attr >> 16 == stat.S_IFREG | 0o755, "set-user-id does not travel"
    assert info.date_time == (2020, 9, 13, 12, 26, 40)


def test_a_time_that_zip_cannot_tell_is_told_as_nearly_as_possible(world: World) -> None:
    for name, seconds in (("old", 0), ("new", 8_000_000_000)):
        (world.made / name).write_text("")
        os.utime(world.made / name, (seconds, seconds))
    archive = pack(world.folder)
    assert [archive.getinfo(name).date_time[0] for name in ("old", "new")] == [1980, 2107]


def test_a_file_that_became_a_pipe_meanwhile_is_left_out(world: World) -> None:
    (world.made / "a").write_text("x")
    (world.made / "b").write_text("x")
    found = list(walk(world.folder, frozenset()))
    (world.made / "a").unlink()
    os.mkfifo(world.made / "a")
    (world.made / "b").unlink()
    assert zipfile.ZipFile(io.BytesIO(zip_of(world.folder, found))).namelist() == []


@pytest.mark.parametrize("size", [5_000, 5 * CHUNK_BYTES])
def test_what_does_not_fit_is_noticed_before_it_is_held_in_memory(world: World, size: int) -> None:
    (world.made / "noise").write_bytes(random.Random(2).randbytes(size))
    with pytest.raises(TooBig):
        pack(world.folder, bytes_max=min(size, 2 * CHUNK_BYTES))


def test_names_alone_can_be_too_much(world: World) -> None:
    for number in range(100):
        (world.made / f"{number:0200}").touch()
    with pytest.raises(TooBig):
        pack(world.folder, bytes_max=40_000)
    assert len(pack(world.folder, bytes_max=60_000).namelist()) == 100


_PACK = """
import os, resource, sys
from wakugumi.adapters.zip.walk import walk
from wakugumi.adapters.zip.write import HashedFile, ZipWriter
from wakugumi.adapters.zip.extract import unpack_counted
from wakugumi.adapters.zip.read import Archive
from pathlib import Path
made, packed, out = sys.argv[1:]
folder = os.open(made, os.O_RDONLY)
file = os.open(packed, os.O_RDWR | os.O_CREAT)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out_file = HashedFile(file)
writer = ZipWriter(out_file, scratch=os.path.dirname(packed))
for found in walk(folder, frozenset()):
    writer.add(folder, found)
writer.finish()
writer.close()
out_file.finish()
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


@pytest.mark.spec("N2")
@pytest.mark.parametrize("own", ["made.txt", "stdout.txt", "STDOUT.txt", "stderr.txt/inside", "a/stdout.txt"])
def test_texts_that_are_written_at_once_are_the_bytes_of_texts_added_later(tmp_path: Path, own: str) -> None:
    made = tmp_path / own
    made.parent.mkdir(exist_ok=True)
    made.write_bytes(b"made")
    texts = {"stdout.txt": b"printed " * 1_000, "stderr.txt": b""}
    folder = os.open(tmp_path, os.O_RDONLY)
    archive, at_once = zip_of(folder, walk(folder, frozenset())), io.BytesIO()
    writer = ZipWriter(at_once)
    for found in walk(folder, frozenset()):
        writer.add(folder, found)
    os.close(folder)
    unpacked = writer.unpacked_bytes
    writer.add_texts(texts)
    writer.finish()
    assert at_once.getvalue() == splice(archive, texts)
    assert writer.unpacked_bytes == unpacked == 4, "texts are no files of the program"


def test_texts_count_for_the_size_of_the_archive() -> None:
    writer = ZipWriter(io.BytesIO(), bytes_max=200)
    with pytest.raises(TooBig):
        writer.add_texts({"stdout.txt": bytes(range(256))})
