"""Can programs be started here, and does the leader know if not?"""

from __future__ import annotations

from wakugumi.core.runner.credit import Credit
from wakugumi.core.runner.events import HealthChanged, Probe, SendResting, SlotsDo
from wakugumi.core.runner.health import MachineHealth
from wakugumi.core.runner.leader_line import LineToLeader
from wakugumi.limits.runner import PROBE_FIRST_S, PROBE_MAX_S

NOW = 1_000.0


class Machine:
    """Two slots, one of them offered, at a leader of our own."""

    def __init__(self, *, rests: bool = True) -> None:
        self.do: list[SlotsDo] = []
        self.line, self.credit = LineToLeader(), Credit(2)
        self.health = MachineHealth(self.line, self.credit, self.do)
        self.line.opened(NOW)
        self.line.welcomed(NOW)
        self.health.welcomed(rests=rests)
        self.credit.offer(1)
        self.credit.take_offered()
        self.credit.offer(1)

    def said(self) -> list[SlotsDo]:
        self.health.check()
        said = self.do.copy()
        self.do.clear()
        return said


def test_a_sick_machine_is_told_once_and_keeps_its_slots_until_it_is_well() -> None:
    machine = Machine()
    machine.health.fall_sick("disk", "full", NOW)
    machine.health.fall_sick("disk", "full", NOW)
    assert machine.said() == [HealthChanged("full"), SendResting("full")]
    assert (machine.credit.kept, machine.health.gives_back(), machine.health.unacknowledged) == (1, True, 1)
    machine.health.probed("", NOW)
    assert machine.said() == [HealthChanged(""), SendResting("")]
    assert machine.credit.kept == 1, "the leader has not said that it knows of the first"
    assert machine.health.acknowledged()
    machine.health.offer_kept()
    assert (machine.credit.kept, machine.credit.offered) == (0, 1)
    assert not machine.health.acknowledged()


def test_probes_are_further_and_further_apart() -> None:
    machine = Machine()
    machine.health.fall_sick("disk", "full", NOW)
    pauses = []
    for _ in range(20):
        pauses.append(machine.health.probe_at - NOW)
        machine.health.probe()
        machine.health.probed("full", NOW)
    assert pauses[:3] == [PROBE_FIRST_S, 2 * PROBE_FIRST_S, 4 * PROBE_FIRST_S]
    assert pauses[-1] == PROBE_MAX_S
    assert machine.said().count(Probe()) == 20


def test_a_leader_that_does_not_take_it_is_not_told_and_gets_no_job_back() -> None:
    machine = Machine(rests=False)
    machine.health.fall_sick("exit", "broken", NOW)
    assert machine.said() == [HealthChanged("broken")]
    assert not machine.health.gives_back()
    assert machine.health.code == "worker-error", "how the program ended says nothing of other jobs"


def test_the_next_leader_hears_of_it_when_it_comes() -> None:
    machine = Machine()
    machine.health.fall_sick("disk", "full", NOW)
    machine.line.lost()
    machine.credit.withdraw()
    machine.health.unlinked()
    machine.said()
    assert machine.credit.keeps
    machine.line.opened(NOW)
    machine.line.welcomed(NOW)
    machine.health.welcomed(rests=True)
    assert machine.said() == [SendResting("full")]


def test_a_machine_that_is_well_is_not_changed_by_a_probe() -> None:
    machine = Machine()
    machine.health.probed("late", NOW)
    assert machine.said() == []
    assert not machine.health.is_sick
