"""How is JSON read that somebody else wrote? Here and nowhere else, so that it can fail in one way only.

A stranger's JSON may be nested deeper than the decoder can follow (RecursionError), hold bytes that are no UTF-8
(UnicodeDecodeError), or be of another shape (errors of msgspec). All of these are Unreadable.
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
"""Some errors quote the input, which may be long."""


class Unreadable(PeerError, ValueError):
    """It is not JSON, or not what was asked for. The message says why."""


class JsonReader(Generic[T]):
    """Reads values of one type. To make one costs more than to use it: make it once."""

    __slots__ = ("_decode",)

    def __init__(self, kind: type[T]) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def read(self, data: bytes | str) -> T:
        """Raises Unreadable, and nothing else."""
        try:
            return self._decode(data)
        except _FAILURES as error:
            text = str(error)
            raise Unreadable(text if len(text) <= _TEXT_CHARS_MAX else f"{text[:_TEXT_CHARS_MAX]}…") from None


def read_json(data: bytes | str, kind: type[T]) -> T:
    """One value of this type. Raises Unreadable, and nothing else."""
    return JsonReader(kind).read(data)
