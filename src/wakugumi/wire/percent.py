"""Which text is percent-encoded here? `%41` is the byte 0x41, and all the bytes together are UTF-8.

A percent sign without two hexadecimal digits is literal, so that a file called `100%` keeps its name.
"""

from __future__ import annotations

import re
from typing import Final

from wakugumi.errors import Refused

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_KEPT: Final = re.compile(rb"[^A-Za-z0-9._~/-]")


def percent_decoded(text: str) -> str:
    """Decoded once. Raises Refused (`bad-name`) if the result is no UTF-8."""
    if "%" not in text:
        return text
    data = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text.encode("utf-8", "surrogatepass"))
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused("bad-name", f"{text[:80]!r} is not UTF-8 behind its percent signs") from None


def percent_encoded(text: str) -> str:
    """Text without characters that could end a line, a word or a quotation."""
    return _KEPT.sub(lambda found: b"%%%02X" % found[0][0], text.encode()).decode("ascii")
