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
from typing import Final, NamedTuple

from wakugumi.core.ids import ClientId, JobId
from wakugumi.core.leader.jobs.dead_letters import DeadLetters
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.records import JobRecord
from wakugumi.limits.leader import KEPT_RESULTS_MAX

FILES_FREE: Final = 4
"""Number of files that count as part of their job."""


NOBODY: Final = ClientId("")
"""In place of the client of an answer to a job that no client has submitted."""


class ResultBlobs(NamedTuple):
    client: ClientId
    blobs: tuple[str, ...]


class FileReferences:
    def __init__(self) -> None:
        self._needs: dict[str, ClientId | dict[ClientId, int]] = {}
        """Number of jobs and results that need a file, by client. One need, the most frequent case, is the client
        alone: a million files of a million jobs cost no dictionary each."""
        self.results: dict[JobId, ResultBlobs] = {}
        """Blobs of results that have some."""
        self.extra_files = 0
        """Files of all jobs beyond the first FILES_FREE of each."""
        self._lingering: deque[tuple[float, ResultBlobs]] = deque()
        """Blobs of results that were pushed out, and until when they stay; the earliest first."""
        self._loose: dict[str, None] = {}
        """Blobs that results released in this step."""

    def __contains__(self, file: str) -> bool:
        return file in self._needs

    def clients_of(self, file: str) -> Iterable[ClientId]:
        """Clients whose jobs and results need the file; no client for an answer to a job that none has submitted."""
        needs = self._needs.get(file, NOBODY)
        return [client for client in ((needs,) if isinstance(needs, str) else needs) if client]

    def blobs_of(self, job: JobId) -> tuple[str, ...]:
        """Blobs of the result of this job."""
        return self.results[job].blobs if job in self.results else ()

    def begin(self, job: JobRecord) -> None:
        """The job may run, now or after a requeue."""
        if job.requirements is not None:
            self.extra_files += max(0, len(job.requirements.files) - FILES_FREE)
            self._need(job.requirements.files, job.client.id)

    def end(self, job: JobRecord) -> None:
        """The job will not run any more, unless a client submits it again."""
        if job.requirements is not None:
            self.extra_files -= max(0, len(job.requirements.files) - FILES_FREE)
            self._release(job.requirements.files, job.client.id)

    def keep(self, job: JobId, blobs: tuple[str, ...], client: ClientId) -> None:
        """The result of the client's job has these blobs."""
        assert job not in self.results
        self.results[job] = ResultBlobs(client, blobs)
        self._need(blobs, client)

    def forget(self, job: JobId, blobs_until: float = 0.0) -> None:
        """The result of the job, if any, is forgotten. Its blobs stay until `blobs_until`."""
        result = self.results.pop(job, None)
        if result is None:
            return
        if not blobs_until:
            self._give_up(result)
        else:
            self._lingering.append((blobs_until, result))
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
        return [blob for blob in loose if blob not in self._needs]

    def check(
        self, jobs: Iterable[JobRecord], letters: DeadLetters, claimed: Iterable[tuple[JobId, tuple[str, ...]]]
    ) -> None:
        """`jobs` are all jobs of the leader, `letters` the dead ones, `claimed` the blobs of orphan answers."""
        counts: dict[str, dict[ClientId, int]] = {}
        extra_files = 0
        results = {job: ResultBlobs(NOBODY, blobs) for job, blobs in claimed if blobs}
        assert not self._loose
        for job in jobs:
            if job.id in self.results:
                assert job.state is DONE, "a job that is not done has the blobs of a result"
                results[job.id] = self.results[job.id]
            if job.requirements is not None and (job.state is not DONE or job in letters):
                extra_files += max(0, len(job.requirements.files) - FILES_FREE)
                for file in job.requirements.files:
                    _count(counts, file, job.client.id)
        for result in (*results.values(), *(result for _, result in self._lingering)):
            for blob in result.blobs:
                _count(counts, blob, result.client)
        assert results == self.results, "blobs are held for a result that is forgotten"
        needs = {file: {need: 1} if isinstance(need, str) else need for file, need in self._needs.items()}
        assert counts == needs, "what is held is not what is needed"
        assert extra_files == self.extra_files
        assert len(self._lingering) <= KEPT_RESULTS_MAX

    def _give_up(self, result: ResultBlobs) -> None:
        self._release(result.blobs, result.client)
        self._loose.update(dict.fromkeys(result.blobs))

    def _need(self, files: Iterable[str], client: ClientId) -> None:
        needs = self._needs
        for file in files:
            need = needs.get(file)
            if need is None:
                needs[file] = client
            elif isinstance(need, dict):
                need[client] = need.get(client, 0) + 1
            else:
                needs[file] = {client: 2} if need == client else {need: 1, client: 1}

    def _release(self, files: Iterable[str], client: ClientId) -> None:
        for file in files:
            need = self._needs[file]
            if isinstance(need, dict) and need[client] > 1:
                need[client] -= 1
            elif isinstance(need, dict) and len(need) > 1:
                del need[client]
            else:
                del self._needs[file]


def _count(counts: dict[str, dict[ClientId, int]], file: str, client: ClientId) -> None:
    by_client = counts.setdefault(file, {})
    by_client[client] = by_client.get(client, 0) + 1
