"""Which entries of a stranger's archive are taken, which are left out, and which refuse the whole archive?"""

from __future__ import annotations

import io
import stat
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.adapters.zip.honest_entries import is_taken, link_target
from wakugumi.adapters.zip.read import Archive
from wakugumi.errors import Refused
from wakugumi.limits.wire import FILE_NAME_BYTES_MAX, FILE_NAME_PART_BYTES_MAX

LINK = stat.S_IFLNK | 0o777


def archive_of(name: str, content: str = "", mode: int = stat.S_IFREG | 0o644) -> Archive:
    raw, entry = io.BytesIO(), zipfile.ZipInfo("x" * len(name.encode()))
    entry.filename = name  # Past the constructor, which cuts a name at a NUL.
    entry.external_attr = mode << 16
    with zipfile.ZipFile(raw, "w") as file:
        file.writestr(entry, content)
    return Archive.of_bytes(raw.getvalue())


def taken(archive: Archive, *, dot_files: bool = False) -> bool:
    (entry,) = archive.entries()
    return is_taken(archive, entry, dot_files=dot_files)


@pytest.mark.parametrize("name", ["a", "a/b.txt", "sub/", "größe", "x" * FILE_NAME_PART_BYTES_MAX, "a b", "a.."])
def test_an_honest_name_is_taken(name: str) -> None:
    assert taken(archive_of(name))


@pytest.mark.parametrize("name", ["..", "../a", "a/../../b", "/etc/passwd", "a//b", "./a", "a/./b"])
def test_a_name_that_leads_elsewhere_refuses_the_archive(name: str) -> None:
    with pytest.raises(Refused, match="leads elsewhere") as refused:
        taken(archive_of(name))
    assert refused.value.code == "bad-name"


@pytest.mark.parametrize(
    "name",
    [
        ".waku-1234",
        ".waku/record.json",
        "a\\b",
        "C:/a",
        "a\u202eb",
        "a\nb",
        "x" * (FILE_NAME_PART_BYTES_MAX + 1),
        "ü" * (FILE_NAME_PART_BYTES_MAX // 2 + 1),
        "/".join(["x" * 200] * (FILE_NAME_BYTES_MAX // 200 + 1)),
    ],
)
def test_a_name_that_no_worker_sends_is_left_out_even_with_dot_files(name: str) -> None:
    assert not taken(archive_of(name), dot_files=True)


@pytest.mark.parametrize("name", [".bashrc", "a/.git/config", ".a/"])
@pytest.mark.parametrize("dot_files", [False, True])
def test_a_dot_file_is_taken_where_it_is_wanted(name: str, dot_files: bool) -> None:
    assert taken(archive_of(name), dot_files=dot_files) is dot_files


@pytest.mark.parametrize(
    ("name", "target", "is_one"),
    [
        ("a", "b", True),
        ("sub/a", "../b", True),
        ("sub/a", "b/c", True),
        ("a", "b/../c", False),
        ("a", "x\u202ey", False),
    ],
)
def test_a_link_is_taken_if_it_surely_stays_inside(name: str, target: str, is_one: bool) -> None:
    assert taken(archive_of(name, target, LINK)) is is_one


@pytest.mark.parametrize(
    ("name", "target"),
    [("a", ".."), ("a", "../b"), ("sub/a", "../../b"), ("a", "/etc"), ("a", ""), ("a", "x\0y"), ("a", "b" * 5_000)],
)
def test_a_link_that_leads_outside_refuses_the_archive(name: str, target: str) -> None:
    archive = archive_of(name, target, LINK)
    (entry,) = archive.entries()
    for ask in (lambda: taken(archive), lambda: link_target(archive, entry)):
        with pytest.raises(Refused, match="leads outside"):
            ask()


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK])
def test_an_entry_that_is_no_file_refuses_the_archive(kind: int) -> None:
    with pytest.raises(Refused, match="neither a file nor a link"):
        taken(archive_of("a", mode=kind | 0o644))


@given(st.lists(st.sampled_from(["a", "b", "..", ".", "c"]), min_size=1, max_size=6))
def test_a_target_that_is_given_never_climbs_out_of_the_folder(parts: list[str]) -> None:
    archive = archive_of("sub/link", "/".join(parts), LINK)
    (entry,) = archive.entries()
    depth = least = 1
    for part in parts:
        depth += {"..": -1, ".": 0}.get(part, 1)
        least = min(least, depth)
    if least >= 0:
        assert link_target(archive, entry) == "/".join(parts)
    else:
        with pytest.raises(Refused):
            link_target(archive, entry)
