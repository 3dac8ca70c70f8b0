"""What clients may do and what holds them back, as scripts: caps, repeated ids, a full queue, cancel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.leader_world import World, a_world, job_id

from wakugumi.core.ids import show_job_id
from wakugumi.core.leader import events as ev
from wakugumi.core.leader import machine
from wakugumi.core.leader.admin.questions import AskCancel, CancelAnswer, ClientRow
from wakugumi.limits.leader import KEPT_RESULT_TTL_S, REATTACH_GRACE_S, SWEEP_S
from wakugumi.limits.wire import HEARTBEAT_S, SILENCE_MAX_S


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


# Clients and their caps.


@pytest.mark.spec("L5")
def test_a_client_above_its_cap_waits_and_blocks_nobody(world: World) -> None:
    desk, other, worker = world.client("desk", cap=2), world.client("other"), world.worker("w", credit=9)
    jobs = desk.submits(4)
    worker.gets(*jobs[:2])
    (job,) = other.submits(1)
    worker.gets(job)
    worker.acks(jobs[0])
    desk.gets_result(jobs[0])
    worker.gets(jobs[2])


@pytest.mark.spec("L5")
@pytest.mark.parametrize("how", ["cancel", "lost", "failed"])
def test_a_place_under_the_cap_comes_free_however_an_attempt_ends(world: World, how: str) -> None:
    desk, worker = world.client(cap=1), world.worker("w", credit=9)
    one, two = desk.submits(2)
    worker.gets(one)
    if how == "cancel":
        desk.cancels(one)
        desk.gets_failure(one, "cancelled")
        worker.gets_cancel(one)
        worker.gets(two)
    elif how == "failed":
        worker.fails(one, "worker-error")
        worker.gets(two)
    else:
        worker.leaves()
        world.wait(REATTACH_GRACE_S)
        world.worker("v", credit=9).gets(one)  # it comes back at the head of the queue


@pytest.mark.spec("L5", "K2")
def test_a_client_may_declare_another_cap_and_what_waits_under_it_goes_on(world: World) -> None:
    desk, worker = world.client(cap=1), world.worker("w", credit=9)
    a, b, c = desk.submits(3)
    worker.gets(a)
    world.hear(ev.CapChanged(desk.conn, 2))
    worker.gets(b)
    world.hear(ev.CapChanged(desk.conn, 1))
    worker.acks(a)
    desk.gets_result(a)
    worker.gets_nothing()
    worker.acks(b)
    desk.gets_result(b)
    worker.gets(c)


def test_the_largest_cap_of_a_clients_connections_holds_also_when_one_changes(world: World) -> None:
    worker = world.worker("w", credit=9)
    one, _other = world.client(cap=1), world.client(cap=2)
    a, b, _c = one.submits(3)
    worker.gets(a, b)
    world.hear(ev.CapChanged(one.conn, 1))
    assert world.leader.clients.by_id[one.id].cap == 2


@pytest.mark.spec("F5", "L5")
def test_several_connections_share_the_cap_of_their_client(world: World) -> None:
    worker = world.worker("w", credit=9)
    one, other = world.client(cap=1), world.client(cap=2)
    a, b = one.submits(2)
    (c,) = other.submits(1)
    worker.gets(a, b)
    other.leaves()  # and with it the larger cap
    worker.acks(a)
    one.gets_result(a)
    worker.gets_nothing()
    third = world.client(cap=3)
    worker.gets(c)
    worker.acks(b)
    one.gets_result(b)
    worker.acks(c)
    third.gets_nothing()


@pytest.mark.spec("L5")
def test_the_jobs_of_a_client_that_is_away_go_on(world: World) -> None:
    desk, worker = world.client(cap=1), world.worker("w", credit=9)
    one, two = desk.submits(2)
    worker.gets(one)
    desk.leaves()
    worker.acks(one)
    worker.gets(two)


def test_a_client_without_jobs_is_forgotten_when_it_leaves(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.acks(job)
    desk.gets_result(job)
    desk.confirms(job)
    desk.leaves()
    assert not world.leader.clients.by_id


def test_a_silent_client_that_wanted_heartbeats_is_hung_up_on_once(world: World) -> None:
    desk, quiet = world.client(heartbeats=True), world.client("quiet")
    world.wait(3 * SILENCE_MAX_S)
    desk.falls_silent()
    world.wait(SILENCE_MAX_S + HEARTBEAT_S)
    desk.is_closed()
    world.wait(SILENCE_MAX_S)
    quiet.gets_nothing()


def test_there_are_not_more_clients_than_can_be_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakugumi.core.leader.clients.CLIENTS_MAX", 2)
    one, _ = world.client("one"), world.client("two")
    three = world.client("three", old=True)
    three.is_closed()
    three.submit()
    world.complains("only clients")
    world.client("one").leaves()
    one.leaves()
    world.client("three")


# Idempotency.


@pytest.mark.spec("L6")
def test_a_job_that_is_queued_or_running_is_attached_to(world: World) -> None:
    desk, worker = world.client(), world.worker("w")
    (job,) = desk.submits(1)
    desk.submit(job=job)
    desk.gets_receipt(job)
    worker.credit(9)
    worker.gets(job)
    again = world.client()
    again.submit(job=job)
    again.gets_receipt(job)
    worker.acks(job)
    desk.gets_result(job)
    again.gets_result(job)
    assert world.status().submitted == 1


@pytest.mark.spec("L6", "F11")
@pytest.mark.parametrize("state", ["queued", "running", "done"])
def test_the_same_id_with_another_request_is_refused(world: World, state: str) -> None:
    desk, old = world.client(), world.client("old", old=True)
    worker = world.worker("w", credit=int(state != "queued"))
    (job,) = desk.submits(1)
    if state != "queued":
        worker.gets(job)
    if state == "done":
        worker.acks(job)
        desk.gets_result(job)
    desk.submit(job=job, payload=b"another request")
    desk.gets_refusal(job, "conflict")
    old.submit(job=job, payload=b"another request")
    old.gets_failure(job, "conflict")


@pytest.mark.spec("K8", "L6")
def test_a_leader_says_which_jobs_it_knows_and_nobody_waits_for_them_by_that(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=3)
    done, failed, runs, queued, held = *desk.submits(4), world.new_job()
    stranger = world.new_job()
    worker.gets(done, failed, runs)
    worker.acks(done)
    worker.fails(failed)
    desk.gets_result(done)
    desk.gets_result(failed)
    desk.confirms(done)
    world.worker("of a leader without memory", holds=False).holds(running=[held])
    other = world.client("other")
    asked = [stranger, done, failed, runs, queued, held]
    assert other.asks_for(*asked) == {"unknown": [stranger], "known": [done, runs, queued, held], "failed": [failed]}
    worker.acks(runs)
    desk.gets_result(runs)
    other.gets_nothing()
    world.wait(KEPT_RESULT_TTL_S + SWEEP_S)
    assert other.asks_for(done, queued) == {"unknown": [done], "known": [queued]}


# Back pressure.


@pytest.mark.spec("L9")
def test_a_full_queue_refuses_own_clients_and_takes_work_again_when_there_is_room() -> None:
    with a_world(queue_jobs_max=10) as world:
        desk, worker = world.client(), world.worker("w")
        jobs = desk.submits(10)
        more = desk.submit()
        desk.gets_refusal(more, "full")
        assert world.status().full
        desk.submit(job=jobs[3])  # which is known, and no more work
        desk.gets_receipt(jobs[3])
        worker.credit(1)
        worker.gets(jobs[0])
        desk.submit(job=more)
        desk.gets_refusal(more, "full")  # a little room does not flip it, or old clients would never get any
        worker.credit(1)
        worker.gets(jobs[1])
        assert not world.status().full
        desk.submit(job=more)
        desk.gets_receipt(more)


@pytest.mark.spec("K8", "L9")
def test_a_full_queue_takes_a_job_that_a_worker_has_already() -> None:
    with a_world(queue_jobs_max=10) as world:
        desk, worker = world.client(), world.worker("w", holds=False)
        runs, done, held = (world.new_job() for _ in range(3))
        worker.holds(running=[runs, done, held])
        worker.acks(done)
        desk.submits(10)
        new = world.new_job()
        assert desk.asks_for(runs, done, new) == {"known": [runs, done], "unknown": [new]}
        why = world.leader.why_not(new)
        assert why is not None
        assert why.code == "full"
        assert world.leader.why_not(runs) is None
        desk.submit(job=new)
        desk.gets_refusal(new, "full")
        desk.submit(job=runs)
        desk.gets_receipt(runs)
        desk.submit(job=done)
        desk.gets_receipt(done)
        desk.gets_result(done)
        worker.acks(runs)
        desk.gets_result(runs)
        world.hear(ev.DiskLow(True))  # It would have to be written down.
        desk.submit(job=held)
        desk.gets_refusal(held, "disk-full")
        why = world.leader.why_not(held)
        assert why is not None
        assert why.code == "disk-full"


@pytest.mark.spec("L9")
def test_a_queue_is_full_of_bytes_too_and_running_jobs_count() -> None:
    with a_world(queue_bytes_max=1_000) as world:
        desk, worker = world.client(), world.worker("w", credit=1)
        one, two = desk.submit(payload=bytes(500)), desk.submit(payload=bytes(500))
        desk.gets_receipt(one)
        desk.gets_receipt(two)
        worker.gets(one)
        three = desk.submit()
        desk.gets_refusal(three, "full")
        worker.acks(one)
        desk.gets_result(one)
        desk.submit(job=three)
        desk.gets_receipt(three)


@pytest.mark.spec("L9", "F11")
def test_an_old_client_is_not_read_from_while_the_queue_is_full() -> None:
    with a_world(queue_jobs_max=10) as world:
        desk, old, worker = world.client(), world.client("old", old=True), world.worker("w")
        jobs = desk.submits(9)
        last = old.submit()
        old.takes(ev.PauseReading)
        on_its_way = old.submit()
        old.gets_nothing()
        late = world.client("late", old=True)
        late.takes(ev.PauseReading)
        worker.credit(3)
        worker.gets(jobs[0], last, jobs[1])
        old.takes(ev.ResumeReading)
        late.takes(ev.ResumeReading)
        worker.credit(1)
        worker.gets(on_its_way)


@pytest.mark.spec("F11")
def test_a_submit_that_cannot_be_read_is_refused_and_never_by_silence(world: World) -> None:
    desk, old = world.client(), world.client("old", old=True)
    for end in (desk, old):
        world.hear(ev.SubmitRefused(end.conn, job_id(7), "bad-request", "this is no job"))
    desk.gets_refusal(job_id(7), "bad-request")
    assert old.gets_failure(job_id(7), "bad-request") == "this is no job"


@pytest.mark.spec("F11")
@pytest.mark.parametrize("reason", ["unknown-program", "bad-name", "bad-request", "output-limit", "bad-result"])
def test_what_can_never_work_fails_at_once(world: World, reason: str) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, reason)
    desk.gets_result(job)
    assert world.story(job)[-2] == f"attempt 1 ended: {reason}"


# Cancel.


@pytest.mark.spec("L10")
def test_a_queued_job_is_cancelled(world: World) -> None:
    desk, worker = world.client(), world.worker("w")
    one, two = desk.submits(2)
    desk.cancels(one)
    desk.gets_failure(one, "cancelled")
    worker.credit(9)
    worker.gets(two)


@pytest.mark.spec("L10")
@pytest.mark.parametrize("old", [False, True])
def test_a_running_job_is_cancelled_and_its_worker_told_if_it_can_be(world: World, old: bool) -> None:
    desk, worker = world.client(), world.worker("w", old=old, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    if not old:
        worker.gets_cancel(job)
    worker.fails(job, "cancelled")
    assert "attempt 1 ended: cancelled" in world.story(job)


@pytest.mark.spec("L10")
def test_an_old_worker_that_never_answers_for_a_cancelled_job_is_not_held_to_it_for_ever(world: World) -> None:
    desk, worker = world.client(), world.worker("w", old=True, credit=1)
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    desk.confirms(job)
    (known,) = world.leader.roster
    assert list(known.jobs) == [job]
    world.wait(KEPT_RESULT_TTL_S + SWEEP_S + HEARTBEAT_S)
    assert not known.jobs


@pytest.mark.spec("L10")
def test_a_job_that_backs_off_is_cancelled(world: World) -> None:
    desk, worker = world.client(), world.worker("w", credit=9)
    (job,) = desk.submits(1)
    worker.gets(job)
    worker.fails(job, "worker-error")
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    world.wait(60)
    assert world.status().backing_off == 0


@pytest.mark.spec("L10")
def test_a_finished_job_an_unknown_one_and_a_strangers_are_not_cancelled(world: World) -> None:
    desk, stranger, worker = world.client(), world.client("stranger"), world.worker("w", credit=9)
    done, running = desk.submits(2)
    worker.gets(done, running)
    worker.acks(done)
    desk.gets_result(done)
    desk.cancels(done, job_id(77))
    stranger.cancels(running)


@pytest.mark.spec("L6", "L10")
@pytest.mark.parametrize("where", ["queued", "elsewhere", "there again"])
def test_the_echo_of_a_cancel_does_not_end_the_job_that_was_opened_again(world: World, where: str) -> None:
    desk, worker, other = world.client(), world.worker("w", credit=1), world.worker("other")
    (job,) = desk.submits(1)
    worker.gets(job)
    desk.cancels(job)
    desk.gets_failure(job, "cancelled")
    worker.gets_cancel(job)
    desk.confirms(job)
    if where != "queued":
        (other if where == "elsewhere" else worker).credit(1)
    desk.submit(job=job)
    desk.gets_receipt(job)
    if where != "queued":
        (other if where == "elsewhere" else worker).gets(job)
    worker.fails(job, "cancelled")
    if where != "elsewhere":
        other.credit(1)
        other.gets(job)
    other.acks(job)
    desk.gets_result(job)
    if where == "there again":
        assert world.status().redelivered == 1


@pytest.mark.spec("L10")
def test_jobs_are_cancelled_by_id_by_client_and_by_pattern(world: World) -> None:
    desk, other, worker = world.client(), world.client("other"), world.worker("w", "job.assign.done", credit=1)
    (done,) = desk.submits(1, "done")
    worker.gets(done)
    worker.acks(done)
    desk.gets_result(done)
    (a,), (b,), (c,) = desk.submits(1, "calc.a"), desk.submits(1, "calc.b"), desk.submits(1, "draw")
    (d,), (e,) = other.submits(1, "calc.a"), other.submits(1, "draw")

    def cancel(question: AskCancel) -> CancelAnswer:
        answer = world.ask(question)
        assert isinstance(answer, CancelAnswer)
        return answer

    ids = [show_job_id(job) for job in (a, a, done, job_id(77))] + ["no id"]
    assert cancel(AskCancel(jobs=ids)) == CancelAnswer(1, 1, [show_job_id(job_id(77)), "no id"])
    desk.gets_failure(a, "cancelled")
    assert cancel(AskCancel(client="desk", pattern="job.assign.calc.*")) == CancelAnswer(1, 0, [])
    desk.gets_failure(b, "cancelled")
    assert cancel(AskCancel(pattern="job.assign.calc.>")) == CancelAnswer(1, 0, [])
    other.gets_failure(d, "cancelled")
    assert cancel(AskCancel(jobs=[show_job_id(e)], client="desk")) == CancelAnswer(0, 0, [])
    assert cancel(AskCancel(client="desk")) == CancelAnswer(1, 0, [])
    desk.gets_failure(c, "cancelled")
    assert world.ask_in_vain(AskCancel()) == "bad-request"


@pytest.mark.spec("L9", "L10")
def test_what_a_client_left_behind_that_will_not_come_back_is_removed_but_for_a_trace_of_what_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CANCELLED_AT_ONCE_MAX", 4)
    gone, stays, worker = world.client("gone"), world.client("stays"), world.worker("w", credit=1)
    jobs = gone.submits(6)
    (other,) = stays.submits(1)
    worker.gets(jobs[0])
    worker.acks(jobs[0])
    gone.gets_result(jobs[0])
    gone.leaves()
    worker.credit(1)
    running = jobs[1]
    worker.gets(running)
    assert world.status().busiest[0] == ClientRow("gone", False, 100, 1, 6, 448 + 70)
    assert world.ask(AskCancel(client="gone", forget=True)) == CancelAnswer(3, 1, [], 4, 2)
    assert world.ask(AskCancel(client="gone", forget=True)) == CancelAnswer(2, 0, [], 2, 0)
    worker.gets_cancel(running)
    assert list(world.leader.jobs) == [running, other]
    world.wait(KEPT_RESULT_TTL_S + SWEEP_S + HEARTBEAT_S)
    assert list(world.leader.jobs) == [other]
    assert list(world.leader.clients.by_id) == ["stays"]
    world.restart()
    assert list(world.leader.jobs) == [other]
    assert world.ask_in_vain(AskCancel(pattern="a..b")) == "bad-subject"
    assert world.status().queued == 1


@pytest.mark.spec("F9", "F11")
def test_a_refusal_does_not_settle_the_job_whose_id_was_used_for_something_else(world: World) -> None:
    old, worker = world.client(old=True), world.worker("w", credit=1)
    job = old.submit()
    worker.gets(job)
    old.blocks()
    worker.acks(job)
    old.submit(job=job, payload=b"something else")
    old.gets_failure(job, "conflict")
    assert job in world.leader.clients.results.undelivered
    old.unblocks()
    old.gets_result(job)
    assert job not in world.leader.clients.results.undelivered
