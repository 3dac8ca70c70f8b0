"""A gateway's machine without a world: rows in a dictionary, every act answered by a function that a test may replace.

`GatewayRows` is a store as the interface wants it, with a clock that is handed in. `GatewayDesk` performs what the
machine asks for, one act after the other, until all flows rest; time passes when a test says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from wakugumi.core.flows import Abandon, Act, ActFailed, Answered, Perform
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.groups import Capacity, GroupAt, Groups
from wakugumi.core.gateway.machine import GatewayMachine
from wakugumi.core.gateway.rows import QUEUED, RUNNING, GatewayJob, OpenJob, Totals
from wakugumi.core.gateway.state import GatewayBounds
from wakugumi.core.ids import JobId
from wakugumi.core.step import LogLine, Step


class GatewayRows:
    """The rows that gateways share."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.rows: dict[JobId, GatewayJob] = {}
        self.leases: dict[str, float] = {}

    def get(self, job: JobId) -> GatewayJob | None:
        return self.rows.get(job)

    def add(self, row: GatewayJob) -> tuple[GatewayJob, bool]:
        if (found := self.rows.get(row.job)) is not None:
            return found, False
        now = self.clock()
        self.rows[row.job] = new = replace(row, version=1, accepted_at=now, changed_at=now)
        return new, True

    def replace(self, old: GatewayJob, new: GatewayJob) -> GatewayJob | None:
        found = self.rows.get(old.job)
        if found is None or found.version != old.version:
            return None
        accepted_at = old.accepted_at
        new = replace(new, version=old.version + 1, accepted_at=accepted_at, changed_at=self.clock())
        self.rows[old.job] = new
        return new

    def remove(self, row: GatewayJob) -> bool:
        found = self.rows.get(row.job)
        if found is None or found.version != row.version:
            return False
        del self.rows[row.job]
        return True

    def hold(self, owner: str, lease_s: float) -> None:
        self.leases[owner] = self.clock() + lease_s

    def release(self, owner: str) -> None:
        self.leases.pop(owner, None)

    def is_held(self, owner: str) -> bool:
        return self.leases.get(owner, -1.0) >= self.clock()

    def orphans(self, most: int, but: str) -> list[JobId]:
        rows = [row for row in self._open() if row.owner != but and not self.is_held(row.owner)]
        return [row.job for row in rows[:most]]

    def open_jobs(self, owner: str, most: int, after: OpenJob | None) -> list[OpenJob]:
        found = [OpenJob(row.accepted_at, row.job) for row in self._open() if row.owner == owner]
        return [one for one in found if after is None or one > after][:most]

    def oldest(self, most: int, age_s: float | None) -> list[GatewayJob]:
        rows = [row for row in self.rows.values() if row.is_final]
        if age_s is not None:
            rows = [row for row in rows if row.changed_at <= self.clock() - age_s]
        return sorted(rows, key=lambda row: (row.changed_at, row.job))[:most]

    def totals(self) -> Totals:
        rows = self.rows.values()
        ended = [row for row in rows if row.is_final]
        return Totals(
            sum(row.state == QUEUED for row in rows),
            sum(row.state == RUNNING for row in rows),
            len(ended),
            sum(row.answer.size for row in ended if row.answer is not None),
            sum(row.body.size for row in rows if not row.is_final and row.body is not None),
        )

    def _open(self) -> list[GatewayJob]:
        rows = [row for row in self.rows.values() if not row.is_final]
        return sorted(rows, key=lambda row: (row.accepted_at, row.job))


class GatewayDesk:
    """One machine, and the hands that it has. An answer that is an exception is a failure of the act."""

    def __init__(self, owner: str = "me", *, groups: tuple[str, ...] = ("a",), **bounds: Any) -> None:
        self.now = 1_000.0
        self.rows = GatewayRows(lambda: self.now)
        self.files: set[str] = set()
        self.asked: list[Act[Any]] = []
        self.effects: list[Any] = []
        self.never: set[type[Act[Any]]] = {ev.Dispatch}
        """Acts that are not answered."""
        self.unanswered: dict[int, Act[Any]] = {}
        self.machine = GatewayMachine(
            owner,
            Groups([GroupAt(name, f"http://{name}:1") for name in groups]),
            GatewayBounds(**bounds),
            job_s_of=lambda _query: 60.0,
            chance=lambda: 0.5,
            now=self.now,
        )
        rows = self.rows
        self.answers: dict[type[Act[Any]], Callable[[Any], Any]] = {
            ev.GetRow: lambda act: rows.get(act.job),
            ev.AddRow: lambda act: rows.add(act.row),
            ev.ReplaceRow: lambda act: rows.replace(act.old, act.new),
            ev.RemoveRow: lambda act: rows.remove(act.row),
            ev.FlushRows: lambda _: None,
            ev.HoldLease: lambda act: rows.hold(owner, act.lease_s),
            ev.IsHeld: lambda act: rows.is_held(act.owner),
            ev.FindOrphans: lambda act: rows.orphans(act.most, owner),
            ev.FindOpen: lambda act: rows.open_jobs(owner, act.most, act.after),
            ev.FindOldest: lambda act: rows.oldest(act.most, act.age_s),
            ev.CountRows: lambda _: rows.totals(),
            ev.TidyStore: lambda _: None,
            ev.ListFiles: lambda _: [(name, JobId(bytes.fromhex(name.partition("-")[0]))) for name in self.files],
            ev.RemoveFiles: lambda act: self.files.difference_update(act.names),
            ev.PollGroup: lambda _: Capacity(0, 8, 0, 8),
            ev.FindGone: lambda _: (),
            ev.CancelAt: lambda _: None,
            ev.SinceMoved: lambda _: 1e9,
        }

    def hear(self, *events: ev.GatewayEvent) -> None:
        self._perform(self.machine.handle(events, self.now))

    def run(self, work: Callable[[], Awaitable[object]]) -> object:
        """Runs this beside the machine's own flows, until it ends or rests. Returns its result; raises its error."""
        ended: list[object] = []

        async def noted() -> None:
            try:
                ended.append(await work())
            except Exception as error:
                ended.append(error)

        self.machine.state.flows.start(noted, "test")
        self._perform(self.machine.tick(self.now))
        assert ended, "it waits"
        if isinstance(ended[0], Exception):
            raise ended[0]
        return ended[0]

    def wait(self, seconds: float) -> None:
        """Time passes, and each timer rings at its time."""
        until = self.now + seconds
        while (at := self.machine.wake_at()) is not None and at <= until:
            self.now = max(self.now, at)
            self._perform(self.machine.tick(self.now))
        self.now = until

    def asked_for(self, kind: type[Act[Any]]) -> list[Any]:
        return [act for act in self.asked if type(act) is kind]

    def effects_of(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in self.effects if type(effect) is kind]

    @property
    def log(self) -> list[str]:
        return [line.text for line in self.effects_of(LogLine)]

    def _perform(self, step: Step[None, ev.GatewayDo]) -> None:
        waiting = deque(step.do)
        while waiting:
            effect = waiting.popleft()
            if isinstance(effect, Abandon):
                self.unanswered.pop(effect.number, None)
            elif not isinstance(effect, Perform):
                self.effects.append(effect)
            else:
                self.asked.append(effect.act)
                if type(effect.act) in self.never:
                    self.unanswered[effect.number] = effect.act
                    continue
                try:
                    event: Answered | ActFailed = Answered(effect.number, self.answers[type(effect.act)](effect.act))
                except Exception as error:
                    event = ActFailed(effect.number, error)
                waiting += self.machine.handle([event], self.now).do
        self.machine.check()
