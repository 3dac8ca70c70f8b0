"""A file below a folder is opened through no link, by the kernel in one call or part by part, whatever swaps there."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.kit.swapper import Swapper

from wakugumi.adapters.beneath import GONE, LOOK, LOOK_AT_FOLDER, OpenBelow, by_kernel, by_parts, open_beneath
from wakugumi.adapters.files import NEW, READ, Closing
from wakugumi.adapters.zip.walk import walk


@pytest.fixture(params=["kernel", "parts"])
def below(request: pytest.FixtureRequest) -> OpenBelow:
    opened = by_kernel() if request.param == "kernel" else by_parts
    if opened is None:
        pytest.skip("the kernel has no openat2")
    return opened


@contextmanager
def opened(path: Path) -> Iterator[int]:
    with Closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY)) as folder:
        yield folder


@pytest.mark.spec("W5")
def test_a_name_below_the_folder_is_opened(below: OpenBelow, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/ü").write_bytes(b"in")
    with opened(tmp_path) as folder:
        with Closing(below(folder, "a/b/ü", READ, 0)) as file:
            assert os.read(file, 9) == b"in"
            assert not os.get_inheritable(file)
        with Closing(below(folder, "a/b/new", NEW, 0o640)) as file:
            assert os.fstat(file).st_mode & 0o777 == 0o640
        with pytest.raises(FileExistsError):
            below(folder, "a/b/new", NEW, 0o640)
        with pytest.raises(FileNotFoundError):
            below(folder, "a/none/new", READ, 0)


@pytest.mark.spec("W5")
@pytest.mark.parametrize("name", ["link/file", "link", "up/file", "file/file"])
@pytest.mark.parametrize("flags", [READ, LOOK_AT_FOLDER, NEW])
def test_no_link_is_followed_at_any_place(below: OpenBelow, tmp_path: Path, name: str, flags: int) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").write_bytes(b"out")
    inside = tmp_path / "in/sub"
    inside.mkdir(parents=True)
    (inside / "link").symlink_to(tmp_path / "out")
    (inside / "up").symlink_to("../../out")
    (inside / "file").write_bytes(b"")
    with opened(tmp_path / "in") as folder, pytest.raises(OSError, match=r"link|directory|exists") as no:
        below(folder, f"sub/{name}", flags | os.O_NOFOLLOW, 0o600)
    assert no.value.errno in GONE | {errno.EEXIST}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/passwd", "a/.."])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    with opened(tmp_path) as folder, pytest.raises(OSError, match="leads out"):
        open_beneath(folder, name, READ)


def test_a_name_with_a_nul_is_refused(below: OpenBelow, tmp_path: Path) -> None:
    with opened(tmp_path) as folder, pytest.raises(ValueError, match="null"):
        below(folder, "a\0/b", READ, 0)


def test_a_link_itself_can_be_looked_at(below: OpenBelow, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/link").symlink_to("/")
    with opened(tmp_path) as folder, Closing(below(folder, "a/link", LOOK, 0)) as file:
        assert os.readlink("", dir_fd=file) == "/"


@pytest.mark.spec("W5")
def test_a_folder_that_turns_into_a_link_again_and_again_leads_nowhere(below: OpenBelow, tmp_path: Path) -> None:
    for name, content in (("in/sub/deep", b"in"), ("out/deep", b"out")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_bytes(content)
    seen = dict.fromkeys((b"in", b"refused"), 0)
    with opened(tmp_path / "in") as folder, Swapper(tmp_path / "in/sub", tmp_path / "out"):
        for number in range(100_000):
            try:
                with Closing(below(folder, "sub/deep/file", READ, 0)) as file:
                    seen[os.read(file, 9)] += 1
            except OSError as error:
                seen[b"refused"] += error.errno in GONE
            if number > 2_000 and all(seen.values()):
                break
    assert all(seen.values()), "the folder was seen as itself and as a link"


@pytest.mark.spec("W5")
def test_a_walk_among_folders_that_turn_into_links_finds_only_what_is_inside(tmp_path: Path) -> None:
    for name in ("in/sub/deep/mine", "out/deep/theirs"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found: set[str] = set()
    with opened(tmp_path / "in") as folder, Swapper(tmp_path / "in/sub", tmp_path / "out"):
        for _ in range(3_000):
            found.update(one.name for one in walk(folder, frozenset()))
    assert [name for name in found if name.endswith("/deep/mine")]
    assert not [name for name in found if "theirs" in name]


REFUSED = """
import ctypes, errno, os, sys
from wakugumi.adapters.beneath import by_kernel, open_beneath
BPF = [(0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x50000 | int(sys.argv[2])), (0x06, 0, 0, 0x7FFF0000)]
class Line(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("lines", ctypes.POINTER(Line))]
libc = ctypes.CDLL(None, use_errno=True)
lines = (Line * len(BPF))(*[Line(*line) for line in BPF])
program = Filter(len(BPF), lines)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program)):
    sys.exit("no seccomp: " + os.strerror(ctypes.get_errno()))
assert by_kernel() is None
folder = os.open(sys.argv[1], os.O_RDONLY)
print(os.read(open_beneath(folder, "a/b", os.O_RDONLY), 9).decode())
try:
    open_beneath(folder, "link/b", os.O_RDONLY)
except OSError as no:
    print(no.errno in (errno.ENOTDIR, errno.ELOOP))
"""


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_a_sandbox_refuses_the_call_each_part_is_opened(tmp_path: Path, number: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_text("in")
    (tmp_path / "link").symlink_to("a")
    words = [sys.executable, "-c", REFUSED, str(tmp_path), str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.stderr.startswith("no seccomp"):
        pytest.skip(done.stderr)
    assert done.stdout.split() == ["in", "True"], done.stderr
