"""Which jobs does a leader have, and which of them are of this client or of these subjects?

All jobs by their ids, and beside that by client and subject: a question about one client's ten jobs costs ten looks and
not a million. Nobody but a person who asks needs the second, so it holds no more than it must.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import attrgetter, le
from typing import Final

from wakugumi.core.job import ClientId, JobId
from wakugumi.core.queues import Job
from wakugumi.core.subject import Pattern, Subject, matches

_submitted_at: Final = attrgetter("submitted_at")


class Jobs(dict[JobId, Job]):
    """Those of one leader. They are set and deleted one by one, and never change their client or subject."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[tuple[ClientId, Subject], dict[JobId, Job]] = {}
        """The newest last."""

    def __setitem__(self, job_id: JobId, job: Job) -> None:
        if job_id in self:
            self._leave_row(self[job_id])
        dict.__setitem__(self, job_id, job)
        key = job.client.id, job.subject
        row = self._rows.get(key)
        if row is None:
            self._rows[key] = {job_id: job}
        else:
            row[job_id] = job

    def __delitem__(self, job_id: JobId) -> None:
        self._leave_row(self[job_id])
        dict.__delitem__(self, job_id)

    def put_in_order(self) -> None:
        """The oldest first, as they were submitted: a journal that was read has those at its end that it moved."""
        times = list(map(_submitted_at, self.values()))
        if not all(map(le, times, islice(times, 1, None))):
            ordered = sorted(self.values(), key=_submitted_at)
            self.clear()
            self.update((job.id, job) for job in ordered)
            for key, row in self._rows.items():
                self._rows[key] = {job.id: job for job in sorted(row.values(), key=_submitted_at)}

    def count(self, client: str, wanted: Pattern | None) -> int:
        """Of this client, with a subject that the pattern matches; an empty word and None mean any."""
        return sum(map(len, self._found(client, wanted)))

    def newest_first(self, client: str, wanted: Pattern | None) -> Iterator[Job]:
        rows = [reversed(row.values()) for row in reversed(self._found(client, wanted))]
        return merge(*rows, key=lambda job: -job.submitted_at)

    def oldest_first(self, client: str, wanted: Pattern | None) -> Iterator[Job]:
        """Row by row: each of them from the oldest to the newest."""
        for row in self._found(client, wanted):
            yield from row.values()

    def check(self) -> None:
        in_rows = [(key, job_id, job) for key, row in self._rows.items() for job_id, job in row.items()]
        assert len(in_rows) == len(self)
        for key, job_id, job in in_rows:
            assert self[job_id] is job
            assert key == (job.client.id, job.subject)
        assert all(self._rows.values())

    def _found(self, client: str, wanted: Pattern | None) -> list[dict[JobId, Job]]:
        keys = [key for key in self._rows if key[0] == client] if client else list(self._rows)
        if wanted is not None:
            subjects = {subject for subject in {subject for _, subject in keys} if matches(wanted, subject)}
            keys = [key for key in keys if key[1] in subjects]
        return [self._rows[key] for key in keys]

    def _leave_row(self, job: Job) -> None:
        key = job.client.id, job.subject
        row = self._rows[key]
        del row[job.id]
        if not row:
            del self._rows[key]
