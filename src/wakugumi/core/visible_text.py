"""How is text from outside shown, so that a terminal or a log reader shows it and does not obey it?

A control character moves the cursor, sets a title or the clipboard; a bidirectional mark lets a line read other than it
is; a line separator makes two log lines of one; an invisible character makes two names look like one. Each of them
becomes its escape, as `\\x1b` or `\\u202e`. Everything else stays, in every script; also the two joiners (U+200C and
U+200D), without which Persian and some emoji cannot be spelled.

Every sink calls this: `app/show/output.py` for a terminal, `app/logs.py` for a log line.
"""

from __future__ import annotations

import re
from typing import Final

INVISIBLE: Final = (
    r"\x7f-\x9f\xad"  # DEL, C1 with U+0085, the soft hyphen
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional
    r"\u2028\u2029"  # line and paragraph separator
    r"\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # no width, no glyph
    r"\ud800-\udfff"  # half a character: no UTF-8 at all
)
"""All of them but C0, inside the brackets of a regular expression."""
_HOSTILE: Final = re.compile(rf"[\x00-\x1f{INVISIBLE}]")
_HOSTILE_IN_JSON: Final = re.compile(f"[{INVISIBLE}]")
"""C0 is escaped in any JSON, or is the white space between two values."""
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str, kept: str = "") -> str:
    """The text with each hostile character as its escape; those of `kept`, such as a line break, stay."""
    if text.isprintable():  # Nearly always, and no hostile character is.
        return text
    return _HOSTILE.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def visible_json(text: str) -> str:
    """JSON that means the same, without a hostile character in it."""
    return text if text.isascii() and "\x7f" not in text else _HOSTILE_IN_JSON.sub(_json_escaped, text)


def is_hostile(text: str) -> bool:
    """Does it hold a character that no honest name has?"""
    return not text.isprintable() and _HOSTILE.search(text) is not None


def _escaped(char: str) -> str:
    number = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x1_0000 else f"\\U{number:08x}"


def _json_escaped(found: re.Match[str]) -> str:
    """JSON has escapes of 16 bits alone: what lies beyond is written as two halves."""
    number = ord(found[0])
    if number < 0x1_0000:
        return f"\\u{number:04x}"
    number -= 0x1_0000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
