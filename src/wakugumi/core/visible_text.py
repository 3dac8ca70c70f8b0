"""How is text from outside shown, so that a terminal or a log reader shows it and does not obey it?

A control character moves the cursor, sets a title or the clipboard; a bidirectional mark lets a line read other than it
is; a line separator makes two log lines of one; an invisible character makes two names look like one. Each of them
becomes its escape, as `\x1b` or `\u202e`. All other characters of every script stay, also the two joiners (U+200C and
U+200D), and a variation selector behind an emoji, a Han or a Mongolian character that it may vary. Names have none of
these (`is_plain_name`).

Every sink calls this: `app/show/output.py` for a terminal, `app/logs.py` for a log line.
"""

from __future__ import annotations

import re
from typing import Final

_IGNORABLE: Final = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's property Default_Ignorable_Code_Point (DerivedCoreProperties.txt, versions 14 to 16) but the joiners."""
INVISIBLE: Final = (
    r"\x7f-\x9f"  # DEL, C1 with U+0085
    r"\u2028\u2029"  # line and paragraph separator
    r"\ufff9-\ufffb"  # interlinear annotations
    r"\ud800-\udfff"  # half a character: no UTF-8 at all
    rf"{_IGNORABLE}"
)
"""Hostile characters without C0, inside the brackets of a regular expression."""
UNSEEN: Final = rf"{INVISIBLE}\u200c\u200d"
"""Hostile characters and the joiners, which only text may have."""
_EMOJI: Final = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935\u2b05-\u2b55"
    r"\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_VARIED: Final = (
    rf"(?<![{_EMOJI}][\ufe0e\ufe0f])(?<![#*0-9]\ufe0f(?=\u20e3))"
    r"(?<![\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][\U000e0100-\U000e01ef])"
    r"(?<![\u1820-\u18aa][\u180b-\u180d\u180f])"
)
"""Behind a hostile character: the character is no variation selector of the one before."""
_HOSTILE: Final = re.compile(rf"[\x00-\x1f{INVISIBLE}]{_VARIED}")
_HOSTILE_IN_JSON: Final = re.compile(f"[{INVISIBLE}]{_VARIED}")
"""C0 is escaped in any JSON, or is the white space between two values."""
_UNSEEN: Final = re.compile(rf"[{UNSEEN}\u2800]")
"""Invisible characters of a name, with the blank of Braille. A subject may have that blank, for NATS allows it
there."""
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str, kept: str = "") -> str:
    """The text with each hostile character as its escape; characters of `kept`, such as a line break, stay."""
    if _is_plain(text):
        return text
    return _HOSTILE.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def visible_json(text: str) -> str:
    """JSON of the same meaning, without a hostile character."""
    return text if text.isascii() and "\x7f" not in text else _HOSTILE_IN_JSON.sub(_json_escaped, text)


def is_hostile(text: str) -> bool:
    """Does the text hold a character that no honest text has?"""
    return not _is_plain(text) and _HOSTILE.search(text) is not None


def is_plain_name(text: str) -> bool:
    """Are all characters visible, so that names which look equal are equal?"""
    return text.isprintable() and (text.isascii() or _UNSEEN.search(text) is None)


def readable(text: str) -> str:
    """`text` with each undecodable byte of a header (a lone surrogate) replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _is_plain(text: str) -> bool:
    """True for nearly all text, without a search."""
    return text.isascii() and text.isprintable()


def _escaped(char: str) -> str:
    number = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x1_0000 else f"\\U{number:08x}"


def _json_escaped(found: re.Match[str]) -> str:
    """JSON has escapes of 16 bits only: larger numbers become two halves."""
    number = ord(found[0])
    if number < 0x1_0000:
        return f"\\u{number:04x}"
    number -= 0x1_0000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
