"""A node as a leader sees it: slots, jobs that it knows by their ids, and every way to fail.

It is a model of `docs/use/http.md`: a job that runs is 423, one that ended well is answered as often as it is asked
for, another request of its id is a conflict, no free slot is 503, a cancelled job ends. A request without an input
asks only for a job that is known. An envelope is refused by a node of an earlier version, and a refusal by a later one
says that it takes them. A node that was started anew has forgotten what ran, and what ended, or not, as its
kind is.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.sim.nodes.jobs import NodeWant, want_in

from wakugumi.core.ids import JobId
from wakugumi.core.leader.nodes.events import NodeReport
from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_S

if TYPE_CHECKING:
    from tests.sim.nodes.world import NodeWorld

STOPPED_S: Final = 1.0
"""A node that was stopped is back after this time: in the grace that its jobs have."""
TIMEOUT_S: Final = 600.0
"""A program that runs for ever ends after this time, if nobody cancels it: its leader may have died."""
FAST: Final = 1e9
"""Bytes of an answer per second."""
STEADY: Final = 2.0 * BODY_RECEIVED_MIN_BYTES / BODY_RECEIVED_MIN_S
"""An answer that comes slowly, and fast enough."""
DRIPS: Final = (0.0, 0.3 * STEADY)
"""Answers that stand still, or come too slowly; neither ends."""
TROUBLES: Final = ("500", "507", "nonsense", "half", "cut")


class NodeSays(NamedTuple):
    """An answer; status 0: the connection ends, for this reason."""

    status: int
    content: bytes = b""
    code: str = ""
    why: str = ""
    trouble: str = ""
    """Of a result on its way: `nonsense` or `half`."""
    pace: float = FAST
    """Of the answer, in bytes per second."""
    takes_envelopes: bool = False
    """Of a refused envelope, as its header says."""


Answers = Callable[[NodeSays], None]


class _JobThere:
    def __init__(self, payload: bytes, answer: Answers) -> None:
        self.payload = payload
        self.answer: Answers | None = answer
        self.result: bytes | None = None


class SimNode:
    """One node, over all its lives."""

    def __init__(self, world: NodeWorld, number: int, limit: int, *, keeps: bool) -> None:
        self.world = world
        self.name = f"node{number}"
        self.limit = limit
        self.keeps = keeps
        """Results survive its end."""
        self.takes_envelopes = world.versions.random() < 0.5
        self.was_replaced = False
        """By one of another version, once or more often."""
        self.alive = True
        self.life = 0
        self.refuses = self.hangs = self.is_paused = self.is_stopping = False
        self.lies = 0
        """Slots that it reports and has not."""
        self.has_lied = False
        self.slow_s = 0.0
        self.stalls = 0.0
        """Share of its answers that begin and do not end, while it answers polls."""
        self.forgets = 0.0
        """Share of questions that are never answered, on connections that never end."""
        self.fails = 0.0
        """Share of its answers that are wrong in some way."""
        self.has_failed = 0.0
        """It was once like this: cancels may have failed for good."""
        self.jobs: dict[JobId, _JobThere] = {}
        self.running: dict[JobId, None] = {}
        self.troubled_at = -1.0
        """When it was last in trouble."""
        self._arrived: list[tuple[Callable[[], None], Answers]] = []
        """Requests while it is paused."""
        self._dropped: list[Answers] = []
        """Connections that it forgot while it hung; they end when it goes on, or with it."""

    @property
    def is_well(self) -> bool:
        """One that stops and keeps its results is well: nothing needs to run again."""
        is_up = self.alive and not (self.refuses or self.hangs or self.is_paused)
        is_sick = self.lies or self.slow_s or self.fails or self.stalls or self.forgets
        return is_up and not is_sick and not (self.is_stopping and not self.keeps)

    def was_troubled_since(self, at: float) -> bool:
        return not self.is_well or self.troubled_at >= at

    # Its lives.

    def kill(self) -> None:
        if not self.alive:
            return
        if self.running or not self.keeps:
            self.troubled_at = self.world.clock.now
        self.alive = False
        self.life += 1
        for there in list(self.jobs.values()):
            if there.answer is not None:
                there.answer(NodeSays(0, why="dead"))
        kept = self.jobs.items() if self.keeps else ()
        self.jobs = {job: there for job, there in kept if there.result is not None}
        self.running.clear()
        self._dropped += [answer for _, answer in self._arrived]
        self._arrived.clear()
        self._cut_dropped()

    def start(self) -> None:
        if not self.alive:
            self.alive = True
            self.is_paused = self.is_stopping = self.hangs = False

    def stop(self) -> None:
        """It finishes its jobs, takes no new ones, and ends."""
        self.is_stopping = True
        self._look_at_the_end()

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self.troubled_at = self.world.clock.now
            arrived, self._arrived = self._arrived, []
            for page, _ in arrived:
                page()

    def heal(self) -> None:
        if not self.is_well:
            self.troubled_at = self.world.clock.now
        self.fails = self.slow_s = self.stalls = self.forgets = 0.0
        self.lies = 0
        self.refuses = self.hangs = False
        self._cut_dropped()
        self.resume()
        if self.is_stopping:
            self.kill()
        self.start()

    def befall(self, kind: str, random: Random, last_s: float) -> None:
        """A fault that lasts for so long."""
        later = self.world.clock.after
        match kind:
            case "node killed":
                self.kill()
                later(last_s, self.start)
            case "node stopped" if self.alive:
                self.stop()
            case "node paused" if self.alive:
                self.is_paused = True
                later(last_s, self.resume)
            case "node hangs":
                self.hangs = True
                later(last_s, self.heal)
            case "node refuses":
                self.refuses = True
                later(last_s, self.heal)
            case "node lies":
                self.lies = random.randint(1, 3)
                self.has_lied = True
            case "node slow":
                self.slow_s = 4.0 * random.random()
                later(last_s, self.heal)
            case "node stalls":
                self.stalls = 0.5
                later(last_s, self.heal)
            case "node forgets":
                self.forgets = 0.3
                later(last_s, self.heal)
            case "node fails":
                self.fails = self.has_failed = 0.3
            case _:
                pass

    def _cut_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        for answer in dropped:
            answer(NodeSays(0, why="dead"))

    # Its pages.

    def arrives(self, page: Callable[[], None], answer: Answers, *, is_question: bool) -> None:
        """A request comes. A question brings no input: it is answered at once, or never."""
        if not self.alive or self.refuses:
            answer(NodeSays(0, why="refused"))
        elif self.is_paused:
            self._arrived.append((page, answer))
        elif self.hangs:
            self._dropped.append(answer)
        elif not is_question or self.world.faults.random() >= self.forgets:
            page()

    def pace(self) -> float:
        """Of the next answer. Slow networks are no fault."""
        random = self.world.faults
        if random.random() < self.stalls:
            return random.choice(DRIPS)
        return STEADY if random.random() < self.world.slow_share else FAST

    def capacity(self) -> NodeReport:
        return NodeReport(len(self.running), self.limit + self.lies, takes_envelopes=self.takes_envelopes)

    def run(self, job: JobId, payload: bytes, answer: Answers, *, is_bare: bool, as_form: bool) -> None:
        """`POST /run/<job>`"""
        random, there = self.world.faults, self.jobs.get(job)
        trouble = random.choice(TROUBLES) if random.random() < self.fails else ""
        if trouble in {"500", "507"}:
            answer(NodeSays(int(trouble), code="disk" if trouble == "507" else "worker-error"))
        elif trouble == "cut" and random.random() < 0.5:
            answer(NodeSays(0, why="dead"))
        elif self.is_stopping:
            answer(NodeSays(503, code="stopping"))
        elif job in self.running:
            answer(NodeSays(423, code="running"))
        elif there is not None and there.result is not None and there.result.startswith(b"OK"):
            if there.payload != payload:
                answer(NodeSays(409, code="conflict"))
            else:
                answer(NodeSays(200, there.result, trouble=trouble, pace=self.pace()))
        elif len(self.running) >= self.limit:
            answer(NodeSays(503, code="busy"))
        elif is_bare:
            answer(NodeSays(400, code="bad-request"))
        elif not as_form and not self.takes_envelopes:
            self.world.judge.counts["envelopes not understood"] += 1
            answer(NodeSays(400, code="bad-request"))
        elif self.is_bad(payload):
            self.world.judge.refuses(job, self, as_form=as_form)
            answer(NodeSays(400, code="bad-request", takes_envelopes=not as_form))
        else:
            self.world.judge.counts["forms" if as_form else "envelopes"] += 1
            self._begin(job, payload, answer, trouble)

    def cancel(self, job: JobId, answer: Answers) -> None:
        """`DELETE /jobs/<job>`"""
        if self.world.faults.random() < self.fails:
            answer(NodeSays(500, code="worker-error"))
            return
        if job not in self.running:
            answer(NodeSays(404, code="unknown-job"))
            return
        there = self.jobs.pop(job)
        del self.running[job]
        if there.answer is not None:
            there.answer(NodeSays(410, code="cancelled"))
        answer(NodeSays(202))
        self._look_at_the_end()

    # Its programs.

    def want_in(self, payload: bytes) -> NodeWant:
        return want_in(payload)

    def is_bad(self, payload: bytes) -> bool:
        return want_in(payload).is_bad

    def _begin(self, job: JobId, payload: bytes, answer: Answers, trouble: str) -> None:
        there = self.jobs[job] = _JobThere(payload, answer)
        self.running[job] = None
        want, life = self.want_in(payload), self.life
        number = self.world.judge.runs(job, want, self)
        assert len(self.running) <= self.limit
        if trouble == "cut":
            there.answer = None
            answer(NodeSays(0, why="dead"))
        if want.is_poison:
            self.world.clock.after(want.takes_s, lambda: self._poisoned(job, there, life))
        else:
            status = b"FAILED|exit" if want.fails or want.is_endless else b"OK"
            result = b"|".join((status, payload, self.name.encode(), b"%d" % number))
            takes_s = TIMEOUT_S if want.is_endless else want.takes_s
            self.world.clock.after(takes_s, lambda: self._end(job, there, life, result, trouble))

    def _poisoned(self, job: JobId, there: _JobThere, life: int) -> None:
        if life == self.life and self.jobs.get(job) is there:
            self.kill()
            self.world.clock.after(1.0, self.start)

    def _end(self, job: JobId, there: _JobThere, life: int, result: bytes, trouble: str) -> None:
        if life != self.life or self.jobs.get(job) is not there:
            return
        if self.is_paused:
            self._arrived.append((lambda: self._end(job, there, life, result, trouble), lambda _: None))
            return
        del self.running[job]
        there.result = result
        answer, there.answer = there.answer, None
        if answer is not None and self.hangs:
            self._dropped.append(answer)
        elif answer is not None:
            answer(NodeSays(200, result, trouble=trouble, pace=self.pace()))
        self._look_at_the_end()

    def _look_at_the_end(self) -> None:
        if self.is_stopping and not self.running:
            self.kill()
            self.world.clock.after(STOPPED_S, self.start)
