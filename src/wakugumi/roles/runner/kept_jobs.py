"""Which ended jobs are still on disk, and when are they removed? (SPEC W4, W7)

A finished job is kept for its time, and longer while its result is owed. Removal takes a few milliseconds at a time, so
that no connection waits for a disk. All calls are made in the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Final

from wakugumi.adapters.files import remove_tree
from wakugumi.adapters.jobdir.folder import JobsFolder
from wakugumi.adapters.jobdir.large_parts import Whole, parts_of
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.runner.finished import FOUND_MAX, age_found_s
from wakugumi.errors import PeerError, Refused
from wakugumi.limits.runner import DONE_TTL_S, KEPT_JOBS_MAX
from wakugumi.roles.runner.make_result import too_big
from wakugumi.wire.messages.envelope import json_of
from wakugumi.wire.messages.job import read_result
from wakugumi.wire.messages.payload import encode

log = logging.getLogger("wakugumi.runner")

SWEEP_S: Final = 1.0
_SWEEP_TURN_S: Final = 0.002
"""How long one removal may block the loop."""
_BETWEEN_TURNS_S: Final = 0.01


class KeptJobs:
    """Finished jobs of one folder, and files of interrupted ones."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        folder: JobsFolder,
        runs: Container[JobId],
        is_owed: Callable[[JobId], bool],
        submit: Callable[[Callable[[str], None], str], object],
        *,
        done_ttl_s: float,
        interrupted_ttl_s: float,
    ) -> None:
        """Jobs in `runs` are not touched; jobs that are owed are kept longer. `submit` removes a path in a thread."""
        self._loop = loop
        self._folder = folder
        self._runs = runs
        self._is_owed = is_owed
        self._submit = submit
        self._done_ttl_s = done_ttl_s
        self._interrupted_ttl_s = interrupted_ttl_s
        self.jobs: dict[JobId, float] = {}
        """Finished jobs, each with the time at which its second in `seconds` began."""
        self.seconds: deque[tuple[float, list[JobId]]] = deque()
        """Finished jobs by the second of their end, oldest first: there may be hundreds of thousands. A job that ran
        twice is in two of them."""
        self._remains: deque[tuple[float, JobId]] = deque()
        """Interrupted jobs with the time of their removal, the next first."""
        self._sweeper = loop.call_later(SWEEP_S, self._sweep_and_repeat)

    def close(self) -> None:
        self._sweeper.cancel()

    def load(self, job_id: JobId) -> bytes | None:
        """The encoded result of a finished job from disk. None if it has no result that can be trusted."""
        return None if job_id in self._runs else self._folder.load(show_job_id(job_id))

    def load_whole(self, job_id: JobId) -> Whole | None:
        """Result of a finished job, the files it names, and the digest of its request; None as in `load`."""
        return None if job_id in self._runs else self._folder.load_whole(show_job_id(job_id))

    def done_at(self, job_id: JobId) -> float | None:
        """Time at which a finished job on this disk ended, by the machine's clock."""
        return self._folder.done_at(show_job_id(job_id))

    def parts(self, job_id: JobId, payload: bytes) -> Mapping[str, Path]:
        """Paths by name of the files that a finished job's result names by hash. Raises Refused."""
        if not _names_parts(payload):
            return {}
        try:
            parts = parts_of(read_result(job_id, payload), f"{self._folder.path}/{show_job_id(job_id)}")
        except (OSError, ValueError, PeerError):
            raise Refused("worker-error", "the files of the job's result are no longer on disk") from None
        return {part.path.name: part.path for part in parts}

    def in_short(self, job_id: JobId, payload: bytes) -> bytes:
        """The result for a leader without blobs: FAILED if some of it does not fit a frame."""
        if not _names_parts(payload):
            return payload
        where = f"{self._folder.path}/{show_job_id(job_id)}"
        return encode(too_big(read_result(job_id, payload), where, self._done_ttl_s))

    def forget(self, job_id: JobId) -> None:
        """Remove a finished job now."""
        if job_id not in self._runs:
            self.jobs.pop(job_id, None)
            self._remove(job_id, self._folder.remove)

    def unmark(self, job_id: JobId) -> None:
        """Make a failure answer no later request, even after a restart. Its files stay for now."""
        if job_id not in self._runs:
            self._folder.unmark(show_job_id(job_id))

    def finished_before(self) -> list[tuple[JobId, float]]:
        """Jobs of earlier runs of this process, with their age in seconds; call once, at the start.

        Files of interrupted jobs are removed in their time. A power loss may have damaged results: `load` decides. The
        newest FOUND_MAX jobs stay for a while longer; the leader is not told of more.
        """
        found = self._folder.finished(self._interrupted_ttl_s)
        now = self._loop.time()
        oldest_first = sorted(found, key=lambda one: -one[1])
        for job_id, age_s in oldest_first[:-FOUND_MAX]:
            self.keep(job_id, now - age_s)
        for job_id, age_s in oldest_first[-FOUND_MAX:]:
            self.keep(job_id, now - age_found_s(age_s, self._done_ttl_s))
        until = now + self._interrupted_ttl_s
        self._remains.extend(sorted((until - age_s, job_id) for job_id, age_s in self._folder.interrupted))
        return found

    def sweep(self) -> bool:
        """Remove expired jobs for some milliseconds. True if there are more. A timer calls it."""
        now = self._loop.time()
        stop_at = now + _SWEEP_TURN_S
        while self._remains and self._remains[0][0] <= now:
            _, job_id = self._remains.popleft()
            if job_id not in self._runs and job_id not in self.jobs:
                self._remove(job_id, lambda _: False)
        while self.seconds and self.seconds[0][0] + 1.0 + self._kept_s() <= now:
            second, jobs = self.seconds[0]
            while jobs:
                job_id = jobs.pop()
                if self.jobs.get(job_id) != second or job_id in self._runs:
                    continue
                if self._is_owed(job_id):
                    self.keep(job_id, now)
                    continue
                del self.jobs[job_id]
                self._remove(job_id, self._folder.retire)
                if self._loop.time() >= stop_at:
                    return True
            self.seconds.popleft()
        return False

    def _kept_s(self) -> float:
        """Seconds that finished jobs stay. If there are too many, the oldest are removed earlier."""
        most_s = self._done_ttl_s
        return most_s if len(self.jobs) <= KEPT_JOBS_MAX else min(most_s, DONE_TTL_S)

    def keep(self, job_id: JobId, ended_at: float) -> None:
        """Keep a job that ended at this time."""
        if not self.seconds or ended_at >= self.seconds[-1][0] + 1.0:
            self.seconds.append((ended_at, []))
        second, jobs = self.seconds[-1]
        self.jobs[job_id] = second
        jobs.append(job_id)

    def _remove(self, job_id: JobId, remove: Callable[[str], bool]) -> None:
        name = show_job_id(job_id)
        if not remove(name):
            self._submit(_remove_all, f"{self._folder.path}/{name}")

    def _sweep_and_repeat(self) -> None:
        try:
            pause = _BETWEEN_TURNS_S if self.sweep() else SWEEP_S
        except Exception:
            log.exception("removal of finished jobs failed")
            pause = SWEEP_S
        self._sweeper = self._loop.call_later(pause, self._sweep_and_repeat)


def _names_parts(payload: bytes) -> bool:
    """Whether a result names files by hash, in our own encoding; a text would have escaped quotes."""
    return b'Blob":{"Sha256":' in json_of(payload)


def _remove_all(path: str) -> None:
    try:
        remove_tree(path)
    except OSError as error:
        log.warning("path not removed path=%s: %s", path, error.strerror)
