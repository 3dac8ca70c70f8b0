"""Results with an archive, and the files that come of it."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path


def archive(*entries: tuple[str, bytes, int]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, content)
    return buffer.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
