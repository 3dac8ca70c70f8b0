"""How is JSON from outside read? In this file alone, so that it can fail in one way only.

JSON from outside may be nested deeper than the decoder can follow (RecursionError), hold bytes that are no UTF-8
(UnicodeDecodeError), or have another shape (errors of msgspec). All of these are Unreadable.
`tests/house/test_untrusted_json.py` finds every other place that decodes JSON.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from wakugumi.errors import PeerError

T = TypeVar("T")

_FAILURES: Final = (ValueError, RecursionError)
"""Errors of msgspec and of the UTF-8 codec are ValueErrors."""
_TEXT_CHARS_MAX: Final = 200
"""Bound of an error's text: some errors quote the input, which may be long."""


class Unreadable(PeerError, ValueError):
    """The data is not JSON, or has another shape. The message says why."""


class JsonReader(Generic[T]):
    """Reads values of one type. Making a reader costs more than using it: make it once."""

    __slots__ = ("_decode",)

    def __init__(self, kind: type[T]) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def read(self, data: bytes | str) -> T:
        """Raises only Unreadable."""
        try:
            return self._decode(data)
        except _FAILURES as error:
            text = str(error)
            raise Unreadable(text if len(text) <= _TEXT_CHARS_MAX else f"{text[:_TEXT_CHARS_MAX]}…") from None


def read_json(data: bytes | str, kind: type[T]) -> T:
    """One value of this type. Raises only Unreadable."""
    return JsonReader(kind).read(data)
