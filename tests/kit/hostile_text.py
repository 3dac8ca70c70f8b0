"""Text that a stranger may send to command a terminal, to forge a log line, or to look like something else.

Each string holds MARK, so that a test can see that the text was shown at all. A new trick is one more line of TEXTS.
"""

from __future__ import annotations

import enum
import re
import typing

import msgspec

MARK = "evil"

TEXTS: dict[str, str] = {
    "clipboard": f"{MARK}\x1b]52;c;cm0gLXJm\x07",
    "title": f"\x1b]0;{MARK}\x1b\\",
    "clear": f"\x1b[2J\x1b[H{MARK}",
    "colour": f"\x1b[5;41m{MARK}\x1b[49m",
    "answer back": f"\x1b[c\x1b[6n\x05{MARK}",
    "charset": f"\x0e{MARK}\x1b(0",
    "erase": f"{MARK}\x08\x08\x08\x08good",
    "new line": f"{MARK}\nerror: forged\nhint: forged",
    "carriage return": f"good\r{MARK}",
    "log line": f"{MARK}\ntime=2026-01-01T00:00:00.000Z level=info msg=forged",
    "form feed": f"{MARK}\x0b\x0c{MARK}",
    "nul": f"{MARK}\x00{MARK}",
    "delete": f"{MARK}\x7f{MARK}",
    "c1 csi": f"\x9b31m{MARK}",
    "c1 osc": f"\x9d52;c;cm0gLXJm\x9c{MARK}",
    "next line": f"{MARK}\x85{MARK}",
    "line separator": f"{MARK}\u2028{MARK}\u2029{MARK}",
    "override": f"{MARK}\u202egpj.exe\u202c",
    "embedding": f"\u202a{MARK}\u202b{MARK}\u202d",
    "isolates": f"\u2066{MARK}\u2067{MARK}\u2068{MARK}\u2069",
    "marks": f"\u200e{MARK}\u200f{MARK}\u061c",
    "no width": f"e\u200bvil {MARK}\u2060\ufeff",
    "soft hyphen": f"e\xadvil {MARK}",
    "tags": f"{MARK}\U000e0001\U000e0041",
    "hangul fillers": f"{MARK}\u115f{MARK}\u1160{MARK}\u3164{MARK}\uffa0",
    "grapheme joiner": f"e\u034fvil {MARK}",
    "khmer vowels": f"{MARK}\u17b4{MARK}\u17b5",
    "selectors": f"{MARK}\ufe00{MARK}\ufe0f{MARK}\U000e0100{MARK}\U000e01ef",
    "two selectors": f"{MARK}\u2764\ufe0f\ufe0f{MARK}\u845b\U000e0100\U000e0101",
    "mongolian selectors": f"{MARK}\u180b{MARK}\u180f",
    "beams": f"{MARK}\U0001bca0{MARK}\U0001d173",
    "no characters yet": f"{MARK}\ufff0{MARK}\U000e0fff",
}
ALL = " | ".join(TEXTS.values())

HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    "|(?<![\xa9\xae#*0-9\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]"
    "|(?<![\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
    "|(?<![\u1820-\u18aa])[\u180b-\u180d\u180f]"
)
"""What must reach no terminal and no log. A line break and a tab are told apart by what stands around them."""
OURS = re.compile(
    r"\x1b\[(?:0|1|2|1;31|[0-9]{1,3}(?:;[0-9]{1,3}){0,4})?m"  # colours
    r"|\x1b\[(?:2K|1A|K|H|2J|\?25[hl]|\?1049[hl])"  # a progress bar's line, a cursor, a second screen
    r"|\r+\n|\r(?=\x1b\[(?:2?K|1A))"  # how a terminal ends a line, and how a bar is drawn anew
)
FORGED = re.compile(
    r"^(?:error: forged|hint: forged|time=2026-01-01T00:00:00.000Z level=info msg=forged)", re.MULTILINE
)


def reached(shown: str, *, drawn: bool = False) -> list[str]:
    """What is hostile in this output. On a terminal (`drawn`) our own colours and bars are there as well."""
    found = [name for name, text in TEXTS.items() if text in shown or text.replace("\n", "\r\n") in shown]
    plain = OURS.sub("\n", shown) if drawn else shown
    found += [f"{ord(char):#x} in {plain[max(0, at - 30) : at + 30]!r}" for char, at in _characters(plain)]
    return found + FORGED.findall(plain)


def _characters(text: str) -> list[tuple[str, int]]:
    return [(found[0], found.start()) for found in HOSTILE.finditer(text)]


def filled(kind: object, text: str = ALL) -> typing.Any:
    """A value of this type in which every text is this one: an answer of a leader that says what it likes."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {field.name: filled(field.type, text) for field in msgspec.structs.fields(kind)}
        return kind(**fields | ({"left": 0} if "left" in fields else {}))  # a command asks until nothing is left
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if origin in {list, tuple}:
        return [filled(inside[0], text)]
    if origin is dict:
        return {text: filled(inside[1], text)}
    if origin is typing.Literal:
        return inside[0]
    if inside:
        return filled(inside[0], text)
    return {str: text, int: 1, float: 1.0, bool: False}[kind]  # type: ignore[index]
