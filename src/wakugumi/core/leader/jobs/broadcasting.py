"""Which workers get a broadcast, and what becomes of its parts? (SPEC S5) `broadcast` explains parts."""

from __future__ import annotations

import msgspec

from wakugumi.core.ids import Verdict
from wakugumi.core.leader.clients import Clients
from wakugumi.core.leader.events import Submitted
from wakugumi.core.leader.jobs.broadcast import BroadcastPart, list_of, own_subject, part_id
from wakugumi.core.leader.jobs.job_table import JobTable
from wakugumi.core.leader.jobs.lifecycle import JobLifecycle
from wakugumi.core.leader.jobs.placing import JobPlacement
from wakugumi.core.leader.jobs.results import ClientConnection
from wakugumi.core.leader.jobs.same_request import CONFLICT, TAKEN, is_repeated, may_repeat
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.journal.entries import KeepDeadline
from wakugumi.core.leader.scheduling.roster import Roster
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.limits.leader import BROADCAST_BYTES_MAX


class Broadcasts:
    def __init__(
        self,
        out: StepBuilder,
        roster: Roster,
        jobs: JobTable,
        clients: Clients,
        lifecycle: JobLifecycle,
        placement: JobPlacement,
    ) -> None:
        self._out = out
        self._roster = roster
        self._jobs = jobs
        self._clients = clients
        self._lifecycle = lifecycle
        self._placement = placement

    def submitted(self, connection: ClientConnection, event: Submitted, now: float) -> None:
        """Make a part for every worker that matches now; the list of parts is the answer (SPEC S5). No connection waits
        for a part until the client has read the list and claims it: before, the client could not know the part's id."""
        workers = self._roster.audience(event.subject, event.requirements)
        size = len(event.payload)
        if not connection.receipts:
            self._out.refuse(
                connection, event.job, "not-supported", "a client without receipts cannot submit a broadcast"
            )
            return
        if len(workers) * size > BROADCAST_BYTES_MAX:
            text = f"{size} bytes for each of {len(workers)} workers are more than {BROADCAST_BYTES_MAX} in all"
            self._out.refuse(connection, event.job, "too-big", text)
            return
        part_events = [
            msgspec.structs.replace(
                event, job=part_id(event.job, worker.id), subject=own_subject(worker.id), broadcast_s=0.0
            )
            for worker in workers
        ]
        if any((part := self._jobs.get(one.job)) is not None and not is_repeated(part, one) for one in part_events):
            # The broadcast of before is forgotten, but one of its parts is not.
            self._out.refuse(connection, event.job, *CONFLICT)
            return
        if (sight := connection.sight) is not None and any(
            (part := self._jobs.get(one.job)) is not None and not may_repeat(sight, part) for one in part_events
        ):
            self._out.refuse(connection, event.job, *TAKEN)
            return
        broadcast = self._lifecycle.accept(connection, event, now)
        self._out.receipt(connection.conn, event.job)
        parts: list[BroadcastPart] = []
        for worker, part_event in zip(workers, part_events, strict=True):
            parts.append(BroadcastPart(part_event.job.hex(), worker.label))
            known = self._jobs.get(part_event.job)
            if known is not None:
                if known.state is not DONE or known.ok:
                    continue
                self._clients.reopened(known)
            part = self._lifecycle.accept(connection, part_event, now)
            part.waiters = ()
            self._lifecycle.deadlines.add(part.id, now + event.broadcast_s)
            if self._out.keeps:
                self._out.keep.append(KeepDeadline(part.id, event.broadcast_s))
            if event.requirements is not None and event.requirements.slots > max(1, worker.slots):
                text = f"it needs {event.requirements.slots} slots, and this worker has {max(1, worker.slots)}"
                self._lifecycle.finish(part, False, Verdict("bad-request", text), now)
            else:
                self._placement.place(part, now, is_guarded=sight is not None)
        self._lifecycle.finish(broadcast, True, list_of(parts), now)
