"""How does a part of a result that did not fit a frame reach the client? It is fetched from the leader's place.

All calls wait as long as it takes: in a program with a loop they belong in a thread. What was lost half-way goes on
where it ended, a few times, and a place that is busy is asked again; what has come is verified before anyone sees it.
All along `on_bytes` is called, with 0 if nothing has come: what it raises ends it. What our own disk does not take is
an OSError, or Refused with its folder.
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
"""Doubled after each try: with six of them a leader has a quarter of a minute to come back."""
_BUSY: Final = frozenset({"full", "blob-busy"})

_STEP_S: Final = 0.1


def no_news(_count: int) -> None:
    """For those who do not want to know how far it is."""


@contextlib.contextmanager
def fetched(place_url: str, ref: BlobRef, folder: str, on_bytes: OnBytes = no_news) -> Iterator[int]:
    """An open file with that content, verified. What comes from afar has a hidden name in `folder` on its way.

    Raises Refused("expired") if the leader keeps it no longer, Refused for what is broken, Lost, and OSError if the
    folder does not take it.
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
    """The same, in memory."""
    with fetched_nearby(place_url, ref) as file, open(file, "rb", closefd=False) as opened:
        return opened.read()


@contextlib.contextmanager
def fetched_nearby(place_url: str, ref: BlobRef) -> Iterator[int]:
    """The same, in the folder for temporary files: if that takes no more, it is Refused("disk")."""
    from tempfile import TemporaryDirectory, gettempdir

    try:
        with TemporaryDirectory(prefix="waku-") as folder, fetched(place_url, ref, folder) as file:
            yield file
    except OSError as error:
        raise Refused(
            "disk",
            f"cannot write what is fetched to {gettempdir()}: {error.strerror}",
            "make room there, or name another folder for temporary files by TMPDIR",
        ) from None


def _fetch(place: Place, ref: BlobRef, folder: str, on_bytes: OnBytes) -> int:
    """An open file, which has no name any more."""
    from weakref import finalize

    from wakugumi.adapters.blobs.temporary import NotWritten, TemporaryDownload

    path = os.path.join(folder, f".waku-{os.urandom(8).hex()}")
    scratch = f"{path}.part"
    # Also at the end of the program, if that comes while this thread still waits for bytes.
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


def _wait(seconds: float, on_bytes: OnBytes) -> None:
    """In short steps, so that it can be ended."""
    from time import monotonic, sleep

    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        on_bytes(0)
        sleep(min(left, _STEP_S))
    on_bytes(0)
