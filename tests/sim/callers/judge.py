"""Was a caller by HTTP left without an answer, answered with another's result or twice differently, or anything kept
for ever?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.checker import BROKEN, LEAKED, LOST, TWICE, Broken

from wakugumi.core.ids import JobId, Verdict
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.callers import events as cv

if TYPE_CHECKING:
    from tests.sim.callers.caller import HttpWant
    from tests.sim.callers.leader import HttpLeader
    from tests.sim.callers.world import CallersWorld
    from tests.sim.process import Process


class CallersJudge:
    """Of one world."""

    def __init__(self, world: CallersWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._runs: Counter[JobId] = Counter()
        self._excused: set[JobId] = set()
        self._answers: dict[JobId, bytes] = {}
        self._cancelled: set[JobId] = set()

    def broken(self, want: HttpWant | None, what: str, sort: str = BROKEN) -> None:
        raise Broken(None if want is None else want.job, what, sort)

    def process_died(self, _process: Process) -> None:
        self.counts["leaders that died"] += 1
        if not self._world.keeps:
            self._answers.clear()  # It has forgotten them.

    # Jobs.

    def excuse(self, job: JobId) -> None:
        """A run more is right."""
        self._excused.add(job)

    def cancels(self, job: JobId) -> None:
        self._cancelled.add(job)
        self.excuse(job)

    def runs(self, job: JobId, body: bytes) -> int:
        self._runs[job] += 1
        self.counts["runs"] += 1
        if self._runs[job] > 1 and not self._world.is_stormy and job not in self._excused:
            raise Broken(job, f"{body!r} runs again without need")
        return self._runs[job]

    # Answers.

    def answered(self, want: HttpWant, result: bytes | Verdict, *, is_claim: bool) -> None:
        """A claim names no request: any result of the job answers it."""
        self.counts["answers"] += 1
        if isinstance(result, Verdict):
            self.counts[f"verdict: {result.code}"] += 1
            if result.code == "cancelled" and want.job not in self._cancelled:
                self.broken(want, f"{want} was cancelled by nobody")
            return
        status, body, _ = result.split(b"|", 2)
        if status != b"OK":
            self.counts["failures told"] += 1
            return
        if body != want.body and not is_claim:
            self.broken(want, f"{want} was answered with the result of another request: {result[:40]!r}")
        if self._answers.setdefault(want.job, result) != result:
            self.broken(want, f"{want} was answered {self._answers[want.job][:40]!r} and {result[:40]!r}", TWICE)

    def refused(self, want: HttpWant, code: str) -> None:
        self.counts[f"refused: {code}"] += 1
        if code == "conflict" and len({other.body for other in self._world.wants if other.name == want.name}) == 1:
            self.broken(want, f"{want} is told of a conflict with nothing")

    def look_at_confirms(self, event: cv.CallersEvent | None, do: Sequence[cv.CallersDo]) -> None:
        """A result may be confirmed once it is written, if it was unread for long, or if its caller left."""
        world = self._world
        told = [effect.event for effect in do if isinstance(effect, cv.TellLeader)]
        for confirmed in told:
            if not isinstance(confirmed, ev.Confirmed):
                continue
            (job,) = confirmed.jobs
            if isinstance(event, cv.AnswerWritten):
                continue
            if isinstance(event, ev.SendResult) and not any(isinstance(effect, cv.GiveResult) for effect in do):
                continue
            unread = [
                visit
                for visit in world.leader.visits.values()
                if visit.result is not None and visit.result.conn == confirmed.conn and visit.want.job == job
            ]
            if isinstance(event, cv.CallersSeen) and event.is_stopping and any(visit.is_gone for visit in unread):
                continue
            latest = max((visit.given_at for visit in unread), default=0.0)
            if event is not None or world.clock.now - latest < world.bounds.unread_s:
                raise Broken(job, f"a result is confirmed by {type(event).__name__} before it was read")

    def look_for_gone(self, leader: HttpLeader) -> None:
        """A caller that disconnected is found by the next look."""
        for visit in leader.visits.values():
            if visit.is_gone and visit.result is None and visit.gone_at < self._world.clock.now:
                self.broken(visit.want, f"{visit.want} is gone, and its request waits", LEAKED)

    # The end.

    def look_at_the_end(self) -> None:
        world = self._world
        for want in world.wants:
            if not want.is_over or want.visits:
                self.broken(want, f"{want} has no answer", LOST)
        leader = world.leader
        left = {
            "sessions": len(leader.callers.sessions) + len(leader.callers.clients) + len(leader.sessions),
            "requests": len(leader.callers.requests) + len(leader.visits),
            "clients": 0 if world.is_bounded else len(leader.machine.clients.by_id),
            "undelivered results": 0 if world.is_bounded else len(leader.machine.clients.results.undelivered),
        }
        if any(left.values()):
            self.broken(None, f"the leader has left {left}", LEAKED)
