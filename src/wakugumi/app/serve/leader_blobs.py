"""Where does a leader started from the command line have its blobs? Beside its journal, unless `--blobs` says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from wakugumi.adapters.blobs.open_place import open_place
from wakugumi.adapters.blobs.place import FolderPlace
from wakugumi.roles.leader.files.blobs import LeaderBlobs
from wakugumi.roles.leader.settings import LeaderSettings


@contextmanager
def leader_blobs(settings: LeaderSettings, state: Path | None) -> Iterator[LeaderBlobs]:
    """A leader's blobs while it lives. Without a place and without a journal they are gone with it. Raises
    ConfigError."""
    if settings.blobs:
        yield LeaderBlobs(open_place(settings.blobs), url=settings.blobs, workers_at=settings.workers_at)
    elif state is not None:
        yield _in_folder(state / "blobs", settings)
    else:
        folder = Path(mkdtemp(prefix="waku-blobs-"))
        try:
            yield _in_folder(folder, settings)
        finally:
            rmtree(folder, ignore_errors=True)


def _in_folder(folder: Path, settings: LeaderSettings) -> LeaderBlobs:
    return LeaderBlobs(FolderPlace(folder), url="", bytes_max=settings.blob_bytes, workers_at=settings.workers_at)
