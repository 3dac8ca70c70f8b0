"""How do the lines of the line protocol look? (SPEC N1) One job per connection, with five lines of socket code.

    AUTH <key>\\n                                              before a request: the caller's key, if the port wants one
    JOB <job> <file name> <size>\\n  and as many bytes          request
    OK <size>\\n  and as many bytes of ZIP                      the job ran, with these files
    BUSY retry=<seconds>\\n                                     not begun: retry, or use another node
    ERR exit=<n>\\n  or  ERR <code>: <message>\\n               the job failed, or cannot be run

A file name is percent-encoded, so that a blank always ends a word. A line may end in CR LF.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

from wakugumi.core.names import check_file_name
from wakugumi.core.visible_text import visible
from wakugumi.errors import ConfigError, PeerError, Refused
from wakugumi.wire.access_line import Key, parse_key
from wakugumi.wire.percent import percent_decoded, percent_encoded

FIRST_BYTES: Final = b"JOB "
"""First bytes of the line protocol on a shared port: no HTTP method or frame begins like this."""
FIRST_BYTES_AUTH: Final = b"AUTH "
"""First bytes of a caller that shows its key."""
KEPT: Final = "Waku-Kept"
"""Name of the time since which a node has kept an answer: in the comment of the ZIP, or in an HTTP header."""
_HINT: Final = "say JOB <job> <file name, percent-encoded> <size in bytes>"
_SIZE: Final = re.compile(r"[0-9]{1,18}")
_RETRY: Final = re.compile(r"retry=([0-9]{1,9})")
_EXIT: Final = re.compile(r"exit=(-?[0-9]{1,10})")
_UNPRINTED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class JobLine(NamedTuple):
    """A request for a job; its input follows."""

    job: str
    """Name of the job as the caller gave it."""
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
        """Exit code of the program, if the program failed."""
        found = _EXIT.fullmatch(self.message)
        return int(found[1]) if found else None


Answer: TypeAlias = Ok | Busy | Err


def read_job_line(line: bytes) -> JobLine:
    """Raises Refused for another line, or an invalid file name."""
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


def read_auth_line(line: bytes) -> Key:
    """Raises Refused, which does not quote the line."""
    if not line.startswith(FIRST_BYTES_AUTH):
        raise Refused("bad-request", "the line does not begin with AUTH", "say AUTH <name>:<digest>-<secret>")
    try:
        return parse_key(_text(line[len(FIRST_BYTES_AUTH) :]))
    except UnicodeDecodeError:
        raise Refused("bad-request", "the line is not UTF-8", "say AUTH <name>:<digest>-<secret>") from None
    except ConfigError as error:
        raise Refused("bad-request", str(error), error.hint) from None


def write_auth_line(key: Key) -> bytes:
    return f"AUTH {key.text}\n".encode()


def write_ok(size: int) -> bytes:
    return b"OK %d\n" % size


def write_busy(retry_s: int) -> bytes:
    return b"BUSY retry=%d\n" % retry_s


def write_exit(code: int) -> bytes:
    return b"ERR exit=%d\n" % code


def write_err(code: str, message: str) -> bytes:
    """One line, without characters of the message that control a terminal."""
    text = visible(_UNPRINTED.sub(" ", message))[:1000]
    return f"ERR {code}: {text}\n".encode("utf-8", "replace")


def read_answer(line: bytes) -> Answer:
    """Raises PeerError for a line that is no answer."""
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
