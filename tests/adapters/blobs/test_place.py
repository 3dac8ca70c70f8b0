"""How do blobs get into a folder that both sides see, and out of it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import CHUNK_BYTES, LINKED_MIN_BYTES, BlobStore, ref_of_bytes
from wakugumi.errors import Refused
from wakugumi.wire.messages.references import BlobRef

CONTENTS = [b"", b"small", bytes(range(256)) * (CHUNK_BYTES // 256) + b"and more"]


def a_file(folder: Path, content: bytes) -> Path:
    path = folder / "source"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_a_content_is_put_and_fetched_as_it_is(tmp_path: Path, content: bytes) -> None:
    place, ref, moved = FolderPlace(tmp_path / "there"), ref_of_bytes(content), list[int]()
    assert not place.has(ref)
    place.put(ref, a_file(tmp_path, content), moved.append)
    assert place.has(ref)
    here = BlobStore(tmp_path / "here")
    place.fetch(ref, here.begin(ref), moved.append)
    assert Path(here.path(ref.sha256)).read_bytes() == content
    assert sum(moved) == 2 * len(content)


def test_a_content_that_is_there_is_not_read_again(tmp_path: Path) -> None:
    place, ref = FolderPlace(tmp_path / "there"), ref_of_bytes(b"once")
    place.put(ref, a_file(tmp_path, b"once"))
    place.put(ref, tmp_path / "gone")
    assert place.has(ref)


def test_a_fetch_goes_on_where_an_earlier_one_ended(tmp_path: Path) -> None:
    place, content = FolderPlace(tmp_path / "there"), b"first second"
    ref = ref_of_bytes(content)
    place.put(ref, a_file(tmp_path, content))
    here, moved = BlobStore(tmp_path / "here"), list[int]()
    begun = here.begin(ref)
    begun.write(b"first ")
    begun.close()
    place.fetch(ref, here.begin(ref), moved.append)
    assert moved == [len(b"second")]
    assert here.has(ref)


@pytest.mark.parametrize("claimed", [ref_of_bytes(b"other"), BlobRef("0" * 64, 4), BlobRef("0" * 64, 3)])
def test_a_file_with_another_content_is_refused(tmp_path: Path, claimed: BlobRef) -> None:
    place = FolderPlace(tmp_path / "there")
    with pytest.raises(Refused) as refused:
        place.put(claimed, a_file(tmp_path, b"true"))
    assert refused.value.code == "blob-broken"
    assert not place.has(claimed)


def test_a_file_that_cannot_be_read_is_refused_and_can_be_put_later(tmp_path: Path) -> None:
    place, ref = FolderPlace(tmp_path / "there"), ref_of_bytes(b"late")
    with pytest.raises(Refused) as refused:
        place.put(ref, tmp_path / "gone")
    assert refused.value.code == "bad-request"
    place.put(ref, a_file(tmp_path, b"late"))
    assert place.has(ref)


def test_a_removed_content_is_gone(tmp_path: Path) -> None:
    place, ref = FolderPlace(tmp_path / "there"), ref_of_bytes(b"x")
    place.put(ref, a_file(tmp_path, b"x"))
    place.remove(ref.sha256)
    assert not place.has(ref)
    with pytest.raises(Refused) as refused:
        place.fetch(ref, BlobStore(tmp_path / "here").begin(ref))
    assert refused.value.code == "no-blob"


def test_an_exception_of_the_counter_ends_the_transfer_and_frees_it(tmp_path: Path) -> None:
    place, ref = FolderPlace(tmp_path / "there"), ref_of_bytes(b"stop")

    def stop(_count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.put(ref, a_file(tmp_path, b"stop"), stop)
    place.put(ref, tmp_path / "source")
    assert place.has(ref)


def test_a_file_that_never_changes_is_linked(tmp_path: Path) -> None:
    place, content = FolderPlace(tmp_path / "there"), bytes(LINKED_MIN_BYTES)
    source, ref = a_file(tmp_path, content), ref_of_bytes(content)
    place.link(ref, source)
    assert not place.has(ref), "it is not verified yet"
    place.put(ref, source)
    assert source.samefile(place.store.path(ref.sha256))
    place.link(ref, source)
    assert list(place.store.begun()) == [], "it is there already"
