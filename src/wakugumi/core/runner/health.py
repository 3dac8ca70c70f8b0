"""Can programs be started here, and does the leader know if not? (SPEC W9)

A machine is *sick* once a job failed by its fault, until a probe of its own finds that programs can be started. The
leader is told why; what it assigns until it knows that is given back, and then the credit that it still had is void.
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
    """While the machine is sick, or the leader has not said that it knows, what comes free is kept."""

    __slots__ = ("_can_tell", "_credit", "_do", "_line", "_pause_s", "code", "is_sick", "probe_at", "unknown", "why")

    def __init__(self, line: LineToLeader, credit: Credit, do: list[SlotsDo]) -> None:
        self._line = line
        self._credit = credit
        self._do = do
        self.is_sick = False
        self.code = ""
        self.why = ""
        """What is wrong, as a code of the error table and in words."""
        self.unknown = 0
        """So often the leader was told, and has not said that it knows: until then the credit that it has is not void,
        and it gets no other."""
        self._can_tell = False
        """The leader takes it."""
        self.probe_at = _NEVER
        self._pause_s = PROBE_FIRST_S

    def welcomed(self, *, rests: bool) -> None:
        """A leader came, and hears of a sick machine if it takes that."""
        self._can_tell = rests
        if self.is_sick:
            self._tell()

    def unlinked(self) -> None:
        self.unknown = 0
        self._can_tell = False
        self._credit.keeps = self.is_sick

    def fall_sick(self, code: str, why: str, now: float) -> None:
        """Nothing can be started here, or what was made cannot be kept."""
        news = self.why != why
        # How the program ended that broke the machine, say by its timeout, is not said of jobs that were not begun.
        self.code, self.why = code if code in MACHINE_FAULTS else "worker-error", why
        if self.probe_at == _NEVER and not self.is_sick:
            self._pause_s = PROBE_FIRST_S
            self.probe_at = now + PROBE_FIRST_S
        self._turn(sick=True)
        if news:
            self._do.append(ev.HealthChanged(why))
        if self._line.is_offered:
            self._credit.keep_unheard()
            if news:
                self._tell()

    def probe(self) -> None:
        """It is time to try."""
        self.probe_at = _NEVER
        self._do.append(ev.Probe())

    def probed(self, why: str, now: float) -> None:
        """A program could be started, or not: then `why`."""
        if not self.is_sick:
            return
        if why:
            if why != self.why:
                self.why = why
                self._do.append(ev.HealthChanged(why))
                self._tell()
            self._pause_s = min(2 * self._pause_s, PROBE_MAX_S)
            self.probe_at = now + self._pause_s
            return
        self._turn(sick=False)
        self.why = ""
        self._do.append(ev.HealthChanged(""))
        self._tell()
        self.offer_kept()

    def known(self) -> bool:
        """The leader says that it knows. False if it was not told."""
        if not self.unknown:
            return False
        self._turn(told=-1)
        return True

    def offer_kept(self) -> None:
        """The slots that are kept, unless they still have to be."""
        credit = self._credit
        if not credit.keeps:
            if self._line.is_offered:
                credit.offered += credit.kept
            credit.kept = 0

    def gives_back(self) -> bool:
        """A job would be tried in vain, and the leader takes it back. An old one counts that as an attempt."""
        return self.is_sick and self._line.kind is LeaderKind.OWN and self._can_tell

    def check(self) -> None:
        assert self._credit.keeps == (self.is_sick or self.unknown > 0)
        assert self.unknown >= 0
        assert self._line.listens or not self.unknown

    def _tell(self) -> None:
        if self._line.kind is LeaderKind.OWN and self._can_tell:
            self._do.append(ev.SendResting(self.why))
            self._turn(told=int(self.is_sick))

    def _turn(self, *, sick: bool | None = None, told: int = 0) -> None:
        """It is sick, or not; the leader was told, or knows."""
        if sick is not None:
            self.is_sick = sick
        self.unknown += told
        self._credit.keeps = self.is_sick or self.unknown > 0
