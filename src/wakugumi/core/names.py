"""Which names may a stranger give to a file, a program or a cache? (SPEC W5)

A good name means the same thing on every system that a worker may run on, and lies inside the job's directory. So the
strictest rules of all systems hold everywhere, Windows' included: a job that runs on one worker does not fail on the
next for its names. No name is repaired: a name is good or refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import Refused
from wakugumi.limits.wire import CACHE_ID_CHARS_MAX, EXEC_NAME_CHARS_MAX, FILE_NAME_BYTES_MAX, FILE_NAME_PART_BYTES_MAX

INPUT: Final = "{input}"
"""Placeholder in an argument for the job's one input: its name, or in a node's own command its path."""
CONTROL_FILES: Final = frozenset({".done", ".stdout", ".stderr"})
"""Files that the runner itself writes at the top of a job's directory.

An input `.done` would pass for a finished job after a crash. `result.zip` is not reserved: it counts only beside a
`.done`, inputs are gone by then, and one job's result.zip is a likely input of the next.
"""

_FORBIDDEN: Final = re.compile(r'[\x00-\x1f\x7f-\x9f\\<>:"|?*]')
"""Control characters, and characters with a meaning on Windows: backslash, drive and stream colon, wild cards,
pipes."""
_CACHE_ID: Final = re.compile(rf"(?!\.)[A-Za-z0-9._-]{{1,{CACHE_ID_CHARS_MAX}}}")
_RESERVED: Final = frozenset(
    {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"}
    | {device + digit for device in ("COM", "LPT") for digit in "0123456789¹²³"}
)
"""Devices of Windows, in every folder and with any extension."""


def check_file_name(name: str) -> str:
    """Returns the name if it is a safe relative path. Raises Refused."""
    if not name:
        raise Refused("bad-name", "a file has no name")
    if found := _FORBIDDEN.search(name):
        raise _bad(name, f"has the character {found.group()!r}")
    if len(_utf8(name)) > FILE_NAME_BYTES_MAX:
        raise _bad(name, f"is longer than {FILE_NAME_BYTES_MAX} bytes")
    for part in name.split("/"):
        _check_part(name, part)
    if name.lower() in CONTROL_FILES:
        raise _bad(name, "is used by the worker itself")
    return name


def check_file_names(names: Iterable[str]) -> None:
    """Checks each name, and that no name is doubled or the folder of another. Raises Refused.

    Names are equal if a file system that ignores case and Unicode's ways to write a letter takes them as equal.
    """
    files: dict[str, str] = {}
    for name in names:
        folded = fold_name(check_file_name(name))
        if (other := files.get(folded)) is not None:
            what = "stands there twice" if other == name else f"differs from {other[:80]!r} only in case"
            raise _bad(name, what)
        files[folded] = name
    for folded, name in files.items():
        at = folded.find("/")
        while at >= 0:
            if folded[:at] in files:
                raise _bad(name, f"lies below {files[folded[:at]][:80]!r}, which is a file")
            at = folded.find("/", at + 1)


def check_exec_name(name: str) -> str:
    """Returns the name if a program of the exec directory can have it: one plain part, not hidden. Raises Refused."""
    if not name:
        raise Refused("bad-name", "the job names no program")
    if "/" in name:
        raise _bad(name, "is a path: programs are called by their plain name")
    if name.startswith("."):
        raise _bad(name, "is hidden or no name at all")
    if len(name) > EXEC_NAME_CHARS_MAX:
        raise _bad(name, f"is longer than {EXEC_NAME_CHARS_MAX} characters")
    if not is_plain_name(name):
        raise _bad(name, "has an invisible character")
    return check_file_name(name)


def check_cache_id(cache_id: str) -> str:
    """Returns the id if it can name a cache, and the cache's folder on every worker. Raises Refused.

    Names that begin with a dot are the worker's own there.
    """
    if not _CACHE_ID.fullmatch(cache_id):
        raise Refused(
            "bad-name",
            f"a cache id is 1 to {CACHE_ID_CHARS_MAX} of A-Z, a-z, 0-9, '.', '_' and '-', and does not begin with a "
            f"dot, not {cache_id!r}"[:300],
            hint="give it a name and a version, as dataset-v2",
        )
    return check_file_name(cache_id)


def fold_name(name: str) -> str:
    """The form in which names are compared: without case, and with one way to write each letter."""
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def _check_part(name: str, part: str) -> None:
    if part in {"", ".", ".."}:
        raise _bad(name, "is not a relative path without '.', '..' or empty parts")
    if part[-1] in ". ":
        raise _bad(name, "has a part that ends in a dot or a blank")
    if len(_utf8(part)) > FILE_NAME_PART_BYTES_MAX:
        raise _bad(name, f"has a part longer than {FILE_NAME_PART_BYTES_MAX} bytes")
    if part.partition(".")[0].rstrip(" ").upper() in _RESERVED:
        raise _bad(name, "has a part that is a device of Windows")


def _utf8(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise _bad(name, "is not Unicode text") from None


def _bad(name: str, why: str) -> Refused:
    return Refused("bad-name", f"the name {name[:80]!r} {why}")
