"""A worker as a simulated process: the real deliveries machine, with results that are owed to leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.transfers.place import File
from tests.sim.transfers.sender import Heard, Line, Sender

from wakugumi.core.flows import Abandon, ActFailed, Perform
from wakugumi.core.ids import JobId
from wakugumi.core.transfers import deliveries as dv
from wakugumi.core.transfers.transfers import PutBlob, PutEnd
from wakugumi.errors import Lost, Refused

if TYPE_CHECKING:
    from tests.sim.transfers.leader import AskingLeader
    from tests.sim.transfers.world import TransferWorld


class SimResult:
    """A finished job."""

    def __init__(self, number: int, parts: dict[str, File]) -> None:
        self.job = JobId(bytes(8) + number.to_bytes(8, "big"))
        self.parts = parts
        self.outcome = ""

    def __repr__(self) -> str:
        return f"result{int.from_bytes(self.job, 'big')}"


class DeliveringWorker(Sender):
    """One worker. Its results are on its disk, and outlive it."""

    kind = "worker"
    deliveries: dv.DeliveriesMachine

    def __init__(self, world: TransferWorld, number: int) -> None:
        super().__init__(world, f"worker{number}", dv.AT_ONCE)
        self.results: dict[JobId, SimResult] = {}
        self.asked: dict[JobId, dict[str, float]] = {}
        """Blobs that the machine knows to be asked for since the result was sent, and when they were missing."""
        self.line: Line | None = None
        self.has_no_threads = False

    def born(self) -> None:
        self.deliveries = dv.DeliveriesMachine(self.clock.now, self.random.random)
        self.machine = Heard(self.deliveries, self._heard)
        self.asked = {}
        self.line = None
        self.later(3.0, self._dial)

    def has_work(self) -> bool:
        return bool(self.deliveries.under_way)

    def died(self, power: bool) -> None:
        super().died(power)
        self.here.judge.new_streak(self.name)
        self.line = None

    def _dial(self) -> None:
        leader: AskingLeader = self.random.choice(self.here.leaders)
        if not leader.is_alive or leader.is_old:
            self.later(5.0, self._dial)
            return
        line = self.line = self.open_line(leader)
        line.to_sender(lambda: self._welcome(line))

    def _welcome(self, line: Line) -> None:
        self.here.judge.new_streak(self.name)
        self.post(dv.PlaceKnown(line.place.url))
        for result in self.results.values():
            self._ack(result)

    def lost(self, line: Line) -> None:
        del self.lines[line.conn]
        self.line = None
        self.here.judge.new_streak(self.name)
        self.post(dv.PlaceLost())
        self.later(5.0, self._dial)

    def finish(self, result: SimResult) -> None:
        self.results[result.job] = result
        self._ack(result)

    def _ack(self, result: SimResult) -> None:
        line = self.line
        if line is None or result.outcome:
            return
        parts = [] if result.outcome else list(result.parts)
        line.to_leader(lambda: line.leader.acked(line, self, result.job, parts))

    def settled(self, job: JobId, outcome: str) -> None:
        result = self.results[job]
        if not result.outcome:
            result.outcome = outcome
            self.here.judge.counts[f"results: {outcome}"] += 1
        self.post(dv.ResultsSettled([job]))

    # The machine.

    def _heard(self, event: Any) -> None:
        match event:
            case dv.PartsAsked(job, blobs):
                self.asked.setdefault(job, {}).update(dict.fromkeys(blobs, self.asked_at(event)))
            case dv.ResultsSettled(jobs):
                self.here.judge.new_streak(self.name)
                for job in jobs:
                    self.asked.pop(job, None)
            case dv.PlaceLost():
                self.asked.clear()

    def do(self, effect: Any) -> None:
        match effect:
            case Perform(number, PutBlob() as act):
                assert isinstance(act.blob, File)
                self.put(number, act, act.blob)
                self.here.judge.large(self)
            case Perform(number, dv.LoadParts(job)):
                self.later(0.5, lambda: self._load(number, job))
            case Abandon(number):
                self.abandon(number)
            case dv.ResendResult(job):
                self.here.judge.resent(self, self.results[job])
                self._ack(self.results[job])
            case dv.DeliveryFailed(job, no):
                self._failed(self.results[job], no)

    def translated(self, end: PutEnd) -> PutEnd:
        """A file that is gone is a failure that the role does not foresee."""
        return end

    def _load(self, number: int, job: JobId) -> None:
        result = self.results.get(job)
        if self.has_no_threads:
            self.post(ActFailed(number, Lost("no thread can be started")))
        elif result is None or any(file.state == "gone" for file in result.parts.values()):
            self.answer(number, None)
        else:
            self.answer(number, dv.LoadedResult(b"payload", b"request", result.parts))

    def _failed(self, result: SimResult, no: Refused) -> None:
        self.here.judge.not_delivered(self, result, no)
        if not result.outcome:
            result.outcome = f"failed: {no.code}"
            self.here.judge.counts[f"results: {result.outcome}"] += 1
