"""How does an uploaded input get into its job's directory? By a link, not by a copy.

An upload may be large and was written to disk as it arrived. The file belongs to the job from the start, so the link
needs no lease (compare `place_inputs`). The first name is removed when the job has its link, or is over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from wakugumi.adapters.blobs.file_leases import copy_file
from wakugumi.adapters.files import READ, Closing, in_folder
from wakugumi.roles.runner.files.place_inputs import NotLinked

Place: TypeAlias = Callable[[str, str, int | None], bool]
"""Puts the input of this name at that path; True if the file is the job's own. The last argument is the open parent
folder, if any."""


class UploadedInputs:
    """Files that one caller uploaded for one job, by the names of its inputs."""

    __slots__ = ("files",)

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files

    def place(self, others: Place | None, *, at_once: bool = False) -> Place:
        """A function that places inputs, from any thread; `others` places inputs that were not uploaded. Raises
        OSError; `at_once`, for the loop's thread, raises NotLinked instead of copying."""

        def place(name: str, path: str, folder: int | None) -> bool:
            source = self.files.get(name)
            if source is None:
                assert others is not None
                return others(name, path, folder)
            try:
                os.link(source, in_folder(path, folder), dst_dir_fd=folder)
            except OSError:
                if at_once:
                    raise NotLinked from None
                with Closing(os.open(source, READ)) as file:
                    copy_file(file, in_folder(path, folder), 0o666, folder)
            return True

        return place

    def remove(self) -> None:
        """Remove the first names; a job keeps its links."""
        for path in self.files.values():
            with contextlib.suppress(OSError):
                path.unlink()
