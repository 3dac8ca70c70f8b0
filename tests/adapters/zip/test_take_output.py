"""What a program printed comes out of the ZIP as it went in, and leaves the archive as it was."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from msgspec import structs
from tests.kit.hostile_archives import ARCHIVES

from wakugumi.adapters.zip.add_output import splice
from wakugumi.adapters.zip.read import Archive
from wakugumi.adapters.zip.records import LOCAL, STORED, UTF8_FLAG, end_of, line_of
from wakugumi.adapters.zip.take_output import result_for_frames, unsplice
from wakugumi.core.ids import JobId
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.runner import OUTPUT_BYTES_MAX
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.job import JobResult, write_result
from wakugumi.wire.messages.payload import encode

JOB = JobId(bytes(16))
TEXTS = {"stdout.txt": b"printed\n" * 1_000, "stderr.txt": b"said\n"}


def _archive(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def _taken(data: bytes) -> tuple[int, bytes, bytes, bytes]:
    file, stdout, stderr = io.BytesIO(data), io.BytesIO(), io.BytesIO()
    left = unsplice(file, {"stdout": stdout, "stderr": stderr})
    return left, file.getvalue(), stdout.getvalue(), stderr.getvalue()


@pytest.mark.spec("G1", "N1")
@pytest.mark.parametrize(
    "files",
    [
        {"a": b"x" * 9_000, "b/c": b""},
        {"stdout.txt": b"its own", "stdout.captured.txt": b"this too", "stderr.txt": b""},
    ],
)
def test_what_went_in_comes_out_and_the_rest_is_as_it_was(files: dict[str, bytes]) -> None:
    before = _archive(files)
    left, after, stdout, stderr = _taken(splice(before, TEXTS))
    assert (left, stdout, stderr) == (len(files), *TEXTS.values())
    assert after == before


def test_where_nothing_was_made_nothing_is_left() -> None:
    left, _, stdout, stderr = _taken(splice(b"", TEXTS))
    assert (left, stdout, stderr) == (0, *TEXTS.values())


def test_texts_in_the_midst_are_taken_from_the_list() -> None:
    left, after, stdout, _ = _taken(_archive({"stdout.txt": b"first", "made": b"by it"}))
    assert (left, stdout) == (1, b"first")
    with zipfile.ZipFile(io.BytesIO(after)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"made": b"by it"}


def _huge() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("stdout.txt", "w") as text:
        for _ in range(OUTPUT_BYTES_MAX // 2**20 + 1):
            text.write(bytes(2**20))
    return data.getvalue()


def _broken() -> bytes:
    data = bytearray(_archive(TEXTS))
    data[60:90] = bytes(30)
    return bytes(data)


def _packed_otherwise(method: int) -> bytes:
    """As BZIP2 or LZMA, and then it is broken."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("stdout.txt", bytes(range(256)) * 4)
    data = bytearray(made.getvalue())
    data[50:90] = b"\xff" * 40
    return bytes(data)


@pytest.mark.parametrize("name", [name for name, it in ARCHIVES.items() if it.files is not None])
def test_a_hostile_list_is_gone_through_and_left_as_it_was(name: str) -> None:
    """The leader only takes its texts out: whoever unpacks the rest, or passes it on, looks at the names."""
    before = ARCHIVES[name].data
    with zipfile.ZipFile(io.BytesIO(before)) as archive:
        infos = archive.infolist()
    made = io.BytesIO(before)
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr("stdout.txt", TEXTS["stdout.txt"])
        archive.writestr("stderr.txt", TEXTS["stderr.txt"])
    left, after, stdout, stderr = _taken(made.getvalue())
    assert (left, stdout, stderr) == (len(infos), *TEXTS.values())
    with zipfile.ZipFile(io.BytesIO(after)) as archive:
        assert [info.orig_filename for info in archive.infolist()] == [info.orig_filename for info in infos]


def test_a_list_of_many_entries_takes_no_memory_and_one_of_too_many_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`zipfile` took 800 bytes for each of them."""
    count = 50_000
    entry = LOCAL.pack(b"PK\3\4", 20, UTF8_FLAG, STORED, 0, 33, 0, 0, 0, 1, 0) + b"x"
    path = tmp_path / "many.zip"
    with path.open("wb") as file:
        file.write(entry * count)
        at = file.tell()
        for number in range(count):
            file.write(line_of(b"%0100d" % number, 0, UTF8_FLAG, STORED, (0, 33), 0, 0, 0, number * len(entry)))
        file.write(end_of(count, file.tell() - at, at))
    before = path.read_bytes()
    path.write_bytes(splice(before, TEXTS))
    with path.open("r+b") as file:
        tracemalloc.start()
        try:
            left = unsplice(file, {"stdout": io.BytesIO(), "stderr": io.BytesIO()})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert left == count
    assert peak < 8 * MIB
    assert path.read_bytes() == before
    monkeypatch.setattr("wakugumi.adapters.zip.read.ARCHIVE_ENTRIES_MAX", count - 1)
    with path.open("r+b") as file, pytest.raises(Refused, match="too many entries") as no:
        unsplice(file, {"stdout": io.BytesIO(), "stderr": io.BytesIO()})
    assert no.value.code == "bad-result"


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"no ZIP at all", _archive(TEXTS)[:-30], _broken(), _huge()),
        *(_packed_otherwise(zipfile.ZIP_BZIP2), _packed_otherwise(zipfile.ZIP_LZMA)),
    ],
)
def test_what_cannot_be_read_is_no_result(data: bytes) -> None:
    with pytest.raises(Refused) as refused:
        _taken(data)
    assert refused.value.code == "bad-result"


@pytest.mark.spec("N2", "F10")
def test_a_result_for_frames_has_no_output_in_its_archive_and_no_text_is_inflated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_content(*_: object) -> None:
        pytest.fail("a text was inflated")

    monkeypatch.setattr(Archive, "content", no_content)
    bare = JobResult("id", stdout="out", stderr="err")
    own = _archive({"stdout.txt": b"its own", "a": b"x"})
    for before, after in ((own, own), (b"", None), (b"PK", b"PK")):
        packed = before if before == b"PK" else splice(before, TEXTS)
        sealed = write_result(structs.replace(bare, output_archive=packed, archive_output=True))
        assert result_for_frames(JOB, sealed) == encode(structs.replace(bare, output_archive=after))
    apart = structs.replace(bare, output_archive=splice(own, TEXTS))
    assert result_for_frames(JOB, write_result(apart)) == result_for_frames(JOB, encode(apart)) == encode(apart)
    with pytest.raises(PeerError):
        result_for_frames(JOB, b"\0WK1")
