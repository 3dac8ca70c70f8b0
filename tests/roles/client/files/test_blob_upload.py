"""How does one blob get into a leader's place?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from wakugumi.adapters.blobs.file_put import PutStopped
from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.errors import Refused
from wakugumi.roles.client.files.blob_upload import BlobUpload
from wakugumi.roles.client.files.inputs import InputBlob, InputContents

CONTENT = b"content"


@pytest.fixture
def place(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path / "place")


def of_memory() -> InputBlob:
    return InputContents().by_reference("a", CONTENT)


def of_file(tmp_path: Path) -> InputBlob:
    (tmp_path / "source").write_bytes(CONTENT)
    return InputContents().by_reference("a", tmp_path / "source")


@pytest.mark.parametrize("in_memory", [False, True])
def test_content_gets_there_and_is_counted(tmp_path: Path, place: FolderPlace, in_memory: bool) -> None:
    upload = BlobUpload(place.url, of_memory() if in_memory else of_file(tmp_path))
    assert upload.moved_s == float("inf")
    upload.run()
    assert place.has(ref_of_bytes(CONTENT))
    assert upload.done_bytes == len(CONTENT)
    assert 0 <= upload.moved_s < float("inf")


def test_content_from_memory_leaves_no_file_behind(
    tmp_path: Path, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    BlobUpload(place.url, of_memory()).run()
    assert os.listdir(folder) == []
    folder.rmdir()
    with pytest.raises(Refused) as refused:
        BlobUpload(place.url, InputContents().by_reference("a", b"other")).run()
    assert refused.value.code == "disk"
    assert "TMPDIR" in refused.value.hint


def test_a_stopped_upload_ends_at_its_next_bytes(tmp_path: Path, place: FolderPlace) -> None:
    upload = BlobUpload(place.url, of_file(tmp_path))
    upload.is_stopped = True
    with pytest.raises(PutStopped):
        upload.run()
    assert not place.has(ref_of_bytes(CONTENT))


def test_a_folder_that_is_not_shared_is_never_made(tmp_path: Path) -> None:
    elsewhere = tmp_path / "on another machine"
    with pytest.raises(Refused, match="must be a shared one") as refused:
        BlobUpload(elsewhere.as_uri(), of_memory()).run()
    assert refused.value.code == "not-supported"
    assert not elsewhere.exists()


def test_a_place_that_this_version_does_not_know_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        BlobUpload("carrier-pigeon://loft", of_memory()).run()
    assert refused.value.code == "not-supported"


@pytest.mark.parametrize(("content", "told"), [(b"other content", "bad-request"), (CONTENT, "blob-broken")])
def test_broken_content_is_the_fault_of_a_file_that_changed(
    tmp_path: Path, place: FolderPlace, monkeypatch: pytest.MonkeyPatch, content: bytes, told: str
) -> None:
    upload = BlobUpload(place.url, of_file(tmp_path))

    def put(*_: object) -> None:
        (tmp_path / "source").write_bytes(content)
        raise Refused("blob-broken", "wrong content")

    monkeypatch.setattr(FolderPlace, "put", put)
    with pytest.raises(Refused) as refused:
        upload.run()
    assert refused.value.code == told


@pytest.mark.parametrize(("code", "told"), [("disk", "disk-full"), ("too-big", "too-big")])
def test_a_full_place_is_the_leaders_disk(
    place: FolderPlace, monkeypatch: pytest.MonkeyPatch, code: str, told: str
) -> None:
    def put(*_: object) -> None:
        raise Refused(code, "no room")

    monkeypatch.setattr(FolderPlace, "put", put)
    with pytest.raises(Refused, match="no room") as refused:
        BlobUpload(place.url, of_memory()).run()
    assert refused.value.code == told
