"""How does a part of a result that did not fit a frame reach the client? It is fetched from the leader's place.

All calls block: in a program with a loop they belong in a thread. An interrupted transfer is resumed a few times, and a
busy place is asked again; content is verified before use. `on_bytes` is called all along, with 0 while no bytes arrive;
its exception ends the transfer. An error of the local disk is an OSError, or Refused with its folder.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from wakugumi.errors import ConfigError, Lost, Refused
from wakugumi.wire.messages.references import BlobRef

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes, Place
    from wakugumi.adapters.zip.read import Archive

_STEP_S: Final = 0.1


def ignore_bytes(_count: int) -> None:
    """Default for `on_bytes`."""


@contextlib.contextmanager
def fetched(place_url: str, ref: BlobRef, folder: str, on_bytes: OnBytes = ignore_bytes) -> Iterator[int]:
    """An open file with verified content. A download has a hidden name in `folder` until it is complete.

    Raises Refused("expired") if the leader no longer keeps it, Refused for broken content, Lost, and OSError if the
    folder cannot be written.
    """
    with _fetched(place_url, ref, folder, on_bytes) as (file, path):
        if path:
            os.unlink(path)
        yield file


@contextlib.contextmanager
def fetched_archive(place_url: str, ref: BlobRef, folder: str, on_bytes: OnBytes = ignore_bytes) -> Iterator[Archive]:
    """A verified archive to be unpacked in `folder`, once. Raises as `fetched`."""
    from wakugumi.adapters.zip.read import Archive

    head = bytearray()
    with _fetched(place_url, ref, folder, on_bytes, head) as (file, path):
        yield Archive.of_download(file, path, bytes(head)) if path else Archive.of_file(file)


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


@contextlib.contextmanager
def _fetched(
    place_url: str, ref: BlobRef, folder: str, on_bytes: OnBytes, head: bytearray | None = None
) -> Iterator[tuple[int, str]]:
    """An open file, and the path of a download, which is removed at the end. A `head` gets that of an archive."""
    from wakugumi.adapters.blobs.temporary import open_here

    place = _open(place_url)
    with contextlib.ExitStack() as stack:
        try:
            file, path = open_here(place, ref, on_bytes), ""
            if file is None:
                path = stack.enter_context(_download(place, ref, folder, on_bytes, head))
                file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except Refused as error:
            if error.code == "no-blob":
                raise _expired() from None
            raise
        stack.callback(os.close, file)
        yield file, path


@contextlib.contextmanager
def _download(place: Place, ref: BlobRef, folder: str, on_bytes: OnBytes, head: bytearray | None) -> Iterator[str]:
    """The path of a complete download."""
    from weakref import finalize

    from wakugumi.adapters.blobs.temporary import ArchiveDownload, NotWritten, TemporaryDownload

    path = os.path.join(folder, f".waku-{os.urandom(8).hex()}")
    scratch = f"{path}.part"
    # Also at the end of the program, if that happens while this thread still waits for bytes.
    clean_up = finalize(place, _remove, scratch, path)
    try:

        def fetch() -> None:
            incoming = (
                TemporaryDownload(ref, scratch, path) if head is None else ArchiveDownload(ref, scratch, path, head)
            )
            with contextlib.closing(incoming):
                place.fetch(ref, incoming, on_bytes)

        _persist(fetch, on_bytes)
        yield path
    except NotWritten as no:
        raise no.error from None
    finally:
        clean_up()


def _persist(fetch: Callable[[], None], on_bytes: OnBytes) -> None:
    """As many tries as the machine wants. Raises Lost, Refused, and exceptions of `on_bytes`."""
    from random import random
    from time import monotonic

    from wakugumi.core.flows import ActFailed, Answered
    from wakugumi.core.transfers.downloads import DownloadMachine
    from wakugumi.core.transfers.transfers import GivenUp

    machine = DownloadMachine(monotonic(), random)
    step = machine.tick(monotonic())
    while machine.outcome is None:
        if step.do:
            number = step.do[0].number
            try:
                fetch()
                event: Answered | ActFailed = Answered(number, None)
            except (Lost, Refused) as error:
                event = ActFailed(number, error)
            step = machine.handle([event], monotonic())
        else:
            _wait((machine.wake_at() or 0.0) - monotonic(), on_bytes)
            step = machine.tick(monotonic())
    if isinstance(machine.outcome, GivenUp):
        raise machine.outcome.error


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
