"""How does content of this worker get into a job's directory, safe from other jobs that modify it?

Large content is a hard link under a lease: see `file_leases`. Small content is copied, and large content where links
are impossible. Inputs of a program that wrote to its inputs, and content that was written to, are copied from then on.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from wakugumi.adapters.beneath import LOOK_AT_FOLDER, open_beneath
from wakugumi.adapters.blobs.file_leases import Lease, Leases, copy_file
from wakugumi.adapters.blobs.worker_cache import CachedBlob, CacheFolder
from wakugumi.adapters.files import NEW, READ, Closing, in_folder
from wakugumi.core.ids import JobId
from wakugumi.errors import Refused
from wakugumi.limits.units import KIB
from wakugumi.wire.messages.references import BlobRef

log = logging.getLogger("wakugumi.inputs")

COPIED_BYTES: Final = 64 * KIB
"""Content up to this size is copied, which takes no longer than a link with a lease."""
_REMEMBERED_MAX: Final = 10_000
"""Most remembered programs and contents of which copies are made."""
_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors that rule out all links between the two folders. Others concern one file, such as too many links to it."""


class NotLinked(Exception):
    """A link cannot be made: the copy needs a thread."""


class LinkedInput:
    """One content on loan to one job."""

    __slots__ = ("held", "lease", "links", "path", "placed", "ref")

    def __init__(self, ref: BlobRef, path: str, held: CachedBlob) -> None:
        self.ref = ref
        self.path = path
        self.held = held
        self.lease: Lease | None = None
        self.links = False
        self.placed: list[str] = []
        """Paths of links to it."""


class JobInputs:
    """All inputs on loan to one job, from before its program starts until its directory is cleaned."""

    def __init__(self, lender: InputLinker, job: JobId, program: str, loans: Mapping[str, LinkedInput]) -> None:
        self._lender = lender
        self.job = job
        self.program = program
        self.loans = dict(loans)

    @property
    def copied_bytes(self) -> int:
        """Bytes that `place` will copy."""
        return sum(loan.ref.size for loan in self.loans.values() if not loan.links)

    def place_at_once(self, name: str, path: str, folder: int | None = None) -> bool:
        """As `place`, but raises NotLinked if a link cannot be made: all inputs are then placed again, in a thread."""
        loan = self.loans[name]
        if loan.links and not self._lender.link(loan, path, folder):
            for one in self.loans.values():
                one.links = False
            raise NotLinked
        return self._place(name, loan, path, folder)

    def place(self, name: str, path: str, folder: int | None = None) -> bool:
        """Put this file at `path`, from any thread; `folder`, if given, is its open parent. True if the file is the
        job's own copy. Raises OSError, or Refused if the content was modified meanwhile."""
        loan = self.loans[name]
        if loan.links and not self._lender.link(loan, path, folder):
            loan.links = False
        return self._place(name, loan, path, folder)

    def _place(self, name: str, loan: LinkedInput, path: str, folder: int | None) -> bool:
        """Copy the content unless it was linked, and check its lease."""
        path = in_folder(path, folder)
        if not loan.links:
            with Closing(os.open(loan.path, READ)) as file:
                copy_file(file, path, 0o666, folder)
        if loan.lease is not None and not loan.lease.is_whole():
            os.unlink(path, dir_fd=folder)
            raise Refused("input-changed", f"another job has just modified the input {name!r}")
        return not loan.links

    def linked(self) -> frozenset[tuple[int, int]]:
        """Devices and inodes of contents that the job has links to, from any thread."""
        found: set[tuple[int, int]] = set()
        for loan in [loan for loan in self.loans.values() if loan.links]:
            with contextlib.suppress(OSError):
                status = os.lstat(loan.path)
                found.add((status.st_dev, status.st_ino))
        return frozenset(found)

    def release(self) -> None:
        """Return the loans after the job's end, and remove links left in its directory."""
        self._lender.take_back(self)


class InputLinker:
    """Lends the contents of one folder to jobs. All calls are made in the loop's thread, unless stated otherwise."""

    def __init__(
        self,
        folder: CacheFolder,
        jobs_folder: str,
        leases: Callable[[Callable[[str], None]], Leases],
        on_changed: Callable[[JobId], None],
    ) -> None:
        """`leases` makes the leases, given the callback for a broken one. `on_changed` ends a job that may have read
        another job's changes."""
        self._folder = folder
        self._jobs_folder = jobs_folder
        self._on_changed = on_changed
        self._leases = leases(self._broken)
        self._can_link = _can_link(folder.path, jobs_folder)
        self._linked: dict[str, dict[JobInputs, None]] = {}
        """Jobs with links to each content."""
        self._written: dict[str, None] = {}
        """Contents and programs for which copies are made."""

    def lend(self, job: JobId, program: str, contents: Mapping[str, tuple[BlobRef, CachedBlob]]) -> JobInputs:
        """Loans of contents that are marked as used for this job, by the names of its files."""
        loans: dict[str, LinkedInput] = {}
        linked: dict[str, None] = {}
        for name, (ref, held) in contents.items():
            # A second name for the same file would change with the first.
            loan = loans[name] = self._loan(ref, held, program, ref.sha256 in linked)
            if loan.links:
                linked[ref.sha256] = None
        inputs = JobInputs(self, job, program, loans)
        for sha256 in linked:
            self._linked.setdefault(sha256, {})[inputs] = None
        return inputs

    def link(self, loan: LinkedInput, path: str, folder: int | None = None) -> bool:
        """Make a link, from any thread. False if that is impossible."""
        try:
            os.link(loan.path, in_folder(path, folder), dst_dir_fd=folder, follow_symlinks=False)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError as error:
            if error.errno in _NO_LINKS:
                self._can_link = False
            return False
        loan.placed.append(path)
        return True

    def take_back(self, inputs: JobInputs) -> None:
        for loan in inputs.loans.values():
            sha256 = loan.ref.sha256
            for path in loan.placed:
                with contextlib.suppress(OSError):
                    self._unlink(path, os.lstat(loan.path))
            if inputs in self._linked.get(sha256, ()):
                del self._linked[sha256][inputs]
                if not self._linked[sha256]:
                    del self._linked[sha256]
            if loan.lease is not None:
                self._leases.release(loan.lease)
            self._folder.let_go(sha256, loan.held)
        inputs.loans.clear()

    def forget(self, sha256: str) -> None:
        """This content has left the folder."""
        lease = self._leases.find(sha256)
        if lease is not None and not lease.users:
            self._leases.drop(sha256)

    def close(self) -> None:
        self._leases.close()

    def _unlink(self, path: str, content: os.stat_result) -> None:
        """Remove a link to this content from a job's directory, whose program may have replaced its folders by links.
        Raises OSError."""
        way, _, name = os.path.relpath(path, self._jobs_folder).rpartition("/")
        with (
            Closing(os.open(self._jobs_folder, LOOK_AT_FOLDER & ~os.O_NOFOLLOW)) as jobs,
            Closing(open_beneath(jobs, way, LOOK_AT_FOLDER)) as folder,
        ):
            if os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), content):
                os.unlink(name, dir_fd=folder)

    def _loan(self, ref: BlobRef, held: CachedBlob, program: str, is_second: bool) -> LinkedInput:
        loan = LinkedInput(ref, self._folder.store.path(ref.sha256), held)
        guarded = self._leases.find(ref.sha256) is not None
        is_copied = is_second or ref.size <= COPIED_BYTES or ref.sha256 in self._written or program in self._written
        if guarded or not (is_copied or held.users > 1 or not self._can_link):
            # A copy also needs the lease of existing links: their jobs might write while it is read.
            with contextlib.suppress(OSError):
                loan.lease = self._leases.take(ref.sha256, loan.path)
            loan.links = loan.lease is not None and self._can_link and not is_copied
        return loan

    def _broken(self, sha256: str) -> None:
        """A job is about to write to this content, and is suspended until the lease is given up."""
        self._folder.evict(sha256)
        self._remember(sha256)
        jobs = list(self._linked.pop(sha256, ()))
        programs = {inputs.program for inputs in jobs}
        if len(programs) == 1 and not programs <= self._written.keys():
            program = programs.pop()
            self._remember(program)
            log.warning("program writes to its inputs, it gets copies from now on program=%r", program)
        if len(jobs) == 1:  # The file is this job's own from now on.
            return
        for inputs in jobs:
            self._on_changed(inputs.job)

    def _remember(self, what: str) -> None:
        self._written[what] = None
        if len(self._written) > _REMEMBERED_MAX:
            del self._written[next(iter(self._written))]


def _can_link(folder: str, jobs_folder: str) -> bool:
    """Whether links work between the folders. Only a try can tell: two mounts of one file system have the same
    device."""
    name = f".waku-{os.urandom(8).hex()}"
    source, link = f"{folder}/{name}", f"{jobs_folder}/{name}"
    try:
        os.close(os.open(source, NEW, 0o600))
        os.link(source, link)
    except OSError:
        return False
    finally:
        for path in (source, link):
            with contextlib.suppress(OSError):
                os.unlink(path)
    return True
