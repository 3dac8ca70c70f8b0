"""Can programs be started here, and does the leader know if not? (SPEC W9)

A machine is *sick* from a job that fails by the machine's fault until a probe starts a program. The leader gets the
reason; jobs that it assigns before it acknowledges are given back, and then the rest of its credit is void.
"""

from __future__ import annotations

from typing import Final

from wakugumi.core.ids import MACHINE_FAULTS
from wakugumi.core.runner import events as ev
from wakugumi.core.runner.credit import Credit
from wakugumi.core.runner.events import SlotsDo
from wakugumi.core.runner.leader_line import LeaderKind, LineToLeader
from wakugumi.limits.runner import PROBE_FIRST_S, PROBE_MAX_S

_NEVER: Final = float("inf")


class MachineHealth:
    """While the machine is sick, or the leader has not acknowledged, freed slots are kept."""

    __slots__ = (
        "_credit",
        "_do",
        "_line",
        "_pause_s",
        "_takes_reports",
        "code",
        "is_sick",
        "probe_at",
        "unacknowledged",
        "why",
    )

    def __init__(self, line: LineToLeader, credit: Credit, do: list[SlotsDo]) -> None:
        self._line = line
        self._credit = credit
        self._do = do
        self.is_sick = False
        self.code = ""
        self.why = ""
        """The fault in words; `code` is its code in the error table."""
        self.unacknowledged = 0
        """Reports that the leader has not acknowledged. Until then its credit is not void, and it gets no more."""
        self._takes_reports = False
        """The leader understands reports of a sick machine."""
        self.probe_at = _NEVER
        self._pause_s = PROBE_FIRST_S

    def welcomed(self, *, rests: bool) -> None:
        """A leader has greeted, and gets a report if the machine is sick."""
        self._takes_reports = rests
        if self.is_sick:
            self._report()

    def unlinked(self) -> None:
        self.unacknowledged = 0
        self._takes_reports = False
        self._credit.keeps = self.is_sick

    def fall_sick(self, code: str, why: str, now: float) -> None:
        """No program can be started here, or results cannot be stored."""
        news = self.why != why
        # The code of the job that revealed the fault, say a timeout, does not apply to jobs that were not begun.
        self.code, self.why = code if code in MACHINE_FAULTS else "worker-error", why
        if self.probe_at == _NEVER and not self.is_sick:
            self._pause_s = PROBE_FIRST_S
            self.probe_at = now + PROBE_FIRST_S
        self._turn(sick=True)
        if news:
            self._do.append(ev.HealthChanged(why))
        if self._line.is_offered:
            self._credit.keep_unsent()
            if news:
                self._report()

    def probe(self) -> None:
        """The pause is over."""
        self.probe_at = _NEVER
        self._do.append(ev.Probe())

    def probed(self, why: str, now: float) -> None:
        """A program could be started, unless there is a reason `why` not."""
        if not self.is_sick:
            return
        if why:
            if why != self.why:
                self.why = why
                self._do.append(ev.HealthChanged(why))
                self._report()
            self._pause_s = min(2 * self._pause_s, PROBE_MAX_S)
            self.probe_at = now + self._pause_s
            return
        self._turn(sick=False)
        self.why = ""
        self._do.append(ev.HealthChanged(""))
        self._report()
        self.offer_kept()

    def acknowledged(self) -> bool:
        """The leader acknowledges. False if there was no report."""
        if not self.unacknowledged:
            return False
        self._turn(reports=-1)
        return True

    def offer_kept(self) -> None:
        """Offer kept slots, unless there is still a reason to keep them."""
        credit = self._credit
        if not credit.keeps:
            if self._line.is_offered:
                credit.offered += credit.kept
            credit.kept = 0

    def gives_back(self) -> bool:
        """A job would fail here, and the leader takes it back. An old leader would count that as an attempt."""
        return self.is_sick and self._line.kind is LeaderKind.OWN and self._takes_reports

    def check(self) -> None:
        assert self._credit.keeps == (self.is_sick or self.unacknowledged > 0)
        assert self.unacknowledged >= 0
        assert self._line.listens or not self.unacknowledged

    def _report(self) -> None:
        if self._line.kind is LeaderKind.OWN and self._takes_reports:
            self._do.append(ev.SendResting(self.why))
            self._turn(reports=int(self.is_sick))

    def _turn(self, *, sick: bool | None = None, reports: int = 0) -> None:
        """The machine falls sick or recovers; `reports`: reports sent, or -1 for an acknowledged one."""
        if sick is not None:
            self.is_sick = sick
        self.unacknowledged += reports
        self._credit.keeps = self.is_sick or self.unacknowledged > 0
