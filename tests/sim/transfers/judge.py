"""Was a job sent before its blobs were there, refused without a cause, forgotten, or anything left behind?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.sim.checker import Broken

from wakugumi.core.ids import ConnId, JobId
from wakugumi.errors import Refused
from wakugumi.limits.files import LARGE_TRANSFERS_MAX, UPLOAD_BROKEN_MAX, UPLOAD_UNREACHED_S
from wakugumi.limits.runner import LARGE_WORK_BYTES

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.transfers.client import SimJob, UploadingClient
    from tests.sim.transfers.place import File, Place
    from tests.sim.transfers.sender import Line
    from tests.sim.transfers.worker import DeliveringWorker, SimResult
    from tests.sim.transfers.world import TransferWorld


SPAN_S = 10.0
PUTS_MAX = 8
"""Puts of one blob by one sender in a span, for each job: a job that finds no room begins anew."""


class TransferJudge:
    """Of one world."""

    def __init__(self, world: TransferWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._moved: Counter[tuple[str, str]] = Counter()
        """Puts that moved bytes, by place and content."""
        self._moved_at: dict[tuple[str, str, str], float] = {}
        self._broke: Counter[tuple[str, str, str]] = Counter()
        self._streaks: Counter[tuple[str, str, File]] = Counter()
        """Broken arrivals of a file since its transfer may have begun."""
        self._causes: set[str] = set()
        """Faults that explain a refusal: they have met a put or a question."""
        self._puts: Counter[tuple[str, str, str, int]] = Counter()
        """Puts in each span of time."""

    def broken(self, what: str, job: bytes | None = None) -> None:
        raise Broken(None if job is None else JobId(job), what)

    def process_died(self, _process: Process) -> None:
        self.counts["processes that died"] += 1

    # Places and leaders.

    def bytes_move(self, sender: str, place: Place, sha256: str) -> None:
        row = place.url, sha256
        self._moved[row] += 1
        self._moved_at[sender, place.url, sha256] = self._world.clock.now
        self.counts["puts that moved bytes"] += 1
        if self._moved[row] > 1 and not self._world.is_stormy:
            self.broken(f"{sender} sends {sha256} to {place.url} again without need")

    def broke(self, sender: str, place: Place, file: File) -> None:
        self._broke[sender, place.url, file.sha256] += 1
        row = sender, place.url, file
        self._streaks[row] += 1
        if self._streaks[row] > UPLOAD_BROKEN_MAX:
            self.broken(f"{sender} sends {file.sha256} to {place.url}, where it arrives broken, for ever")

    def new_streak(self, sender: str) -> None:
        """A transfer of this sender may begin anew."""
        for row in [row for row in self._streaks if row[0] == sender]:
            del self._streaks[row]

    def caused(self, what: str) -> None:
        self._causes.add(what)

    def put(self, sender: str, url: str, sha256: str) -> None:
        self.counts["puts"] += 1
        row = sender, url, sha256, int(self._world.clock.now / SPAN_S)
        self._puts[row] += 1
        if self._puts[row] > PUTS_MAX * self._world.jobs_made:
            self.broken(f"{sender} sends {sha256} to {url} again and again without a pause")

    def _are_there(self, place: Place, asked: dict[str, float]) -> str:
        """The first content that is not there, and was not lost since it was asked for."""
        for sha256, at in asked.items():
            if sha256 not in place.blobs and place.lost.get(sha256, -1.0) < at:
                return sha256
        return ""

    # Clients.

    def sent(self, client: UploadingClient, line: Line, job: SimJob) -> None:
        row = line.conn, job.about
        self.counts["jobs sent"] += 1
        if job.outcome and job.outcome != "done" and not job.is_cancelled and job.about not in client.uploads.jobs:
            self.broken(f"{job} is sent to {line.leader.name} after its end", job.about)
        if row in client.due:
            client.due.discard(row)
            return
        asked = client.asked.pop(row, None)
        if asked is None:
            self.broken(f"{job} is sent to {line.leader.name} although no leader asks for it", job.about)
        elif missing := self._are_there(line.place, asked):
            self.broken(f"{job} is sent again, and {missing} is not at {line.place.url}", job.about)
        self.counts["jobs sent again"] += 1

    def refused(self, client: UploadingClient, conn: ConnId, job: SimJob, no: Refused) -> None:
        self.counts[f"refusals: {no.code}"] += 1
        self.new_streak(client.name)
        if not self._world.is_stormy and not (no.code == "cancelled" and job.is_cancelled):
            self.broken(f"{job} is refused in a calm world: {no}", job.about)
        line = client.lines.get(conn)
        if line is None:
            return
        rows = [(client.name, line.place.url, sha256) for sha256 in job.blobs]
        is_right = {
            "cancelled": job.is_cancelled,
            "bad-request": any(blob.file.state != "whole" for blob in job.blobs.values()),
            "no-blob": "leader raves" in self._causes
            or self.counts["fault: place loses"] + self.counts["fault: leader asks twice"] > 0,
            "disk-full": "full" in self._causes,
            "worker-error": "place raves" in self._causes,
            "blob-broken": any(self._broke[row] >= UPLOAD_BROKEN_MAX for row in rows),
            "no-leader": any(
                self._world.clock.now - self._moved_at.get(row, 0.0) >= UPLOAD_UNREACHED_S for row in rows
            ),
        }
        if not is_right.get(no.code, False):
            self.broken(f"{job} is refused without a cause: {no}", job.about)

    # Workers.

    def large(self, worker: DeliveringWorker) -> None:
        if sum(put.file.size > LARGE_WORK_BYTES for put in worker.puts.values()) > LARGE_TRANSFERS_MAX:
            self.broken(f"{worker.name} sends too many large parts at once")

    def resent(self, worker: DeliveringWorker, result: SimResult) -> None:
        self.counts["results sent again"] += 1
        asked = worker.asked.pop(result.job, None)
        line = worker.line
        if asked is None:
            if line is not None and self._world.is_stormy is False:
                self.broken(f"{result} is sent again although no leader asks for it", result.job)
        elif line is not None and (missing := self._are_there(line.place, asked)):
            self.broken(f"{result} is sent again, and {missing} is not at {line.place.url}", result.job)

    def not_delivered(self, worker: DeliveringWorker, result: SimResult, no: Refused) -> None:
        self.counts[f"failed deliveries: {no.code}"] += 1
        self.new_streak(worker.name)
        files = result.parts.values()
        rows = [(worker.name, place.url, file.sha256) for file in files for place in self._world.places]
        is_right = {
            "bad-request": any(file.state != "whole" for file in files),
            "worker-error": self._world.is_stormy,
            "blob-broken": any(self._broke[row] >= UPLOAD_BROKEN_MAX for row in rows),
        }
        if not is_right.get(no.code, False):
            self.broken(f"{result} is not delivered without a cause: {no}", result.job)

    # The end.

    def look_at_the_end(self) -> None:
        world = self._world
        for client in world.clients:
            for job in client.jobs.values():
                if not job.outcome:
                    self.broken(f"{job} of {client.name} is neither sent nor refused", job.about)
            machine = client.uploads
            self._look(client.name, {
                "jobs": len(machine.jobs), "transfers": len(machine.transfers.by_key), "flows": machine.flows_open,
                "turns": machine.turns.taken, "bytes in memory": machine.held_bytes, "puts": len(client.puts),
                "timers": int(machine.wake_at() is not None),
            })  # fmt: skip
            machine.close()
        for worker in world.workers:
            for result in worker.results.values():
                if not result.outcome:
                    self.broken(f"{result} of {worker.name} is owed", result.job)
            deliveries = worker.deliveries
            self._look(worker.name, {
                "results": len(deliveries.under_way), "transfers": len(deliveries.transfers.by_key),
                "flows": deliveries.flows_open, "turns": deliveries.turns.taken + deliveries.large_turns.taken,
                "puts": len(worker.puts), "timers": int(deliveries.wake_at() is not None),
            })  # fmt: skip
            deliveries.close()

    def _look(self, name: str, left: dict[str, int]) -> None:
        if any(left.values()):
            self.broken(f"{name} has left {left}")
