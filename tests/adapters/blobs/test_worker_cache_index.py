"""Which names does a cache have in its file, and which files are no index?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakugumi.adapters.blobs import worker_cache_index as index
from wakugumi.adapters.blobs.worker_cache_index import CacheOnDisk
from wakugumi.errors import Refused
from wakugumi.wire.messages.cache import CacheEntry
from wakugumi.wire.messages.references import BlobRef

CACHE = CacheOnDisk("v1", True, {"a.bin": BlobRef("0" * 64, 1), "sub/ü": BlobRef("f" * 64, 0)})


def test_a_cache_is_read_as_it_was_written_and_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "models.json")
    index.write(path, CACHE)
    assert index.read(path) == CACHE
    (tmp_path / "models.json.new").write_text("left by a crash")
    index.write(path, CACHE._replace(version="v2"))
    assert index.read(path) == CACHE._replace(version="v2")
    assert [each.name for each in tmp_path.iterdir()] == ["models.json"]


@given(st.binary(max_size=200))
def test_a_torn_file_is_no_cache(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("torn") / "models.json"
    path.write_bytes(content)
    assert index.read(str(path)) is None


def test_a_missing_file_is_no_cache(tmp_path: Path) -> None:
    assert index.read(str(tmp_path / "models.json")) is None


@pytest.mark.parametrize(
    ("name", "cache_id"),
    [("models.json", "models"), ("a.b.json", "a.b"), ("models.json.new", None), ("models", None), (".json", None)],
)
def test_a_file_belongs_to_the_cache_of_its_name(name: str, cache_id: str | None) -> None:
    assert index.cache_id_of(f"/caches/{name}") == cache_id


@pytest.mark.parametrize(
    "entry",
    [
        CacheEntry("a"),
        CacheEntry("a", sha256="0" * 63, size=1),
        CacheEntry("a", sha256="0" * 64),
        CacheEntry("a", sha256="0" * 64, size=-1),
        CacheEntry("../a", sha256="0" * 64, size=1),
    ],
)
def test_an_entry_without_a_content_or_with_a_bad_name_is_refused(entry: CacheEntry) -> None:
    with pytest.raises(Refused):
        index.refs_of([entry])
