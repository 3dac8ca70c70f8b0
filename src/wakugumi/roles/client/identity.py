"""What is a client called if its user gives it no name, and which names are valid?"""

from __future__ import annotations

import os
from typing import Final

from wakugumi.core.visible_text import is_plain_name
from wakugumi.errors import ConfigError
from wakugumi.limits.wire import CLIENT_ID_CHARS_MAX

_SHARED_KEYS: Final = frozenset({"", "admin", "client"})
"""First keys of a grid, which several users share."""


def default_client_id(key_name: str = "") -> str:
    """WAKU_CLIENT_ID, or `user@host`, with the name of an own key before it: the same in every run, because it is part
    of the request."""
    if given := os.environ.get("WAKU_CLIENT_ID"):
        return given
    user = next((name for key in ("LOGNAME", "USER", "USERNAME") if (name := os.environ.get(key))), "")
    if not user:
        try:
            import pwd

            user = pwd.getpwuid(os.getuid()).pw_name
        except (ImportError, KeyError):  # There is no such database, or the user is not in it.
            user = f"uid{os.getuid()}" if hasattr(os, "getuid") else "someone"
    own = "" if key_name in _SHARED_KEYS else f"{key_name}."
    text = f"{own}{user}@{os.uname().nodename if hasattr(os, 'uname') else 'localhost'}"
    return "".join(char if is_plain_name(char) else "_" for char in text)[:CLIENT_ID_CHARS_MAX]


def check_client_id(client_id: str) -> None:
    """Raises ConfigError."""
    if not client_id or len(client_id) > CLIENT_ID_CHARS_MAX or not is_plain_name(client_id):
        raise ConfigError(f"a client id is 1 to {CLIENT_ID_CHARS_MAX} printable characters, not {client_id[:80]!r}")
