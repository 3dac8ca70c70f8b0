"""How is one content fetched from one source and verified, and whose fault is it if that fails?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.store import BlobStore, ref_of_bytes
from wakugumi.core.transfers.fetch_events import InVain
from wakugumi.roles.runner.files.transfer import transfer

CONTENT = b"0123456789" * 1_000
REF = ref_of_bytes(CONTENT)


@pytest.fixture
def source(tmp_path: Path) -> FolderPlace:
    place = FolderPlace(tmp_path / "source")
    (tmp_path / "content").write_bytes(CONTENT)
    place.put(REF, tmp_path / "content")
    return place


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "store")


def begun(store: BlobStore, first: bytes) -> None:
    """Some of it has come before."""
    incoming = store.begin(REF)
    incoming.write(first)
    incoming.close()


def spoil(source: FolderPlace) -> None:
    path = Path(source.store.path(REF.sha256))
    path.chmod(0o600)
    path.write_bytes(bytes(REF.size))


@pytest.mark.spec("C4")
def test_only_what_has_not_come_is_fetched(source: FolderPlace, store: BlobStore) -> None:
    begun(store, CONTENT[:4_000])
    came: list[int] = []
    transfer(store, REF, source.url, "", came.append)
    assert sum(came) == 6_000
    assert store.has(REF)


def test_a_source_is_not_blamed_for_wrong_bytes_that_came_from_elsewhere(source: FolderPlace, store: BlobStore) -> None:
    begun(store, bytes(4_000))
    came: list[int] = []
    transfer(store, REF, source.url, "", came.append)
    assert sum(came) == 6_000 + REF.size
    assert store.has(REF)


@pytest.mark.parametrize("first", [b"", CONTENT[:10]], ids=["at once", "also after some that was right"])
def test_a_source_with_wrong_bytes_has_lied_and_nothing_of_it_is_kept(
    source: FolderPlace, store: BlobStore, first: bytes
) -> None:
    spoil(source)
    begun(store, first)
    with pytest.raises(InVain) as vain:
        transfer(store, REF, source.url, "", lambda _: None)
    assert vain.value.why == "lied"
    assert not store.has(REF)
    assert store.received(REF.sha256) == 0


def test_a_source_without_the_content_or_that_is_none_is_dead(tmp_path: Path, store: BlobStore) -> None:
    for url in ((tmp_path / "empty").as_uri(), "nowhere://"):
        with pytest.raises(InVain) as vain:
            transfer(store, REF, url, "", lambda _: None)
        assert vain.value.why == "dead"


def test_a_content_that_another_transfer_writes_is_busy(source: FolderPlace, store: BlobStore) -> None:
    other = store.begin(REF)
    with pytest.raises(InVain) as vain:
        transfer(store, REF, source.url, "", lambda _: None)
    assert vain.value.why == "busy"
    other.close()
    transfer(store, REF, source.url, "", lambda _: None)
    assert store.has(REF)
