"""The leader's state machine as scripts: the way of a job, credit, attempts, shutdown, time.

Its neighbours: `test_dispatch_workers` (lost, back, drained), `test_dispatch_clients` (caps, ids, full, cancel),
`test_delivery` (results), `test_explain` (questions).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.leader_world import OUTPUT, TIMEOUT_S, World, a_world, job_id, subject

from wakugumi.core.backoff import POLICIES, Policies
from wakugumi.core.ids import ConnId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.journal.entries import KeepAttempt, KeepDelivered, KeepJob, KeepResult
from wakugumi.core.leader.machine import LeaderMachine
from wakugumi.limits.leader import ACK_MARGIN_S, ATTEMPTS_MAX, REATTACH_GRACE_S
from wakugumi.limits.scheduling import CREDIT_BACK_S, CREDIT_MAX
from wakugumi.limits.wire import HEARTBEAT_S, SILENCE_MAX_S

LATE_S = TIMEOUT_S + ACK_MARGIN_S + HEARTBEAT_S
"""By then the leader has looked, and an old worker's ack is late."""


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


# The way of a job.


def test_a_job_goes_out_and_its_result_comes_back(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    job = desk.submit("calc", payload=b"what to do")
    desk.gets_receipt(job)
    assert worker.takes(ev.SendAssign) == ev.SendAssign(worker.conn, job, subject("calc"), b"what to do")
    world.hear(ev.Acked(worker.conn, job, True, "", b"done"))
    worker.gets_confirm(job)
    assert desk.takes(ev.SendResult) == ev.SendResult(desk.conn, job, "calc", b"done")
    desk.confirms(job)
    assert world.kept == [
        KeepJob(job, desk.id, 100, subject("calc"), "calc", TIMEOUT_S, 0, b"what to do"),
        KeepAttempt(job, worker.id, "w"),
        KeepResult(job, True, "ok", b"done"),
        KeepDelivered(job),
    ]


def test_a_peer_is_welcomed_before_anything_else_is_said_to_it(world: World) -> None:
    with world.at_once():
        desk = world.client()
        worker = world.worker("w", credit=2)
        one, two = desk.submit(), desk.submit()
    desk.takes(ev.SendWelcome)
    desk.gets_receipt(one, two)
    worker.takes(ev.SendWelcome)
    worker.gets(one, two)


def test_an_old_peer_hears_only_the_old_types(world: World) -> None:
    desk, worker = world.client(old=True), world.worker("w", old=True, credit=1)
    job = desk.submit()
    worker.gets(job)
    worker.acks(job)
    desk.gets_result(job)


def test_the_receipts_and_confirmations_of_a_batch_are_one_each(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    with world.at_once():
        jobs = [desk.submit() for _ in range(3)]
    desk.gets_receipt(*jobs)
    worker.gets(*jobs)
    with world.at_once():
        for job in jobs:
            worker.acks(job)
    worker.gets_confirm(*jobs)
    for job in jobs:
        desk.gets_result(job)


@pytest.mark.spec("W6")
def test_a_program_that_fails_is_an_answer_and_not_tried_again(world: World) -> None:
    desk = world.client()
    for old in (False, True):
        worker = world.worker(f"old {old}", old=old, credit=1)
        (job,) = desk.submits(1)
        worker.gets(job)
        worker.fails(job, "" if old else "exit", b"its stderr")
        desk.gets_result(job, b"its stderr")


@pytest.mark.spec("L2")
def test_the_worker_with_most_credit_takes_the_job(world: World) -> None:
    desk = world.client()
    a, b = world.worker("a", credit=2), world.worker("b", credit=3)
    one, two, three = desk.submits(3)
    b.gets(one, three)
    a.gets(two)


@pytest.mark.spec("L2")
def test_workers_take_turns_if_told_so() -> None:
    with a_world(policies=Policies(POLICIES["round-robin"])) as world:
        desk = world.client()
        a, b = world.worker("a", credit=9), world.worker("b", credit=2)
        jobs = desk.submits(5)
        a.gets(jobs[0], jobs[2], jobs[4])
        b.gets(jobs[1], jobs[3])


@pytest.mark.spec("L2", "S4")
def test_a_job_goes_only_where_a_pattern_matches(world: World) -> None:
    desk = world.client()
    calc = world.worker("a", "job.assign.calc", credit=9)
    draw = world.worker("b", "job.assign.draw", "job.assign.*.big", credit=9)
    (one,), (two,), (three,), _ = (desk.submits(1, word) for word in ("calc", "draw", "paint.big", "write"))
    calc.gets(one)
    draw.gets(two, three)


@pytest.mark.spec("L2")
def test_a_job_waits_for_a_worker_that_comes_later(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    worker = world.worker("w", "job.assign.calc")
    worker.gets_nothing()
    worker.credit(1)
    worker.gets(job)


# Credit.


@pytest.mark.spec("F7")
@pytest.mark.parametrize("amount", [0, -1, -(2**31), CREDIT_MAX + 1, 2**31 - 1])
def test_credit_that_cannot_be_is_refused(world: World, amount: int) -> None:
    desk, worker = world.client(), world.worker("w")
    desk.submits(1)
    worker.credit(amount)
    world.complains("credit", str(amount))
    worker.gets_nothing()


@pytest.mark.spec("F7")
def test_credit_above_the_limit_in_total_is_refused_and_the_rest_stands(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=CREDIT_MAX - 1)
    worker.credit(2)
    world.complains("credit of 2", str(CREDIT_MAX))
    worker.credit(1)
    worker.credit(1)
    world.complains("credit of 1")
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.credit(1)


@pytest.mark.spec("F7")
def test_credit_is_added_and_each_assignment_takes_one(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    worker.credit(2)
    jobs = desk.submits(4)
    worker.gets(*jobs[:3])
    worker.gets_nothing()


@pytest.mark.spec("F7")
@pytest.mark.parametrize("old", [False, True])
def test_credit_is_gone_with_the_connection(world: World, old: bool) -> None:
    desk = world.client()
    world.worker("w", old=old, credit=4).leaves()
    (job,) = desk.submits(1)
    worker = world.worker("w", old=old)
    worker.gets_nothing()
    worker.credit(1)
    worker.gets(job)


BACK_S = CREDIT_BACK_S + HEARTBEAT_S


@pytest.mark.spec("F7", "L3")
def test_an_old_worker_gets_the_credit_of_a_duplicate_back(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=2)
    (late,) = desk.submits(1)
    worker.gets(late)
    world.wait(LATE_S + 1)
    worker.gets(late)
    worker.acks(late, b"")  # It has it from before, and offers nothing for it.
    desk.gets_result(late, b"")
    worker.acks(late)
    worker.credit(1)
    first, second, third = desk.submits(3)
    worker.gets(first)
    worker.gets_nothing()
    world.wait(BACK_S)
    worker.gets(second)
    world.wait(BACK_S)
    worker.gets_nothing()
    worker.acks(first)
    desk.gets_result(first)
    worker.credit(1)
    worker.gets(third)


@pytest.mark.spec("F7")
def test_a_worker_of_one_slot_that_answers_with_nothing_is_not_idle_for_ever(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    first, second, third = desk.submits(3)
    worker.gets(first)
    worker.acks(first, b"")
    desk.gets_result(first, b"")
    world.wait(CREDIT_BACK_S - HEARTBEAT_S)
    worker.gets_nothing()
    world.wait(2 * HEARTBEAT_S)
    worker.gets(second)
    worker.credit(1)  # It was slow: that is what it has got already.
    world.wait(BACK_S)
    worker.gets_nothing()
    worker.acks(second)
    desk.gets_result(second)
    worker.credit(1)
    worker.gets(third)


@pytest.mark.spec("F7")
def test_credit_that_was_offered_or_held_back_is_not_given_back(world: World) -> None:
    desk = world.client()
    offers, holds_back = world.worker("offers", old=True, credit=1), world.worker("holds back", old=True, credit=1)
    first, second, third, fourth = desk.submits(4)
    offers.gets(first)
    holds_back.gets(second)
    offers.acks(first, b"")
    desk.gets_result(first, b"")
    offers.credit(1)
    offers.gets(third)
    holds_back.acks(second)
    desk.gets_result(second)
    world.wait(BACK_S)
    offers.gets_nothing()
    holds_back.gets_nothing()
    assert fourth


@pytest.mark.spec("F7")
def test_a_worker_of_our_own_types_offers_all_its_credit_itself(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, cancels=True, credit=1)
    first, _ = desk.submits(2)
    worker.gets(first)
    worker.acks(first, b"")
    desk.gets_result(first, b"")
    world.wait(BACK_S)
    worker.gets_nothing()


@pytest.mark.spec("F7")
def test_credit_of_before_is_not_given_back_over_the_next_connection(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    first, _ = desk.submits(2)
    worker.gets(first)
    worker.acks(first, b"")
    desk.gets_result(first, b"")
    worker.leaves()
    worker = world.worker("w", old=True)
    world.wait(BACK_S)
    worker.gets_nothing()


@pytest.mark.spec("F7")
@given(st.lists(st.sampled_from(["empty", "full", "credit", "wait"]), max_size=40))
def test_an_old_worker_is_never_given_more_than_it_takes_at_once(steps: list[str]) -> None:
    """It offers its credit in time, late or never, and never more than it has acked."""
    with a_world() as world:
        desk, worker = world.client(), world.worker("w", old=True, credit=3)
        record = world.leader.roster.by_id[worker.id]
        desk.submits(50)
        held, owed, waits = worker.gets_some(), 0, 0
        for step in steps:
            if step == "wait" and waits < 3:  # Before any job is late.
                world.wait(BACK_S)
                waits += 1
            elif step == "credit" and owed:
                worker.credit(1)
                owed -= 1
            elif step in {"empty", "full"} and held:
                output = b"" if step == "empty" else OUTPUT
                job = held.pop(0)
                worker.acks(job, output)
                desk.gets_result(job, output)
                owed += 1
            held += worker.gets_some()
            assert record.credit + len(held) <= 3
            assert len(held) + owed >= 3, "it has as much to do as it offered"
        if "full" not in steps:
            world.wait(BACK_S)
            assert len(held + worker.gets_some()) == 3, "all that it did not offer again was given back"


def test_credit_before_a_worker_has_said_what_it_holds_counts_from_then_on(world: World) -> None:
    desk, worker = world.client(), world.worker("w", holds=False, credit=1)
    (job,) = desk.submits(1)
    worker.gets_nothing()
    worker.holds()
    worker.gets(job)


def test_what_a_stranger_says_changes_nothing(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    stranger = ConnId(999)
    for event in (
        ev.Credited(stranger, 4),
        ev.WorkerHolds(stranger, (job,), ()),
        ev.Leaving(stranger),
        ev.PeerHeard(stranger, 0.5),
        ev.PeerBlocked(stranger),
        ev.PeerUnblocked(stranger),
        ev.Claimed(stranger, [job]),
        ev.CancelWanted(stranger, [job]),
        ev.SubmitRefused(stranger, job, "bad-request", "what?"),
        ev.Left(stranger),
    ):
        world.hear(event)
    world.hear(ev.Submitted(worker.conn, job_id(77), subject("calc"), "calc", 1.0, b""))
    world.complains("only clients submit")
    world.hear(ev.Acked(desk.conn, job, True, "", b""))
    world.complains("only workers ack")


# Attempts.


@pytest.mark.spec("L3")
def test_an_old_worker_is_late_when_the_timeout_and_a_minute_have_passed(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.credit(1)
    world.wait(TIMEOUT_S + ACK_MARGIN_S - 1)
    assert world.status().running == 1
    world.wait(1 + HEARTBEAT_S)
    assert (world.status().running, world.status().backing_off) == (0, 1)
    world.wait(1)
    worker.gets(job)


@pytest.mark.spec("L3")
def test_a_job_whose_result_is_on_its_way_is_not_late_until_that_stands_still(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    for _ in range(100):
        world.wait(ACK_MARGIN_S / 2)
        world.hear(ev.PeerHeard(worker.conn, moving=(job, job_id(77))))
    assert world.status().running == 1
    world.wait(ACK_MARGIN_S + HEARTBEAT_S)
    assert world.status().running == 0


@pytest.mark.spec("G1")
def test_a_job_on_its_way_counts_when_a_node_offers_all_its_slots_anew(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=2)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.rests("not reached")
    worker.knows_that_we_know()
    worker.rests("")
    world.hear(ev.Credited(worker.conn, 2, most=2))
    assert [one.credit for one in world.leader.roster] == [1]
    worker.acks(job)
    desk.gets_result(job)
    world.hear(ev.Credited(worker.conn, 1, most=2))
    assert [one.credit for one in world.leader.roster] == [2]


@pytest.mark.spec("L3")
def test_a_worker_with_heartbeats_may_take_as_long_as_it_lives(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    (job,) = desk.submits(1)
    worker.gets(job)
    world.wait(100 * LATE_S)
    assert world.status().running == 1
    worker.acks(job)
    desk.gets_result(job)


@pytest.mark.spec("L3")
def test_a_worker_with_heartbeats_that_falls_silent_is_lost(world: World) -> None:
    desk, worker, other = world.client(), world.worker("w", credit=9), world.worker("v")
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.falls_silent()
    world.wait(SILENCE_MAX_S)
    worker.gets_nothing()
    world.wait(HEARTBEAT_S)
    worker.is_closed()
    desk.submits(1)
    worker.gets_nothing()  # although it had credit
    worker.leaves()
    world.wait(REATTACH_GRACE_S)
    other.credit(1)
    other.gets(job)


@pytest.mark.spec("L3")
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_failed_attempts_wait_ever_longer_and_the_fifth_is_the_last(world: World, chance: float) -> None:
    world.chance = chance
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    for plain in (1, 2, 4, 8):
        worker.gets(job)
        worker.fails(job, "worker-error")
        wait = plain * (0.8 + 0.4 * chance)
        world.wait(wait - 0.01)
        worker.gets_nothing()
        world.wait(0.02)
    worker.gets(job)
    worker.fails(job, "disk")
    text = desk.gets_failure(job, "dead")
    assert "5 attempts" in text
    assert "disk" in text
    assert (world.status().dead, world.status().redelivered) == (1, 4)
    assert [line for line in world.story(job) if "ended" in line] == [
        *(f"attempt {number} ended: worker-error" for number in range(1, ATTEMPTS_MAX)),
        f"attempt {ATTEMPTS_MAX} ended: disk",
    ]


@pytest.mark.spec("L3")
def test_a_wait_that_was_cut_short_does_not_shorten_the_next_one(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=2)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, "worker-error")  # until 1 s from now
    worker.leaves()
    again = world.worker("w", holds=False)
    again.holds(running=[job])  # it runs there after all
    world.wait(0.5)
    again.fails(job, "worker-error")  # the second time: until 2.5 s from the first
    again.credit(1)
    world.wait(1.9)
    again.gets_nothing()
    world.wait(0.1)
    again.gets(job)


@pytest.mark.spec("L3", "L4")
def test_a_job_that_kills_its_workers_is_dead_after_five(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    for number in range(ATTEMPTS_MAX):
        worker = world.worker(f"w{number}", old=True, credit=1)
        worker.gets(job)
        worker.leaves()
    assert "worker-lost" in desk.gets_failure(job, "dead")


@pytest.mark.spec("L3", "L6")
def test_a_dead_job_is_opened_again_by_a_new_submit(world: World) -> None:
    desk = world.client()
    (job,) = desk.submits(1)
    for number in range(ATTEMPTS_MAX):
        worker = world.worker(f"w{number}", old=True, credit=1)
        worker.gets(job)
        worker.leaves()
    desk.gets_failure(job, "dead")
    desk.confirms(job)
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker = world.worker("w", credit=1)
    worker.gets(job)
    worker.acks(job)
    desk.gets_result(job)


# Shutdown.


def test_a_leader_that_stops_lets_running_jobs_finish_and_assigns_nothing_more(world: World) -> None:
    desk, old, worker = world.client(), world.client("old", old=True), world.worker("w", credit=1)
    running, queued = desk.submits(2)
    worker.gets(running)
    world.stop()
    worker.credit(9)
    worker.gets_nothing()
    refused = desk.submit()
    desk.gets_refusal(refused, "stopping")
    old.submit(job=refused)
    old.gets_failure(refused, "stopping")
    desk.submit(job=queued)
    desk.gets_receipt(queued)
    worker.acks(running)
    desk.gets_result(running)
    assert world.stopped == 0  # the client has not confirmed it
    desk.confirms(running)
    assert world.stopped == 1
    world.wait(60)
    assert world.stopped == 1


def test_a_leader_with_nothing_to_do_stops_at_once(world: World) -> None:
    world.stop()
    assert world.stopped == 1


def test_a_leader_that_stops_does_not_wait_for_a_client_that_is_away(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.leaves()
    world.stop()
    assert world.stopped == 0
    worker.acks(job)
    assert world.stopped == 1


def test_a_leader_that_stops_does_not_wait_for_a_bystander_whose_word_settles_nothing(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    bystander = world.client("bystander")
    bystander.claims(job)
    bystander.gets_receipt(job)
    desk.leaves()
    world.stop()
    worker.acks(job)
    bystander.gets_result(job)
    assert world.stopped == 1


def test_a_leader_that_stops_gives_up_on_lost_workers(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    desk.submits(1)
    worker.gets_some()
    world.stop()
    worker.leaves()
    assert world.stopped == 0
    world.wait(REATTACH_GRACE_S)
    assert world.stopped == 1


# Time.


def test_a_leader_always_knows_when_it_must_wake(world: World) -> None:
    world.wait(10 * HEARTBEAT_S)
    before = world.leader.wake_at()
    assert before is not None
    assert world.now < before <= world.now + HEARTBEAT_S


def test_those_who_want_heartbeats_get_them_and_nobody_else(world: World) -> None:
    desk, worker = world.client(heartbeats=True), world.worker("w")
    world.client("mute")
    world.worker("old", old=True)
    world.said.clear()
    world.wait(HEARTBEAT_S)
    assert world.said == [ev.SendPeerHeartbeat(desk.conn), ev.SendPeerHeartbeat(worker.conn)]


def test_a_leader_without_peers_says_nothing() -> None:
    leader = LeaderMachine(lambda: 0.5, now=5.0)
    for now in (6.0, 10.0, 20.0):
        step = leader.tick(now)
        assert (list(step.keep), list(step.do)) == ([], [])
        leader.check()


@pytest.mark.spec("L7")
def test_a_receipt_for_a_job_that_is_only_queued_can_wait_for_company(world: World) -> None:
    """Whoever has a free worker is in a hurry, and so is whoever gets a result."""
    desk, worker = world.client(), world.worker("w", credit=1)
    events = [
        ev.Submitted(desk.conn, world.new_job(), subject("calc"), "calc", TIMEOUT_S, b"request") for _ in range(2)
    ]
    now = world.now
    assert not world.leader.handle(events[:1], now).patient, "it is assigned"
    assert world.leader.handle(events[1:], now).patient
    answer = ev.Acked(worker.conn, events[0].job, True, "", b"result")
    assert not world.leader.handle([answer], now).patient


@pytest.mark.spec("L10")
def test_what_a_lost_attempt_printed_is_forgotten_with_a_job_that_is_cancelled_before_the_next(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, "worker-error", printed="what went wrong")
    assert world.leader.lifecycle.output_bytes
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    assert not world.leader.lifecycle.output_bytes
