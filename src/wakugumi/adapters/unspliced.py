"""How does what a program printed come out of the ZIP that a node answers with? The way back of `spliced`.

Ours are the last two of its list and of its file: cut off, they leave the archive as it was. Where somebody else has
put them in the midst, they are only taken from the list.
"""

from __future__ import annotations

import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Final

from wakugumi.adapters.files import refused
from wakugumi.errors import Refused
from wakugumi.limits import MIB, OUTPUT_BYTES_MAX

_CHUNK_BYTES: Final = 1 * MIB
_WRONG: Final = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError),
    *(ValueError, NotImplementedError, RuntimeError, EOFError, KeyError),
)
"""What a stranger's ZIP may raise."""


def unsplice(file: IO[bytes], texts: Mapping[str, IO[bytes]]) -> int:
    """Write each text, `stdout` or `stderr`, where it is wanted, and leave the rest in the file. Returns how many
    entries that has. Raises Refused: `bad-result`, or `disk` if it is ours that is full."""
    try:
        with zipfile.ZipFile(file) as archive:
            taken = [info for stem, into in texts.items() if (info := _take(archive, stem, into)) is not None]
        with zipfile.ZipFile(file, "a") as archive:  # What is no ZIP would get a second beginning, and was found out.
            offsets = {info.header_offset for info in taken}
            kept = [info for info in archive.filelist if info.header_offset not in offsets]
            cut = min(offsets, default=archive.start_dir)
            if all(info.header_offset < cut for info in kept):
                archive.start_dir = cut
            archive.filelist = kept
            archive.NameToInfo = {info.filename: info for info in kept}
            archive.comment = b""  # It is written anew if something has changed, and this counts as such.
    except _WRONG as error:
        if (
            isinstance(error, OSError)
            and (ours := refused(error, "the node's answer cannot be written")).code == "disk"
        ):
            raise ours from None
        raise Refused("bad-result", f"the node's answer is no ZIP that can be read: {str(error)[:200]}") from None
    return len(kept)


def _take(archive: zipfile.ZipFile, stem: str, into: IO[bytes]) -> zipfile.ZipInfo | None:
    """The last one that is called so: a program may have made one of that name itself."""
    name = re.compile(rf"{stem}(\.captured(-[0-9]+)?)?\.txt")
    for info in reversed(archive.filelist):
        if name.fullmatch(info.filename):
            if info.file_size > OUTPUT_BYTES_MAX:
                raise ValueError(f"{info.filename} has {info.file_size} bytes")
            with archive.open(info) as content:
                while piece := content.read(_CHUNK_BYTES):
                    into.write(piece)
            return info
    return None
