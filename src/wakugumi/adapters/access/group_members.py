"""Which users are in a group of this machine? The system's lists say so; slow ones are read in a thread."""

from __future__ import annotations

import threading
import time
from typing import Final

from wakugumi.errors import ConfigError

FRESH_S: Final = 60.0


class GroupMembers:
    """The members of one group: those that its entry names, and those whose own group it is. Lists that are older than
    a minute are read again; meanwhile the old ones count."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError if there is no such group."""
        self.name = name
        self.group, self._uids = _read(name)
        self._read_at = time.monotonic()
        self._reading = threading.Lock()

    def __contains__(self, uid: object) -> bool:
        if time.monotonic() - self._read_at > FRESH_S and self._reading.acquire(blocking=False):
            threading.Thread(target=self._read_again, name="group members", daemon=True).start()
        return uid in self._uids

    def _read_again(self) -> None:
        try:
            self.group, self._uids = _read(self.name)
        except ConfigError:  # The group was removed.
            self._uids = frozenset()
        finally:
            self._read_at = time.monotonic()
            self._reading.release()


def _read(name: str) -> tuple[int, frozenset[int]]:
    import grp  # Not on every system.
    import pwd

    try:
        group = grp.getgrnam(name)
    except (KeyError, ValueError):
        raise ConfigError(f"there is no group {name[:80]!r} on this machine", "getent group lists all") from None
    users = pwd.getpwall()
    named = frozenset(group.gr_mem)
    return group.gr_gid, frozenset(
        user.pw_uid for user in users if user.pw_name in named or user.pw_gid == group.gr_gid
    )
