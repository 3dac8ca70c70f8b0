"""May this worker fetch this blob from that one? Its leader makes a token, which the serving worker checks alone.

    <expiry, unix s>.<hex HMAC-SHA256(key, "<sha256>.<expiry>")>        Authorization: Bearer <token>

The key is made by the serving worker, which sends it only to its leader.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Protocol

from wakugumi.core.access.identity import Identity
from wakugumi.limits.files import TOKEN_S


def make_token(key: str, sha256: str, now: float) -> str:
    """Token to fetch one blob from the worker with this key. `now` is of the wall clock."""
    expiry = str(int(now + TOKEN_S))
    return f"{expiry}.{_sign(key, sha256, expiry)}"


def check_token(key: str, sha256: str, token: str, now: float) -> bool:
    """Whether the token is for this blob, signed with the key, and not expired."""
    expiry, _, signature = token.partition(".")
    if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= 12 and signature.isascii()):
        return False
    # A token that is valid for longer than any leader makes it is forged, or the clocks differ too much.
    return now <= int(expiry) <= now + 2 * TOKEN_S and hmac.compare_digest(signature, _sign(key, sha256, expiry))


def _sign(key: str, sha256: str, expiry: str) -> str:
    return hmac.new(key.encode(), f"{sha256}.{expiry}".encode(), hashlib.sha256).hexdigest()


class BlobReaders(Protocol):
    """Which content is for whom?"""

    def may_read(self, identity: Identity, sha256: str) -> bool: ...
    def brings(self, identity: Identity, sha256: str) -> None:
        """The content is being received from this identity."""
        ...


class _Everyone:
    def may_read(self, _identity: Identity, _sha256: str) -> bool:
        return True

    def brings(self, _identity: Identity, _sha256: str) -> None:
        """Makes no difference."""


EVERYONE: Final = _Everyone()
