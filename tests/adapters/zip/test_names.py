"""What is a file of a program called in an archive, and where does a link to it lead?"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.kit.archives_made import file_zip_of, pack, zip_of
from tests.kit.hostile_text import TEXTS

from wakugumi.adapters.files import remove_tree
from wakugumi.adapters.zip.extract import Bound, unpack
from wakugumi.adapters.zip.names import plain_name
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.walk import FoundFile, walk
from wakugumi.adapters.zip.write import HashedFile, ZipWriter


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    file = os.open(tmp_path, os.O_RDONLY)
    yield file
    os.close(file)


def test_names_that_are_no_text_stay_apart(tmp_path: Path, folder: int) -> None:
    for raw in (b"\xff.txt", b"\xfe.txt"):
        with open(os.fsencode(tmp_path) + b"/" + raw, "wb") as file:
            file.write(raw)
    archive = pack(folder)
    assert sorted(name.partition("~")[0] for name in archive.namelist()) == ["%fe", "%ff"]
    assert all(name.endswith(".txt") for name in archive.namelist())
    assert {archive.read(name) for name in archive.namelist()} == {b"\xff.txt", b"\xfe.txt"}


def test_folders_may_be_deeper_than_any_name_can_say(tmp_path: Path, folder: int) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3_000):
        with open("file", "w", opener=lambda path, flags, here=here: os.open(path, flags, 0o644, dir_fd=here)):
            pass
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    names = pack(folder).namelist()
    assert 400 < len(names) < 1_024
    assert max(map(len, names)) <= 1_024
    remove_tree(str(tmp_path / "d"))
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.spec("W5")
@pytest.mark.parametrize("name", ["é", "❤\ufe0f.png", "葛\U000e0100.txt", "می\u200cخواهم"])
def test_a_name_as_people_spell_it_stays(name: str) -> None:
    assert plain_name(name) == name


ODD_NAMES = {name: text.replace("/", "_")[:60] for name, text in TEXTS.items() if "\0" not in text}


@pytest.mark.spec("W1", "W5")
@pytest.mark.parametrize("name", [*ODD_NAMES.values(), "a\\b", "C:/x", "C:", "\x1b" * 200, "sub/é\u202e"])
@pytest.mark.parametrize("large", [False, True])
def test_whatever_a_program_calls_its_files_none_is_left_out_where_it_is_unpacked(
    tmp_path: Path, name: str, large: bool
) -> None:
    """An honest worker sends no name that hides something: such a file comes under another name, and is not lost."""
    made = tmp_path / "made"
    (made / name).parent.mkdir(parents=True)
    (made / name).write_text("its content")
    (made / "0").write_text("beside it")
    folder = os.open(made, os.O_RDONLY)
    try:
        with (tmp_path / "zip").open("wb") as file:
            out = HashedFile(file.fileno()) if large else file
            with closing(ZipWriter(out, scratch=str(tmp_path) if large else None)) as writer:
                for found in walk(folder, frozenset()):
                    writer.add(folder, found)
                writer.finish()
            if isinstance(out, HashedFile):
                out.finish()
        data, size = (tmp_path / "zip").read_bytes(), writer.unpacked_bytes
    finally:
        os.close(folder)
    assert size == len("its content") + len("beside it")
    (tmp_path / "out").mkdir()
    paths, left_out = unpack(Archive.of_bytes(data), tmp_path / "out", bound=Bound(size))
    assert left_out == 0
    assert sorted(path.read_text() for path in paths) == ["beside it", "its content"]
    assert all(str(path).isprintable() for path in paths)


KEPT_NAMES = ("x:y", "2026-11-16T17:00:00.log", "sub/x:y", "sub/C:", "sub/C:/x", "C:x/y", "%3a%5c", "a%5cb", "é:~ü")


@pytest.mark.spec("W1")
@pytest.mark.parametrize("pack_all", [zip_of, file_zip_of])
@pytest.mark.parametrize("name", KEPT_NAMES)
def test_a_name_that_is_only_odd_comes_back_as_it_was(
    tmp_path: Path, name: str, pack_all: Callable[[int, Iterable[FoundFile]], bytes]
) -> None:
    with made(tmp_path / "made", {name: "its content"}, {}) as folder:
        data = pack_all(folder, walk(folder, frozenset()))
    assert unpacked(data, tmp_path / "out") == {name: "its content"}


LINKS = {
    "a colon": ("link", "x:y", "x:y"),
    "a colon below": ("sub/link", "x:y", "sub/x:y"),
    "a colon above": ("sub/link", "../x:y", "x:y"),
    "a drive": ("link", "C:/x", "C:/x"),
    "a drive by a dot": ("link", "./C:/x", "C:/x"),
    "a drive above": ("sub/link", "../C:/x", "C:/x"),
    "a drive below": ("sub/link", "C:/x", "sub/C:/x"),
    "a drive as a file": ("sub/link", "../C:", "C:"),
    "a backslash": ("link", "a\\b.txt", "a\\b.txt"),
    "a line break": ("sub/link", "../a\nb/c", "a\nb/c"),
    "no text": ("link", "\udcff/\udcfe.txt", "\udcff/\udcfe.txt"),
    "a long name": ("link", "\x1b" * 200, "\x1b" * 200),
    "a hidden link": ("a\u202eb", "x:y", "x:y"),
    "a link in a hidden folder": ("a\u202eb/link", "x", "a\u202eb/x"),
    "down and up": ("sub/link", "../sub/../C:/x", "C:/x"),
}
"""The link, where it points, and the file that is there."""


@pytest.mark.spec("W1", "W5")
@pytest.mark.parametrize("pack_all", [zip_of, file_zip_of])
@pytest.mark.parametrize(("link", "target", "name"), LINKS.values(), ids=LINKS)
def test_a_link_leads_to_its_file_whatever_that_is_called(
    tmp_path: Path, link: str, target: str, name: str, pack_all: Callable[[int, Iterable[FoundFile]], bytes]
) -> None:
    (tmp_path / "made/sub").mkdir(parents=True)
    with made(tmp_path / "made", {name: "its content"}, {link: target}) as folder:
        data = pack_all(folder, walk(folder, frozenset()))
    assert list(unpacked(data, tmp_path / "out").values()) == ["its content", "its content"]


@pytest.mark.parametrize("pack_all", [zip_of, file_zip_of])
def test_a_link_whose_target_becomes_too_long_is_left_out_and_the_rest_is_not(
    tmp_path: Path, pack_all: Callable[[int, Iterable[FoundFile]], bytes]
) -> None:
    with made(tmp_path / "made", {"a": "its content"}, {"link": "./" * 1_500 + "\x1b/" * 200 + "x"}) as folder:
        (tmp_path / "made" / ("\x1b/" * 200)).mkdir(parents=True)
        found = [*walk(folder, frozenset())]
        assert "link" in [each.name for each in found]
        data = pack_all(folder, [each for each in found if not each.name.endswith("/")])
    assert unpacked(data, tmp_path / "out") == {"a": "its content"}


def test_small_and_large_archives_call_a_file_the_same(tmp_path: Path) -> None:
    files = {**{name: "x" for _, _, name in LINKS.values() if name != "C:"}, "a%5cb.txt": "y", "C%3a/x": "z"}
    with made(tmp_path, files, {f"link-{number}": name for number, name in enumerate(files)}) as folder:
        found = [*walk(folder, frozenset())]
        assert len(found) == 2 * len(files)
        assert zip_of(folder, found) == file_zip_of(folder, found)
        names = zipfile.ZipFile(io.BytesIO(zip_of(folder, found))).namelist()
    assert len(set(names)) == len(names)


@contextlib.contextmanager
def made(top: Path, files: dict[str, str], links: dict[str, str]) -> Iterator[int]:
    """An open folder with these files and links."""
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    for name, target in links.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).symlink_to(target)
    folder = os.open(top, os.O_RDONLY)
    yield folder
    os.close(folder)


def unpacked(data: bytes, out: Path) -> dict[str, str]:
    """What each name leads to, once all of an archive is unpacked."""
    out.mkdir()
    paths, left_out = unpack(Archive.of_bytes(data), out)
    assert left_out == 0
    return {path.relative_to(out).as_posix(): path.read_text() for path in paths}
