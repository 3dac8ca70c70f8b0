"""What one peer is given before it is written: so many bytes, and the rest waits in the core, where it can be seen."""

from __future__ import annotations

import tracemalloc

import pytest
from tests.kit.leader_world import World, job_id, subject, worker_id
from tests.kit.slots_script import A, B, C, assigned, with_old_leader, with_own_leader

from wakugumi.core.client import events as fo
from wakugumi.core.client.events import LeaderNo
from wakugumi.core.client.failover import Failover
from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.answer_records import WorkersAnswer
from wakugumi.core.leader.jobs.results import size_of
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.core.leader.questions import AskWorkers
from wakugumi.core.runner import events as sev
from wakugumi.core.subject import parse_pattern
from wakugumi.limits.leader import REATTACH_GRACE_S
from wakugumi.limits.wire import GIVEN_BYTES_MAX, SILENCE_MAX_S

HALF = bytes(GIVEN_BYTES_MAX // 2)
"""Two of them are enough."""


@pytest.fixture
def world() -> World:
    return World()


def submits(world: World, count: int, payload: bytes = HALF) -> list[JobId]:
    desk = world.client()
    jobs = [desk.submit(payload=payload) for _ in range(count)]
    desk.gets_receipt(*jobs[:1])
    for job in jobs[1:]:
        desk.gets_receipt(job)
    return jobs


# A leader gives jobs to a worker.


@pytest.mark.spec("L9")
def test_a_worker_is_given_so_many_bytes_and_the_rest_when_they_are_written(world: World) -> None:
    worker = world.worker("w")
    worker.slow = True
    jobs = submits(world, 5)
    worker.credit(5)
    worker.gets(*jobs[:2])
    worker.gets_nothing()
    worker.is_written()
    worker.gets(*jobs[2:4])
    worker.is_written()
    worker.gets(jobs[4])
    assert not worker.unwritten


@pytest.mark.spec("L9", "L1")
def test_what_a_worker_is_not_given_yet_goes_to_others_and_can_be_cancelled(world: World) -> None:
    slow, quick = world.worker("slow"), world.worker("quick")
    slow.slow = True
    jobs = submits(world, 5)
    slow.credit(5)
    slow.gets(*jobs[:2])
    (reason,) = world.reasons(jobs[2])
    assert "1 of them still being sent what it was given before" in reason
    rows = world.ask(AskWorkers())
    assert isinstance(rows, WorkersAnswer)
    assert [row.state for row in rows.workers] == ["sending", "busy"]
    quick.credit(2)
    quick.gets(*jobs[2:4])
    world.client().cancels(jobs[4])
    slow.is_written()
    slow.gets_nothing()


@pytest.mark.spec("L9")
def test_a_worker_that_comes_back_is_given_jobs_although_nothing_was_written_before(world: World) -> None:
    worker = world.worker("w")
    worker.slow = True
    jobs = submits(world, 3)
    worker.credit(3)
    worker.gets(*jobs[:2])
    worker.leaves()
    again = world.worker("w", holds=False)
    again.holds(running=jobs[:2])
    again.credit(1)
    again.gets(jobs[2])
    world.hear(ev.PeerWritten(worker.conn))  # It was on its way when the connection ended.


@pytest.mark.spec("L7", "L9")
def test_jobs_that_are_read_from_the_journal_count_until_they_are_sent() -> None:
    world = World(payload_memory_bytes=0)
    world.reads_journal = False
    worker = world.worker("w")
    worker.slow = True
    jobs = submits(world, 4)
    worker.credit(4)
    assert [load.jobs for load in world.loads] == [[jobs[0]], [jobs[1]]]
    assert not worker.unwritten, "they are not even sent"
    world.hear(world.journal.load(world.loads[0].leaf, world.loads[0].jobs))
    assert not worker.unwritten
    world.hear(world.journal.load(world.loads[1].leaf, world.loads[1].jobs))
    worker.gets(*jobs[:2])
    assert worker.unwritten == 1
    assert len(world.loads) == 2
    worker.is_written()
    assert len(world.loads) == 4


# A leader gives results to a client.


@pytest.mark.spec("L9", "K6")
@pytest.mark.parametrize("old", [False, True])
def test_a_client_is_given_so_many_bytes_of_results_and_the_rest_when_they_are_written(world: World, old: bool) -> None:
    worker, desk = world.worker("w"), world.client(old=old)
    jobs = desk.submits(5)
    desk.leaves()
    worker.credit(5)
    worker.gets(*jobs)
    for job in jobs:
        worker.acks(job, HALF)
    if old:
        with world.at_once():
            again = world.client(old=True)
            again.slow = True
    else:
        again = world.client()
        again.slow = True
        again.claims(*jobs)
        again.gets_receipt(*jobs)
    for some in (jobs[:2], jobs[2:4], jobs[4:]):
        for job in some:
            again.gets_result(job, HALF)
        again.gets_nothing()
        if again.unwritten:
            again.is_written()


@pytest.mark.spec("F9", "L9")
@pytest.mark.parametrize("finishes", ["before it leaves", "after"])
def test_results_that_wait_for_an_old_connection_go_through_another_one_of_its_client_when_it_leaves(
    world: World, finishes: str
) -> None:
    worker, desk, other = world.worker("w"), world.client(old=True), world.client(old=True)
    own = world.client()
    desk.slow = True
    jobs = desk.submits(5)
    worker.credit(5)
    worker.gets(*jobs)
    for job in jobs[:4]:
        worker.acks(job, HALF)
    for job in jobs[:2]:
        desk.gets_result(job, HALF)
    if finishes == "before it leaves":
        worker.acks(jobs[4], HALF)
    desk.gets_nothing()
    other.gets_nothing()
    desk.leaves()
    if finishes == "after":
        worker.acks(jobs[4], HALF)
    for job in jobs[2:]:
        other.gets_result(job, HALF)
    assert not world.leader.clients.results.undelivered
    own.gets_nothing()


@pytest.mark.spec("F9")
def test_a_result_that_waits_for_one_old_connection_is_not_sent_to_it_again_when_others_come_and_go(
    world: World,
) -> None:
    worker, desk, other = world.worker("w"), world.client(old=True), world.client(old=True)
    other.slow = True
    jobs = desk.submits(3)
    worker.credit(3)
    worker.gets(*jobs)
    desk.leaves()
    for job in jobs:
        worker.acks(job, HALF)
    for job in jobs[:2]:
        other.gets_result(job, HALF)
    third = world.client(old=True)
    third.gets_nothing()
    third.leaves()
    other.gets_nothing()
    other.is_written()
    other.gets_result(jobs[2], HALF)


@pytest.mark.spec("L9")
def test_a_client_that_is_blocked_as_well_gets_more_when_both_are_over(world: World) -> None:
    worker, desk = world.worker("w"), world.client()
    desk.slow = True
    jobs = desk.submits(3)
    worker.credit(3)
    worker.gets(*jobs)
    for job in jobs:
        worker.acks(job, HALF)
    desk.gets_result(jobs[0], HALF)
    desk.gets_result(jobs[1], HALF)
    desk.blocks()
    desk.is_written()
    desk.gets_nothing()
    desk.unblocks()
    desk.gets_result(jobs[2], HALF)


# A worker tells its results.


@pytest.mark.spec("L9", "W7")
@pytest.mark.parametrize("own", [False, True])
def test_a_worker_tells_so_many_bytes_of_results_and_the_rest_with_its_credit_when_they_are_written(own: bool) -> None:
    script = with_own_leader(3) if own else with_old_leader(3)
    script.slow = True
    script.hear(*assigned(A, B, C))
    script.hear(*(sev.ProgramEnded(job, True, "", HALF) for job in (A, B)))
    assert script.hear(sev.ProgramEnded(C, True, "", HALF)) == []
    assert script.slots.unconfirmed == (3 if own else 1)
    assert script.hear(sev.ResultsWritten()) == [sev.SendAck(C, HALF), sev.SendCredit(3)]


@pytest.mark.spec("L9", "W7")
def test_a_result_that_waits_is_not_lost_with_the_connection() -> None:
    script = with_own_leader(2)
    script.slow = True
    script.hear(*assigned(A, B))
    script.hear(sev.ProgramEnded(A, True, "", HALF + HALF))
    assert script.hear(sev.ProgramEnded(B, True, "", HALF)) == []
    script.hear(sev.LinkLost(), sev.Opened())
    script.slow = False
    assert script.hear(sev.LeaderWelcomed()) == [
        sev.SendHolding((), (A, B)),
        sev.SendAck(A, HALF + HALF),
        sev.SendAck(B, HALF),
        sev.SendCredit(2),
    ]


@pytest.mark.spec("W4", "L9")
def test_a_job_that_is_assigned_again_is_answered_when_there_is_room() -> None:
    script = with_own_leader(2)
    script.hear(*assigned(A, B))
    script.hear(sev.ProgramEnded(A, True, "", b"result"), sev.ResultsConfirmed((A,)))
    script.slow = True
    script.hear(sev.ProgramEnded(B, True, "", HALF + HALF))
    assert script.hear(*assigned(A)) == [sev.LoadResult(A)]
    assert script.hear(sev.ResultLoaded(A, True, b"result")) == []
    assert script.hear(sev.ResultsWritten()) == [sev.LoadResult(A), sev.SendCredit(2)]
    assert script.hear(sev.ResultLoaded(A, True, b"result")) == [sev.SendAck(A, b"result")]


# A client submits.


def client_of_one() -> Failover:
    machine = Failover(lambda: 0.5, leaders=[LeaderNo(1)], cap=64)
    (dial,) = machine.tick(0.0).do
    assert isinstance(dial, fo.Dial)
    machine.handle([fo.Connected(dial.conn), fo.Welcomed(dial.conn)], 0.0)
    return machine


@pytest.mark.spec("L9", "K6")
def test_a_client_submits_so_many_bytes_and_the_rest_when_they_are_written() -> None:
    machine, conn = client_of_one(), ConnId(1)
    do = machine.handle([fo.Submit(job_id(number), HALF) for number in range(1, 4)], 0.0).do
    assert do == [fo.SendFrames(conn, [HALF, HALF]), fo.TellWhenLeaderWritten(conn), fo.SubmitGate(False)]
    machine.check()
    do = machine.handle([fo.LeaderWritten(conn)], 0.0).do
    assert do == [fo.SendFrames(conn, [HALF]), fo.SubmitGate(True)]
    machine.check()


@pytest.mark.spec("L9", "K6")
def test_a_client_that_connects_again_submits_so_many_bytes_at_a_time() -> None:
    machine = client_of_one()
    machine.handle([fo.Submit(job_id(number), HALF) for number in range(1, 6)], 0.0)
    machine.handle([fo.Disconnected(ConnId(1), "cut")], 0.0)
    (dial,) = machine.tick(60.0).do
    assert isinstance(dial, fo.Dial)
    conn = dial.conn
    do = machine.handle([fo.Connected(conn), fo.Welcomed(conn)], 60.0).do
    assert fo.SendClaims(conn, [job_id(1), job_id(2)]) in do
    sent = [effect.frames for effect in do if isinstance(effect, fo.SendFrames)]
    while fo.TellWhenLeaderWritten(conn) in do:
        assert len(sent[-1]) == 2
        do = machine.handle([fo.LeaderWritten(conn)], 60.0).do
        sent += [effect.frames for effect in do if isinstance(effect, fo.SendFrames)]
        machine.check()
    assert sum(map(len, sent)) == 3


# Signs of life, and what is counted.


@pytest.mark.spec("L3")
def test_bytes_of_a_frame_that_takes_long_are_a_sign_of_life(world: World) -> None:
    worker, desk = world.worker("w", heartbeats=True), world.client(heartbeats=True)
    for end in (worker, desk):
        end.falls_silent()
    for _ in range(10):
        world.wait(SILENCE_MAX_S / 2)
        world.hear(ev.PeerHeard(worker.conn), ev.PeerHeard(desk.conn))
    worker.gets_nothing()
    desk.gets_nothing()
    world.wait(2 * SILENCE_MAX_S)
    worker.is_closed()
    desk.is_closed()


@pytest.mark.spec("L4", "L7")
def test_workers_that_are_away_while_the_disk_is_behind_have_one_timer_each(world: World) -> None:
    workers = [world.worker(name) for name in ("v", "w")]
    jobs = submits(world, 2, b"request")
    for worker, job in zip(workers, jobs, strict=True):
        worker.credit(1)
        worker.gets(job)
    for worker in workers:
        worker.leaves()
    world.hear(ev.ReadingStopped(True))
    world.wait(100 * REATTACH_GRACE_S)
    assert world.leader.workers.timers == 2
    world.hear(ev.ReadingStopped(False))
    world.wait(REATTACH_GRACE_S + 1)
    assert not world.leader.workers.timers
    assert not world.leader.roster.by_id


@pytest.mark.spec("L9")
def test_a_result_that_nobody_fetches_counts_for_what_it_costs() -> None:
    count, output, desk, worker = 2_000, b"{}", ConnId(1), ConnId(2)
    machine = LeaderMachine(lambda: 0.5, keeps=False)
    machine.handle([ev.ClientJoined(desk, ClientId("desk"), count, True, False)], 0.0)
    joined = ev.WorkerJoined(worker, worker_id("w"), "w", (parse_pattern(">"),), False, False, False, False)
    machine.handle([joined], 0.0)
    tracemalloc.start()
    try:
        for number in range(count):
            job = job_id(number)
            machine.handle([ev.Submitted(desk, job, subject("calc"), "calc", 60.0, b"request")], 0.0)
            machine.handle([ev.Credited(worker, 1)], 0.0)
            machine.handle([ev.Acked(worker, job, True, "", bytes(output))], 0.0)
        cost, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(machine.clients.results.undelivered) == count
    assert 0.75 * size_of(output) < cost / count < 1.5 * size_of(output)


@pytest.mark.spec("L9")
def test_not_more_results_wait_to_be_fetched_than_may_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.leader.clients.UNDELIVERED_RESULTS_MAX", 2)
    worker, desk = world.worker("w"), world.client()
    jobs = desk.submits(3)
    desk.leaves()
    for job in jobs[:2]:
        worker.credit(1)
        worker.gets(job)
        worker.acks(job)
    worker.credit(1)
    worker.gets_nothing()
    assert world.leader.full
    (reason,) = world.reasons(jobs[2])
    assert reason.startswith("nothing is assigned while 2 results")
    again = world.client()
    again.claims(jobs[0])
    again.gets_receipt(jobs[0])
    again.gets_result(jobs[0])
    again.confirms(jobs[0])
    worker.gets(jobs[2])
