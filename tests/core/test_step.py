"""Every state machine has the same four doors, and a step asks for nothing unless it says so."""

from __future__ import annotations

import inspect

import pytest

from wakugumi.core.client.failover import Failover
from wakugumi.core.files.machine import FileDistribution
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.runner.slots import Slots
from wakugumi.core.step import Machine, Step

DOORS = ("handle", "tick", "wake_at", "check")


@pytest.mark.parametrize("machine", [LeaderMachine, FileDistribution, Slots, Failover])
@pytest.mark.parametrize("door", DOORS)
def test_a_machine_has_the_four_doors(machine: type, door: str) -> None:
    promised, made = inspect.signature(getattr(Machine, door)), inspect.signature(getattr(machine, door))
    assert [*made.parameters] == [*promised.parameters]


def test_a_step_asks_for_nothing_and_is_not_patient_by_itself() -> None:
    step: Step[object, object] = Step()
    assert (step.keep, step.do, step.at_once, step.patient) == ((), (), (), False)


def test_a_step_is_what_it_was_given() -> None:
    step = Step(["k"], ["d"], ["o"], patient=True)
    assert (step.keep, step.do, step.at_once, step.patient) == (["k"], ["d"], ["o"], True)
