"""Is content that is kept nowhere verified like any other, and is a full disk of ours told apart?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from wakugumi.adapters.blobs.place import FolderPlace, Place
from wakugumi.adapters.blobs.place_http import HttpPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.adapters.blobs.temporary import ArchiveDownload, NotWritten, TemporaryDownload, open_blob, open_here
from wakugumi.adapters.zip.records import text_entry
from wakugumi.errors import Refused

CONTENT = b"content"
REF = ref_of_bytes(CONTENT)


def a_download(folder: Path) -> TemporaryDownload:
    return TemporaryDownload(REF, str(folder / "part"), str(folder / "whole"))


def test_a_whole_download_is_in_its_place_and_its_scratch_is_gone(tmp_path: Path) -> None:
    download = a_download(tmp_path)
    download.write(b"wrong")
    download.restart()
    download.write(CONTENT)
    download.finish()
    assert (tmp_path / "whole").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["whole"]


@pytest.mark.parametrize("content", [b"", b"conten", b"CONTENT"])
def test_another_content_is_the_senders_fault(tmp_path: Path, content: bytes) -> None:
    download = a_download(tmp_path)
    download.write(content)
    with pytest.raises(Refused) as refused:
        download.finish()
    assert refused.value.code == "blob-broken"
    assert not isinstance(refused.value, NotWritten)
    assert not (tmp_path / "whole").exists()


def test_more_than_was_promised_is_the_senders_fault(tmp_path: Path) -> None:
    download = a_download(tmp_path)
    with pytest.raises(Refused) as refused:
        download.write(CONTENT + b"!")
    assert not isinstance(refused.value, NotWritten)
    download.close()


def test_a_folder_that_takes_no_file_is_our_own_fault(tmp_path: Path) -> None:
    with pytest.raises(NotWritten) as refused:
        a_download(tmp_path / "gone")
    assert isinstance(refused.value.error, FileNotFoundError)
    (tmp_path / "whole" / "in the way").mkdir(parents=True)
    download = a_download(tmp_path)
    download.write(CONTENT)
    with pytest.raises(NotWritten):
        download.finish()


@pytest.mark.parametrize("step", [1, 7, 31, 50, 1_000])
def test_the_file_of_an_archive_begins_with_its_first_content(tmp_path: Path, step: int) -> None:
    entry, _ = text_entry("name", b"x")
    packed = entry.head() + b"content"
    ref, head = ref_of_bytes(packed), bytearray()
    for at in range(0, len(packed), step):  # Each piece comes in a try of its own.
        download = ArchiveDownload(ref, str(tmp_path / "part"), str(tmp_path / "whole"), head)
        assert download.at == at
        download.write(packed[at : at + step])
        download.close()
    download = ArchiveDownload(ref, str(tmp_path / "part"), str(tmp_path / "whole"), head)
    download.cut(10)
    download.restart()
    assert head == b""
    download.write(packed)
    download.finish()
    assert (bytes(head), (tmp_path / "whole").read_bytes()) == (entry.head(), b"content")


@pytest.mark.parametrize("content", [b"", b"PK", CONTENT * 10])
def test_the_head_of_what_is_no_archive_is_never_long(tmp_path: Path, content: bytes) -> None:
    head = bytearray()
    download = ArchiveDownload(ref_of_bytes(content), str(tmp_path / "part"), str(tmp_path / "whole"), head)
    download.write(content)
    download.finish()
    assert bytes(head) + (tmp_path / "whole").read_bytes() == content
    assert len(head) <= 30


def test_a_blob_in_a_folder_that_we_see_is_read_there(tmp_path: Path) -> None:
    place, moved = FolderPlace(tmp_path / "place"), list[int]()
    (tmp_path / "source").write_bytes(CONTENT)
    place.put(REF, tmp_path / "source")
    file = open_here(place, REF, moved.append)
    assert file is not None
    assert os.pread(file, 100, 0) == CONTENT
    os.close(file)
    assert sum(moved) == len(CONTENT)
    with open(place.store.path(REF.sha256), "r+b", opener=_anyway) as damaged:
        damaged.write(b"X")
    with pytest.raises(Refused) as refused:
        open_here(place, REF, moved.append)
    assert refused.value.code == "blob-broken"


def _anyway(path: str, flags: int) -> int:
    Path(path).chmod(0o600)
    return os.open(path, flags)


def test_a_place_elsewhere_is_not_opened() -> None:
    assert open_here(HttpPlace("http://127.0.0.1:1", ""), REF, lambda _: None) is None


class Elsewhere:
    """A place that is no folder of this machine."""

    url = "http://elsewhere"

    def __init__(self, place: FolderPlace) -> None:
        self.has, self.put, self.fetch, self.remove = place.has, place.put, place.fetch, place.remove


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_blob_is_opened_wherever_it_is_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    place, temporary = FolderPlace(tmp_path / "place"), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (tmp_path / "content").write_bytes(CONTENT)
    place.put(REF, tmp_path / "content")
    there: Place = Elsewhere(place) if is_remote else place
    with open_blob(there, REF) as file:
        assert os.listdir(temporary) == []
        assert file.read() == CONTENT
    with pytest.raises(Refused) as refused:
        open_blob(there, ref_of_bytes(b"another"))
    assert refused.value.code == "no-blob"
    assert os.listdir(temporary) == []
