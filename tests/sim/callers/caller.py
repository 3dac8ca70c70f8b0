"""Callers of a leader by HTTP: each wants one job, by its id, and asks until it has the answer, or gives up.

A caller may ask twice at once, leave at any time and come back, read slowly, be cut off while its answer is written,
and use an id that another request has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakugumi.core.ids import ClientId, ConnId, JobId, job_id_from_name
from wakugumi.core.leader import events as ev
from wakugumi.core.subject import parse_subject

if TYPE_CHECKING:
    from tests.sim.callers.world import CallersWorld

SUBJECT = parse_subject("job.assign.sim")


class HttpWant:
    """One caller and its job."""

    def __init__(self, world: CallersWorld, name: str, body: bytes, client: str) -> None:
        self.world = world
        self.name = name
        self.body = body
        self.client = ClientId(client)
        self.job: JobId = job_id_from_name(name)
        self.is_over = False
        self.visits: list[Visit] = []
        """Those that are open."""
        self._is_due = False

    def __repr__(self) -> str:
        return f"{self.client}/{self.name} {self.body!r}"

    def ask(self) -> None:
        self._is_due = False
        if not self.is_over and not self.visits:
            for _ in range(2 if self.world.random.random() < 0.1 else 1):
                self._visit()

    def again(self, longest_s: float = 4.0) -> None:
        """Soon, unless it waits for that already."""
        if not self._is_due:
            self._is_due = True
            self.world.clock.after(0.2 + longest_s * self.world.random.random(), self.ask)

    def fidget(self) -> None:
        """Its visits end, and it asks again at once, or never."""
        if self.visits and self.world.kinds:
            for visit in list(self.visits):
                visit.leave(says_so=self.world.faults.random() < 0.5)
            if self.world.faults.random() < 0.2:
                self.is_over = True
            else:
                self.again(0.3)

    def leave(self) -> None:
        """All of its visits end, and it comes back, soon or late; or never."""
        faults = self.world.faults
        for visit in list(self.visits):
            visit.leave(says_so=faults.random() < 0.5)
        if faults.random() < 0.2:
            self.is_over = True
        else:
            self.again(faults.choice([0.5, 4.0, 80.0]))

    def _visit(self) -> None:
        leader = self.world.leader
        if not leader.is_listening:
            self.again()
            return
        visit = Visit(self)
        known = leader.machine.jobs.get(self.job)
        claims = known is not None and known.result is not None and self.world.random.random() < 0.2
        visit.says = ev.Claimed(ConnId(0), (self.job,)) if claims else self._submit()
        self.visits.append(visit)
        leader.enter(visit, ClientId("http") if claims else self.client)
        if self.world.is_crowded and self.world.faults.random() < 0.5:
            self.world.clock.after(2.0 * self.world.faults.random(), self.fidget)

    def _submit(self) -> ev.Submitted:
        return ev.Submitted(ConnId(0), self.job, SUBJECT, "sim", 30.0, self.body, requirements=self.world.requirements)


class Visit:
    """One request of a caller."""

    says: ev.Submitted | ev.Claimed

    def __init__(self, want: HttpWant) -> None:
        self.want = want
        self.number = 0
        self.life = 0
        """Of the leader."""
        self.is_gone = False
        self.gone_at = 0.0
        self.result: ev.SendResult | None = None
        self.given_at = -1.0

    def leave(self, *, says_so: bool) -> None:
        """The connection ends. A leader that reads from it notices at once; else it must look."""
        self._end()
        self.is_gone, self.gone_at = True, self.want.world.clock.now
        if says_so and self.result is None:
            self.want.world.leader.say_gone(self)

    def given(self, result: ev.SendResult) -> None:
        """The answer is on its way."""
        world = self.want.world
        self.result, self.given_at = result, world.clock.now
        if self.is_gone:
            return
        write_s = world.faults.choice([0.0, 0.05, 2.0, 70.0]) if world.is_stormy else 0.02
        if world.is_stormy and world.faults.random() < 0.1:
            world.clock.after(write_s * world.faults.random(), self._cut)
        else:
            world.clock.after(write_s, self._written)

    def refused(self, code: str) -> None:
        if self._end():
            self.want.world.judge.refused(self.want, code)
            if code == "conflict":
                self.want.is_over = True
            else:
                self.want.again()

    def dropped(self) -> None:
        if not self.is_gone:
            self.want.world.judge.broken(self.want, f"{self.want} is dropped, and is still there")

    def lost(self) -> None:
        """The leader ended."""
        if self._end():
            self.want.again()

    def _written(self) -> None:
        """The last byte is with the caller: the leader knows, if it lives."""
        if self._end() and self.result is not None:
            self.want.is_over = True
            is_claim = isinstance(self.says, ev.Claimed)
            self.want.world.judge.answered(self.want, self.result.result, is_claim=is_claim)
            self.want.world.leader.written(self)

    def _cut(self) -> None:
        if self._end():
            self.is_gone = True
            self.want.world.judge.counts["answers cut off"] += 1
            self.want.again(self.want.world.faults.choice([1.0, 30.0, 100.0]))

    def _end(self) -> bool:
        """False if it has ended before."""
        if self not in self.want.visits:
            return False
        self.want.visits.remove(self)
        return True
