"""How does a program change a file that may only be read? Its owner may give itself the right, as root needs not."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_anyway(path: str | Path, mode: str = "r+b") -> Iterator[IO[bytes]]:
    """The file, open for writing; afterwards it may only be read again."""
    file = Path(path)
    before = stat.S_IMODE(file.stat().st_mode)
    file.chmod(before | stat.S_IWUSR)
    with file.open(mode) as opened:
        yield opened
    file.chmod(before)
