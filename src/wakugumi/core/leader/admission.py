"""May a new job come in, or is the leader full? (SPEC F11)

The leader accepts no new job while too many jobs, bytes or files are queued, too many results wait to be fetched, or
the disk is nearly full. Accepted jobs go on, which makes room.
"""

from __future__ import annotations

from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader.clients import Clients
from wakugumi.core.leader.events import DiskLow
from wakugumi.core.leader.jobs.file_references import FileReferences
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.orphans import OrphanJobs
from wakugumi.core.leader.scheduling.lanes import Lanes
from wakugumi.limits.leader import QUEUE_FILES_MAX, QUEUE_RESUME_SHARE


class Admission:
    def __init__(
        self,
        lanes: Lanes,
        lifecycle: JobLifecycle,
        clients: Clients,
        file_references: FileReferences,
        orphans: OrphanJobs,
        *,
        queue_jobs_max: int,
        queue_bytes_max: int,
    ) -> None:
        self._lanes = lanes
        self._lifecycle = lifecycle
        self._clients = clients
        self._file_references = file_references
        self._orphans = orphans
        self._queue_jobs_max = queue_jobs_max
        self._queue_bytes_max = queue_bytes_max
        self.full = False
        self.disk_low = False
        self.stopping = False
        self.stalled = ""
        """Why the journal commits nothing; empty if it does."""

    def is_new_work(self, job_id: JobId) -> bool:
        """Does this job need a place in a full queue? A job that a worker runs already, or has done, does not: a client
        that is refused here would run it once more at another leader (SPEC K8). A full disk forbids it all the same."""
        return self.disk_low or job_id not in self._orphans.by_job

    def why(self) -> Verdict:
        if self.disk_low:
            return Verdict("disk-full", "the leader's disk is nearly full")
        return Verdict("full", f"{self._lanes.queued} jobs are queued, {self._lifecycle.open_bytes} bytes in all")

    def disk_changed(self, event: DiskLow, _now: float) -> None:
        """While the disk is low, the leader accepts no job and forgets delivered results."""
        self.disk_low = event.low
        if event.low:
            self._clients.forget_all_kept()

    def update(self) -> None:
        """Update `full` at the end of each step. The leader does not read from old clients while it is full."""
        if not self.full:
            if self.is_full():
                self.full = True
                self._clients.pause_old()
        elif (
            self._lanes.queued < self._queue_jobs_max * QUEUE_RESUME_SHARE
            and self._lifecycle.open_bytes < self._queue_bytes_max * QUEUE_RESUME_SHARE
            and self._file_references.extra_files < QUEUE_FILES_MAX * QUEUE_RESUME_SHARE
            and not self._clients.is_swamped()
            and not self.disk_low
        ):
            self.full = False
            self._clients.resume_old()

    def is_full(self) -> bool:
        """Is a limit exceeded now? `full` stays set until there is enough room again."""
        return (
            self.disk_low
            or self._lanes.queued >= self._queue_jobs_max
            or self._lifecycle.open_bytes >= self._queue_bytes_max
            or self._file_references.extra_files >= QUEUE_FILES_MAX
            or self._clients.is_swamped()
        )
