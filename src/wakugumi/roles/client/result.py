"""What does a user get back? A Result: how the job ended, its output, and the files it made.

A failing program is a result too: `ok` is False, and `check()` raises. The files are in a ZIP from the network, so none
of its fields is trusted: see `adapters/zip`.

Parts that did not fit a frame stay with the leader as long as the result, and are fetched on access.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import finalize

from msgspec import UNSET, UnsetType

from wakugumi.errors import JobFailed, PeerError, Refused
from wakugumi.limits.runner import RESULT_BYTES_MAX, UNPACKED_UNSAID_BYTES, UNPACKED_UNSAID_TIMES_MAX
from wakugumi.roles.client.files.downloads import fetch_bytes, fetched_archive, fetched_nearby, ignore_bytes
from wakugumi.wire.messages.job import FAILED, OK, JobResult
from wakugumi.wire.messages.references import BlobRef

if TYPE_CHECKING:
    from wakugumi.adapters.blobs.place import OnBytes
    from wakugumi.adapters.zip.extract import Bound
    from wakugumi.adapters.zip.read import Archive

_TAIL_LINES: Final = 20
_TAIL_CHARS: Final = 2_000
"""Part of a program's stderr that an error message quotes."""


class Result:
    """How a job ended. `item` is the item that `map` got for it."""

    __slots__ = ("_files", "_place", "_record", "_texts", "item", "job_id", "leader", "left_out")

    def __init__(self, record: JobResult, job_id: str, item: object = None, leader: str = "", place: str = "") -> None:
        """`place` is the URL at which the leader keeps parts that do not fit a frame."""
        self._record = record
        self._place = place
        self._files: Mapping[str, bytes] | None = None
        self._texts: dict[str, str] | None = None
        """Fetched texts by SHA-256."""
        self.job_id = job_id
        """The id as given: a name stays a name."""
        self.item = item
        self.leader = leader
        """Address of the leader that answered; empty if the client itself did."""
        self.left_out = 0
        """Number of entries of the archive that the last `extract` left out, because no honest worker sends them."""

    @property
    def ok(self) -> bool:
        return self._record.status == OK

    @property
    def status(self) -> str:
        """`OK` or `FAILED`."""
        return self._record.status

    @property
    def exit_code(self) -> int | None:
        """Exit code of the program; None if it did not end by itself, or an old worker did not report it."""
        return self._record.exit_code

    @property
    def stdout(self) -> str:
        """All that the program wrote to stdout. More than a frame holds, up to 64 MiB, is fetched from the leader on
        access: this takes a while, and raises Refused or Lost as `extract` does."""
        return self._text(self._record.stdout_blob, self._record.stdout)

    @property
    def stderr(self) -> str:
        """All that the program wrote to stderr, or why it never ran. Fetched on access, like stdout."""
        return self._text(self._record.stderr_blob, self._record.stderr)

    @property
    def stdout_end(self) -> str:
        """Text that came with the result: all of stdout or, if that did not fit, its last 64 KiB."""
        return self._record.stdout

    @property
    def stderr_end(self) -> str:
        return self._record.stderr

    @property
    def stdout_bytes(self) -> int:
        """Size of stdout, known without fetching it."""
        return _bytes(self._record.stdout_blob, self._record.stdout)

    @property
    def stderr_bytes(self) -> int:
        return _bytes(self._record.stderr_blob, self._record.stderr)

    @property
    def is_complete(self) -> bool:
        """All parts came with the result: none has to be fetched."""
        record = self._record
        return record.archive_blob is UNSET and record.stdout_blob is UNSET and record.stderr_blob is UNSET

    @property
    def reason(self) -> str:
        """Why the job failed: a code of the error table. Empty if OK, or an old worker did not report it."""
        return self._record.reason or ""

    @property
    def program(self) -> str:
        return self._record.exec_name

    @property
    def run_s(self) -> float | None:
        """Run time of the program."""
        return self._record.run_s

    @property
    def worker(self) -> str:
        """Name of the worker that ran the job; empty if an old worker did not report it."""
        return self._record.worker or ""

    @property
    def archive(self) -> bytes:
        """ZIP of the files that the program made, in memory; empty if it made none. Use `extract` for large ones."""
        blob = self._record.archive_blob
        return fetch_bytes(self._place, blob) if isinstance(blob, BlobRef) else self._record.output_archive or b""

    @property
    def archive_bytes(self) -> int:
        """Size of `archive`, known without fetching it."""
        blob = self._record.archive_blob
        return blob.size if isinstance(blob, BlobRef) else len(self._record.output_archive or b"")

    @property
    def unpacked_bytes(self) -> int | None:
        """Total size of the files, as reported by the worker; None if an old worker did not report it."""
        reported = self._record.unpacked_bytes
        return reported if isinstance(reported, int) else None

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files that the program made, by name, each unpacked on access. An archive that did not fit a frame is
        first fetched to a temporary file, which is kept as long as this result."""
        if self._files is None:
            self._files = self._open_files() if self.archive_bytes else {}
        return self._files

    def extract(
        self,
        folder: str | os.PathLike[str],
        on_bytes: OnBytes = ignore_bytes,
        *,
        max_bytes: int | None = None,
        dot_files: bool = False,
    ) -> list[Path]:
        """Write the files into `folder`, which is made if necessary, and return their paths.

        An existing file is replaced in one step. Raises Refused("bad-name"), before any file is written, if a name
        leads out of the folder.

        Entries that no honest worker sends are left out and counted in `left_out`: names with characters that control a
        terminal or hide text, and dot-files such as `.bashrc`, unless `dot_files` is true.

        At most as many bytes are written as the worker reported; for an old worker that did not report, 1 GiB or a
        hundred times the archive. More is Refused("bad-result"), before any file is written. `max_bytes` is your own
        bound: more is Refused("too-many-bytes"), and an old worker's result may have as much.

        An archive that did not fit a frame is first fetched to a hidden file in `folder`, which may take long: in a
        program with a loop, `await asyncio.to_thread(result.extract, folder)`. `on_bytes` is called with the number of
        bytes received since its last call, and with 0 while it waits or unpacks; its exception ends the call. Raises
        Refused("expired") if the leader no longer keeps the archive, Refused("blob-broken") if it differs from what the
        worker sent, Lost, and OSError if it cannot be written here.
        """
        from wakugumi.adapters.zip.extract import unpack

        bound = self._bound(max_bytes, dot_files=dot_files)
        with self._opened(folder, on_bytes) as (archive, target):
            paths, self.left_out = unpack(archive, target, lambda: on_bytes(0), bound) if archive else ([], 0)
        return paths

    def extract_counted(
        self,
        folder: str | os.PathLike[str],
        on_bytes: OnBytes = ignore_bytes,
        *,
        max_bytes: int | None = None,
        dot_files: bool = False,
    ) -> int:
        """`extract` that returns only the number of files: this takes no memory, however many there are."""
        from wakugumi.adapters.zip.extract import unpack_counted

        bound = self._bound(max_bytes, dot_files=dot_files)
        with self._opened(folder, on_bytes) as (archive, target):
            count, self.left_out = unpack_counted(archive, target, lambda: on_bytes(0), bound) if archive else (0, 0)
        return count

    def for_item(self, item: object) -> Result:
        """This result as the answer to another item."""
        return Result(self._record, self.job_id, item, self.leader, self._place)

    def check(self) -> Result:
        """This result, if OK. Raises JobFailed, with the reason and the end of stderr."""
        if self.ok:
            return self
        how = f"exit code {self.exit_code}" if self.reason in {"", "exit"} and self.exit_code else self.reason
        lines = [f"job {self.job_id} of {self.program or 'an unknown program'} failed: {how or 'no reason given'}"]
        tail = "\n".join(self.stderr_end.rstrip().splitlines()[-_TAIL_LINES:])[-_TAIL_CHARS:]
        raise JobFailed("\n".join([*lines, tail]) if tail else lines[0])

    def _text(self, blob: BlobRef | UnsetType, short: str) -> str:
        if not isinstance(blob, BlobRef):
            return short
        if self._texts is None:
            self._texts = {}
        if blob.sha256 not in self._texts:
            self._texts[blob.sha256] = fetch_bytes(self._place, blob).decode("utf-8", "replace")
        return self._texts[blob.sha256]

    def _bound(self, max_bytes: int | None, *, dot_files: bool) -> Bound:
        from wakugumi.adapters.zip.extract import Bound

        reported = self.unpacked_bytes
        if max_bytes is not None and (reported is None or max_bytes < reported):
            return Bound(max_bytes, "that is the bound that was asked for", "too-many-bytes", dot_files)
        if reported is not None:
            return Bound(min(reported, RESULT_BYTES_MAX), "the worker said that they have no more", dot_files=dot_files)
        most = max(UNPACKED_UNSAID_BYTES, UNPACKED_UNSAID_TIMES_MAX * self.archive_bytes)
        return Bound(most, "its worker did not say how many", "too-many-bytes", dot_files)

    @contextmanager
    def _opened(self, folder: str | os.PathLike[str], on_bytes: OnBytes) -> Iterator[tuple[Archive | None, Path]]:
        """The archive, if any, and the folder to unpack it in, which is made."""
        from wakugumi.adapters.zip.read import Archive

        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        blob, packed = self._record.archive_blob, self._record.output_archive
        if isinstance(blob, BlobRef):
            with fetched_archive(self._place, blob, os.fspath(target), on_bytes) as archive:
                yield archive, target
        else:
            yield Archive.of_bytes(packed) if packed else None, target

    def _open_files(self) -> _Files:
        from wakugumi.adapters.zip.read import Archive

        blob = self._record.archive_blob
        bytes_max = self._bound(None, dot_files=True).bytes_max
        if not isinstance(blob, BlobRef):
            return _Files(Archive.of_bytes(self._record.output_archive or b""), ExitStack(), bytes_max)
        with ExitStack() as stack:
            archive = Archive.of_file(stack.enter_context(fetched_nearby(self._place, blob)))
            return _Files(archive, stack.pop_all(), bytes_max)

    def __repr__(self) -> str:
        more = "" if self.ok else f" reason={self.reason!r} exit_code={self.exit_code}"
        return f"<Result {self.job_id} {self.status}{more}>"


def refused_result(error: Refused, job_id: str, program: str, item: object) -> Result:
    """A refused job as a result, for a loop that one refusal must not end."""
    return Result(JobResult(job_id, "", program, FAILED, stderr=error.message, reason=error.code), job_id, item)


def _bytes(blob: BlobRef | UnsetType, short: str) -> int:
    return blob.size if isinstance(blob, BlobRef) else len(short.encode(errors="replace"))


class _Files(Mapping[str, bytes]):
    """The files of an archive, without folders."""

    def __init__(self, archive: Archive, held: ExitStack, bytes_max: int) -> None:
        """`held` keeps open what the archive reads from. Files larger than `bytes_max` are not unpacked."""
        self._archive = archive
        self._bytes_max = bytes_max
        self._entries = {entry.name: entry for entry in archive.entries() if not entry.is_folder}
        finalize(self, held.close)

    def __getitem__(self, name: str) -> bytes:
        entry = self._entries[name]
        if entry.size > self._bytes_max:
            raise PeerError(f"{name[:200]!r} has {entry.size:,} bytes, more than the result may hold")
        return self._archive.read(entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<files {list(self._entries)}>"
