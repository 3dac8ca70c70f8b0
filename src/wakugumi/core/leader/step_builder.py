"""What does a step consist of? Records to keep, effects to perform, and small messages in batches."""

from __future__ import annotations

from collections.abc import Sequence

from wakugumi.core.ids import ConnId, JobId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.events import LeaderDo
from wakugumi.core.leader.jobs.results import ClientConnection
from wakugumi.core.leader.journal.entries import LeaderKeep
from wakugumi.core.leader.journal.leaves import Leaves
from wakugumi.core.step import Step


class StepBuilder:
    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps = keeps
        """False without a journal: then no records are made."""
        self.leaves = Leaves()
        self.keep: list[LeaderKeep] = []
        self.do: list[LeaderDo] = []
        self.at_once: list[LeaderDo] = []
        self._receipts: dict[ConnId, list[JobId]] = {}
        self._confirms: dict[ConnId, list[JobId]] = {}

    def receipt(self, conn: ConnId, job_id: JobId) -> None:
        """Add a receipt. One effect per connection and step, before all other effects about its jobs."""
        receipts = self._receipts.get(conn)
        if receipts is None:
            self._receipts[conn] = receipts = []
            self.do.append(ev.SendReceipts(conn, receipts))
        receipts.append(job_id)

    def confirm(self, conn: ConnId, job_id: JobId) -> None:
        confirms = self._confirms.get(conn)
        if confirms is None:
            self._confirms[conn] = confirms = []
            self.do.append(ev.SendWorkerConfirms(conn, confirms))
        confirms.append(job_id)

    def refuse(self, connection: ClientConnection, job_id: JobId, code: str, text: str) -> None:
        """Refuse a job. An own client gets the code, an old one a FAILED result (SPEC F11)."""
        if connection.receipts:
            self.do.append(ev.SendRefusal(connection.conn, job_id, code, text))
        else:
            self.do.append(ev.SendResult(connection.conn, job_id, "", Verdict(code, text), is_refusal=True))

    def complain(self, conn: ConnId, text: str) -> None:
        self.do.append(ev.Complain(conn, text))

    def step(self, freed: Sequence[str] = ()) -> Step[LeaderKeep, LeaderDo]:
        """Return the step, with the blobs that are no longer needed, and begin the next one."""
        # Only receipts: the accepted jobs wait behind others, or for a worker.
        patient = len(self.do) == len(self._receipts)
        if freed:
            self.do.append(ev.BlobsFreed(freed))
        step = Step(self.keep, self.do, self.at_once, patient=patient)
        if self.keep:
            self.leaves.next_leaf()
        self.keep, self.do = [], []
        if self.at_once:
            self.at_once = []
        if self._receipts:
            self._receipts = {}
        if self._confirms:
            self._confirms = {}
        return step

    def check(self) -> None:
        """Between two steps nothing is left."""
        assert not any((self.keep, self.do, self.at_once, self._receipts, self._confirms))
