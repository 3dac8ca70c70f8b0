"""How does a part of a result that did not fit a frame reach the client? It is fetched from the leader's place.

All calls wait as long as it takes: in a program with a loop they belong in a thread. What was lost half-way goes on
where it ended, a few times, and a place that is busy is asked again; what has come is verified before anyone sees it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.wire.message import BlobRef

if TYPE_CHECKING:
    from wakugumi.adapters.places import OnBytes, Place

TRIES: Final = 6
PAUSE_FIRST_S: Final = 0.5
"""Doubled after each try: with six of them a leader has a quarter of a minute to come back."""
_BUSY: Final = frozenset({"full", "blob-busy"})


def no_news(_count: int) -> None:
    """For those who do not want to know how far it is."""


@contextlib.contextmanager
def fetched(place_url: str, ref: BlobRef, folder: str, on_bytes: OnBytes = no_news) -> Iterator[int]:
    """An open file with that content, verified. What comes from afar has a hidden name in `folder` on its way.

    Raises Refused("expired") if the leader keeps it no longer, Refused for what is broken, Lost.
    """
    from wakugumi.adapters.passing import open_here

    place = _open(place_url)
    try:
        file = open_here(place, ref, on_bytes)
        if file is None:
            file = _fetch(place, ref, folder, on_bytes)
    except Refused as error:
        if error.code == "no-blob":
            raise _expired() from None
        raise
    try:
        yield file
    finally:
        os.close(file)


def fetch_bytes(place_url: str, ref: BlobRef) -> bytes:
    """The same, in memory."""
    with fetched_nearby(place_url, ref) as file, open(file, "rb", closefd=False) as opened:
        return opened.read()


@contextlib.contextmanager
def fetched_nearby(place_url: str, ref: BlobRef) -> Iterator[int]:
    """The same, in the folder for temporary files."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="waku-") as folder, fetched(place_url, ref, folder) as file:
        yield file


def _fetch(place: Place, ref: BlobRef, folder: str, on_bytes: OnBytes) -> int:
    """An open file, which has no name any more."""
    from wakugumi.adapters.passing import Passing

    path = os.path.join(folder, f".waku-{os.urandom(8).hex()}")
    scratch = f"{path}.part"
    try:
        for attempt in range(TRIES):
            try:
                with contextlib.closing(Passing(ref, scratch, path)) as incoming:
                    place.fetch(ref, incoming, on_bytes)
                break
            except (Lost, Refused) as error:
                if attempt == TRIES - 1 or (isinstance(error, Refused) and error.code not in _BUSY):
                    raise
                _sleep(PAUSE_FIRST_S * 2**attempt)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for name in (scratch, path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def _open(url: str) -> Place:
    from urllib.parse import unquote, urlsplit

    from wakugumi.adapters.places import open_place

    if not url:
        raise Refused("no-blob", "the leader did not say where it keeps what does not fit a frame")
    parts = urlsplit(url)
    if parts.scheme == "file" and not os.path.isdir(unquote(parts.path)):
        raise _expired()  # An embedded grid that has ended; its folder must not be made again.
    try:
        return open_place(url)
    except ConfigError as error:
        raise Refused("no-blob", f"what does not fit a frame cannot be fetched: {error}") from None


def _expired() -> Refused:
    return Refused("expired", "what the job made is no longer kept: it was fetched too late, or its grid has ended")


def _sleep(seconds: float) -> None:
    from time import sleep

    sleep(seconds)
