"""Settings as a new process finds them: what was read from a file, and what was told of it, is forgotten."""

from __future__ import annotations

from wakugumi.app import settings


def forget_settings() -> None:
    settings._file.cache_clear()
    settings._untold.clear()
    settings._tellers.clear()
