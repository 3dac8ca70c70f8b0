"""Which place for blobs is at a URL? A folder, a leader or worker over HTTP, or an object store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from wakugumi.adapters.blobs.place import FolderPlace, Place
from wakugumi.errors import ConfigError


def open_place(url: str, token: str = "", beside: str = "") -> Place:
    """The place at a URL. A worker's place needs a token of its leader, whose own place is `beside`: the same authority
    has signed both. Raises ConfigError."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{url!r} is no place for blobs: {error}") from None
    if parts.scheme == "file":
        return FolderPlace(Path(unquote(parts.path)))
    if parts.scheme in {"http", "https"}:
        from wakugumi.adapters.blobs.place_http import HttpPlace

        return HttpPlace(url, token, beside=beside)
    if parts.scheme == "s3":
        from wakugumi.adapters.blobs.place_s3 import S3Place

        return S3Place(url)
    raise ConfigError(f"{url!r} is no place for blobs", "write file:///folder, s3://bucket/prefix or http://host:port")


def is_workers(url: str) -> bool:
    """Whether a worker may be at this URL. Only the leader may name other places, such as folders."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)
