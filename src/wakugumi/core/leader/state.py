"""What does a leader know? Its jobs, peers, queues, counts and limits.

The machine changes them; `admin` and `journal` read or fill them, and need no machine for that.
"""

from __future__ import annotations

from collections.abc import Callable

from wakugumi.core.backoff import EVERYWHERE, Policies
from wakugumi.core.leader.admission import Admission
from wakugumi.core.leader.clients import Clients
from wakugumi.core.leader.jobs.file_references import FileReferences
from wakugumi.core.leader.jobs.job_table import JobTable
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.not_started import NotStarted
from wakugumi.core.leader.jobs.orphans import OrphanJobs
from wakugumi.core.leader.scheduling.lanes import Lanes
from wakugumi.core.leader.scheduling.locality import Holders, no_holders
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.stats import Stats
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.core.leader.worker_keys import WorkerKeys
from wakugumi.core.leader.workers import Workers
from wakugumi.limits.journal import PAYLOAD_MEMORY_BYTES
from wakugumi.limits.leader import ATTEMPTS_MAX, QUEUE_BYTES_MAX, QUEUE_JOBS_MAX


class LeaderState:
    def __init__(
        self,
        chance: Callable[[], float],
        *,
        now: float = 0.0,
        policies: Policies = EVERYWHERE,
        queue_jobs_max: int = QUEUE_JOBS_MAX,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        attempts_max: int = ATTEMPTS_MAX,
        keeps: bool = True,
        payload_memory_bytes: int = PAYLOAD_MEMORY_BYTES,
        holders: Holders = no_holders,
        why_not_simple: Callable[[bytes], str] = lambda _: "",
    ) -> None:
        """`keeps`: a journal writes the records of a step. `holders` returns the workers that hold a file,
        `why_not_simple` the reason why a node cannot run a request."""
        self.why_not_simple = why_not_simple
        self.started_at = now
        self._out = out = StepBuilder(keeps=keeps)
        self.leaves = out.leaves
        self.file_references = FileReferences()
        self.orphans = OrphanJobs(self.file_references, out)
        self.jobs = JobTable()
        self.roster = Roster(*policies.rankings)
        self.roster.now = now
        self.lanes = Lanes(self.roster, policies, holders)
        self.clients = Clients(out, self.lanes, self.jobs, self.file_references)
        self.lifecycle = JobLifecycle(
            out,
            self.roster,
            self.lanes,
            self.clients,
            self.jobs,
            Stats(now),
            self.file_references,
            chance=chance,
            attempts_max=attempts_max,
            payload_memory_bytes=payload_memory_bytes,
        )
        self.not_started = NotStarted(self.roster, self.lanes, self.lifecycle)
        self.worker_keys = WorkerKeys(out)
        self.workers = Workers(out, self.roster, self.lanes, self.lifecycle, self.orphans, self.worker_keys)
        self.admission = Admission(
            self.lanes,
            self.lifecycle,
            self.clients,
            self.file_references,
            self.orphans,
            queue_jobs_max=queue_jobs_max,
            queue_bytes_max=queue_bytes_max,
        )

    @property
    def full(self) -> bool:
        return self.admission.full

    @property
    def disk_low(self) -> bool:
        return self.admission.disk_low

    @property
    def stopping(self) -> bool:
        return self.admission.stopping

    @property
    def stalled(self) -> str:
        """Why the journal commits nothing; empty if it does."""
        return self.admission.stalled

    @property
    def durable(self) -> bool:
        return self._out.keeps

    def holds(self, file: str) -> bool:
        """Does any job or result still need this blob or cache?"""
        return file in self.file_references
