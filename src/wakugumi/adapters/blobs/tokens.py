"""May this worker fetch this blob from that one? A leader says so by a token, which the serving worker can check alone.

    <expiry, unix s>.<hex HMAC-SHA256(key, "<sha256>.<expiry>")>        Authorization: Bearer <token>

The key is the serving worker's: it tells its leader when it joins, and nobody else.
"""

from __future__ import annotations

import hashlib
import hmac

from wakugumi.limits.files import TOKEN_S


def make_token(key: str, sha256: str, now: float) -> str:
    """Leave to fetch one blob from whoever has this key. `now` is of the wall clock."""
    expiry = str(int(now + TOKEN_S))
    return f"{expiry}.{_sign(key, sha256, expiry)}"


def check_token(key: str, sha256: str, token: str, now: float) -> bool:
    """Is it a leader's word about this blob, and does it still hold?"""
    expiry, _, signature = token.partition(".")
    if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= 12 and signature.isascii()):
        return False
    # A token from further ahead than any leader makes it is none, or clocks are far apart: either way it is refused.
    return now <= int(expiry) <= now + 2 * TOKEN_S and hmac.compare_digest(signature, _sign(key, sha256, expiry))


def _sign(key: str, sha256: str, expiry: str) -> str:
    return hmac.new(key.encode(), f"{sha256}.{expiry}".encode(), hashlib.sha256).hexdigest()
