"""How does one blob get into a leader's place, and which failures are worth another try?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import ref_of_bytes
from wakugumi.errors import Lost, Refused
from wakugumi.roles.client.files.blob_upload import BlobUpload, UploadStopped
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
    begun = [upload.has_begun]
    upload.run()
    begun.append(upload.has_begun)
    assert begun == [False, True]
    assert place.has(ref_of_bytes(CONTENT))
    assert upload.done_bytes == len(CONTENT)
    assert upload.moved_at > 0


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
    with pytest.raises(UploadStopped):
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


@pytest.mark.parametrize(
    ("code", "broken", "again"),
    [("blob-busy", 9, True), ("blob-broken", 2, True), ("blob-broken", 3, False), ("too-big", 0, False)],
)
def test_only_failures_of_others_are_tried_again(code: str, broken: int, again: bool) -> None:
    assert BlobUpload("", of_memory()).may_try_again(Refused(code, "why"), broken) is again


def test_a_file_that_changed_is_not_tried_again(tmp_path: Path) -> None:
    upload = BlobUpload("", of_file(tmp_path))
    assert upload.may_try_again(Refused("blob-broken", "why"), 1)
    (tmp_path / "source").write_bytes(b"other content")
    with pytest.raises(Refused, match="was changed"):
        upload.may_try_again(Refused("blob-broken", "why"), 1)


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


def test_a_place_that_is_not_reached_is_told_with_its_address() -> None:
    refused = BlobUpload("http://a:1", of_memory()).unreached(Lost("no route"), 61.2)
    assert refused.code == "no-leader"
    for part in ("'a'", "http://a:1", "61 s", "no route"):
        assert part in refused.message
