"""Which place for blobs is at a URL?"""

from __future__ import annotations

from pathlib import Path

import pytest

from wakugumi.adapters.blobs.open_place import is_workers, open_place
from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.adapters.blobs.place_http import HttpPlace
from wakugumi.errors import ConfigError


def test_a_folder_is_a_place_whatever_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "grüne Kiste #1"
    place = open_place(folder.as_uri())
    assert isinstance(place, FolderPlace)
    assert place.url == folder.as_uri()


def test_a_server_is_a_place() -> None:
    assert isinstance(open_place("http://127.0.0.1:5000", "token"), HttpPlace)


@pytest.mark.parametrize("url", ["", "ftp://x", "folder", "http://[", "blob:5"])
def test_any_other_text_is_no_place(url: str) -> None:
    with pytest.raises(ConfigError, match="no place for blobs"):
        open_place(url)


@pytest.mark.parametrize(
    ("url", "is_one"),
    [("http://a:1", True), ("https://a", True), ("http://", False), ("file:///x", False), ("s3://b/x", False)],
)
def test_only_a_server_can_be_a_workers(url: str, is_one: bool) -> None:
    assert is_workers(url) is is_one
    assert is_workers("http://[") is False
