"""Was a job lost, answered twice differently, or run again without need, or was anything left behind at nodes?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.sim.checker import BROKEN, LEAKED, LOST, TWICE, Broken
from tests.sim.nodes.jobs import NodeWant
from tests.sim.nodes.node import STEADY

from wakugumi.core.ids import JobId
from wakugumi.core.leader.jobs.states import DONE
from wakugumi.core.leader.nodes.events import PollNode
from wakugumi.limits.leader import ATTEMPTS_MAX

if TYPE_CHECKING:
    from tests.sim.nodes.client import NodeClient
    from tests.sim.nodes.leader import AnswerOnItsWay, NodeLeader, NodePart
    from tests.sim.nodes.node import SimNode
    from tests.sim.nodes.world import NodeWorld
    from tests.sim.process import Process

POLLED_S = 80.0
"""A living leader asks each node more often than this."""
POISON_RUNS_MAX = 20 * ATTEMPTS_MAX
"""Runs of a job that ends its nodes: two requests in each attempt, and attempts anew after each end of a leader."""


class NodeJudge:
    """Of one world."""

    def __init__(self, world: NodeWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._runs: dict[JobId, list[tuple[float, SimNode]]] = {}
        self._answers: dict[tuple[str, JobId], bytes] = {}
        self._accepted: dict[tuple[str, JobId], None] = {}
        self._cancelled: set[JobId] = set()
        self._refused: dict[tuple[JobId, SimNode], float] = {}
        """When a node refused a job in an envelope."""

    def broken(self, job: JobId | None, what: str, sort: str = BROKEN) -> None:
        raise Broken(job, what, sort)

    def error(self, text: str) -> None:
        if not text.startswith("poll failed"):  # By a node that answers nonsense.
            self.broken(None, f"a node's machine failed: {text}")

    def complained(self, text: str) -> None:
        self.counts[f"complaint: {text}"] += 1

    def process_died(self, _process: Process) -> None:
        self.counts["leaders that died"] += 1

    def cancels(self, job: JobId) -> None:
        self.counts["jobs cancelled"] += 1
        self._cancelled.add(job)

    # Executions.

    def runs(self, job: JobId, want: NodeWant, node: SimNode) -> int:
        """The number of this run."""
        now, before = self._world.clock.now, self._runs.setdefault(job, [])
        self.counts["runs"] += 1
        if before:
            self.counts["runs again"] += 1
            since, last = before[-1]
            leaders = [client.leader for client in self._world.clients_of(job)]
            is_excused = (
                job in self._cancelled
                or self._world.is_shared(job)
                or len(set(leaders)) > 1
                or (want.fails and (len(leaders) > 1 or self._world.is_stormy))  # Submitted again, it runs again.
                or want.is_poison
                or last.was_troubled_since(since)
                or node.was_troubled_since(since)
            )
            if not is_excused:
                self.broken(job, f"{want} runs at {node.name}, and ran at {last.name} since {since:.3f}", TWICE)
        before.append((now, node))
        if want.is_poison and len(before) > POISON_RUNS_MAX * len(self._world.clients_of(job)):
            self.broken(job, f"{want} has ended {len(before)} nodes")
        return len(before)

    def refuses(self, job: JobId, node: SimNode, *, as_form: bool) -> None:
        """A node has read a job, and refuses it."""
        self.counts["jobs refused by a node"] += 1
        if not as_form:
            self._refused[job, node] = self._world.clock.now
            return
        since, leaders = self._refused.get((job, node)), self._world.leaders
        # A leader that was started anew may have lost the refusal, and has not asked yet what its node takes.
        if since is None or node.was_replaced or any(leader.was_troubled_since(since) for leader in leaders):
            return
        self.broken(job, f"{node.name} refused the job in an envelope, and gets it as a form", TWICE)

    # Answers.

    def cut_off(self, part: NodePart, job: JobId, answer: AnswerOnItsWay) -> None:
        """The leader waits no longer for an answer on its way."""
        self.counts["answers cut off"] += 1
        is_excused = (
            job in self._cancelled
            or answer.pace < STEADY
            or part.node.was_troubled_since(answer.asked_at)
            or part.leader.was_troubled_since(answer.asked_at)
        )
        if not is_excused:
            self.broken(job, f"{part.name} cuts off an answer that comes steadily")

    def accepted(self, client: NodeClient, jobs: tuple[JobId, ...]) -> None:
        for job in jobs:
            if (client.name, job) not in self._accepted:
                self.counts["jobs accepted"] += 1
                self._accepted[client.name, job] = None

    def answered(self, client: NodeClient, job: JobId, result: bytes) -> None:
        self.counts["answers"] += 1
        known = self._answers.setdefault((client.name, job), result)
        if known != result:
            self.broken(job, f"{client.name} was answered {known!r} and {result!r}", TWICE)
        want = client.open.get(job)
        if want is None:
            return
        status, _, rest = result.partition(b"|")
        if rest.startswith(want.payload) if status == b"OK" else rest.startswith(b"exit|" + want.payload):
            return
        code = rest.decode(errors="replace").partition("|")[0]
        self.counts[f"failed: {code}"] += 1
        if code == "cancelled" and job in self._cancelled:
            return
        if code == "conflict" and self._world.is_shared(job):
            return
        if code == "bad-request" and want.is_bad:
            return
        if not self._world.is_stormy or code in {"cancelled", "conflict", "bad-request"} or status == b"OK":
            self.broken(job, f"{want} was answered {result!r}")

    def refused(self, client: NodeClient, job: JobId, code: str) -> None:
        self.counts[f"refused: {code}"] += 1
        if code != "conflict" or not self._world.is_shared(job):
            self.broken(job, f"{client.name} was refused job{int.from_bytes(job, 'big')}: {code}")

    # The end.

    def look_at_the_end(self) -> None:
        world = self._world
        for client in world.clients:
            for job, want in client.open.items():
                self.broken(job, f"{want} has no answer", LOST)
        for leader in world.leaders:
            for record in leader.machine.jobs.values():
                if record.state is not DONE:
                    self.broken(record.id, f"{leader.name} has a job that is {record.state}", LOST)
            for part in leader.nodes:
                self.look_at_part(leader, part)
        for node in world.nodes:
            for job in node.running:
                if not any(leader.was_troubled_since(0.0) for leader in world.leaders) and not node.has_failed:
                    self.broken(job, f"{node.name} runs what nobody wants any more", LEAKED)
                self.counts["unwanted jobs that run on"] += 1

    def look_at_part(self, leader: NodeLeader, part: NodePart) -> None:
        machine, node = part.machine, part.node
        worker = leader.machine.roster.by_id[part.at.worker]
        left = {
            "jobs": len(machine.jobs.running),
            "exchanges": machine.jobs.exchanges + len(part.exchanges),
            "unwanted": len(machine.unwanted),
            "flows": machine.flows - 1,
            "acts": sum(not isinstance(act, PollNode) for act in part.waiting.values()),
            "jobs at the leader": len(worker.jobs),
        }
        if any(left.values()):
            self.broken(None, f"{part.name} has left {left}", LEAKED)
        if self._world.clock.now - part.polled_at > POLLED_S:
            self.broken(None, f"{part.name} asks no more")
        if machine.health.rests or worker.rests:
            self.broken(None, f"{part.name} rests: {machine.health.rests or worker.rests}")
        free = node.limit - len(node.running)
        # A node that lied may still have credit for slots that it has not: its next jobs show that.
        most = node.limit + 9 * node.has_lied
        if worker.credit != machine.health.offered or not free <= worker.credit <= most:
            text = f"the leader has {worker.credit}, the machine offered {machine.health.offered}, {free} are free"
            self.broken(None, f"{part.name} loses slots: {text}", LEAKED)
