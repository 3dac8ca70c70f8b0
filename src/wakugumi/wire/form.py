"""Which files does a `multipart/form-data` body hold? A parser that is fed as the bytes come (RFC 7578).

    --B CRLF head CRLF CRLF content CRLF --B CRLF head … content CRLF --B--

Every part ends where the next delimiter `CRLF --B` begins, so content is passed on up to what might be the beginning of
one, and no more than that is kept. A small body that comes in one piece costs four searches.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from wakugumi.errors import Refused
from wakugumi.limits.http import PART_HEAD_BYTES_MAX
from wakugumi.wire.percent import percent_decoded, percent_encoded


class FormPart(NamedTuple):
    """A part begins."""

    name: str
    """Of its field."""
    file_name: str | None
    """As its sender calls it, percent-decoded and otherwise unchecked."""


class Data(NamedTuple):
    """A piece of its content."""

    data: bytes


class End(NamedTuple):
    """The part is whole."""


Event: TypeAlias = FormPart | Data | End

END: Final = End()
FORM_DATA: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_TYPE: Final = re.compile(r"\s*multipart/form-data\s*(?=;)", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"""\s*;\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))""")
_ESCAPED: Final = re.compile(r'\\(["\\])')
"""Clients write a backslash before a quotation mark, and some before another one; anywhere else it is itself."""
_BLANKS_MAX: Final = 64
"""What may stand behind a boundary on its line: blanks that a mail server added."""
_PLAIN_ENCODINGS: Final = frozenset({"7bit", "8bit", "binary"})


class _State(Enum):
    BEFORE = auto()
    """Before the first delimiter."""
    LINE = auto()
    """Behind a delimiter: the rest of its line, or the two hyphens of the last one."""
    HEAD = auto()
    CONTENT = auto()
    AFTER = auto()
    """Behind the last delimiter, where nothing counts."""


class Multipart:
    """One body. What it raises is Refused (`bad-request`, or `bad-name`), and then it is of no more use."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._state = _State.BEFORE
        self._held = b"\r\n"
        """What came and is not told yet. The first delimiter needs no line before it: so we think one up."""

    @property
    def is_done(self) -> bool:
        """The last delimiter has come."""
        return self._state is _State.AFTER

    def feed(self, data: bytes) -> list[Event]:
        """What the next bytes hold. Raises Refused."""
        if self._state is _State.AFTER:
            return []
        events: list[Event] = []
        if self._held:
            data = self._held + data
        at: int | None = 0
        end = 0
        while at is not None:
            end = at
            at = self._step(data, at, events)
        self._held = b"" if self.is_done else self._rest(data, end, events)
        return events

    def finish(self) -> None:
        """There is no more. Raises Refused if the last delimiter is missing."""
        if self._state is not _State.AFTER:
            raise _bad("the body ends before its last boundary")

    def _step(self, data: bytes, at: int, events: list[Event]) -> int | None:
        """Where to go on; None if more must come first."""
        state = self._state
        if state is _State.CONTENT:
            found = data.find(self._delimiter, at)
            if found < 0:
                return None
            if found > at:
                events.append(Data(data[at:found]))
            events.append(END)
            self._state = _State.LINE
            return found + len(self._delimiter)
        if state is _State.LINE:
            rest = data[at : at + _BLANKS_MAX]
            if rest.startswith(b"--"):
                self._state = _State.AFTER
                return None
            found = rest.find(b"\r\n")
            if found < 0:
                if len(rest) == _BLANKS_MAX or rest.strip(b" \t") not in {b"", b"-", b"\r"}:
                    raise _bad("something else follows a boundary on its line")
                return None
            if rest[:found].strip(b" \t"):
                raise _bad("something else follows a boundary on its line")
            self._state = _State.HEAD
            return at + found  # so that a part without a head has an empty one
        if state is _State.HEAD:
            found = data.find(b"\r\n\r\n", at, at + PART_HEAD_BYTES_MAX)
            if found < 0:
                return None
            events.append(_part(data[at + 2 : found]))
            self._state = _State.CONTENT
            return found + 4
        if state is _State.BEFORE and (found := data.find(self._delimiter, at)) >= 0:
            self._state = _State.LINE
            return found + len(self._delimiter)
        return None

    def _rest(self, data: bytes, at: int, events: list[Event]) -> bytes:
        """Tell what surely is content, and keep what the next bytes may make into something else."""
        if self._state is _State.CONTENT:
            begins = data.find(b"\r", max(at, len(data) - len(self._delimiter) + 1))
            if begins < 0:
                begins = len(data)
            if begins > at:
                events.append(Data(data[at:begins]))
            return data[begins:]
        rest = data[at:]
        if len(rest) > PART_HEAD_BYTES_MAX:
            what = "what stands before the first boundary" if self._state is _State.BEFORE else "the head of a part"
            raise _bad(f"{what} is longer than {PART_HEAD_BYTES_MAX} bytes")
        return rest


def boundary_of(content_type: str | None) -> bytes:
    """What stands between the parts. Raises Refused if there is no such body, or its boundary is no good one."""
    found = _TYPE.match(content_type or "")
    if content_type is None or found is None:
        what = "nothing" if content_type is None else repr(content_type[:80])
        raise _bad(f"the body must be {FORM_DATA} with a boundary, and its Content-Type says {what}")
    boundary = _parameters(content_type[found.end() :]).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise _bad(f"{boundary[:80]!r} is no boundary: it takes 1 to 70 characters that RFC 2046 allows")
    return boundary.encode("ascii")


def encode_head(boundary: bytes, name: str, file_name: str) -> bytes:
    """What stands before the content of the first part, if it is ours."""
    disposition = f'form-data; name="{percent_encoded(name)}"; filename="{percent_encoded(file_name)}"'
    text = f"\r\nContent-Disposition: {disposition}\r\nContent-Type: application/octet-stream\r\n\r\n"
    return b"--" + boundary + text.encode("ascii")


def encode_tail(boundary: bytes) -> bytes:
    """What stands behind the content of the last part."""
    return b"\r\n--" + boundary + b"--\r\n"


def _part(head: bytes) -> FormPart:
    """Raises Refused."""
    try:
        text = head.decode()
    except UnicodeDecodeError:
        raise _bad("the head of a part is not UTF-8") from None
    found: dict[str, str] | None = None
    for line in text.split("\r\n"):
        field, colon, value = line.partition(":")
        field = field.lower()
        if field == "content-disposition":
            kind, semicolon, more = value.partition(";")
            if found is not None or kind.strip().lower() != "form-data":
                raise _bad("a part must say once that it is form-data")
            found = _parameters(semicolon + more)
        elif field == "content-transfer-encoding" and value.strip().lower() not in _PLAIN_ENCODINGS:
            raise _bad(f"a part must come as it is, not as {value.strip()[:40]!r}")
        elif not colon:
            raise _bad("a line in the head of a part has no colon")
    if found is None or "name" not in found:
        raise _bad("a part does not say which field it is", hint='write Content-Disposition: form-data; name="file"')
    file_name = found.get("filename")
    if (better := found.get("filename*")) is not None:
        charset, _, rest = better.partition("'")
        if charset.lower() != "utf-8":
            raise _bad("a file name with a star must be UTF-8")
        file_name = rest.partition("'")[2]
    return FormPart(found["name"], None if file_name is None else percent_decoded(file_name))


def _parameters(text: str) -> dict[str, str]:
    """`; a=b; c="d"` as a table. Raises Refused."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        one = _PARAMETER.match(text, at)
        if one is None:
            if text[at:].strip(" \t;"):
                raise _bad(f"{text[at:].strip()[:80]!r} is no parameter of a header")
            break
        name, quoted, plain = one.groups()
        if name.lower() in found:
            raise _bad(f"the parameter {name[:40]!r} of a header stands there twice")
        found[name.lower()] = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
        at = one.end()
    return found


def _bad(text: str, hint: str = "send a form with one file: curl -F file=@input.txt") -> Refused:
    return Refused("bad-request", text, hint)
