"""How does a part of a result that did not fit a frame reach the client? It is fetched from the leader's place.

All calls block: in a program with a loop they belong in a thread. An interrupted transfer is resumed a few times, and a
busy place is asked again; content is verified before use. `on_bytes` is called all along, with 0 while no bytes arrive;
its exception ends the transfer. An error of the local disk is an OSError, or Refused with its folder.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.wire.messages.references import BlobRef

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes, Place

TRIES: Final = 6
PAUSE_FIRST_S: Final = 0.5
"""Doubled after each try: with six tries a leader has a quarter of a minute to come back."""
_BUSY: Final = frozenset({"full", "blob-busy"})

_STEP_S: Final = 0.1


def ignore_bytes(_count: int) -> None:
    """Default for `on_bytes`."""


@contextlib.contextmanager
def fetched(place_url: str, ref: BlobRef, folder: str, on_bytes: OnBytes = ignore_bytes) -> Iterator[int]:
    """An open file with verified content. A download has a hidden name in `folder` until it is complete.

    Raises Refused("expired") if the leader no longer keeps it, Refused for broken content, Lost, and OSError if the
    folder cannot be written.
    """
    from wakugumi.adapters.blobs.temporary import open_here

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
    """Content in memory."""
    with fetched_nearby(place_url, ref) as file, open(file, "rb", closefd=False) as opened:
        return opened.read()


@contextlib.contextmanager
def fetched_nearby(place_url: str, ref: BlobRef) -> Iterator[int]:
    """`fetched` in the folder for temporary files. Raises Refused("disk") if that has no room."""
    from tempfile import TemporaryDirectory, gettempdir

    try:
        with TemporaryDirectory(prefix="waku-") as folder, fetched(place_url, ref, folder) as file:
            yield file
    except OSError as error:
        raise Refused(
            "disk",
            f"cannot write a download to {gettempdir()}: {error.strerror}",
            "make room there, or name another folder for temporary files by TMPDIR",
        ) from None


def _fetch(place: Place, ref: BlobRef, folder: str, on_bytes: OnBytes) -> int:
    """An open file whose name is removed."""
    from weakref import finalize

    from wakugumi.adapters.blobs.temporary import NotWritten, TemporaryDownload

    path = os.path.join(folder, f".waku-{os.urandom(8).hex()}")
    scratch = f"{path}.part"
    # Also at the end of the program, if that happens while this thread still waits for bytes.
    clean_up = finalize(place, _remove, scratch, path)
    try:
        for attempt in range(TRIES):
            try:
                with contextlib.closing(TemporaryDownload(ref, scratch, path)) as incoming:
                    place.fetch(ref, incoming, on_bytes)
                break
            except (Lost, Refused) as error:
                if attempt == TRIES - 1 or (isinstance(error, Refused) and error.code not in _BUSY):
                    raise
                _wait(PAUSE_FIRST_S * 2**attempt, on_bytes)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except NotWritten as no:
        raise no.error from None
    finally:
        clean_up()


def _remove(*names: str) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _open(url: str) -> Place:
    from urllib.parse import unquote, urlsplit

    from wakugumi.adapters.blobs.open_place import open_place

    if not url:
        raise Refused("no-blob", "the leader gave no address for large parts of results")
    parts = urlsplit(url)
    if parts.scheme == "file" and not os.path.isdir(unquote(parts.path)):
        raise _expired()  # The embedded grid has ended; its folder must not be made again.
    try:
        return open_place(url)
    except ConfigError as error:
        raise Refused("no-blob", f"a large part of the result cannot be fetched: {error}") from None


def _expired() -> Refused:
    return Refused(
        "expired", "this part of the result is no longer kept: it was fetched too late, or its grid has ended"
    )


def _wait(seconds: float, on_bytes: OnBytes) -> None:
    """In short steps, so that `on_bytes` can end it."""
    from time import monotonic, sleep

    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        on_bytes(0)
        sleep(min(left, _STEP_S))
    on_bytes(0)
