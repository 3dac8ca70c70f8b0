"""Where are the jobs of a worker on disk, and which of them are left after a restart? (SPEC W1, W4, W5)

    <jobs>/<job id>/             while it runs: its inputs and output files; its current directory
    <jobs>/<job id>/.done        after its end: its result as JSON, without the archive
    <jobs>/<job id>/result.zip   the archive, if it made files
    <jobs>/<job id>/.stdout      and .stderr, if they do not fit a frame
    <jobs>/.worker               the id of the worker, also after a restart

An expired directory is reused under a new name, and `.done` files are shared: `done_marks` explains why.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from pathlib import Path
from typing import Final

from wakugumi.adapters.beneath import LOOK, open_beneath
from wakugumi.adapters.files import PLAIN_FOLDER, READ_FOLDER, Closing, empty, refused, remove_tree
from wakugumi.adapters.folder_lock import FolderLock
from wakugumi.adapters.jobdir.directory import QUICKLY_REMOVED_BYTES, JobDir
from wakugumi.adapters.jobdir.done_marks import DoneMarks
from wakugumi.adapters.jobdir.done_record import DONE, read_whole
from wakugumi.adapters.jobdir.folder_claim import claim
from wakugumi.adapters.jobdir.folder_owner import new_owner, owner_of
from wakugumi.adapters.jobdir.large_parts import ARCHIVE, Whole
from wakugumi.adapters.programs.output_files import Captures
from wakugumi.adapters.programs.run_as import User
from wakugumi.core.ids import JobId, WorkerId, parse_job_id
from wakugumi.errors import ConfigError, Refused, Sick

SPARE_MAX: Final = 1_000
"""Most expired directories kept for reuse: about those of one second."""


class JobsFolder:
    """All job directories of one worker; no other process uses them meanwhile."""

    def __init__(self, path: Path, user: User | None = None) -> None:
        """Claim the folder or, if another worker has it, one inside it. A directory belongs to `user` while its program
        runs, and to this process before and after. Raises ConfigError."""
        self._user = user
        self.path, self._lock = self._claim(path)
        self._claiming = threading.Lock()
        self._gone: list[FolderLock] = []
        """Locks of claimed folders that were removed."""
        self.captures = Captures(self.path, user)
        self.is_new = False
        """The folder had no owner: there are no earlier jobs."""
        self.interrupted: list[tuple[JobId, float]] = []
        """Interrupted jobs whose files `finished` kept, with the seconds since their last change."""
        self._spare: dict[str, None] = {}
        self._ledger = DoneMarks(self.path)

    def worker_id(self) -> WorkerId:
        """The id of the worker that owns this folder; a new one if there is none."""
        known = owner_of(self.path)
        if known is not None:
            return known
        self.is_new = True
        return new_owner(self.path)

    def make(self, job: str) -> JobDir:
        """A fresh, empty directory; files of an earlier run of the job are removed. Raises Refused."""
        path = f"{self.path}/{job}"
        self._spare.pop(job, None)
        if self._spare and self._reuse(job):
            return JobDir(job, path, self._ledger, lambda: self._lock.folder, self._user)
        try:
            try:
                self._mkdir(job)
            except FileExistsError:
                remove_tree(job, self._lock.folder)
                self._mkdir(job)
            except FileNotFoundError:  # The folder was removed, for example by a cleaner of /tmp.
                self._claim_again()
                self._mkdir(job)
        except ConfigError as error:
            raise Sick("worker-error", f"the job's directory cannot be made: {error}") from None
        except OSError as error:
            raise refused(error, "the job's directory cannot be made") from None
        return JobDir(job, path, self._ledger, lambda: self._lock.folder, self._user)

    def record(self, job: str, payload: bytes, request: bytes = b"") -> JobDir:
        """Mark a job as done that has no files but this result. Raises Refused."""
        directory = self.make(job)
        directory.request = request
        try:
            directory.reopen()
            directory.mark(payload)
        except Refused:
            directory.remove()
            raise
        finally:
            directory.close()
        return directory

    def load(self, job: str) -> bytes | None:
        """The encoded result of a finished job. None if there is none that can be trusted."""
        whole = self.load_whole(job)
        return None if whole is None else whole.payload

    def load_whole(self, job: str) -> Whole | None:
        """The result as `load`, and the files it names, which exist with the right size."""
        try:
            with Closing(self._opened(job)) as folder:
                if self._user is not None and not self._is_ours(os.fstat(folder)):
                    return None
                return read_whole(job, f"{self.path}/{job}", folder)
        except (OSError, ValueError):
            return None

    def done_at(self, job: str) -> float | None:
        """Time at which a job was marked as done, by the machine's clock. None if it is not there."""
        try:
            return self._status(f"{job}/{DONE}").st_mtime
        except OSError:
            return None

    def unmark(self, job: str) -> None:
        """Remove the result's mark. Other files stay until the job expires."""
        with contextlib.suppress(OSError), Closing(self._opened(job)) as folder:
            os.unlink(DONE, dir_fd=folder)

    def finished(self, interrupted_ttl_s: float = 0.0) -> list[tuple[JobId, float]]:
        """Finished jobs with their age in seconds. Interrupted jobs are removed now, or after their TTL.

        Only names that are job ids are touched: the folder may hold other files.
        """
        self._ledger.close()
        now = time.time()
        found: list[tuple[JobId, float]] = []
        with os.scandir(self._lock.folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names:
            try:
                job_id = parse_job_id(name)
            except ValueError:
                continue
            try:
                directory = self._status(name)
            except OSError:
                continue
            is_ours = self._is_ours(directory)  # If not, a program had it last and may have forged its `.done`.
            try:
                status = self._status(f"{name}/{DONE}")
                if status.st_uid != os.geteuid() or not is_ours:
                    raise FileNotFoundError
                found.append((job_id, max(0.0, now - status.st_mtime)))
            except OSError:
                with contextlib.suppress(OSError):
                    age_s = max(0.0, now - directory.st_mtime) if interrupted_ttl_s else 0.0
                    if age_s < interrupted_ttl_s:
                        if not is_ours:
                            self._take_back(name)
                        self.interrupted.append((job_id, age_s))
                    else:
                        remove_tree(name, self._lock.folder)
        return found

    def retire(self, job: str) -> bool:
        """Keep an expired job's directory for reuse, or `remove` it."""
        if len(self._spare) < SPARE_MAX:
            with contextlib.suppress(OSError), Closing(self._opened(job)) as folder:
                is_ours = self._user is None or self._is_ours(os.fstat(folder))
                if is_ours and os.listdir(folder) == [DONE]:
                    self._spare[job] = None
                    return True
        return self.remove(job)

    def remove(self, job: str) -> bool:
        """Remove a finished job. False if it has more than two small files: then use `remove_tree`, which takes
        time."""
        try:
            with Closing(self._opened(job)) as folder:
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(ARCHIVE, dir_fd=folder, follow_symlinks=False).st_size > QUICKLY_REMOVED_BYTES:
                        return False
                for name in (DONE, ARCHIVE):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
            os.rmdir(job, dir_fd=self._lock.folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.captures.close()
        self._ledger.close()
        for lock in (*self._gone, self._lock):
            lock.release()

    def _claim(self, path: Path) -> tuple[str, FolderLock]:
        hint = "choose another one with --jobs"
        return claim(path, what="jobs folder", inside="worker-", hint=hint, user=self._user)

    def _mkdir(self, job: str) -> None:
        self._check_place()
        os.mkdir(job, 0o700, dir_fd=self._lock.folder)

    def _check_place(self) -> None:
        """Raises FileNotFoundError if the claimed folder has lost its path: programs are started by it."""
        if not self._lock.is_on(os.stat(self.path)):
            raise FileNotFoundError(errno.ENOENT, "another folder is in its place", self.path)

    def _opened(self, job: str) -> int:
        """A job's directory. Raises OSError."""
        return open_beneath(self._lock.folder, job, READ_FOLDER)

    def _status(self, name: str) -> os.stat_result:
        """Status of a directory, or of a file in one. Raises OSError."""
        with Closing(open_beneath(self._lock.folder, name, LOOK)) as file:
            return os.fstat(file)

    def _claim_again(self) -> None:
        """Claim the folder again after it was removed, unless another process owns its successor. Raises ConfigError,
        OSError."""
        with self._claiming:
            with contextlib.suppress(FileNotFoundError):
                if self._lock.is_on(os.stat(self.path)):  # Another thread was faster.
                    return
            path, lock = self._claim(Path(self.path))
            if path != self.path:
                lock.release()
                raise ConfigError(f"another process has the jobs folder {self.path} now")
            self._gone.append(self._lock)  # Released at the end: a thread may be using it.
            self._lock = lock

    def _reuse(self, job: str) -> bool:
        """Rename an expired directory. Its `.done` is removed first: no directory ever holds another job's result."""
        try:
            old = self._spare.popitem()[0]
        except KeyError:  # Another thread was faster.
            return False
        try:
            self._check_place()
            self._check_spare(old)
            os.replace(old, job, src_dir_fd=self._lock.folder, dst_dir_fd=self._lock.folder)
        except OSError:  # The new directory exists already, and must be emptied.
            with contextlib.suppress(OSError):
                os.rmdir(old, dir_fd=self._lock.folder)
            return False
        return True

    def _check_spare(self, job: str) -> None:
        """Check that it is ours and, after its `.done` is removed, empty: the next job trusts it. Raises OSError."""
        with Closing(self._opened(job)) as folder:
            if not self._is_ours(os.fstat(folder)):
                raise PermissionError(errno.EPERM, "the directory is another user's", job)
            os.unlink(DONE, dir_fd=folder)
            if os.listdir(folder):
                raise OSError(errno.ENOTEMPTY, "the directory is not empty", job)

    def _is_ours(self, directory: os.stat_result) -> bool:
        """Whether no program of another user has had it since. A job can link an input, which is our file, as `.done`,
        but the directory then belongs to its user."""
        if directory.st_uid != os.geteuid():
            return False
        return self._user is None or directory.st_mode == PLAIN_FOLDER

    def _take_back(self, job: str) -> None:
        """Take a directory back from the user of an interrupted program, without its forged `.done`. Raises OSError."""
        with Closing(self._opened(job)) as folder:
            os.fchown(folder, os.geteuid(), os.getegid())
            os.fchmod(folder, stat.S_IRWXU)
            empty(folder, [DONE])
