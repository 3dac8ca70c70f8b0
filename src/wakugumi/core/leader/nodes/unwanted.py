"""How does a node learn that a job is not wanted any more? The job was cancelled, or counts as lost."""

from __future__ import annotations

from typing import Final

from wakugumi.core.flows import Deadline, Flow, Promise
from wakugumi.core.ids import JobId, show_job_id
from wakugumi.core.leader.nodes.events import CancelAtNode
from wakugumi.core.leader.nodes.state import NodeState
from wakugumi.core.step import ERROR
from wakugumi.errors import Lost
from wakugumi.limits.node import NODE_LEFT_MAX, NODE_POLL_TIMEOUT_S

_CANCEL_TRIES_MAX: Final = 5
"""After so many failed cancels at a node that answers polls, its job runs to its end."""


class _Unwanted:
    def __init__(self) -> None:
        self.tries = 0
        """Failed cancels."""


class UnwantedJobs:
    """Unwanted jobs that the node may still run. They are cancelled one by one."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._by_job: dict[JobId, _Unwanted] = {}
        self._flow: Flow[None] | None = None
        self._cancelling: JobId | None = None
        self._answered: Promise[None]
        """Kept when the cancel under way has an answer, or none in time."""

    def __contains__(self, job: JobId) -> bool:
        return job in self._by_job

    def __len__(self) -> int:
        return len(self._by_job)

    def add(self, job: JobId) -> None:
        self._by_job.pop(job, None)
        self._by_job[job] = _Unwanted()
        if len(self._by_job) > NODE_LEFT_MAX:
            del self._by_job[next(iter(self._by_job))]
        self.cancel_soon()

    def discard(self, job: JobId) -> None:
        """The job is wanted again."""
        self._by_job.pop(job, None)

    async def settled(self, job: JobId) -> None:
        """Waits while a cancel of the job is under way: it would end a new run of the job."""
        while self._cancelling == job:
            await self._answered

    def cancel_soon(self) -> None:
        if self._by_job and (self._flow is None or self._flow.ended.is_kept):
            self._flow = self._state.flows.start(self._cancel_all, "cancel jobs at a node")

    async def _cancel_all(self) -> None:
        """After a failure the others wait for the next answered poll."""
        while self._by_job:
            job, one = next(iter(self._by_job.items()))
            is_cancelled = await self._cancel(job)
            if self._by_job.get(job) is one:  # Otherwise the job was wanted again meanwhile.
                del self._by_job[job]
                one.tries += 1
                if not is_cancelled and one.tries < _CANCEL_TRIES_MAX:
                    self._by_job[job] = one  # Now the last one.
            if not is_cancelled:
                return

    async def _cancel(self, job: JobId) -> bool:
        deadline = Deadline(self._state.flows, NODE_POLL_TIMEOUT_S, Lost("no answer in time", "slow"))
        self._cancelling, self._answered = job, Promise(self._state.flows)
        try:
            return await CancelAtNode(job) < 500
        except Lost:
            return False
        except Exception as error:
            self._state.log(ERROR, f"cancel failed job={show_job_id(job)} node={self._state.url}", error)
            return False
        finally:
            deadline.close()
            self._cancelling = None
            self._answered.keep(None)

    def check(self) -> None:
        assert len(self._by_job) <= NODE_LEFT_MAX
        assert all(one.tries < _CANCEL_TRIES_MAX for one in self._by_job.values())
