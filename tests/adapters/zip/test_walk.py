"""Which files of a folder are found, and packed by the small writer and the large one?"""

from __future__ import annotations

import io
import os
import socket
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from tests.kit.archives_made import file_zip_of, pack, zip_of

from wakugumi.adapters.zip.extract import unpack
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.walk import FoundFile, walk


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    file = os.open(tmp_path, os.O_RDONLY)
    yield file
    os.close(file)


SWAPS = {
    "a folder at the top": ("sub", "theirs"),
    "a folder in between": ("sub/deep", "theirs/deep"),
    "the last folder": ("sub/deep/er", "theirs/deep/er"),
    "the file": ("sub/deep/er/file", "theirs/deep/er/file"),
}
"""What a hostile job replaces by a link to what: both have the same names inside."""


@pytest.mark.spec("W5", "O1")
@pytest.mark.parametrize("pack_all", [zip_of, file_zip_of])
@pytest.mark.parametrize("when", ["after the list", "during the list", "before it"])
@pytest.mark.parametrize(("mine", "theirs"), SWAPS.values(), ids=SWAPS)
def test_no_link_that_comes_in_the_place_of_something_is_followed(
    tmp_path: Path, mine: str, theirs: str, when: str, pack_all: Callable[[int, Iterable[FoundFile]], bytes]
) -> None:
    for top in ("job/sub", "theirs"):
        (tmp_path / top / "deep/er").mkdir(parents=True)
        (tmp_path / top / "deep/er/file").write_text("theirs" if top == "theirs" else "mine")
        (tmp_path / top / "deep/er/link").symlink_to("secret-target" if top == "theirs" else "file")
        (tmp_path / top / "deep/er/nothing").mkdir()
    (tmp_path / "job/aaa").write_text("first")
    (tmp_path / "theirs/more-secrets").write_text("theirs")

    def swap() -> None:
        (tmp_path / "job" / mine).rename(tmp_path / "away")
        (tmp_path / "job" / mine).symlink_to(tmp_path / theirs)

    folder = os.open(tmp_path / "job", os.O_RDONLY)
    try:
        if when == "before it":
            swap()
        listed = walk(folder, frozenset())
        all_found = [next(listed)]
        if when == "during the list":
            swap()
        all_found += listed
        if when == "after the list":
            swap()
        data = pack_all(folder, all_found)
    finally:
        os.close(folder)
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert "aaa" in archive.namelist()
    assert not [name for name in archive.namelist() if "secret" in name]
    assert not [name for name in archive.namelist() if archive.read(name) in {b"theirs", b"secret-target"}]


@pytest.mark.spec("W5", "O1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_files_of_others_are_left_out_where_the_owner_is_known(tmp_path: Path, folder: int) -> None:
    for name, owner in (("mine", 12345), ("foreign", 0)):
        (tmp_path / name).write_text(name)
        os.chown(tmp_path / name, owner, 0)
    assert [found.name for found in walk(folder, frozenset(), 12345)] == ["mine"]
    status = (tmp_path / "foreign").stat()
    lent = {(status.st_dev, status.st_ino)}
    all_found = sorted(walk(folder, frozenset(), 12345, lent))
    assert [(found.name, found.lent) for found in all_found] == [("foreign", True), ("mine", False)]
    (tmp_path / "other").write_text("of root as well")
    os.replace(tmp_path / "other", tmp_path / "foreign")
    assert zipfile.ZipFile(io.BytesIO(zip_of(folder, all_found))).namelist() == ["mine"]
    assert zipfile.ZipFile(io.BytesIO(file_zip_of(folder, all_found))).namelist() == ["mine"]
    assert len([*walk(folder, frozenset())]) == 2


@pytest.mark.spec("W1")
def test_everything_is_inside_but_inputs_and_hidden_files(tmp_path: Path, folder: int) -> None:
    for name in ("out.txt", "in.txt", ".hidden", "sub/out.txt", "sub/in.txt", "sub/.hidden", ".config/out.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    archive = pack(folder, frozenset({"in.txt", "sub/in.txt"}))
    assert sorted(archive.namelist()) == ["out.txt", "sub/out.txt"]
    assert archive.read("sub/out.txt") == b"sub/out.txt"


def test_empty_folders_are_kept_but_not_those_that_came_with_inputs(tmp_path: Path, folder: int) -> None:
    (tmp_path / "made/deep").mkdir(parents=True)
    (tmp_path / "brought/deep").mkdir(parents=True)
    (tmp_path / "brought/deep/in.txt").write_text("")
    assert pack(folder, frozenset({"brought/deep/in.txt"})).namelist() == ["made/deep/"]
    (tmp_path / "brought/deep/in.txt").unlink()
    assert pack(folder, frozenset({"brought/deep/in.txt"})).namelist() == ["made/deep/"]


@pytest.mark.spec("W5")
@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "..", "../other", "sub/../../other", "out/x", "sub/out/../../etc", "sub/up/x", "./../../x"],
)
def test_a_link_that_leads_out_is_left_out(tmp_path: Path, folder: int, target: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "sub/out").symlink_to("/etc")
    (tmp_path / "sub/up").symlink_to("..")
    (tmp_path / "link").symlink_to(target)
    assert pack(folder).namelist() == ["sub/up"], "sub/up stays inside; nothing is read through any of them"


@pytest.mark.parametrize("target", ["data.txt", "sub/more.txt", "./sub", "missing", "sub", "up"])
def test_a_link_that_stays_inside_is_kept_as_a_link(tmp_path: Path, folder: int, target: str) -> None:
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/more.txt").write_text("more")
    (tmp_path / "link").symlink_to(target)
    archive = pack(folder)
    assert archive.read("link").decode() == target
    assert stat.S_ISLNK(archive.getinfo("link").external_attr >> 16)
    assert sorted(archive.namelist()) == ["data.txt", "link", "sub/more.txt"]


@pytest.mark.spec("W5")
@pytest.mark.parametrize(
    ("name", "target", "packed"),
    [
        ("link", "./sub/../data.txt", "data.txt"),
        ("link", "sub/..", "."),
        ("sub/link", "deep/../../data.txt", "../data.txt"),
        ("sub/link", "deep/../more.txt", "more.txt"),
        ("sub/link", "../sub/deep/../..", ".."),
        ("sub/deep/link", "../../sub/../other/./x", "../../other/x"),
        ("sub/link", "deep/..", "."),
    ],
)
def test_a_link_that_goes_up_from_a_folder_is_packed_without_going_down(
    tmp_path: Path, folder: int, name: str, target: str, packed: str
) -> None:
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "sub/deep").mkdir(parents=True)
    (tmp_path / "sub/more.txt").write_text("more")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/x").write_text("x")
    (tmp_path / name).symlink_to(target)
    archive = pack(folder)
    assert archive.read(name).decode() == packed
    assert (tmp_path / name).resolve() == (tmp_path / name).parent.joinpath(packed).resolve()
    data = zip_of(folder, walk(folder, frozenset()))
    (tmp_path / "out").mkdir()
    written, left_out = unpack(Archive.of_bytes(data), tmp_path / "out")
    assert (tmp_path / "out" / name in written, left_out) == (True, 0)


def test_pipes_and_sockets_are_passed_by_without_waiting(tmp_path: Path, folder: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        # A socket's path is short: it is bound by a name relative to the open folder.
        listener.bind(f"/proc/self/fd/{folder}/socket")
        (tmp_path / "file").write_text("x")
        assert pack(folder).namelist() == ["file"]
