"""A tree of cgroups that are plain folders: new ones have their files, and are removed with them, as by the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILES = (
    *("cgroup.procs", "cgroup.subtree_control", "cgroup.kill", "cgroup.type"),
    *("memory.max", "memory.swap.max", "memory.oom.group", "memory.events", "pids.max", "pids.events"),
)


class CgroupTree:
    """The machine's cgroups below `root`, and the files by which a process finds its own."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = top / "cgroup"
        self.proc = top / "proc"
        self.proc.mkdir()
        self._mkdir, self._rmdir = os.mkdir, os.rmdir
        self.busy: set[str] = set()
        """Cgroups that the kernel does not remove."""
        monkeypatch.setattr(os, "mkdir", self._make)
        monkeypatch.setattr(os, "rmdir", self._remove)
        os.mkdir(self.root)
        (self.proc / "mountinfo").write_text(
            f"22 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 / {self.root} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
        )

    def ours(self, name: str = "/grid.service", controllers: str = "cpu memory pids") -> Path:
        """The cgroup of this process."""
        folder = self.root / name.strip("/")
        if not folder.exists():
            os.mkdir(folder)
        (folder / "cgroup.controllers").write_text(f"{controllers}\n")
        (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
        (self.proc / "cgroup").write_text(f"2:cpu:/\n0::{name}\n")
        return folder

    def _make(self, path: str | Path, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._mkdir(path, mode, dir_fd=dir_fd)
        if self.root in (Path(path), *Path(path).parents):
            for name in FILES:
                (Path(path) / name).touch()

    def _remove(self, path: str | Path, *, dir_fd: int | None = None) -> None:
        if self.root not in Path(path).parents:
            self._rmdir(path, dir_fd=dir_fd)
        elif Path(path).name in self.busy:
            raise OSError(16, "Device or resource busy")
        else:
            for name in FILES:
                (Path(path) / name).unlink(missing_ok=True)
            self._rmdir(path)
