"""What does a user get back? A Result: how the job ended, what it printed, and the files it made.

A failing program is a result too: `ok` tells, `check()` raises for those who would rather have an exception. The files
stand in a ZIP that came over the network, so nothing in it is believed: names are checked before the first byte is
written, and nothing is ever written outside the folder that was named.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from wakugumi.errors import JobFailed, PeerError, Refused
from wakugumi.limits import FILES_PER_JOB_MAX
from wakugumi.wire.message import FAILED, OK, JobResult

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

_TAIL_LINES: Final = 20
_TAIL_CHARS: Final = 2_000
"""What an error message quotes of a program's stderr."""
_COPY_BYTES: Final = 1 << 20


class Result:
    """How a job ended. `item` is what `map` was given for it."""

    __slots__ = ("_files", "_record", "item", "job_id", "leader")

    def __init__(self, record: JobResult, job_id: str, item: object = None, leader: str = "") -> None:
        self._record = record
        self._files: Mapping[str, bytes] | None = None
        self.job_id = job_id
        """As it was given: a name stays a name."""
        self.item = item
        self.leader = leader
        """Whose answer it is; empty if it is the client's own."""

    @property
    def ok(self) -> bool:
        return self._record.status == OK

    @property
    def status(self) -> str:
        """`OK` or `FAILED`."""
        return self._record.status

    @property
    def exit_code(self) -> int | None:
        """The program's own; None if it did not end by itself, or an old worker did not say."""
        return self._record.exit_code

    @property
    def stdout(self) -> str:
        return self._record.stdout

    @property
    def stderr(self) -> str:
        """What the program wrote there; if it never ran, why."""
        return self._record.stderr

    @property
    def reason(self) -> str:
        """Why it failed: a code of the error table. Empty if it is OK, or an old worker did not say."""
        return self._record.reason or ""

    @property
    def program(self) -> str:
        return self._record.exec_name

    @property
    def run_s(self) -> float | None:
        """How long the program ran."""
        return self._record.run_s

    @property
    def worker(self) -> str:
        """Who ran it; empty if an old worker did not say."""
        return self._record.worker or ""

    @property
    def archive(self) -> bytes:
        """The ZIP of the files that the program made; empty if it made none."""
        return self._record.output_archive or b""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files that the program made, by name. Each is unpacked when it is asked for."""
        if self._files is None:
            self._files = _Files(self.archive) if self.archive else {}
        return self._files

    def extract(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the files into `folder`, making it if need be, and tell where they are.

        A file that is there already is replaced in one step. Raises Refused("bad-name") before anything is written if
        one of the names leads elsewhere.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        return _extract(self.archive, target) if self.archive else []

    def for_item(self, item: object) -> Result:
        """The same result, as the answer to another item."""
        return Result(self._record, self.job_id, item, self.leader)

    def check(self) -> Result:
        """This result, if it is OK. Raises JobFailed, with the reason and the end of stderr."""
        if self.ok:
            return self
        how = f"exit code {self.exit_code}" if self.reason in {"", "exit"} and self.exit_code else self.reason
        lines = [f"job {self.job_id} of {self.program or 'an unknown program'} failed: {how or 'no reason given'}"]
        tail = "\n".join(self.stderr.rstrip().splitlines()[-_TAIL_LINES:])[-_TAIL_CHARS:]
        raise JobFailed("\n".join([*lines, tail]) if tail else lines[0])

    def __repr__(self) -> str:
        more = "" if self.ok else f" reason={self.reason!r} exit_code={self.exit_code}"
        return f"<Result {self.job_id} {self.status}{more}>"


def refused_result(error: Refused, job_id: str, program: str, item: object) -> Result:
    """A job that the system would not do, for a loop that one refusal must not end."""
    return Result(JobResult(job_id, "", program, FAILED, stderr=error.message, reason=error.code), job_id, item)


class _Files(Mapping[str, bytes]):
    """The files of an archive. Folders are not files."""

    def __init__(self, archive: bytes) -> None:
        self._zip = _open(archive)
        self._infos = {info.filename: info for info in self._zip.infolist() if not info.is_dir()}

    def __getitem__(self, name: str) -> bytes:
        info = self._infos[name]
        try:
            return self._zip.read(info)
        except _zip_errors() as error:
            raise PeerError(f"{name!r} in the result's archive cannot be read: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def __repr__(self) -> str:
        return f"<files {list(self._infos)}>"


def _open(archive: bytes) -> ZipFile:
    from zipfile import ZipFile  # A run of a program that makes no files does not need it.

    try:
        opened = ZipFile(BytesIO(archive))
    except _zip_errors() as error:
        raise PeerError(f"the result's archive cannot be read: {error}") from None
    if len(opened.infolist()) > FILES_PER_JOB_MAX:
        raise PeerError(f"the result's archive has {len(opened.infolist())} entries, more than {FILES_PER_JOB_MAX}")
    return opened


def _zip_errors() -> tuple[type[Exception], ...]:
    """What reading a broken or foreign ZIP may raise."""
    from zipfile import BadZipFile
    from zlib import error as zlib_error

    return (BadZipFile, zlib_error, EOFError, NotImplementedError, RuntimeError, ValueError)


def _extract(archive: bytes, folder: Path) -> list[Path]:
    opened = _open(archive)
    links: list[ZipInfo] = []
    files: list[ZipInfo] = []
    for info in opened.infolist():
        _check_name(info.filename.removesuffix("/"))
        mode = info.external_attr >> 16
        if info.is_dir():
            continue
        if stat.S_ISLNK(mode):
            links.append(info)
        elif stat.S_IFMT(mode) in {0, stat.S_IFREG}:
            files.append(info)
        else:
            raise Refused("bad-name", f"{info.filename!r} in the result is neither a file nor a link")
    targets = {info.filename: _link_target(opened, info) for info in links}
    for info in opened.infolist():
        if info.is_dir():
            _make_folders(folder, info.filename.removesuffix("/").split("/"))
    written = [_write(opened, info, folder) for info in files]
    # Links come last: no file of this archive is ever written through one of its links.
    return written + [_write_link(folder, name, target) for name, target in targets.items()]


def _check_name(name: str) -> None:
    """May a program have made this name? Stricter rules are for inputs: here they would cost a user his files."""
    parts = name.replace(os.sep, "/").split("/")
    if any(part in {"", ".", ".."} or (":" in part and os.name == "nt") for part in parts):
        raise Refused("bad-name", f"the result holds a file called {name[:200]!r}, which leads elsewhere")


def _link_target(opened: ZipFile, info: ZipInfo) -> str:
    """Where a link points, which must be inside the folder."""
    try:
        target = opened.read(info).decode() if info.file_size <= 4096 else ""
    except _zip_errors() as error:
        raise PeerError(f"{info.filename!r} in the result's archive cannot be read: {error}") from None
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(info.filename), target))
    if not target or "\0" in target or posixpath.isabs(target) or reached == ".." or reached.startswith("../"):
        raise Refused("bad-name", f"{info.filename!r} in the result is a link that leads outside: {target[:200]!r}")
    return target


def _make_folders(folder: Path, parts: list[str]) -> str:
    """Make the folders below `folder`, stepping through no link: where a link leads, nobody checked."""
    path = os.fspath(folder)
    for part in parts:
        path = os.path.join(path, part)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise Refused("bad-name", f"{path} is there already, and is not a folder") from None
    return path


def _write(opened: ZipFile, info: ZipInfo, folder: Path) -> Path:
    *parents, name = info.filename.split("/")
    parent = _make_folders(folder, parents)
    scratch = os.path.join(parent, f".waku-{uuid4().hex}")
    bits = info.external_attr >> 16 & 0o777
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777 if bits & 0o100 else 0o666), "wb") as to:
            try:
                with opened.open(info) as source:
                    while data := source.read(_COPY_BYTES):
                        to.write(data)
            except _zip_errors() as error:
                raise PeerError(f"{info.filename!r} in the result's archive cannot be read: {error}") from None
        return _put(scratch, os.path.join(parent, name))
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _write_link(folder: Path, filename: str, target: str) -> Path:
    *parents, name = filename.split("/")
    parent = _make_folders(folder, parents)
    scratch = os.path.join(parent, f".waku-{uuid4().hex}")
    Path(scratch).symlink_to(target)
    try:
        return _put(scratch, os.path.join(parent, name))
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _put(scratch: str, path: str) -> Path:
    """One step: whoever looks sees the old file or the new one. A folder in the way stays, and is an OSError."""
    os.replace(scratch, path)
    return Path(path)
