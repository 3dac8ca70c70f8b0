"""How does an input that came to this machine as a file get into its job's directory? By a link, not by a copy.

It may be large, such as an upload that was written to the disk as it came. The file is the job's own from the start, so
the link needs no guard (compare `place_inputs`); its first name goes once the job has it, or when nobody needs it any
more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from wakugumi.adapters.blobs.file_leases import copy_file
from wakugumi.adapters.files import READ, in_folder
from wakugumi.roles.runner.files.place_inputs import NotLinked

Place: TypeAlias = Callable[[str, str, int | None], bool]
"""Puts the input of this name at that path, and says whether the file is the job's own. The last argument is the folder
in which that is, if it is open."""


class UploadedInputs:
    """The files that one caller brought for one job, by the names of its inputs."""

    __slots__ = ("files",)

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files

    def place(self, others: Place | None) -> Place:
        """From any thread: what to do with each input. `others` places what was not brought. Raises OSError."""

        def place(name: str, path: str, folder: int | None) -> bool:
            source = self.files.get(name)
            if source is None:
                assert others is not None
                return others(name, path, folder)
            try:
                os.link(source, in_folder(path, folder), dst_dir_fd=folder)
            except OSError:
                file = os.open(source, READ)
                try:
                    copy_file(file, in_folder(path, folder), 0o666, folder)
                finally:
                    os.close(file)
            return True

        return place

    def place_at_once(self, others: Place | None) -> Place:
        """The same in the loop's thread: raises NotLinked where a copy would have to be made."""

        def place(name: str, path: str, folder: int | None) -> bool:
            source = self.files.get(name)
            if source is None:
                assert others is not None
                return others(name, path, folder)
            try:
                os.link(source, in_folder(path, folder), dst_dir_fd=folder)
            except OSError:
                raise NotLinked from None
            return True

        return place

    def remove(self) -> None:
        """Their first names: a job that has them keeps them."""
        for path in self.files.values():
            with contextlib.suppress(OSError):
                path.unlink()
