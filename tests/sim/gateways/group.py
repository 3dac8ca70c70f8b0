"""A group as a gateway sees it: a leader with slots, that knows its jobs by their ids, and can fail in every way.

It is a model of `docs/operate/group.md`: the same id is run once and answered as often as it is asked for, another
request of the id is a conflict, a full queue is 503, a cancelled job ends. One that was started anew has forgotten its
jobs, or not, as its kind is. It takes files without a form, or forms only; another version may be put in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from wakugumi.core.gateway.groups import Capacity
from wakugumi.limits.gateway import GROUP_ANSWER_S, GROUP_MISSES_MAX, GROUP_POLL_S

if TYPE_CHECKING:
    from tests.sim.gateways.world import GatewayWorld


GONE_S: Final = (GROUP_MISSES_MAX + 1) * max(GROUP_POLL_S, GROUP_ANSWER_S) + GROUP_POLL_S
"""No job waits any more at a group that has hung for this long."""


class GroupSays(NamedTuple):
    """An answer to a job; status 0: the connection ends, for this reason."""

    status: int
    content: bytes = b""
    code: str = ""
    why: str = ""
    missing: int = 0
    """Bytes of the answer that never come."""


Answers = Callable[[GroupSays], None]


class _GroupJob:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.result: bytes | None = None
        self.is_queued = True
        self.waiting: list[Answers] = []


class Group:
    """One group, over all its lives."""

    def __init__(self, world: GatewayWorld, name: str, zone: str, slots: int, keeps: bool) -> None:
        self.world = world
        self.name = name
        self.zone = zone
        self.slots = slots
        self.keeps = keeps
        """A journal: it knows its jobs after it was started anew."""
        self.takes_files = world.versions.random() < 0.5
        """It understands a file without a form."""
        self.alive = True
        self.hangs = False
        """It takes connections, and says nothing."""
        self.hangs_since = 0.0
        self._unsaid: list[Callable[[], None]] = []
        """Answers that it has while it hangs."""
        self.limit = slots
        self.is_full = False
        self.fails = 0.0
        """Share of its answers that are wrong in some way."""
        self.jobs: dict[str, _GroupJob] = {}
        self.running = 0
        self.life = 0

    @property
    def queued(self) -> int:
        return sum(job.is_queued for job in self.jobs.values())

    @property
    def capacity(self) -> Capacity:
        free = max(0, self.limit - self.running - self.queued)
        return Capacity(self.running, self.limit, self.queued, free, self.takes_files)

    def kill(self) -> None:
        self.alive = self.hangs = False
        self.life += 1
        self._unsaid.clear()
        self.running = 0
        for name, job in list(self.jobs.items()):
            for answer in job.waiting:
                answer(GroupSays(0, why="dead"))
            job.waiting.clear()
            if job.result is None or not self.keeps:
                self.world.judge.excuse(name, "its group died")
                if job.result is None and self.keeps:
                    job.is_queued = True
                else:
                    del self.jobs[name]

    def start(self) -> None:
        self.alive = True
        self.is_full = False
        self.go_on()
        self.limit = self.slots
        self._fill()

    def hang(self) -> None:
        if not self.hangs:
            self.hangs, self.hangs_since = True, self.world.clock.now
            since = self.hangs_since
            self.world.clock.after(GONE_S, lambda: self._look(since))

    def go_on(self) -> None:
        self.hangs = False
        unsaid, self._unsaid = self._unsaid, []
        for say in unsaid:
            say()

    def _look(self, since: float) -> None:
        if self.hangs and self.hangs_since == since:
            self.world.judge.is_gone(self)
            self.world.clock.after(1.0, lambda: self._look(since))

    def _say(self, answer: Answers, says: GroupSays) -> None:
        if self.hangs:
            self._unsaid.append(lambda: answer(says))
        else:
            answer(says)

    def dispatch(self, name: str, body: bytes, answer: Answers, *, is_file: bool) -> None:
        """A job comes, or comes again; as a file without a form, or in its form."""
        random = self.world.faults
        if not self.alive:
            answer(GroupSays(0, why="refused"))
            return
        if is_file and not self.takes_files:
            answer(GroupSays(400, code="bad-request"))
            return
        answer = partial(self._say, answer)
        trouble = random.choice(["500", "dead", "302", "half", "423"]) if random.random() < self.fails else ""
        job = self.jobs.get(name)
        if job is not None and job.body != body:
            answer(GroupSays(409, code="conflict"))
        elif trouble == "500" or (trouble == "dead" and random.random() < 0.5):
            self.world.judge.excuse(name, f"{self.name} failed it")
            answer(GroupSays(500, code="worker-error") if trouble == "500" else GroupSays(0, why="dead"))
        elif job is None and (self.is_full or self.queued > 3 * self.slots):
            answer(GroupSays(503, code="full"))
        else:
            if trouble in {"302", "half", "dead"}:
                self.world.judge.excuse(name, f"{self.name} answered badly")
                answer = self._troubled(trouble, answer)
            if job is None:
                job = self.jobs[name] = _GroupJob(body)
            if job.result is not None:
                answer(GroupSays(200, job.result))
            elif trouble == "423" and not job.is_queued:
                answer(GroupSays(423, code="running"))
            elif not self.hangs:
                job.waiting.append(answer)
                self._fill()
            else:
                job.waiting.append(answer)

    def cancel(self, name: str) -> None:
        job = self.jobs.get(name)
        if self.alive and not self.hangs and job is not None and job.result is None:
            if not job.is_queued:
                self.running -= 1
            del self.jobs[name]
            self._fill()

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self._fill()

    def _fill(self) -> None:
        for name, job in list(self.jobs.items()):
            if self.alive and job.is_queued and self.running < self.limit:
                job.is_queued = False
                self.running += 1
                self._run(name, job, self.life)

    def _run(self, name: str, job: _GroupJob, life: int) -> None:
        number = self.world.judge.runs(name, self)
        result = f"{name} {job.body.decode()} {self.name} {number}".encode()

        def end() -> None:
            if life != self.life or self.jobs.get(name) is not job:
                return
            self.running -= 1
            job.result = result
            waiting, job.waiting = job.waiting, []
            for answer in waiting:
                answer(GroupSays(200, result))
            self._fill()

        self.world.clock.after(self.world.random.choice([0.05, 0.5, 2.0, 6.0]) * self.world.random.random(), end)

    def _troubled(self, trouble: str, answer: Answers) -> Answers:
        def bad(says: GroupSays) -> None:
            if says.status != 200:
                answer(says)
            elif trouble == "302":
                answer(GroupSays(302))
            elif trouble == "half":
                answer(says._replace(missing=7))
            else:
                answer(GroupSays(0, why="dead"))

        return bad
