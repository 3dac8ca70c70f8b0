"""Which blobs and caches are still needed? (SPEC C5)

    a job needs its inputs      until it is done; if it is dead, until its letter is dropped, as it may be requeued
    a result needs its blobs    until it is forgotten. If newer results push it out early, its blobs stay until it
                                would have expired: a client that just got the result may fetch them

Only jobs with files are counted. Blobs of a forgotten result that no other job needs are *freed* at once. Inputs are
not: the next job may name the same ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Final

from wakugumi.core.ids import JobId
from wakugumi.core.leader.jobs.dead_letters import DeadLetters
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.records import JobRecord
from wakugumi.limits.leader import KEPT_RESULTS_MAX

FILES_FREE: Final = 4
"""Number of files that count as part of their job."""


class FileReferences:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        """Number of jobs and results that need a file."""
        self.results: dict[JobId, tuple[str, ...]] = {}
        """Blobs of results that have some."""
        self.extra_files = 0
        """Files of all jobs beyond the first FILES_FREE of each."""
        self._lingering: deque[tuple[float, tuple[str, ...]]] = deque()
        """Blobs of results that were pushed out, and until when they stay; the earliest first."""
        self._loose: dict[str, None] = {}
        """Blobs that results released in this step."""

    def __contains__(self, file: str) -> bool:
        return file in self._counts

    def begin(self, job: JobRecord) -> None:
        """The job may run, now or after a requeue."""
        if job.requirements is not None:
            self.extra_files += max(0, len(job.requirements.files) - FILES_FREE)
            for file in job.requirements.files:
                self._counts[file] = self._counts.get(file, 0) + 1

    def end(self, job: JobRecord) -> None:
        """The job will not run any more, unless a client submits it again."""
        if job.requirements is not None:
            self.extra_files -= max(0, len(job.requirements.files) - FILES_FREE)
            self._release(job.requirements.files)

    def keep(self, job: JobId, blobs: tuple[str, ...]) -> None:
        """The result of the job has these blobs."""
        assert job not in self.results
        self.results[job] = blobs
        for blob in blobs:
            self._counts[blob] = self._counts.get(blob, 0) + 1

    def forget(self, job: JobId, blobs_until: float = 0.0) -> None:
        """The result of the job, if any, is forgotten. Its blobs stay until `blobs_until`."""
        blobs = self.results.pop(job, ())
        if not blobs_until:
            self._give_up(blobs)
        elif blobs:
            self._lingering.append((blobs_until, blobs))
            if len(self._lingering) > KEPT_RESULTS_MAX:
                self._give_up(self._lingering.popleft()[1])

    def sweep(self, now: float) -> None:
        """Release the blobs of forgotten results whose time is over."""
        while self._lingering and self._lingering[0][0] <= now:
            self._give_up(self._lingering.popleft()[1])

    def let_all_go(self) -> None:
        """Release the blobs of all forgotten results."""
        self.sweep(inf)

    def take_freed(self) -> list[str]:
        """Blobs that results released since the last call and that no job needs."""
        if not self._loose:
            return []
        loose, self._loose = self._loose, {}
        return [blob for blob in loose if blob not in self._counts]

    def check(
        self, jobs: Iterable[JobRecord], letters: DeadLetters, claimed: Iterable[tuple[JobId, tuple[str, ...]]]
    ) -> None:
        """`jobs` are all jobs of the leader, `letters` the dead ones, `claimed` the blobs of orphan answers."""
        counts: dict[str, int] = {}
        extra_files = 0
        results = {job: blobs for job, blobs in claimed if blobs}
        assert not self._loose
        for job in jobs:
            if job.id in self.results:
                assert job.state is DONE, "a job that is not done has the blobs of a result"
                results[job.id] = self.results[job.id]
            if job.requirements is not None and (job.state is not DONE or job in letters):
                extra_files += max(0, len(job.requirements.files) - FILES_FREE)
                for file in job.requirements.files:
                    counts[file] = counts.get(file, 0) + 1
        for blobs in (*results.values(), *(blobs for _, blobs in self._lingering)):
            for blob in blobs:
                counts[blob] = counts.get(blob, 0) + 1
        assert results == self.results, "blobs are held for a result that is forgotten"
        assert counts == self._counts, "what is held is not what is needed"
        assert extra_files == self.extra_files
        assert len(self._lingering) <= KEPT_RESULTS_MAX

    def _give_up(self, blobs: tuple[str, ...]) -> None:
        self._release(blobs)
        self._loose.update(dict.fromkeys(blobs))

    def _release(self, files: Iterable[str]) -> None:
        for file in files:
            left = self._counts[file] - 1
            if left:
                self._counts[file] = left
            else:
                del self._counts[file]
