"""As which user do programs run? (SPEC O1) As another one than the worker's, if root runs the worker and asks for it.

The worker itself stays root, to become the user for each program (`set_limits`), and to end it.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wakugumi.adapters.programs import set_limits
from wakugumi.errors import ConfigError

_HINT: Final = "name a user of this machine, or a number: --run-as grid, --run-as 1234 or --run-as 1234:1234"
_ID_MAX: Final = 2**32 - 2
"""The largest id of a user or a group: the next number means none."""
_WITHIN_S: Final = 60.0
_LINKS_MAX: Final = 40
"""Most links on one path, as in the kernel."""


class User(NamedTuple):
    """The user that programs run as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str

    @property
    def text(self) -> str:
        """The user as the exec stub reads it."""
        return f"{self.uid}:{self.gid}:{','.join(map(str, self.groups))}"

    @property
    def environment(self) -> dict[bytes, bytes]:
        """Variables that tell a program its user."""
        name = os.fsencode(self.name)
        return {b"HOME": os.fsencode(self.home), b"USER": name, b"LOGNAME": name}


_OF_WORKER: Final = (b"XDG_", b"SUDO_", b"MAIL", b"SHELL", b"OLDPWD")
"""Prefixes of variables of the worker's own user, which are useless to another one."""
_PATH: Final = b"/usr/local/bin:/usr/bin:/bin"
"""PATH of programs: root's own may lead through root's folders."""
_TEMPORARY: Final = (b"TMPDIR", b"TMP", b"TEMP")


def users_environment(user: User, worker: Mapping[bytes, bytes], named: Collection[bytes]) -> dict[bytes, bytes]:
    """The worker's variables adapted to this user. Variables `named` explicitly stay, except the user's own."""
    kept = {name: value for name, value in worker.items() if name in named or not name.startswith(_OF_WORKER)}
    if b"PATH" not in named:
        kept[b"PATH"] = _PATH
    for name in _TEMPORARY:
        if name in kept and name not in named and not _may_write(user, kept[name]):
            del kept[name]
    return kept | user.environment


def user_named(text: str) -> User:
    """A user by name or number. A number unknown to the machine has no home, and its group has the same number unless
    another is given. Raises ConfigError."""
    if os.geteuid() != 0:
        raise ConfigError(
            f"--run-as {text[:80]}: only root can run programs as another user",
            "start it as root, or start it as that user and leave --run-as out",
        )
    try:
        found = _found(*text.partition(":"))
    except KeyError:
        raise ConfigError(f"--run-as {text[:80]}: there is no such user", _HINT) from None
    except ValueError:
        raise ConfigError(f"--run-as {text[:80]}: not a valid user or group", _HINT) from None
    if found.uid == 0 or 0 in {found.gid, *found.groups}:
        raise ConfigError(f"--run-as {text[:80]}: programs would have the rights of root", _HINT)
    return found


def _found(name: str, colon: str, group: str) -> User:
    """Raises KeyError for an unknown name, and ValueError for a number out of bounds."""
    import pwd  # Only Unix has it.

    uid = _number(name) if name.isdecimal() else None
    try:
        known = pwd.getpwnam(name) if uid is None else pwd.getpwuid(uid)
    except KeyError:
        if uid is None:
            raise
        gid = _number(group) if colon else uid
        return User(uid, gid, (gid,), name, "/")
    gid = _number(group) if colon else known.pw_gid
    return User(known.pw_uid, gid, tuple(os.getgrouplist(known.pw_name, gid)), known.pw_name, known.pw_dir)


def check_reach(user: User, folders: Sequence[tuple[str, str]]) -> None:
    """Check that this user can enter these folders; each comes with its name for errors. Raises ConfigError."""
    words = [
        sys.executable,
        "-I",
        "-S",
        set_limits.__file__,
        set_limits.REACH,
        user.text,
        *[path for _, path in folders],
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    closed = done.returncode - set_limits.CLOSED_FROM
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


def _may_write(user: User, folder: bytes) -> bool:
    if not folder.startswith(b"/"):
        return False
    words = [sys.executable, "-I", "-S", set_limits.__file__, set_limits.WRITE, user.text, os.fsdecode(folder)]
    return subprocess.run(words, capture_output=True, check=False, timeout=_WITHIN_S).returncode == 0


def check_way(user: User, what: str, path: str) -> None:
    """Check that this user cannot replace this folder, or one on the way to it, as far as they exist. In a folder with
    the sticky bit only the owner of an entry can replace it. Raises ConfigError."""
    for here, status, is_last in _way(path):
        if stat.S_ISLNK(status.st_mode):
            is_safe = status.st_uid in {0, os.geteuid()}
        elif status.st_uid == user.uid:
            is_safe = False
        else:
            group = stat.S_IWGRP if status.st_gid in {user.gid, *user.groups} else 0
            is_safe = not status.st_mode & (group | stat.S_IWOTH) or bool(status.st_mode & stat.S_ISVTX and not is_last)
        if not is_safe:
            raise ConfigError(
                f"the user {user.name} could put something else in place of the {what} {path}: {here} belongs to them, "
                f"is another user's link, or may be written to (mode {stat.S_IMODE(status.st_mode):o})",
                "all folders on the way there must be root's, and closed to other writers: chown root, chmod go-w, or "
                "choose another one",
            )


def _way(path: str) -> Iterator[tuple[str, os.stat_result, bool]]:
    """All folders and links on the way to a path, from the root on, and whether each is the last one."""
    left, at, links = [part for part in reversed(path.split("/")) if part], "/", 0
    yield at, os.lstat(at), not left
    while left:
        part = left.pop()
        if part == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, part)
        try:
            status = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            return
        yield here, status, not left
        if not stat.S_ISLNK(status.st_mode):
            at = here
            continue
        links += 1
        if links > _LINKS_MAX:
            return
        target = str(Path(here).readlink())
        left.extend(part for part in reversed(target.split("/")) if part not in {"", "."})
        at = "/" if target.startswith("/") else at


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _ID_MAX:
        raise ValueError
    return number
