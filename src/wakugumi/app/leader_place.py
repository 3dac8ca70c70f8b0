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

from wakugumi.adapters.places import FolderPlace, open_place
from wakugumi.app import config
from wakugumi.errors import ConfigError
from wakugumi.limits import BLOB_STORE_BYTES
from wakugumi.roles.leader_blobs import LeaderBlobs

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
_UNITS: Final = {unit: 1000**power for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)


class BlobSettings(NamedTuple):
    """What was said about blobs."""

    url: str = ""
    bytes_max: int = BLOB_STORE_BYTES


def blob_settings(url: str | None, size: str | None) -> BlobSettings:
    """What holds of the flags and of wherever else it is said. Raises ConfigError."""
    said = config.BLOBS.value(url)
    if said.startswith(("http:", "https:")):
        raise ConfigError(f"--blobs {said} is another leader's", "name a file:// folder or an s3:// bucket, or nothing")
    return BlobSettings(said, parse_bytes(config.BLOB_BYTES.value(size), "--blob-bytes"))


@contextmanager
def leader_blobs(settings: BlobSettings, state: Path | None) -> Iterator[LeaderBlobs]:
    """A leader's blobs while it lives. Without a place and without a journal they are gone with it. Raises
    ConfigError."""
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
