"""Where a leader's blobs go, by what was said on the command line or elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.app.serve.leader_blobs import leader_blobs
from wakugumi.app.settings import load
from wakugumi.errors import ConfigError
from wakugumi.limits.files import BLOB_STORE_BYTES
from wakugumi.roles.leader.settings import LeaderSettings


def test_the_environment_says_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def said(**flags: str) -> tuple[str, int]:
        settings = load(LeaderSettings, flags)
        return settings.blobs, settings.blob_bytes

    monkeypatch.chdir(tmp_path)
    assert said() == ("", BLOB_STORE_BYTES)
    monkeypatch.setenv("WAKU_BLOBS", "file:///shared")
    monkeypatch.setenv("WAKU_BLOB_BYTES", "5GB")
    assert said() == ("file:///shared", 5_000_000_000)
    assert said(blobs="s3://b", blob_bytes="6GB") == ("s3://b", 6_000_000_000)


def test_another_leader_is_no_place() -> None:
    with pytest.raises(ConfigError, match="--blobs http://elsewhere:5000 is another leader's"):
        load(LeaderSettings, {"blobs": "http://elsewhere:5000"})


def test_beside_the_journal_they_stay_and_without_one_they_are_gone_with_the_leader(tmp_path: Path) -> None:
    with leader_blobs(LeaderSettings(), tmp_path) as blobs:
        assert blobs.url == ""
        assert blobs.store is not None
        assert blobs.store.folder == str(tmp_path / "blobs")
    assert (tmp_path / "blobs").is_dir()
    with leader_blobs(LeaderSettings(), None) as blobs:
        assert blobs.store is not None
        folder = Path(blobs.store.folder)
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.spec("C7")
def test_a_place_that_was_named_is_what_peers_are_told(tmp_path: Path) -> None:
    with leader_blobs(LeaderSettings(blobs=tmp_path.as_uri(), workers_at=("10.*",)), None) as blobs:
        assert blobs.url == tmp_path.as_uri()
        assert blobs.workers_at == ("10.*",)
    assert tmp_path.is_dir()
