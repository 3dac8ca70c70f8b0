"""Are a stranger's files written whole, in one step, into the folder and nowhere else?"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.adapters.zip.extract import Bound, Checked, check, unpack, unpack_counted
from wakugumi.adapters.zip.read import Archive
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.units import KIB

ZEROS = bytes(64 * KIB)
LINK = stat.S_IFLNK | 0o777


def archive_of(*files: tuple[str, bytes] | tuple[str, bytes, int]) -> Archive:
    return Archive.of_bytes(bytes_of(*files))


def bytes_of(*files: tuple[str, bytes] | tuple[str, bytes, int]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content, *mode in files:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (mode[0] if mode else stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, content)
    return raw.getvalue()


def test_files_folders_and_links_are_written_and_dot_files_counted(tmp_path: Path) -> None:
    archive = archive_of(
        ("link", b"sub/run", LINK), ("empty/", b"", 0o40755), ("sub/run", b"#!", 0o100755), (".hidden", b"x")
    )
    assert check(archive, Bound()) == Checked(links=1, left_out=1, size=len(b"sub/run") + len(b"#!"))
    paths, left_out = unpack(archive, tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == ["sub/run", "link"], "links come last"
    assert left_out == 1
    assert (tmp_path / "link").read_bytes() == b"#!"
    assert os.access(tmp_path / "sub/run", os.X_OK)
    assert sorted(os.listdir(tmp_path)) == ["empty", "link", "sub"]
    assert unpack_counted(archive, tmp_path) == (2, 1)
    assert unpack_counted(archive, tmp_path, bound=Bound(dot_files=True)) == (3, 0)


@given(st.lists(st.sampled_from([b"x", b"\0", ZEROS, ZEROS[1:], b"y" * 64 * KIB]), max_size=5))
def test_holes_change_no_content(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    folder, content = tmp_path_factory.mktemp("out"), b"".join(pieces)
    unpack(archive_of(("a", content)), folder)
    assert (folder / "a").read_bytes() == content


@pytest.mark.parametrize(
    ("bytes_max", "is_refused"),
    [(5, False), (4, True)],
)
def test_more_bytes_than_the_bound_are_refused_before_the_first_is_written(
    tmp_path: Path, bytes_max: int, is_refused: bool
) -> None:
    archive, bound = archive_of(("a", b"12"), ("b", b"345")), Bound(bytes_max, "so it is", "too-many-bytes")
    if is_refused:
        with pytest.raises(Refused, match="so it is") as refused:
            unpack(archive, tmp_path, bound=bound)
        assert refused.value.code == "too-many-bytes"
        assert os.listdir(tmp_path) == []
    else:
        unpack(archive, tmp_path, bound=bound)


def test_a_name_of_a_file_and_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="as a file and as a folder"):
        unpack(archive_of(("a", b""), ("a/b", b"")), tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "sub").symlink_to(outside)
    with pytest.raises(Refused, match="is not a folder"):
        unpack(archive_of(("sub/a", b"x")), inside)
    (outside / "target").write_bytes(b"mine")
    (inside / "a").symlink_to(outside / "target")
    unpack(archive_of(("a", b"new")), inside)
    assert (outside / "target").read_bytes() == b"mine"
    assert (inside / "a").read_bytes() == b"new"
    assert not (inside / "a").is_symlink()


def test_a_folder_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="a"):
        unpack(archive_of(("a", b"x")), tmp_path)
    assert os.listdir(tmp_path) == ["a"]


def test_an_exception_of_the_caller_leaves_no_half_file(tmp_path: Path) -> None:
    calls: list[None] = []

    def stop_in_the_second_file() -> None:
        calls.append(None)
        if len(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(archive_of(("a", b"1"), ("b", b"2")), tmp_path, stop_in_the_second_file)
    assert os.listdir(tmp_path) == ["a"]


def test_a_broken_content_says_how_many_files_came_before(tmp_path: Path) -> None:
    data = bytearray(bytes_of(("a", b"first"), ("b", b"second")))
    data[data.index(b"second")] ^= 1
    with pytest.raises(PeerError, match="1 files were written before it"):
        unpack(Archive.of_bytes(bytes(data)), tmp_path)
    assert os.listdir(tmp_path) == ["a"]
