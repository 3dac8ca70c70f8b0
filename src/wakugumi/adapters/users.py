"""As whom do programs run? (SPEC O1) As another user than the worker's, where root runs the worker and says so.

The worker itself stays root: it needs that to become the user, for each program anew (`limited`), and to end it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from wakugumi.adapters import limited
from wakugumi.errors import ConfigError

_HINT: Final = "name a user of this machine, or a number: --run-as grid, --run-as 1234 or --run-as 1234:1234"
_ID_MAX: Final = 2**32 - 2
"""The largest number of a user or a group: the one above it means none."""
_WITHIN_S: Final = 60.0


class User(NamedTuple):
    """Whose programs they are."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str

    @property
    def text(self) -> str:
        """As the exec stub reads it."""
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"

    @property
    def environment(self) -> dict[bytes, bytes]:
        """What a program reads to learn who it is."""
        name = os.fsencode(self.name)
        return {b"HOME": os.fsencode(self.home), b"USER": name, b"LOGNAME": name}


OF_WORKER: Final = (b"XDG_", b"SUDO_", b"MAIL", b"SHELL")
"""What variables of the worker's own user begin with: another one has no use for them."""


def user_named(text: str) -> User:
    """A user by name or number. One that the machine does not know has the group of the same number, unless it is told
    another, and no home. Raises ConfigError."""
    if os.geteuid() != 0:
        raise ConfigError(
            f"--run-as {text[:80]}: only root can run programs as another user",
            "start it as root, or start it as that user and leave --run-as out",
        )
    import pwd  # Only Unix has it.

    name, colon, group = text.partition(":")
    try:
        known = pwd.getpwuid(_number(name)) if name.isdecimal() else pwd.getpwnam(name)
        gid = _number(group) if colon else known.pw_gid
        found = User(known.pw_uid, gid, tuple(os.getgrouplist(known.pw_name, gid)), known.pw_name, known.pw_dir)
    except KeyError:
        if not name.isdecimal():
            raise ConfigError(f"--run-as {text[:80]}: there is no such user", _HINT) from None
        uid = _number(name)
        gid = _number(group) if colon else uid
        found = User(uid, gid, (gid,), name, "/")
    except ValueError:
        raise ConfigError(f"--run-as {text[:80]}: that is no user", _HINT) from None
    if found.uid == 0 or 0 in {found.gid, *found.groups}:
        raise ConfigError(f"--run-as {text[:80]}: programs would have the rights of root", _HINT)
    return found


def check_reach(user: User, folders: Sequence[tuple[str, str]]) -> None:
    """Can this user be, and get into these folders? Each comes with what it is called. Raises ConfigError."""
    words = [sys.executable, "-I", "-S", limited.__file__, limited.REACH, user.text, *[path for _, path in folders]]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    closed = done.returncode - limited.CLOSED_FROM
    if 0 <= closed < len(folders):
        what, path = folders[closed]
        raise ConfigError(
            f"the user {user.name} cannot get into the {what} {path}",
            "each folder on the way there must let this user pass: chmod o+x, or choose another one",
        )
    if done.returncode:
        raise ConfigError(
            f"programs cannot run as {user.name}: {done.stderr.strip().rpartition(': ')[2]}",
            "a container needs the capabilities SETUID and SETGID for this",
        )


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _ID_MAX:
        raise ValueError
    return number
