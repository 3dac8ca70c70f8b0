"""The jobs of one turn: what comes in goes out in its order, and none is counted twice or lost."""

from __future__ import annotations

from random import Random

import pytest

from wakugumi.core.ids import ClientId, JobId, WorkerId
from wakugumi.core.leader.jobs.states import JobState
from wakugumi.core.leader.records import ClientRecord, JobRecord, Lane, Turn
from wakugumi.core.leader.scheduling import turn_jobs
from wakugumi.core.requirements import Requirements
from wakugumi.core.subject import parse_subject
from wakugumi.limits.scheduling import PRIORITY_AGE_S

SUBJECT = parse_subject("job.assign.x")
CLIENT = ClientRecord(ClientId("c"))


def a_turn(*, sticky: bool = False) -> Turn:
    return Turn(Lane(SUBJECT, [], sticky=sticky), CLIENT)


def a_job(name: str, requirements: Requirements | None = None, *, since: float = 0.0) -> JobRecord:
    return JobRecord(
        JobId(name.encode().ljust(16)), CLIENT, SUBJECT, "x", 1.0, 0.0, b"", (), since=since, requirements=requirements
    )


def put(turn: Turn, *jobs: JobRecord, first: bool = False) -> None:
    for job in jobs:
        if job.requirements is not None:
            turn_jobs.add(turn, job, first=first)
        else:
            turn.jobs.append(job)


def names(turn: Turn, skip: set[tuple[int, int, turn_jobs.Kind]] | None = None) -> list[str]:
    return [job.id.decode().strip() for job in turn_jobs.in_order(turn, skip)]


def test_plain_jobs_stand_as_they_came() -> None:
    turn = a_turn()
    put(turn, a_job("a"), a_job("b"), a_job("c"))
    assert names(turn) == ["a", "b", "c"]
    assert turn_jobs.size(turn) == 3
    assert turn.needs is None


def test_a_step_of_priority_is_worth_its_time_of_waiting() -> None:
    turn = a_turn()
    put(turn, a_job("a", since=0.0), a_job("b", since=2.0))
    put(turn, a_job("late", Requirements(priority=1), since=PRIORITY_AGE_S + 1.0))
    assert names(turn) == ["a", "late", "b"]
    assert turn_jobs.due_of(a_job("x", Requirements(priority=2), since=3.0)) == 3.0 - 2 * PRIORITY_AGE_S


def test_a_job_that_comes_back_has_the_place_of_its_submit() -> None:
    job = a_job("a", since=9.0)
    job.attempts = 1
    assert turn_jobs.due_of(job) == 0.0


def test_the_first_goes_to_the_head_of_its_row() -> None:
    turn, requirements = a_turn(), Requirements(priority=1)
    put(turn, a_job("a", requirements), a_job("b", requirements))
    put(turn, a_job("c", requirements), first=True)
    assert names(turn) == ["c", "a", "b"]


def test_when_the_last_that_asks_is_gone_the_turn_is_plain_again() -> None:
    turn, job = a_turn(), a_job("a", Requirements(slots=2))
    put(turn, a_job("b"), job)
    assert turn.needs is not None
    assert (turn.needs.count, turn.needs.picky) == (1, 1)
    turn_jobs.remove(turn, job)
    assert turn.needs is None
    assert names(turn) == ["b"]


def test_pulled_jobs_come_in_their_order_and_the_others_stay_in_theirs() -> None:
    turn, requirements = a_turn(), Requirements(priority=1)
    jobs = {name: a_job(name, requirements) for name in "abcde"}
    put(turn, *jobs.values())
    pulled = turn_jobs.pull(turn, {jobs[name].id: jobs[name] for name in "db"})
    assert [job.id.decode().strip() for job in pulled] == ["b", "d"]
    assert names(turn) == ["a", "c", "e"]
    assert turn_jobs.size(turn) == 3


def test_those_that_are_gone_are_skipped_and_then_removed() -> None:
    turn, requirements = a_turn(), Requirements(priority=1)
    jobs = {name: a_job(name, requirements) for name in "abcd"}
    put(turn, *jobs.values())
    for name in "ac":
        jobs[name].enter(JobState.DONE)
        turn.gone += 1
    assert names(turn) == ["b", "d"]
    turn_jobs.prune(turn)
    assert (turn.gone, turn_jobs.size(turn)) == (1, 3), "only what stands first"
    turn_jobs.purge(turn)
    assert (turn.gone, turn_jobs.size(turn)) == (0, 2)
    assert names(turn) == ["b", "d"]


def test_once_sorted_out_a_kind_that_nobody_can_run_is_left_out_from_there_on() -> None:
    turn = a_turn()
    shy = Requirements(shuns=(WorkerId(b"w" * 16),))
    put(turn, *(a_job(f"s{number}", shy) for number in range(3)), a_job("free", Requirements(env=True)))
    turn_jobs.split_by_kind(turn)
    skip: set[tuple[int, int, turn_jobs.Kind]] = set()
    seen = []
    for job in turn_jobs.in_order(turn, skip):
        seen.append(job.id.decode().strip())
        if job.requirements == shy:
            skip.add(turn_jobs.row_of(turn, shy))
    assert seen == ["s0", "free"]
    assert turn_jobs.kind_of(shy) != turn_jobs.kind_of(Requirements(env=True))


@pytest.mark.parametrize(
    ("requirements", "sticky", "picky"),
    [
        (None, True, False),
        (Requirements(priority=3), True, False),
        (Requirements(key="k"), False, False),
        (Requirements(key="k"), True, True),
        (Requirements(slots=2), False, True),
        (Requirements(env=True), False, True),
        (Requirements(unnamed=True), False, True),
    ],
)
def test_a_picky_job_cannot_go_to_just_anybody(requirements: Requirements | None, sticky: bool, picky: bool) -> None:
    assert turn_jobs.is_picky(a_job("a", requirements), a_turn(sticky=sticky).lane) is picky


def test_slots_and_simple_are_those_it_asks_for() -> None:
    assert (turn_jobs.slots_of(a_job("a")), turn_jobs.slots_of(a_job("a", Requirements(slots=3)))) == (1, 3)
    assert not turn_jobs.is_simple(a_job("a"))
    assert turn_jobs.is_simple(a_job("a", Requirements(simple=True)))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_no_job_is_lost(seed: int) -> None:
    chance, turn = Random(seed), a_turn()
    kinds = [None, Requirements(priority=1), Requirements(slots=2), Requirements(simple=True), Requirements(env=True)]
    held: dict[JobId, JobRecord] = {}
    for number in range(200):
        what = chance.randrange(4)
        if what < 2 or not held:
            job = a_job(str(number), chance.choice(kinds), since=float(number))
            put(turn, job)
            held[job.id] = job
        elif what == 2:
            turn_jobs.remove(turn, held.pop(chance.choice(list(held))))
        elif turn.needs is not None and chance.random() < 0.2:
            turn_jobs.split_by_kind(turn)
        order = list(turn_jobs.in_order(turn))
        assert {job.id for job in order} == held.keys()
        assert len(order) == turn_jobs.size(turn)
        asking = [job for job in order if job.requirements is not None]
        assert (turn.needs is None) == (not asking)
        assert turn.needs is None or turn.needs.count == len(asking)
