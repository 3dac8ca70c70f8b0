"""What do the lines of the line protocol say? (SPEC N1) One job per connection, five lines of socket code to speak it.

    JOB <job> <file name> <size>\\n  and so many bytes          asks
    OK <size>\\n  and so many bytes of ZIP                      it ran, and this is what it made
    BUSY retry=<seconds>\\n                                     nothing was begun: come again, or ask another node
    ERR exit=<n>\\n  or  ERR <code>: <message>\\n               it failed, or cannot be run

A file name is percent-encoded, so that a blank always ends a word. A line may end in CR LF.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

from wakugumi.core.names import check_file_name
from wakugumi.core.visible_text import visible
from wakugumi.errors import PeerError, Refused
from wakugumi.wire.percent import percent_decoded, percent_encoded

FIRST_BYTES: Final = b"JOB "
"""By which a port tells lines from frames and HTTP: there is no such method."""
KEPT: Final = "Waku-Kept"
"""By which a node says since when an answer was kept, if it was not made for this request: in the comment of the ZIP,
and by HTTP in a header."""
_HINT: Final = "say JOB <job> <file name, percent-encoded> <size in bytes>"
_SIZE: Final = re.compile(r"[0-9]{1,18}")
_RETRY: Final = re.compile(r"retry=([0-9]{1,9})")
_EXIT: Final = re.compile(r"exit=(-?[0-9]{1,10})")
_UNPRINTED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class JobLine(NamedTuple):
    """Somebody wants a job to be run, and its input follows."""

    job: str
    """As they call it."""
    file_name: str
    size: int


class Ok(NamedTuple):
    size: int


class Busy(NamedTuple):
    retry_s: int


class Err(NamedTuple):
    message: str

    @property
    def exit_code(self) -> int | None:
        """The program's own, if it is that what failed."""
        found = _EXIT.fullmatch(self.message)
        return int(found[1]) if found else None


Answer: TypeAlias = Ok | Busy | Err


def read_job_line(line: bytes) -> JobLine:
    """Raises Refused for what is no such line, or has a file name that cannot be."""
    try:
        words = _text(line).split(" ")
    except UnicodeDecodeError:
        raise Refused("bad-request", "the line is not UTF-8", _HINT) from None
    if len(words) != 4 or words[0] != "JOB":
        raise Refused("bad-request", f"the line has {len(words)} words and begins with {words[0][:20]!r}", _HINT)
    _, job, file_name, size = words
    if not _SIZE.fullmatch(size):
        raise Refused("bad-request", f"{size[:40]!r} is no size in bytes", _HINT)
    return JobLine(job, check_file_name(percent_decoded(file_name)), int(size))


def write_job_line(job: str, file_name: str, size: int) -> bytes:
    return f"JOB {job} {percent_encoded(file_name)} {size}\n".encode()


def write_ok(size: int) -> bytes:
    return b"OK %d\n" % size


def write_busy(retry_s: int) -> bytes:
    return b"BUSY retry=%d\n" % retry_s


def write_exit(code: int) -> bytes:
    return b"ERR exit=%d\n" % code


def write_err(code: str, message: str) -> bytes:
    """One line, whatever the message holds, and nothing in it that commands the terminal of who typed the request."""
    text = visible(_UNPRINTED.sub(" ", message))[:1000]
    return f"ERR {code}: {text}\n".encode("utf-8", "replace")


def read_answer(line: bytes) -> Answer:
    """Raises PeerError for what is no answer."""
    try:
        word, _, rest = _text(line).partition(" ")
    except UnicodeDecodeError:
        raise PeerError("the answer is not UTF-8") from None
    if word == "OK" and _SIZE.fullmatch(rest):
        return Ok(int(rest))
    if word == "BUSY" and (found := _RETRY.fullmatch(rest)):
        return Busy(int(found[1]))
    if word == "ERR":
        return Err(rest)
    raise PeerError(f"{line[:80]!r} is no answer of a node")


def _text(line: bytes) -> str:
    return line.removesuffix(b"\n").removesuffix(b"\r").decode()
