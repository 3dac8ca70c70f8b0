"""What is in a ZIP that a stranger made?"""

from __future__ import annotations

import errno
import os
import random
import stat
import struct
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.adapters.files import Closing
from wakugumi.adapters.zip.extract import unpack
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.records import LOCAL
from wakugumi.errors import PeerError, Refused

CONTENTS = {"a.txt": b"one", "sub/b": b"two" * 10_000, "ü.bin": random.Random(5).randbytes(50_000), "empty": b""}


def packed(method: int = zipfile.ZIP_DEFLATED, *, large: bool = False, comment: bytes = b"") -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.comment = comment
        for name, content in CONTENTS.items():
            with archive.open(zipfile.ZipInfo(name) if method == 0 else name, "w", force_zip64=large) as file:
                file.write(content)
    return buffer.getvalue()


def contents(data: bytes) -> dict[str, bytes]:
    archive = Archive.of_bytes(data)
    return {entry.name: archive.read(entry) for entry in archive.entries()}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("comment", [b"", b"PK and more" * 100])
def test_what_others_pack_is_read(method: int, large: bool, comment: bytes) -> None:
    assert contents(packed(method, large=large, comment=comment)) == CONTENTS


def test_one_that_is_made_while_it_is_sent_is_read() -> None:
    class Pipe(BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    buffer = Pipe()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in CONTENTS.items():
            archive.writestr(name, content)
    assert contents(buffer.getvalue()) == CONTENTS


def test_a_list_longer_than_a_page_is_read(tmp_path: Path) -> None:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(10_000):
            archive.writestr(f"{number:0100}", b"%d" % number)
    path = tmp_path / "many.zip"
    path.write_bytes(buffer.getvalue())
    with path.open("rb") as file:
        opened = Archive.of_file(file.fileno())
        assert opened.count == 10_000
        assert [int(opened.read(entry)) for entry in opened.entries()] == list(range(10_000))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_that_no_worker_uses_is_refused(method: int) -> None:
    with pytest.raises(PeerError, match="method"):
        contents(packed(method))


def test_an_encrypted_one_is_refused() -> None:
    data = bytearray(packed())
    at = data.index(b"PK\1\2")
    data[at + 8] |= 1
    with pytest.raises(PeerError, match="encrypted"):
        contents(bytes(data))


def test_a_bomb_is_noticed_when_it_is_more_than_it_said() -> None:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(50_000_000))
    data = bytearray(buffer.getvalue())
    struct.pack_into("<I", data, data.index(b"PK\1\2") + 24, 1_000)
    opened = Archive.of_bytes(bytes(data))
    (entry,) = opened.entries()
    with pytest.raises(PeerError):
        next(opened.content(entry))


def test_entries_that_share_their_content_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("n0000", bytes(1 << 20))
    data = buffer.getvalue()
    at, end = data.index(b"PK\1\2"), data.rindex(b"PK\5\6")
    entries = b"".join(data[at:end].replace(b"n0000", b"n%04d" % number) for number in range(200))
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 200, 200, len(entries), at, 0)
    with pytest.raises(PeerError, match="overlap"):
        unpack(Archive.of_bytes(data[:at] + entries + tail), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["entry", "end"])
def test_a_position_that_no_file_has_is_the_peers_fault(tmp_path: Path, where: str) -> None:
    data = packed()
    if where == "entry":
        at = data.index(b"PK\1\2")
        name_bytes = struct.unpack_from("<H", data, at + 28)[0]
        extra = struct.pack("<HHQ", 1, 8, 1 << 63)
        entry = bytearray(data[at : at + 46 + name_bytes] + extra)
        struct.pack_into("<H", entry, 30, len(extra))
        struct.pack_into("<I", entry, 42, 0xFFFFFFFF)
        data = data[:at] + bytes(entry) + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(entry), at, 0)
    else:
        end = data.rindex(b"PK\5\6")
        data = data[:end] + struct.pack("<4sIQI", b"PK\6\7", 0, 1 << 63, 1) + data[end:]
    path = tmp_path / "odd.zip"
    path.write_bytes(data)
    with path.open("rb") as file, pytest.raises(PeerError):
        unpack(Archive.of_file(file.fileno()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@given(
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=5), st.integers(0, 1 << 20)
)
def test_a_broken_one_is_the_peers_fault_and_never_anything_else(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(packed())
    for at, value in changes:
        data[at % len(data)] = value
    data = data[: len(data) - cut % 100]
    try:
        found = contents(bytes(data))
    except PeerError:
        return
    assert list(found.values()) == list(CONTENTS.values()), "or it is what it was"


@pytest.mark.spec("W5")
@given(
    st.text(st.sampled_from("a/.\\:\0-"), min_size=1, max_size=12), st.sampled_from([0, 0o100644, 0o120777, 0o040755])
)
def test_no_name_leads_out_of_the_folder(name: str, mode: int) -> None:
    import tempfile

    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("x" * len(name))
        info.external_attr = mode << 16
        archive.writestr(info, b"../../x")
    data = buffer.getvalue().replace(b"x" * len(name), name.encode())
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "a", "b")
        folder.mkdir(parents=True)
        try:
            written, _ = unpack(Archive.of_bytes(data), folder)
        except (Refused, PeerError, OSError):
            written = []
        assert os.listdir(top) == ["a"]
        assert os.listdir(folder.parent) == ["b"]
        assert all(folder in path.parents for path in written)


def a_download(path: Path, packed: bytes) -> tuple[Path, bytes]:
    """A file that lacks the archive's head, and the head."""
    head_bytes = LOCAL.size + int.from_bytes(packed[26:28], "little")
    path.write_bytes(packed[head_bytes:])
    return path, packed[:head_bytes]


def packed_of(**files: bytes) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_RDONLY], ids=["ours", "not to be changed"])
def test_the_space_of_a_download_is_given_back_while_it_is_read(tmp_path: Path, flags: int) -> None:
    content = random.Random(1).randbytes(10 * 1024 * 1024)
    path, head = a_download(tmp_path / "download", packed_of(small=b"before", large=content))
    with Closing(os.open(path, flags)) as file:
        whole = os.fstat(file).st_blocks
        used_up = Archive.of_download(file, str(path), head)
        small, large = used_up.entries()
        assert (used_up.read(small), used_up.read(large)) == (b"before", content)
        assert used_up.read(small) == b"before", "the list and small content stay"
        left = os.fstat(file).st_blocks
        assert left < whole / 2 if flags == os.O_RDWR else left == whole
        assert not used_up.can_become(large), "it is not the first"


def test_a_file_that_is_not_a_download_is_not_used_up(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(10 * 1024 * 1024)
    (tmp_path / "archive").write_bytes(packed_of(large=content))
    with Closing(os.open(tmp_path / "archive", os.O_RDWR)) as file:
        known = Archive.of_file(file)
        for entry in (*known.entries(), *known.entries()):
            assert known.read(entry) == content
            assert not known.can_become(entry)


def test_a_download_becomes_its_first_large_content(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(2 * 1024 * 1024)
    path, head = a_download(tmp_path / "download", packed_of(large=content, small=b"behind"))
    (target := tmp_path / "large").touch(0o640)
    with Closing(os.open(path, os.O_RDWR)) as file:
        known = Archive.of_download(file, str(path), head)
        large, small = known.entries()
        assert (known.can_become(large), known.can_become(small)) == (True, False)
        assert b"".join(known.content(large, frees=False)) == content, "and is whole afterwards"
        assert known.become(large, str(target))
        assert os.path.samestat(os.fstat(file), target.stat())
    assert target.read_bytes() == content
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["large"]


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EACCES])
def test_a_download_on_another_file_system_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    content = random.Random(1).randbytes(2 * 1024 * 1024)
    path, head = a_download(tmp_path / "download", packed_of(large=content))
    (target := tmp_path / "large").touch()

    def fail(*_: object) -> None:
        raise OSError(code, "no")

    with Closing(os.open(path, os.O_RDWR)) as file:
        known = Archive.of_download(file, str(path), head)
        (large,) = known.entries()
        monkeypatch.setattr(os, "replace", fail)
        if code == errno.EXDEV:
            assert not known.become(large, str(target))
        else:
            with pytest.raises(PermissionError):
                known.become(large, str(target))
        assert known.read(large) == content
