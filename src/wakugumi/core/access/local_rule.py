"""Which identity does a user of this machine have?

The kernel names the user at the other end of a loopback connection. Behind a relay every stranger looks like the
relay's user, so a forwarded request has no identity by its user.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from wakugumi.core.access.identity import ALL_NAMES, Identity, Role, Rules

LocalMode = Literal["admin", "client", "none"]
_ROOT: Final = 0


class LocalRule(msgspec.Struct, frozen=True):
    mode: LocalMode
    """Role of the leader's own user and of root; `none`: no user has an identity."""
    own_uid: int
    group: int | None = None
    """Members of this group are clients, which share one sight as holders of the key `client` do."""

    def identity_of_user(self, uid: int | None, groups: frozenset[int], *, forwarded: bool) -> Identity | None:
        """None: the user needs a key. A `uid` of None is one that the kernel does not tell."""
        if uid is None or forwarded or self.mode == "none":
            return None
        name = f"uid:{uid}"  # No key can have this name.
        if uid in (self.own_uid, _ROOT) and self.mode == "admin":
            return Identity(name, Role.ADMIN)
        if uid in (self.own_uid, _ROOT) or (self.group is not None and self.group in groups):
            return Identity(name, Role.CLIENT, Rules(clients=ALL_NAMES))
        return None
