"""Which key may join under which worker id? A job's worker is known by its id, so an id belongs to the first key that
joined with it, also over a leader's restart.

A worker without a key is the leader's own, or the leader asks for no proof: it may have any id. An id becomes free when
its key ends, or when newer ids of the same key push it out.
"""

from __future__ import annotations

from collections import OrderedDict

from wakugumi.core.ids import JobId, WorkerId
from wakugumi.core.leader.events import KeyEnded
from wakugumi.core.leader.journal.entries import ForgetWorkerKey, KeepWorkerKey
from wakugumi.core.leader.records import WorkerRecord
from wakugumi.core.leader.step_builder import StepBuilder
from wakugumi.limits.access import WORKER_IDS_MAX, WORKER_IDS_PER_KEY_MAX


class WorkerKeys:
    def __init__(self, out: StepBuilder) -> None:
        self._out = out
        self._key_of: dict[WorkerId, str] = {}
        self._leaf_of: dict[str, OrderedDict[WorkerId, int]] = {}
        """Leaf of the journal by key and worker, the oldest first; 0 without a journal."""

    def __len__(self) -> int:
        return len(self._key_of)

    def why_not(self, worker: WorkerId, record: WorkerRecord | None, key: str) -> str:
        """Why this key may not join under this id; empty if it may. `record` is the known worker of the id, if any."""
        if not key:
            return ""
        bound = self._key_of.get(worker)
        if bound is None:
            if record is not None and record.key not in (None, key):
                bound = record.key
            elif len(self) >= WORKER_IDS_MAX:
                return f"full: {WORKER_IDS_MAX} worker ids are bound to keys"
            else:
                return ""
        if bound == key:
            return ""
        return "denied: the worker id belongs to another key; hint: give the worker a folder of its own (--jobs DIR)"

    def bind(self, worker: WorkerId, key: str) -> None:
        """A worker with this key has joined. `why_not` was empty."""
        if not key or worker in self._key_of:
            return
        ids = self._leaf_of.setdefault(key, OrderedDict())
        if len(ids) >= WORKER_IDS_PER_KEY_MAX:
            oldest = next(iter(ids))
            self._release(oldest)
            if self._out.keeps:
                self._out.keep.append(ForgetWorkerKey(key, oldest))
        self._key_of[worker] = key
        self._leaf_of.setdefault(key, ids)[worker] = self._keep(worker, key)

    def ended(self, event: KeyEnded, _now: float) -> None:
        """The key was revoked or has expired: its ids are free."""
        ids = list(self._leaf_of.get(event.key, ()))
        for worker in ids:
            self._release(worker)
        if ids and self._out.keeps:
            self._out.keep.append(ForgetWorkerKey(event.key))

    def move(self, job_id: JobId) -> None:
        """Write the key of the worker with these bytes as its id to the current leaf, if it is in the oldest ones."""
        worker = WorkerId(job_id)
        key = self._key_of.get(worker)
        if key is not None and self._out.leaves.is_in_oldest(self._leaf_of[key][worker]):
            self._out.leaves.release(self._leaf_of[key][worker])
            self._leaf_of[key][worker] = self._keep(worker, key)

    def recovered(self, record: KeepWorkerKey | ForgetWorkerKey) -> None:
        """A record of the leaf that is being read."""
        if isinstance(record, KeepWorkerKey):
            if record.worker in self._key_of:
                self._release(record.worker)
            self._key_of[record.worker] = record.key
            leaf = self._out.leaves.hold(JobId(record.worker), 0)
            self._leaf_of.setdefault(record.key, OrderedDict())[record.worker] = leaf
        else:
            for worker in [record.worker] if record.worker else list(self._leaf_of.get(record.key, ())):
                if self._key_of.get(worker) == record.key:
                    self._release(worker)

    def leaves(self) -> list[int]:
        """Leaves of all records."""
        return [leaf for ids in self._leaf_of.values() for leaf in ids.values()]

    def check(self) -> None:
        assert all(bool(leaf) == self._out.keeps for leaf in self.leaves())
        assert self._key_of == {worker: key for key, ids in self._leaf_of.items() for worker in ids}
        assert all(0 < len(ids) <= WORKER_IDS_PER_KEY_MAX for ids in self._leaf_of.values())
        assert len(self) <= WORKER_IDS_MAX

    def _keep(self, worker: WorkerId, key: str) -> int:
        if not self._out.keeps:
            return 0
        self._out.keep.append(KeepWorkerKey(key, worker))
        return self._out.leaves.hold(JobId(worker), 0)

    def _release(self, worker: WorkerId) -> None:
        key = self._key_of.pop(worker)
        leaf = self._leaf_of[key].pop(worker)
        if leaf:
            self._out.leaves.release(leaf)
        if not self._leaf_of[key]:
            del self._leaf_of[key]
