"""How does what a program printed come into the ZIP of the files it made?"""

from __future__ import annotations

import asyncio
import gc
import io
import os
import stat
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from wakugumi.adapters import sent_parts
from wakugumi.adapters.sent_parts import SentPart, read_parts
from wakugumi.adapters.zip.add_output import Content, Spliced, _plan, passed_on, splice
from wakugumi.adapters.zip.extract import unpack
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.records import CHUNK_BYTES, LOCAL, STORED, UTF8_FLAG, end_of, line_of
from wakugumi.errors import Lost, PeerError

TEXTS = {"stdout.txt": b"said\n", "stderr.txt": b""}


def packed(files: dict[str, bytes]) -> bytes:
    """As another program packs it, the same bytes at any time: some are parameters, and so parts of a test's name."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def files_of(data: bytes) -> dict[str, bytes]:
    """As another program reads it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


async def streamed(archive: Content, texts: dict[str, Content]) -> bytes:
    pieces = await asyncio.to_thread(Spliced, archive, texts)
    data = b"".join([piece async for piece in pieces])
    assert len(data) == pieces.size
    return data


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_was_printed_stands_beside_what_was_made() -> None:
    made = {"a.txt": b"a", "deep/b.bin": bytes(100_000), "結果": b"c"}
    assert files_of(splice(packed(made), TEXTS)) == made | TEXTS


def test_without_files_there_is_what_was_printed() -> None:
    assert files_of(splice(b"", TEXTS)) == TEXTS


def test_the_same_result_is_the_same_bytes_small_or_large(tmp_path: Path) -> None:
    archive = packed({"a.txt": b"a" * 10_000})
    texts = {"stdout.txt": b"printed " * 1_000, "stderr.txt": b""}
    (tmp_path / "made.zip").write_bytes(archive)
    whole = splice(archive, texts)
    assert len(whole) < len(archive) + 1_000  # much of the same is deflated
    assert asyncio.run(streamed(archive, dict(texts))) == whole
    assert asyncio.run(streamed(tmp_path / "made.zip", dict(texts))) == whole


def test_large_parts_are_read_from_their_files(tmp_path: Path) -> None:
    noise = os.urandom(2 * CHUNK_BYTES + 17)
    (tmp_path / "made.zip").write_bytes(packed({"noise": noise, "small": b"x"}))
    (tmp_path / "out").write_bytes(noise[:-5])
    before = open_files()
    data = asyncio.run(streamed(tmp_path / "made.zip", {"stdout.txt": tmp_path / "out", "stderr.txt": b"short"}))
    assert files_of(data) == {"noise": noise, "small": b"x", "stdout.txt": noise[:-5], "stderr.txt": b"short"}
    assert open_files() == before


@pytest.mark.parametrize("own", ["stdout.txt", "STDOUT.TXT", "\u017ftdout.txt", "stdout.txt/inside"])
def test_a_program_s_own_file_keeps_its_name(tmp_path: Path, own: str) -> None:
    archive = packed({own: b"mine"})
    (tmp_path / "made.zip").write_bytes(archive)
    data = splice(archive, TEXTS)
    assert files_of(data) == {own: b"mine", "stdout.captured.txt": b"said\n", "stderr.txt": b""}
    assert asyncio.run(streamed(tmp_path / "made.zip", dict(TEXTS))) == data
    (tmp_path / "unpacked").mkdir()
    unpack(Archive.of_bytes(data), tmp_path / "unpacked")  # which refuses names that are equal


def test_however_many_names_are_taken_there_is_one_more() -> None:
    own = {"stdout.txt": b"1", "stdout.captured.txt": b"2", "Stdout.Captured-2.txt": b"3"}
    assert files_of(splice(packed(own), TEXTS)) == own | {"stdout.captured-3.txt": b"said\n", "stderr.txt": b""}


def test_a_name_is_found_wherever_it_stands_in_a_long_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is read in pieces, and the name lies across the end of the first."""
    monkeypatch.setattr(sent_parts, "READ_BYTES", 1_000)
    for shift in range(16):
        path = tmp_path / f"{shift}.zip"
        path.write_bytes(packed({"f" * (1_000 - 46 - 46 - shift): b"", "stderr.txt": b"mine"}))
        with zipfile.ZipFile(io.BytesIO(asyncio.run(streamed(path, dict(TEXTS))))) as archive:
            assert archive.namelist()[-3:] == ["stderr.txt", "stdout.txt", "stderr.captured.txt"]


def test_more_entries_than_16_bits_hold_are_told_in_the_64_bit_form() -> None:
    count, when = 0xFFFF - 1, (0, 33)
    entry = LOCAL.pack(b"PK\3\4", 20, UTF8_FLAG, STORED, *when, 0, 0, 0, 1, 0) + b"x"
    content, size = entry * count, len(entry)
    lines = b"".join(line_of(b"%d" % at, 0, UTF8_FLAG, STORED, when, 0, 0, 0, at * size) for at in range(count))
    made = content + lines + end_of(count, len(lines), len(content))
    with zipfile.ZipFile(io.BytesIO(splice(made, TEXTS))) as archive:
        assert len(archive.namelist()) == count + 2
        assert archive.read("stdout.txt") == b"said\n"


def test_an_archive_beyond_4_gib_is_spliced_where_it_lies(tmp_path: Path) -> None:
    """Before its one entry is a hole, which takes no room and is not read here."""
    path, out = tmp_path / "large.zip", tmp_path / "out.zip"
    with path.open("wb") as file:
        file.seek(5 << 30)
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("far", b"away")
    with ExitStack() as files, out.open("wb") as file:
        (entries, *others), size, _ = _plan(path, TEXTS, b"", files)
        file.seek(5 << 30)
        for piece in read_parts([entries._replace(at=5 << 30), *others]):
            file.write(piece)
        assert file.tell() == size
    with zipfile.ZipFile(out) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"far": b"away"} | TEXTS
        assert archive.getinfo("stdout.txt").header_offset > 0xFFFFFFFF


def test_ours_are_plain_files_that_their_owner_may_write() -> None:
    with zipfile.ZipFile(io.BytesIO(splice(b"", TEXTS))) as archive:
        mode = archive.getinfo("stdout.txt").external_attr >> 16
        assert (stat.S_ISREG(mode), stat.S_IMODE(mode)) == (True, 0o644)


@pytest.mark.parametrize("broken", [b"no archive", packed({"a": b"a"})[:-5], b"PK\5\6" + b"\xff" * 18])
def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "broken").write_bytes(broken)
    before = open_files()
    with pytest.raises(PeerError):
        splice(broken, TEXTS)
    with pytest.raises(PeerError):
        Spliced(tmp_path / "broken", dict(TEXTS))
    assert open_files() == before


def test_one_that_is_never_read_is_closed_and_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "made.zip").write_bytes(packed({"a": b"a"}))
    before, told = open_files(), []
    pieces = Spliced(tmp_path / "made.zip", dict(TEXTS))
    pieces.done = lambda: told.append("done")
    assert open_files() == before + 1
    asyncio.run(pieces.aclose())
    asyncio.run(pieces.aclose())
    assert (open_files(), told) == (before, ["done"])


def test_a_file_that_becomes_shorter_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "made.zip"
    path.write_bytes(packed({"noise": os.urandom(2 * CHUNK_BYTES)}))

    async def scenario() -> None:
        pieces = Spliced(path, dict(TEXTS))
        await anext(pieces)
        os.truncate(path, 10)
        with pytest.raises(Lost, match="shorter"):
            [piece async for piece in pieces]
        await pieces.aclose()

    asyncio.run(scenario())


def test_a_list_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    """Where something is left out, the list is looked at again while it is sent."""
    path = tmp_path / "made.zip"
    path.write_bytes(packed({"noise": os.urandom(2 * CHUNK_BYTES), ".hidden": b"", "shown": b""}))

    async def scenario() -> None:
        pieces = Spliced(path, dict(TEXTS))
        assert pieces.left_out == 1
        await anext(pieces)
        with path.open("r+b") as file:
            file.seek(-200, os.SEEK_END)
            file.write(bytes(200))
        with pytest.raises(Lost, match="list of entries is broken"):
            [piece async for piece in pieces]
        await pieces.aclose()

    asyncio.run(scenario())


def test_many_dot_files_between_others_take_no_memory(tmp_path: Path) -> None:
    (tmp_path / "made.zip").write_bytes(
        packed({f"{n}/{name}": b"" for n in range(500) for name in (".hidden", "shown")})
    )

    def alive() -> int:
        return sum(isinstance(each, SentPart) for each in gc.get_objects())

    before = alive()  # Other tests may have left some.
    with ExitStack() as files:
        parts, size, left_out = _plan(tmp_path / "made.zip", dict(TEXTS), b"", files)
        assert alive() - before < 10, "they are found while they are sent"
        assert sum(map(len, read_parts(parts))) == size
    assert left_out == 500


@pytest.mark.spec("N2")
def test_an_archive_that_has_its_texts_is_passed_on_as_it_is() -> None:
    whole = splice(packed({"a.txt": b"a"}), TEXTS)
    body, left_out = passed_on(whole)
    assert body is whole
    assert left_out == 0
    noted, _ = passed_on(whole, b"kept")
    with zipfile.ZipFile(io.BytesIO(noted)) as archive:
        assert archive.comment == b"kept"
    assert files_of(noted) == files_of(whole)
    body, left_out = passed_on(packed({".bashrc": b"evil", "a.txt": b"a"}))
    assert (files_of(body), left_out) == ({"a.txt": b"a"}, 1)
    with pytest.raises(PeerError):
        passed_on(b"PK")
