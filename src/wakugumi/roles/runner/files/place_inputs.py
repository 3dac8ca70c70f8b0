"""How does a content that is here get into a job's directory, so that no other job is harmed by what is done to it?

Large ones are hard links under a lease: see `file_leases`. Where that is not possible, and for small ones, a copy is
made. A program that was seen to write to its inputs, and a content that was written to, are copied from then on.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from wakugumi.adapters.blobs.file_leases import Lease, Leases, copy_file
from wakugumi.adapters.blobs.worker_cache import CachedBlob, CacheFolder
from wakugumi.adapters.files import NEW, READ, in_folder
from wakugumi.core.ids import JobId
from wakugumi.errors import Refused
from wakugumi.limits.units import KIB
from wakugumi.wire.messages.references import BlobRef

log = logging.getLogger("wakugumi.goods")

COPIED_BYTES: Final = 64 * KIB
"""A content up to this size is copied: that takes no longer than to guard a link."""
_REMEMBERED_MAX: Final = 10_000
"""Programs and contents that are known to be written to."""
_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""There are none between the two folders. Other errors are about one file, such as too many links to it."""


class NotLinked(Exception):
    """A link was to be made and cannot be: a copy takes a thread."""


class LinkedInput:
    """One content, on loan to one job."""

    __slots__ = ("held", "lease", "links", "path", "placed", "ref")

    def __init__(self, ref: BlobRef, path: str, held: CachedBlob) -> None:
        self.ref = ref
        self.path = path
        self.held = held
        self.lease: Lease | None = None
        self.links = False
        self.placed: list[str] = []
        """Where links to it were made."""


class JobInputs:
    """All that one job has on loan, from before its program starts until nothing of it is left."""

    def __init__(self, lender: InputLinker, job: JobId, program: str, loans: Mapping[str, LinkedInput]) -> None:
        self._lender = lender
        self.job = job
        self.program = program
        self.loans = dict(loans)

    @property
    def copied_bytes(self) -> int:
        """What `place` will have to copy."""
        return sum(loan.ref.size for loan in self.loans.values() if not loan.links)

    def place_at_once(self, name: str, path: str, folder: int | None = None) -> bool:
        """As `place`, but raises NotLinked for a link that cannot be made: all is to be placed anew, in a thread."""
        loan = self.loans[name]
        if loan.links and not self._lender.link(loan, path, folder):
            for one in self.loans.values():
                one.links = False
            raise NotLinked
        return self._place(name, loan, path, folder)

    def place(self, name: str, path: str, folder: int | None = None) -> bool:
        """From any thread: put this file there; with the open `folder` in which that is, the way there is not walked
        again. True if it is the job's own. Raises OSError, or Refused if its content was changed meanwhile."""
        loan = self.loans[name]
        if loan.links and not self._lender.link(loan, path, folder):
            loan.links = False
        return self._place(name, loan, path, folder)

    def _place(self, name: str, loan: LinkedInput, path: str, folder: int | None) -> bool:
        """If it is no link, copy it."""
        path = in_folder(path, folder)
        if not loan.links:
            file = os.open(loan.path, READ)
            try:
                copy_file(file, path, 0o666, folder)
            finally:
                os.close(file)
        if loan.lease is not None and not loan.lease.is_whole():
            os.unlink(path, dir_fd=folder)
            raise Refused("input-changed", f"another job wrote to the content of {name!r} just now")
        return not loan.links

    def linked(self) -> frozenset[tuple[int, int]]:
        """From any thread: the devices and inodes of contents to which the job has links."""
        found: set[tuple[int, int]] = set()
        for loan in [loan for loan in self.loans.values() if loan.links]:
            with contextlib.suppress(OSError):
                status = os.lstat(loan.path)
                found.add((status.st_dev, status.st_ino))
        return frozenset(found)

    def release(self) -> None:
        """The job has ended, and its directory holds its result alone. What was left there is taken away."""
        self._lender.take_back(self)


class InputLinker:
    """Lends the contents of one folder to jobs. All calls are made in the loop's thread."""

    def __init__(
        self,
        folder: CacheFolder,
        jobs_folder: str,
        leases: Callable[[Callable[[str], None]], Leases],
        on_changed: Callable[[JobId], None],
    ) -> None:
        """`file_leases` makes them, given whom to tell of a broken one. `on_changed` ends a job that may have read what
        another wrote."""
        self._folder = folder
        self._on_changed = on_changed
        self._leases = leases(self._broken)
        self._can_link = _can_link(folder.path, jobs_folder)
        self._linked: dict[str, dict[JobInputs, None]] = {}
        """Who has links to which content."""
        self._written: dict[str, None] = {}
        """Contents and programs of which a copy is made."""

    def lend(self, job: JobId, program: str, contents: Mapping[str, tuple[BlobRef, CachedBlob]]) -> JobInputs:
        """Contents that are in use for this job, by the names of its files."""
        loans: dict[str, LinkedInput] = {}
        linked: dict[str, None] = {}
        for name, (ref, held) in contents.items():
            # A second name for the same file would change with the first.
            loan = loans[name] = self._loan(ref, held, program, ref.sha256 in linked)
            if loan.links:
                linked[ref.sha256] = None
        goods = JobInputs(self, job, program, loans)
        for sha256 in linked:
            self._linked.setdefault(sha256, {})[goods] = None
        return goods

    def link(self, loan: LinkedInput, path: str, folder: int | None = None) -> bool:
        """From any thread. False if it cannot be."""
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

    def take_back(self, goods: JobInputs) -> None:
        for loan in goods.loans.values():
            sha256 = loan.ref.sha256
            for path in loan.placed:
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.lstat(path), os.lstat(loan.path)):
                        os.unlink(path)
            if goods in self._linked.get(sha256, ()):
                del self._linked[sha256][goods]
                if not self._linked[sha256]:
                    del self._linked[sha256]
            if loan.lease is not None:
                self._leases.release(loan.lease)
            self._folder.let_go(sha256, loan.held)
        goods.loans.clear()

    def forget(self, sha256: str) -> None:
        """It is not in the folder any more."""
        lease = self._leases.find(sha256)
        if lease is not None and not lease.users:
            self._leases.drop(sha256)

    def close(self) -> None:
        self._leases.close()

    def _loan(self, ref: BlobRef, held: CachedBlob, program: str, is_second: bool) -> LinkedInput:
        loan = LinkedInput(ref, self._folder.store.path(ref.sha256), held)
        guarded = self._leases.find(ref.sha256) is not None
        is_copied = is_second or ref.size <= COPIED_BYTES or ref.sha256 in self._written or program in self._written
        if guarded or not (is_copied or held.users > 1 or not self._can_link):
            # Also a copy is made under the lease of those who have links: they might write while we read.
            with contextlib.suppress(OSError):
                loan.lease = self._leases.take(ref.sha256, loan.path)
            loan.links = loan.lease is not None and self._can_link and not is_copied
        return loan

    def _broken(self, sha256: str) -> None:
        """Someone is about to write to it, and waits for us."""
        self._folder.evict(sha256)
        self._remember(sha256)
        jobs = list(self._linked.pop(sha256, ()))
        programs = {goods.program for goods in jobs}
        if len(programs) == 1 and not programs <= self._written.keys():
            program = programs.pop()
            self._remember(program)
            log.warning("the program %r writes to its inputs: from now on it gets copies of them", program)
        if len(jobs) == 1:  # It is its own from now on: nobody else has it.
            return
        for goods in jobs:
            self._on_changed(goods.job)

    def _remember(self, what: str) -> None:
        self._written[what] = None
        if len(self._written) > _REMEMBERED_MAX:
            del self._written[next(iter(self._written))]


def _can_link(folder: str, jobs_folder: str) -> bool:
    """Two mounts of one file system look like one, and have no links between them: only a try tells."""
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
