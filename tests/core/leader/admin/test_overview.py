"""How is the leader, and what goes on? The answers to `status` and `top`, as scripts."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.kit.leader_world import ClientEnd, World, a_world

from wakugumi.core.ids import JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.admin import overview
from wakugumi.core.leader.answer_records import (
    NO_FIGURES,
    ClientRow,
    GroupRow,
    StatusAnswer,
    SubjectRow,
    WorkerRow,
    WorkersAnswer,
)
from wakugumi.core.leader.questions import AskDrain, AskStatus, AskWorkers
from wakugumi.limits.leader import LIST_ROWS_MAX, REATTACH_GRACE_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.fixture
def busy(world: World) -> dict[str, JobId]:
    """One job in each state."""
    desk, other, worker = world.client(), world.client("other"), world.worker("w", "job.assign.calc.*", credit=4)
    ok, failed, backoff, running = (desk.submits(1, f"calc.{number}")[0] for number in range(4))
    worker.gets(ok, failed, backoff, running)
    worker.acks(ok)
    desk.gets_result(ok)
    worker.fails(failed)
    desk.gets_result(failed)
    worker.fails(backoff, "worker-error")
    (queued,) = other.submits(1, "draw")
    return {"ok": ok, "failed": failed, "backoff": backoff, "running": running, "queued": queued}


# How is the leader? Its statistics are tested with `stats`.


def bare(answer: StatusAnswer) -> StatusAnswer:
    return msgspec.structs.replace(
        answer,
        subjects=[msgspec.structs.replace(row, figures=NO_FIGURES) for row in answer.subjects],
        groups=[msgspec.structs.replace(row, figures=NO_FIGURES) for row in answer.groups],
    )


def test_the_status_counts_everything(world: World, busy: dict[str, JobId]) -> None:
    world.wait(0.5)
    away: ClientEnd = world.client("away")
    away.submits(1, "calc.0")
    away.leaves()
    world.worker("b", "job.assign.*.0", credit=3).gets_some()
    answer = world.ask(AskStatus())
    assert isinstance(answer, StatusAnswer)
    assert bare(answer) == StatusAnswer(
        up_s=0.5,
        workers=2,
        slots_free=2,
        clients=2,
        queued=1,
        queued_bytes=4 * len(b"request"),
        backing_off=1,
        running=2,
        undelivered=2,
        submitted=6,
        finished_ok=1,
        finished_failed=1,
        redelivered=1,
        dead=0,
        letters=0,
        durable=True,
        disk_low=False,
        full=False,
        subjects=[
            SubjectRow("job.assign.draw", 1, 0),
            SubjectRow("job.assign.calc.0", 0, 2),
            SubjectRow("job.assign.calc.3", 0, 1),
            SubjectRow("job.assign.calc.1", 0, 1),
            SubjectRow("job.assign.calc.2", 0, 1),
        ],
        busiest=[
            ClientRow("desk", True, 100, 1, 4, 2 * 448 + 140),
            ClientRow("other", True, 100, 0, 1, 0),
            ClientRow("away", False, 100, 1, 1, 0),
        ],
        slots=4,
        submitted_per_s=6.0,
        finished_per_s=2.0,
        subjects_total=5,
        groups=[GroupRow("calc", 1, 1, 0, 0), GroupRow("*", 1, 3, 2, 0)],
        groups_total=2,
    )
    assert busy


def test_the_status_lists_the_longest_queues_first_and_who_could_serve_them(world: World) -> None:
    desk = world.client()
    world.worker("a", "job.assign.x")
    world.worker("b", "job.assign.*", "job.>")
    desk.submits(1, "x")
    desk.submits(3, "y")
    desk.submits(2, "z.z")
    answer = world.ask(AskStatus())
    assert isinstance(answer, StatusAnswer)
    assert bare(answer).subjects == [
        SubjectRow("job.assign.y", 3, 1),
        SubjectRow("job.assign.z.z", 2, 1),
        SubjectRow("job.assign.x", 1, 2),
    ]


def test_the_status_lists_not_more_subjects_than_fit(world: World) -> None:
    desk = world.client()
    with world.at_once():
        jobs = [desk.submit(f"s{number}") for number in range(LIST_ROWS_MAX + 5)]
    desk.gets_receipt(*jobs)
    answer = world.ask(AskStatus())
    assert isinstance(answer, StatusAnswer)
    assert (answer.queued, len(answer.subjects)) == (LIST_ROWS_MAX + 5, LIST_ROWS_MAX)
    assert answer.subjects_total == LIST_ROWS_MAX + 5


def test_the_workers_are_listed_with_what_they_offer(world: World) -> None:
    desk, worker = world.client(), world.worker("w", "job.assign.calc", credit=2)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.hear(ev.PeerHeard(worker.conn, 0.75))
    world.wait(2)
    shown = "2e2e2e77-2e2e-2e2e-2e2e-2e2e2e2e2e2e"
    row = WorkerRow(shown, "w", "ready", ["job.assign.calc"], credit=1, running=1, cpu=0.75, seen_s=2.0)
    assert world.ask(AskWorkers()) == WorkersAnswer([row])
    worker.leaves()
    row = WorkerRow(shown, "w", "away", ["job.assign.calc"], credit=0, running=1, cpu=0.75, seen_s=2.0)
    assert world.ask(AskWorkers()) == WorkersAnswer([row])
    world.wait(REATTACH_GRACE_S)
    assert world.ask(AskWorkers()) == WorkersAnswer([])


def test_draining_answers_with_the_workers_row(world: World) -> None:
    world.worker("w", credit=2)
    row = world.ask(AskDrain("w"))
    assert isinstance(row, WorkerRow)
    assert (row.state, row.credit) == ("draining", 2)


@pytest.mark.spec("W2")
def test_a_worker_that_others_keep_from_its_cpu_is_held_back_and_everybody_is_told(world: World) -> None:
    desk, worker = world.client(), world.worker("w", slots=2)
    (job,) = desk.submits(1)
    world.hear(ev.PeerHeard(worker.conn, 1.0, 0.93))
    (reason,) = world.reasons(job)
    assert "1 of them held back because others use 93% of its CPU (--cpu-cap)" in reason
    row = overview.worker_row(world.leader.roster.by_id[worker.id], world.now)
    assert (row.state, row.why) == ("held back", "others use 93% of its CPU")
    world.hear(ev.PeerHeard(worker.conn, 0.2))
    row = overview.worker_row(world.leader.roster.by_id[worker.id], world.now)
    assert (row.state, row.why) == ("busy", "")
    worker.credit(1)
    worker.gets(job)
