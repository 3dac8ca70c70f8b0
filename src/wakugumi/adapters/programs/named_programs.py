"""Which program does a job's name mean? One in the exec directory or one named separately. (SPEC W1)"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from wakugumi.adapters.beneath import open_beneath
from wakugumi.adapters.files import READ, READ_FOLDER, Closing
from wakugumi.adapters.programs.default_command import DefaultCommand
from wakugumi.core.names import check_exec_name
from wakugumi.errors import Refused


class Programs:
    """The programs that jobs may name: those in the exec directory, and those named one by one."""

    def __init__(
        self, folder: Path | None, named: Mapping[str, Path] = {}, default: DefaultCommand | None = None
    ) -> None:
        """Without a `default` every job must name a program."""
        self.default = default
        self._folder = None if folder is None else os.path.realpath(folder)
        self._named = {name: os.path.abspath(path) for name, path in named.items()}
        self._checked: dict[str, str] = {}
        """Paths of valid names: a name is checked once, its file each time."""

    @property
    def folders(self) -> list[str]:
        """Folders of all programs."""
        named = [os.path.dirname(path) for path in self._named.values()]
        return [*([] if self._folder is None else [self._folder]), *named]

    def resolve(self, exec_name: str) -> str:
        """The absolute path of a program. Raises Refused.

        A link out of the exec directory is not followed: no program outside it can be started, without exception. Such
        a program can be named separately.
        """
        path = self._checked.get(exec_name)
        if path is not None and _is_file(path):
            return path
        if not exec_name and self.default is not None:
            return self.resolve(self.default.exec_name)
        check_exec_name(exec_name)
        if exec_name in self._named:
            return self._named[exec_name]
        if self._folder is not None:
            for path in (f"{self._folder}/{exec_name}", f"{self._folder}/{exec_name}.exe"):
                if _is_file(path):
                    self._checked[exec_name] = path
                    return path
                if os.path.islink(path) and self._leads_to_file(path, exec_name):
                    return path
        raise Refused("unknown-program", f"this worker has no program {exec_name!r}")

    def open(self, path: str) -> int:
        """Open a path of `resolve` for a copy. A link that was made since then is checked, too. Raises Refused, and
        OSError."""
        target = os.path.realpath(path) if os.path.islink(path) else path
        if self._folder is None or path in self._named.values():
            return os.open(target, READ)
        if not target.startswith(f"{self._folder}/"):
            raise Refused(
                "unknown-program", f"{os.path.basename(path)!r} is a link that leads out of the exec directory"
            )
        with Closing(os.open(self._folder, READ_FOLDER)) as folder:
            return open_beneath(folder, target[len(self._folder) + 1 :], READ)

    def _leads_to_file(self, path: str, exec_name: str) -> bool:
        target = os.path.realpath(path)
        if not target.startswith(f"{self._folder}/"):
            raise Refused(
                "unknown-program",
                f"{exec_name!r} is a link that leads out of the exec directory: copy the program there, or name it",
            )
        return _is_file(target)


def _is_file(path: str) -> bool:
    """Whether it is a file, not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
