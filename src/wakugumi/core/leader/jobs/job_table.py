"""Which jobs does a leader have, and which of them belong to a client or to some subjects?

Jobs by id, and by client and subject: a question about ten jobs of one client costs ten steps, not a million. Only
questions of operators need the second index, so it must cost little: the jobs of one client and subject are a linked
list, with the links in the jobs themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from operator import attrgetter, le
from typing import Final, TypeAlias

from wakugumi.core.ids import ClientId, JobId
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.records import JobRecord
from wakugumi.core.subject import Pattern, Subject, matches

_submitted_at: Final = attrgetter("submitted_at")

Seen: TypeAlias = Callable[[str], bool] | None
"""Are the jobs of this client seen? None: those of all."""


class _Row:
    """The jobs of one client and subject, at least one, linked from the oldest to the newest."""

    __slots__ = ("count", "newest", "oldest")

    def __init__(self, job: JobRecord) -> None:
        self.oldest = self.newest = job
        self.count = 1


class JobTable(dict[JobId, JobRecord]):
    """Jobs of one leader. `add` and `remove` are the only changes; client and subject of a job are fixed."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[tuple[ClientId, Subject], _Row] = {}

    def knows(self, job_id: JobId) -> bool:
        """The job runs or is OK: another submit of this id runs nothing."""
        job = self.get(job_id)
        return job is not None and (job.state is not DONE or job.ok)

    def add(self, job: JobRecord) -> None:
        """Add a job, or replace its record. A method of its own: `__setitem__` of a subclass costs more."""
        job_id = job.id
        if job_id in self:
            self._leave_row(self[job_id])
        self[job_id] = job
        key = job.client.id, job.subject
        row = self._rows.get(key)
        if row is None:
            self._rows[key] = _Row(job)
        else:
            last = row.newest
            last.newer, job.older = job_id, last.id
            row.newest = job
            row.count += 1

    def remove(self, job: JobRecord) -> None:
        self._leave_row(job)
        del self[job.id]

    def put_in_order(self) -> None:
        """Sort by time of submit: a journal has the jobs that it moved at its end."""
        times = list(map(_submitted_at, self.values()))
        if not all(map(le, times, islice(times, 1, None))):
            ordered = sorted(self.values(), key=_submitted_at)
            self.clear()
            self._rows.clear()
            for job in ordered:
                job.older = job.newer = None
                self.add(job)

    def count(self, client: str, wanted: Pattern | None, is_seen: Seen = None) -> int:
        """Number of jobs of this client, with a subject that the pattern matches, of a client that is seen; an empty
        client and None mean any."""
        return sum(row.count for row in self._found(client, wanted, is_seen))

    def newest_first(self, client: str, wanted: Pattern | None, is_seen: Seen = None) -> Iterator[JobRecord]:
        rows = reversed(self._found(client, wanted, is_seen))
        return merge(*map(self._back_from, rows), key=lambda job: -job.submitted_at)

    def oldest_first(self, client: str, wanted: Pattern | None, is_seen: Seen = None) -> Iterator[JobRecord]:
        """Row by row, each from the oldest to the newest."""
        for row in self._found(client, wanted, is_seen):
            yield from self._forth_from(row)

    def check(self) -> None:
        assert sum(row.count for row in self._rows.values()) == len(self)
        for (client, subject), row in self._rows.items():
            forth = list(self._forth_from(row))
            assert forth == list(self._back_from(row))[::-1]
            assert len(forth) == row.count
            for job in forth:
                assert self[job.id] is job
                assert (job.client.id, job.subject) == (client, subject)

    def _found(self, client: str, wanted: Pattern | None, is_seen: Seen) -> list[_Row]:
        keys = [key for key in self._rows if key[0] == client] if client else list(self._rows)
        if is_seen is not None:
            clients = set(filter(is_seen, {name for name, _ in keys}))
            keys = [key for key in keys if key[0] in clients]
        if wanted is not None:
            subjects = {subject for subject in {subject for _, subject in keys} if matches(wanted, subject)}
            keys = [key for key in keys if key[1] in subjects]
        return [self._rows[key] for key in keys]

    def _forth_from(self, row: _Row) -> Iterator[JobRecord]:
        job: JobRecord | None = row.oldest
        while job is not None:
            yield job
            job = self[job.newer] if job.newer is not None else None

    def _back_from(self, row: _Row) -> Iterator[JobRecord]:
        job: JobRecord | None = row.newest
        while job is not None:
            yield job
            job = self[job.older] if job.older is not None else None

    def _leave_row(self, job: JobRecord) -> None:
        key = job.client.id, job.subject
        row, older, newer = self._rows[key], job.older, job.newer
        job.older = job.newer = None
        row.count -= 1
        if newer is not None:
            following = self[newer]
            following.older = older
            if older is None:
                row.oldest = following
                return
        elif older is None:
            del self._rows[key]
            return
        before = self[older]
        before.newer = newer
        if newer is None:
            row.newest = before
