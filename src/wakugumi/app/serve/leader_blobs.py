"""Where does a leader started from the command line have its blobs? Beside its journal, unless `--blobs` says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Annotated, Final, NamedTuple

from cyclopts import Parameter

from wakugumi.adapters.blobs.place import FolderPlace, open_place
from wakugumi.app import settings as config
from wakugumi.errors import ConfigError
from wakugumi.limits.files import BLOB_STORE_BYTES
from wakugumi.roles.leader.files.blobs import LeaderBlobs

BlobsUrl = Annotated[
    str | None,
    Parameter(
        name="--blobs",
        help="Where files go that do not fit a frame: file:///shared/folder or s3://bucket/prefix, which clients and "
        "workers must reach too; beside the journal if nothing is said. [WAKU_BLOBS]",
    ),
]
BlobBytes = Annotated[
    str | None,
    Parameter(
        name="--blob-bytes",
        help="What they may take, such as 500GB, before those that no job names are removed; 20GB. [WAKU_BLOB_BYTES]",
    ),
]
WorkersAt = Annotated[
    tuple[str, ...],
    Parameter(
        name="--workers-at",
        negative="",
        consume_multiple=False,
        show_default=False,
        help="A host at which workers may say (--advertise) that others fetch from them, such as 10.1.*.* or "
        "*.example; the address of their own connection needs none. May be repeated. [WAKU_WORKERS_AT, with blanks "
        "between them]",
    ),
]
_UNITS: Final = {unit: 1000**power for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)


class BlobSettings(NamedTuple):
    """What was said about blobs."""

    url: str = ""
    bytes_max: int = BLOB_STORE_BYTES
    workers_at: tuple[str, ...] = ()


def blob_settings(url: str | None, size: str | None, workers_at: tuple[str, ...] = ()) -> BlobSettings:
    """What holds of the flags and of wherever else it is said. Raises ConfigError."""
    said = config.BLOBS.value(url)
    if said.startswith(("http:", "https:")):
        raise ConfigError(f"--blobs {said} is another leader's", "name a file:// folder or an s3:// bucket, or nothing")
    hosts = tuple(config.WORKERS_AT.value(" ".join(workers_at) or None).split())
    return BlobSettings(said, parse_bytes(config.BLOB_BYTES.value(size), "--blob-bytes"), hosts)


@contextmanager
def leader_blobs(settings: BlobSettings, state: Path | None) -> Iterator[LeaderBlobs]:
    """A leader's blobs while it lives. Without a place and without a journal they are gone with it. Raises
    ConfigError."""
    with _blobs_in(settings, state) as blobs:
        blobs.workers_at = settings.workers_at
        yield blobs


@contextmanager
def _blobs_in(settings: BlobSettings, state: Path | None) -> Iterator[LeaderBlobs]:
    if settings.url:
        yield LeaderBlobs(open_place(settings.url), url=settings.url)
    elif state is not None:
        yield LeaderBlobs(FolderPlace(state / "blobs"), url="", bytes_max=settings.bytes_max)
    else:
        folder = Path(mkdtemp(prefix="waku-blobs-"))
        try:
            yield LeaderBlobs(FolderPlace(folder), url="", bytes_max=settings.bytes_max)
        finally:
            rmtree(folder, ignore_errors=True)


def parse_bytes(text: str, where: str) -> int:
    """`20GB`, `512MiB`, `1.5T` or a plain number. Raises ConfigError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{where} is {text!r}, which is no size", "write a number with a unit, such as 20GB or 512MiB"
        )
    number, unit, binary = found.groups()
    scale = _UNITS[unit.lower()]
    if binary:
        scale = 1024 ** list(_UNITS).index(unit.lower())
    return int(float(number) * scale)
