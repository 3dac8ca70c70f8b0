"""Which faults does a drill plan, and when?"""

from __future__ import annotations

import random

import msgspec
import pytest

from wakugumi.app.drill.fleet import leader_of
from wakugumi.app.drill.plan import DrillOptions, ahead, plan

WANTED = DrillOptions(
    jobs=1000,
    leaders=1,
    workers=3,
    slots=4,
    kinds=("leader", "worker"),
    times=40,
    stops=8,
    freeze_s=0,
    away_s=0.5,
    job_ms=20,
    seed=1,
    patience_s=60,
    keep=False,
    memory=False,
    output="table",
)


def test_one_seed_is_one_plan() -> None:
    one, same, other = (plan(WANTED, random.Random(seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_the_faults_are_as_many_as_wanted_and_meet_work_to_the_end() -> None:
    faults = plan(WANTED, random.Random(3))
    assert [sum(fault.kill for fault in faults), sum(not fault.kill for fault in faults)] == [40, 8]
    assert {fault.kind for fault in faults} == {"leader", "worker"}
    assert all(0 <= fault.away_s <= 0.5 for fault in faults)
    after = [fault.after for fault in faults]
    assert after == sorted(after)
    assert after[0] < 50
    assert 800 < after[-1] <= WANTED.jobs - ahead(WANTED)


def test_a_leader_is_frozen_half_way() -> None:
    faults = plan(msgspec.structs.replace(WANTED, leaders=3, freeze_s=30), random.Random(3))
    (freeze,) = [fault for fault in faults if fault.freeze]
    assert (freeze.kind, freeze.kill, freeze.away_s) == ("leader", False, 30)
    assert 300 < freeze.after < 700
    assert [fault.after for fault in faults] == sorted(fault.after for fault in faults)


def test_workers_are_dealt_out_to_leaders_in_turn() -> None:
    assert [leader_of(f"worker-{number}", 3) for number in (1, 2, 3, 4)] == [
        "leader-1",
        "leader-2",
        "leader-3",
        "leader-1",
    ]
    assert leader_of("worker-2", 1) == "leader"


def test_only_workers_have_guardians_to_be_killed() -> None:
    faults = plan(msgspec.structs.replace(WANTED, times=200), random.Random(4))
    assert {(fault.kind, fault.kill) for fault in faults if fault.guardian} == {("worker", True)}


@pytest.mark.parametrize("jobs", [1, 2, 10, 60, 5000])
def test_however_few_the_jobs_there_is_a_plan(jobs: int) -> None:
    wanted = msgspec.structs.replace(WANTED, jobs=jobs)
    assert 0 <= ahead(wanted) < jobs
    assert all(fault.after < jobs for fault in plan(wanted, random.Random(5)))
