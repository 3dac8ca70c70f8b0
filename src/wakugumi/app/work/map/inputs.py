"""Which inputs does a map have, in which order, and where does each one's result go?

A result's folder has the name of its input. Inputs that share a name keep their path below the folder that they have
in common: `a/x.csv` and `b/x.csv` keep `a/` and `b/`. The list is a private SQLite database that moves to disk as it
grows: ten million inputs take no more memory than ten.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from wakugumi.errors import ConfigError

_MEMORY_KIB: Final = 16 * 1024
"""Memory of the list before it moves to disk: some 100 000 inputs."""


class Input(NamedTuple):
    path: str
    out: str
    """Folder of the result, below the folder of the map."""

    @property
    def name(self) -> str:
        """Name of the file in the job's directory."""
        return os.path.basename(self.path)


class Inputs:
    """The inputs of one run: add them all, then go through them."""

    def __init__(self) -> None:
        # Names are bytes: a file's name need not be text. An empty file name means a temporary database.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(f"PRAGMA cache_size = -{_MEMORY_KIB}")
        self._db.execute(
            "CREATE TABLE input (turn INTEGER, name BLOB, path BLOB, out BLOB, UNIQUE (path) ON CONFLICT IGNORE)"
        )
        self._turns = 0
        self.left_out = 0
        """Number of subfolders of the named folders; their files are no inputs."""

    def add(self, path: str) -> None:
        """A file, or a folder: its files in the order of their names, without hidden ones. Raises ConfigError."""
        self._turns += 1
        full = os.path.abspath(path)
        try:
            if os.path.isdir(full):
                self._insert(self._files_of(full))
            elif os.path.exists(full):
                self._insert((full,))
            else:
                raise ConfigError(f"the input {path} does not exist", "name files, or folders with files")
        except OSError as error:
            raise ConfigError(f"the input {path} cannot be read: {error.strerror}") from None

    def add_list(self, source: str) -> None:
        """Adds the paths of a file, one per line; `-` is stdin. Raises ConfigError."""
        try:
            lines = sys.stdin.buffer if source == "-" else open(source, "rb")  # noqa: SIM115 -- stdin is not ours to close
            try:
                for line in lines:
                    if path := line.rstrip(b"\r\n"):
                        self.add(os.fsdecode(path))
            finally:
                if source != "-":
                    lines.close()
        except OSError as error:
            raise ConfigError(f"the list of inputs {source} cannot be read: {error.strerror}") from None

    def settle(self) -> None:
        """After the last `add`: lengthens names that inputs share. Raises ConfigError if two results share a folder."""
        self._db.execute("CREATE INDEX by_name ON input (name)")
        shared = self._db.execute("SELECT name FROM input GROUP BY name HAVING count(*) > 1")
        longer = False
        for (name,) in shared.fetchall():
            common = _common_folder(
                path for (path,) in self._db.execute("SELECT path FROM input WHERE name = ?", [name])
            )
            self._db.execute("UPDATE input SET out = substr(path, ?) WHERE name = ?", [len(common) + 1, name])
            longer = True
        if longer:
            self._check_nesting()

    def close(self) -> None:
        self._db.close()

    def __len__(self) -> int:
        count: int = self._db.execute("SELECT count(*) FROM input").fetchone()[0]
        return count

    def __iter__(self) -> Iterator[Input]:
        for path, out in self._db.execute("SELECT path, out FROM input ORDER BY turn, name"):
            yield Input(os.fsdecode(path), os.fsdecode(out))

    def _insert(self, paths: Iterable[str]) -> None:
        rows = ((os.fsencode(path), os.fsencode(os.path.basename(path))) for path in paths)
        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT INTO input (turn, name, path, out) VALUES (?, ?, ?, ?)",
            ((self._turns, name, path, name) for path, name in rows),
        )
        self._db.execute("COMMIT")

    def _files_of(self, folder: str) -> Iterator[str]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    self.left_out += 1
                elif entry.is_file() or entry.is_symlink():  # A dangling link must fail, not be skipped.
                    yield entry.path

    def _check_nesting(self) -> None:
        """No result's folder may be inside another's: a program's files could overwrite it."""
        self._db.execute("CREATE INDEX by_out ON input (out)")
        for (out,) in self._db.execute("SELECT out FROM input WHERE instr(out, x'2f')"):
            above = os.path.dirname(out)
            while above:
                if found := self._db.execute("SELECT path FROM input WHERE out = ?", [above]).fetchone():
                    raise ConfigError(
                        f"the results of {os.fsdecode(found[0])} and of {os.fsdecode(out)} would share a folder",
                        "run one of them by itself, with another --out",
                    )
                above = os.path.dirname(above)


def _common_folder(paths: Iterable[bytes]) -> bytes:
    """With a slash at its end."""
    common = b""
    for path in paths:
        if not common:
            common = path[: path.rindex(b"/") + 1]
        while not path.startswith(common):
            common = common[: common.rindex(b"/", 0, -1) + 1]
    return common
