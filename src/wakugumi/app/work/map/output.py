"""Where do results go, and which are there already?

Each result is a folder with the program's files, its output, and a record. The folder is built under `.waku-tmp` and
then moved to its place: there it is always complete, however the map ended. A folder without a record belongs to the
user, and is never touched.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from wakugumi.app.show.output import say
from wakugumi.errors import ConfigError, Lost, PeerError, Refused
from wakugumi.roles.client.files.downloads import ignore_bytes
from wakugumi.roles.client.result import Result
from wakugumi.wire.messages.job import FAILED, OK
from wakugumi.wire.untrusted_json import JsonReader, Unreadable

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes

RECORD: Final = ".waku.json"
_SCRATCH: Final = ".waku-tmp"


class Record(msgspec.Struct, frozen=True):
    """The content of `.waku.json`."""

    key: str
    """Made of program, arguments and input: a result with the same key is still good."""
    job: str
    input: str
    args: list[str]
    status: str
    exit_code: int | None
    reason: str
    run_s: float | None
    worker: str

    @classmethod
    def of(cls, result: Result, key: str = "", source: str = "", args: Sequence[str] = ()) -> Record:
        ended = result.status, result.exit_code, result.reason, result.run_s, result.worker
        return cls(key, result.job_id, source, list(args), *ended)


class _Head(msgspec.Struct, frozen=True, gc=False):
    key: str
    status: str


_head: Final = JsonReader(_Head)


class OutFolder:
    """The folder of one map, locked until it is closed."""

    def __init__(self, path: str, max_bytes: int | None = None, *, dot_files: bool = False) -> None:
        """`max_bytes` and `dot_files` as in `Result.extract`. Raises ConfigError if the folder is not to be had."""
        self.path = path
        self.left_out = 0
        """Number of entries of archives that were not written."""
        self._max_bytes = max_bytes
        self._dot_files = dot_files
        self._scratch = os.path.join(path, _SCRATCH)
        self._count = 0
        try:
            os.makedirs(path, exist_ok=True)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise ConfigError(f"cannot write results to {path}: {error.strerror}", "choose another --out") from None
        try:
            self._hold()
            # Leftovers of a killed map.
            shutil.rmtree(self._scratch, ignore_errors=True)
            os.mkdir(self._scratch)
        except OSError as error:
            os.close(self._fd)
            raise ConfigError(f"cannot write results to {path}: {error.strerror}", "choose another --out") from None
        except ConfigError:
            os.close(self._fd)
            raise

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        os.close(self._fd)

    def has_record(self, out: str) -> bool:
        """Is there a result of some run, good or not?"""
        return os.path.exists(os.path.join(self.path, out, RECORD))

    def is_ok(self, out: str, key: str) -> bool:
        """Is the result with this key there, and OK?"""
        try:
            with open(os.path.join(self.path, out, RECORD), "rb") as file:
                head = _head.read(file.read())
        except (OSError, Unreadable):
            return False
        return head.status == OK and head.key == key

    def check_free(self, out: str) -> None:
        """Raises ConfigError if the place of this result is taken by a folder that no map made."""
        above = os.path.dirname(out)
        while above:
            if self.has_record(above):
                raise _taken(os.path.join(self.path, above))
            above = os.path.dirname(above)
        place = os.path.join(self.path, out)
        if os.path.isdir(place) and not os.path.islink(place):
            free = self.has_record(out) or not os.listdir(place)
        else:
            free = not os.path.lexists(place)
        if not free:
            raise _taken(place)

    def put(self, out: str, result: Result, record: Record, on_bytes: OnBytes = ignore_bytes) -> Record:
        """Writes a result in one step, in place of an earlier one. Returns the record, which may become a failure.

        Large files are fetched first, with calls of `on_bytes`. Raises Refused("disk") if the folder is no longer
        writable: then the map should end.
        """
        self._count += 1
        scratch = os.path.join(self._scratch, str(self._count))
        try:
            os.mkdir(scratch)
            try:
                result.extract_counted(scratch, on_bytes, max_bytes=self._max_bytes, dot_files=self._dot_files)
                self.left_out += result.left_out
                texts = (result.stdout, result.stderr)
            except (Refused, PeerError, Lost) as error:
                if isinstance(error, Refused) and error.code == "disk":
                    raise
                shutil.rmtree(scratch)
                os.mkdir(scratch)
                record = msgspec.structs.replace(record, status=FAILED, reason=_reason(error))
                _write(os.path.join(scratch, "error.txt"), f"{error}\n".encode())
                texts = (result.stdout_end, result.stderr_end)
            for stream, text in zip(("stdout", "stderr"), texts):
                _write(_free_name(scratch, stream), text.encode(errors="replace"))
            on_bytes(0)  # A cancelled write leaves no trace.
            _write(os.path.join(scratch, RECORD), msgspec.json.encode(record) + b"\n")
            self._move(scratch, os.path.join(self.path, out))
        except OSError as error:
            raise Refused(
                "disk",
                f"cannot write the result of {out} to {self.path}: {error.strerror}",
                "make room, or choose another --out; what is done is kept",
            ) from None
        return record

    def _move(self, scratch: str, place: str) -> None:
        try:
            os.replace(scratch, place)  # Replaces an empty folder too.
            return
        except FileNotFoundError:
            os.makedirs(os.path.dirname(place), exist_ok=True)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST} or not os.path.exists(os.path.join(place, RECORD)):
                raise
            # A kill between these two steps leaves no result: the next map makes it again.
            os.replace(place, f"{scratch}-before")
            shutil.rmtree(f"{scratch}-before", ignore_errors=True)
        os.replace(scratch, place)

    def _hold(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another map is writing to {self.path}", "wait for it, or choose another --out"
            ) from None
        except OSError:
            pass  # Some network file systems lock no folders: there the user must not run two maps at once.


def _reason(error: Refused | PeerError | Lost) -> str:
    """Error code and text if the files of a job could not be written."""
    if isinstance(error, Lost):
        return "no-leader"
    is_gone = isinstance(error, Refused) and error.code in {"expired", "no-blob", "blob-broken", "too-many-bytes"}
    return error.code if isinstance(error, Refused) and is_gone else "bad-result"


def say_left_out(count: int) -> None:
    if count:
        verb = "entry of a result was" if count == 1 else "entries of results were"
        say(
            f"{count:,} {verb} left out: dot-files, or names that hide something, which no honest worker sends "
            "(--dot-files takes the former)"
        )


def _free_name(folder: str, stream: str) -> str:
    """A program may have made a file of the same name; that file stays."""
    for name in (f"{stream}.txt", f"{stream}.captured.txt"):
        path = os.path.join(folder, name)
        if not os.path.lexists(path):
            return path
    return os.path.join(folder, f".{stream}.txt")


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _taken(place: str) -> ConfigError:
    return ConfigError(
        f"{place} is there already, and is no result of a map that could be replaced",
        "move it away, or choose another --out",
    )
