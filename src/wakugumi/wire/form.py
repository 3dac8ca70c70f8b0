"""Which files does a `multipart/form-data` body hold? (RFC 7578) Events as the bytes arrive.

The library `multipart` cuts the body into parts and keeps only bytes that may begin a boundary; this file checks the
heads of parts.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

from multipart import MultipartError, MultipartSegment, PushMultipartParser

from wakugumi.errors import Refused
from wakugumi.limits.http import PART_HEAD_BYTES_MAX
from wakugumi.wire.percent import percent_decoded, percent_encoded


class FormPart(NamedTuple):
    """A part begins."""

    name: str
    """Name of the field."""
    file_name: str | None
    """Name given by the sender, percent-decoded and otherwise unchecked."""


class Data(NamedTuple):
    """A piece of the part's content."""

    data: bytes


class End(NamedTuple):
    """The part is complete."""


Event: TypeAlias = FormPart | Data | End

END: Final = End()
FORM_DATA: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_TYPE: Final = re.compile(r"\s*multipart/form-data\s*(?=;)", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"""\s*;\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))""")
_ESCAPED: Final = re.compile(r'\\(["\\])')
"""Clients write a backslash before a quotation mark, some also before a backslash; elsewhere it is literal."""
_PLAIN_ENCODINGS: Final = frozenset({"7bit", "8bit", "binary"})


class Multipart:
    """One body. Raises Refused (`bad-request` or `bad-name`), and is unusable afterwards."""

    def __init__(self, boundary: bytes) -> None:
        self._parser = PushMultipartParser(boundary, max_header_size=PART_HEAD_BYTES_MAX)
        self._delimiter = b"\r\n--" + boundary
        self._before: bytes | None = b"\r\n"
        """Bytes before the first delimiter. A line break is put before them, because the first delimiter needs none."""
        self._head_at = 0
        self._head: bytes | None = b""
        """Delimiter and head of the first part, until it is whole; `_head_at` is where they begin in the body."""
        self.content_at = 0
        """Where the content of the first part begins in the body, once its head was received."""

    def feed(self, data: bytes) -> list[Event]:
        """Events of the next bytes. Raises Refused."""
        if self._before is not None:
            # The library would drop any number of bytes here, and find another beginning if they were cut differently.
            data = self._before + data
            begins = data.find(self._delimiter)
            if begins < 0:
                if len(data) > PART_HEAD_BYTES_MAX:
                    raise _bad(f"what stands before the first boundary is longer than {PART_HEAD_BYTES_MAX} bytes")
                self._before = data
                return []
            data, self._before, self._head_at = data[begins + 2 :], None, begins
        if self._head is not None:
            self._head += data
            if (ends := self._head.find(b"\r\n\r\n")) >= 0:
                self.content_at, self._head = self._head_at + ends + 4, None
        try:
            return [_event(segment) for segment in self._parser.parse(data)] if data else []
        except MultipartError as error:
            raise _bad(f"the form is broken: {error}"[:300]) from None

    def finish(self) -> None:
        """The body has ended. Raises Refused if the last delimiter is missing."""
        try:
            self._parser.close()
        except MultipartError:
            raise _bad("the body ends before its last boundary") from None


def _event(segment: MultipartSegment | bytes | bytearray | None) -> Event:
    if segment is None:
        return END
    return _part(segment.headerlist) if isinstance(segment, MultipartSegment) else Data(bytes(segment))


def boundary_of(content_type: str | None) -> bytes:
    """The boundary between the parts. Raises Refused for another type of body, or an invalid boundary."""
    found = _TYPE.match(content_type or "")
    if content_type is None or found is None:
        what = "nothing" if content_type is None else repr(content_type[:80])
        raise _bad(f"the body must be {FORM_DATA} with a boundary, and its Content-Type says {what}")
    boundary = _parameters(content_type[found.end() :]).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise _bad(f"{boundary[:80]!r} is no boundary: it takes 1 to 70 characters that RFC 2046 allows")
    return boundary.encode("ascii")


def encode_head(boundary: bytes, name: str, file_name: str) -> bytes:
    """Bytes before the content of a form with one file."""
    disposition = f'form-data; name="{percent_encoded(name)}"; filename="{percent_encoded(file_name)}"'
    text = f"\r\nContent-Disposition: {disposition}\r\nContent-Type: application/octet-stream\r\n\r\n"
    return b"--" + boundary + text.encode("ascii")


def encode_tail(boundary: bytes) -> bytes:
    """Bytes after the content of the last part."""
    return b"\r\n--" + boundary + b"--\r\n"


def _part(headers: list[tuple[str, str]]) -> FormPart:
    """Raises Refused."""
    found: dict[str, str] | None = None
    for field, value in headers:
        if field == "Content-Disposition":
            kind, semicolon, more = value.partition(";")
            if found is not None or kind.strip().lower() != "form-data":
                raise _bad("a part must say once that it is form-data")
            found = _parameters(semicolon + more)
        elif field == "Content-Transfer-Encoding" and value.lower() not in _PLAIN_ENCODINGS:
            raise _bad(f"a part must come as it is, not as {value[:40]!r}")
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
