"""Where a leader's blobs go, by what was said on the command line or elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.serve.leader_blobs import BlobSettings, blob_settings, leader_blobs, parse_bytes
from wakugumi.errors import ConfigError
from wakugumi.limits.files import BLOB_STORE_BYTES


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1500", 1500),
        ("20GB", 20_000_000_000),
        ("20 gb", 20_000_000_000),
        ("512MiB", 512 << 20),
        ("512Mi", 512 << 20),
        ("1.5T", 1_500_000_000_000),
        ("2k", 2000),
        ("3B", 3),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, number: int) -> None:
    assert parse_bytes(text, "--blob-bytes") == number


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "20 gigabytes", "1.2.3", "nan"])
def test_what_is_no_size_is_told_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--blob-bytes is .* which is no size"):
        parse_bytes(text, "--blob-bytes")


def test_the_environment_says_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert blob_settings(None, None) == BlobSettings("", BLOB_STORE_BYTES)
    monkeypatch.setenv("WAKU_BLOBS", "file:///shared")
    monkeypatch.setenv("WAKU_BLOB_BYTES", "5GB")
    assert blob_settings(None, None) == BlobSettings("file:///shared", 5_000_000_000)
    assert blob_settings("s3://b", "6GB") == BlobSettings("s3://b", 6_000_000_000)


def test_another_leader_is_no_place() -> None:
    with pytest.raises(ConfigError, match="is another leader's"):
        blob_settings("http://elsewhere:5000", None)


def test_beside_the_journal_they_stay_and_without_one_they_are_gone_with_the_leader(tmp_path: Path) -> None:
    with leader_blobs(BlobSettings(), tmp_path) as blobs:
        assert blobs.url == ""
        assert blobs.store is not None
        assert blobs.store.folder == str(tmp_path / "blobs")
    assert (tmp_path / "blobs").is_dir()
    with leader_blobs(BlobSettings(), None) as blobs:
        assert blobs.store is not None
        folder = Path(blobs.store.folder)
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.spec("C7")
def test_a_place_that_was_named_is_what_peers_are_told(tmp_path: Path) -> None:
    with leader_blobs(BlobSettings(tmp_path.as_uri()), None) as blobs:
        assert blobs.url == tmp_path.as_uri()
    assert tmp_path.is_dir()
