"""What becomes of a job's row: one answer, one owner, no row of a request that was none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kit.gateway_desk import GatewayDesk
from tests.kit.gateway_jobs import DIGEST, JOB, NAME, answer_group, ask, first_dispatch, get_answer, lose_group, submit

from wakugumi.core.flows import ActFailed
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.outcomes import NoGroup, Problem
from wakugumi.core.gateway.rows import DONE, FAILED, QUEUED, RUNNING, Content, GatewayJob
from wakugumi.errors import Refused
from wakugumi.limits.gateway import GATEWAY_CRASHES_MAX, GATEWAY_FORWARDS_MAX


@pytest.fixture
def desk() -> GatewayDesk:
    desk = GatewayDesk()
    desk.hear(ev.GatewayStarts())
    return desk


def the_row(desk: GatewayDesk) -> GatewayJob:
    row = desk.rows.get(JOB)
    assert row is not None
    return row


def test_another_request_of_the_same_id_is_a_conflict_at_every_time(desk: GatewayDesk) -> None:
    submit(desk, 1)
    submit(desk, 2, content=b"other")
    answer_group(desk)
    submit(desk, 3, content=b"other")
    submit(desk, 4, content=b"other", is_async=True)
    for request in (2, 3, 4):
        refused = get_answer(desk, request)
        assert isinstance(refused, Refused)
        assert refused.code == "conflict"
    submit(desk, 5)
    assert isinstance(get_answer(desk, 5), ev.OpenedAnswer)
    assert len(desk.asked_for(ev.Dispatch)) == 1


def test_the_first_accepted_result_stays(desk: GatewayDesk) -> None:
    submit(desk, 1, is_async=True)
    row = the_row(desk)
    first = Content(3, b"one")
    assert desk.rows.replace(row, replace(row, state=DONE, status=200, answer=first, body=None)) is not None
    answer_group(desk, b"two")
    assert the_row(desk).answer == first


def test_a_job_that_ended_at_another_gateway_is_given_up_here(desk: GatewayDesk) -> None:
    submit(desk, 1)
    row = the_row(desk)
    assert desk.rows.replace(row, replace(row, state=DONE, status=200, answer=Content(3, b"one"))) is not None
    desk.wait(2.0)
    assert get_answer(desk, 1) == ev.OpenedAnswer(200, {}, 3, b"one")
    assert desk.machine.flights.by_job == {}
    assert not [act for act in desk.unanswered.values() if isinstance(act, ev.Dispatch)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_full_group_ends_a_waiting_job_and_not_an_accepted_one(desk: GatewayDesk, is_async: bool) -> None:
    submit(desk, 1, is_async=is_async)
    answer_group(desk, status=503, code="full")
    if not is_async:
        assert isinstance(get_answer(desk, 1), NoGroup)
        assert desk.rows.get(JOB) is None
        return
    assert the_row(desk).state == QUEUED
    desk.wait(60.0)
    answer_group(desk)
    assert the_row(desk).state == DONE


def test_a_request_that_was_no_job_leaves_no_row(desk: GatewayDesk) -> None:
    submit(desk, 1)
    answer_group(desk, status=400, code="bad-name")
    assert get_answer(desk, 1) == Problem(400, "bad-name", "it is bad-name", get_answer(desk, 1).hint)
    assert desk.rows.get(JOB) is None


def test_a_broken_connection_is_asked_about_at_the_same_group_once(desk: GatewayDesk) -> None:
    submit(desk, 1)
    lose_group(desk, "dead")
    assert len(desk.asked_for(ev.Dispatch)) == 2
    lose_group(desk, "dead")
    assert isinstance(get_answer(desk, 1), NoGroup)


def test_a_cancelled_job_has_ended_for_everybody(desk: GatewayDesk) -> None:
    submit(desk, 1, is_async=True)
    submit(desk, 2)
    ask(desk, 3, "cancel")
    assert get_answer(desk, 3) == ev.JobCancelled(True)
    assert get_answer(desk, 2).code == "cancelled"
    assert desk.asked_for(ev.CancelAt) == [ev.CancelAt("a", NAME)]
    assert (the_row(desk).state, the_row(desk).status) == (FAILED, 410)
    ask(desk, 4, "cancel")
    assert get_answer(desk, 4) == ev.JobCancelled(False)


def test_an_unforeseen_failure_is_tried_again_and_not_for_ever(desk: GatewayDesk) -> None:
    submit(desk, 1, is_async=True)
    for _ in range(GATEWAY_CRASHES_MAX):
        number = first_dispatch(desk)
        del desk.unanswered[number]
        desk.hear(ActFailed(number, ZeroDivisionError("unforeseen")))
        desk.wait(30.0)
    assert (the_row(desk).state, the_row(desk).head["code"]) == (FAILED, "worker-error")
    assert len(desk.asked_for(ev.Dispatch)) == GATEWAY_CRASHES_MAX


def test_the_end_of_an_accepted_job_is_stored_however_long_the_store_refuses(desk: GatewayDesk) -> None:
    submit(desk, 1, is_async=True)
    store = desk.answers[ev.ReplaceRow]

    def busy(_: ev.ReplaceRow) -> object:
        raise Refused("busy", "the store is locked")

    desk.answers[ev.ReplaceRow] = busy
    answer_group(desk)
    desk.wait(60.0)
    assert the_row(desk).state == RUNNING
    desk.answers[ev.ReplaceRow] = store
    desk.wait(10.0)
    assert the_row(desk).state == DONE
    assert len(desk.asked_for(ev.Dispatch)) == 1


def test_no_more_jobs_are_forwarded_at_once_than_may_be(desk: GatewayDesk) -> None:
    for number in range(GATEWAY_FORWARDS_MAX + 10):
        submit(desk, number + 1, name=f"job{number}", is_async=True)
    assert len(desk.machine.flights.by_job) == GATEWAY_FORWARDS_MAX
    assert len(desk.machine.flights.queue) == 10
    answer_group(desk)
    assert len(desk.machine.flights.queue) == 9


def test_a_job_taken_over_without_its_body_has_failed(desk: GatewayDesk) -> None:
    desk.rows.add(GatewayJob(job=JOB, name=NAME, owner="dead", is_async=True, request=DIGEST))
    desk.wait(20.0)
    assert the_row(desk).head["code"] == "input-lost"


@pytest.mark.spec("O1")
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("ends", ["answered", "refused", "lost", "looked at"])
def test_a_flight_has_no_part_in_the_job_of_another_client_that_took_its_id(
    desk: GatewayDesk, is_async: bool, ends: str
) -> None:
    """The row of a gateway that was thought dead may be dropped, and the id be taken, while the gateway goes on."""
    submit(desk, 1, is_async=is_async, client="ann")
    taken = replace(the_row(desk), client="bob", version=7, is_async=True, state=QUEUED, body=Content(5, b"bob's"))
    desk.rows.rows[JOB] = taken
    if ends == "answered":
        answer_group(desk, b"PK for ann")
    elif ends == "refused":
        answer_group(desk, status=409, code="conflict")
    elif ends == "lost":
        lose_group(desk, "late")
    else:
        desk.rows.rows[JOB] = replace(taken, state=DONE, status=200, answer=Content(2, b"PK"), body=None)
        desk.wait(2.0)
        assert not desk.machine.flights.by_job
    row = the_row(desk)
    assert (row.client, None if row.answer is None else row.answer.data) == ("bob", b"PK" if row.is_final else None)
    if ends != "looked at":  # The job of the other client is forwarded, with its own body.
        act = desk.unanswered[first_dispatch(desk)]
        assert isinstance(act, ev.Dispatch)
        assert act.content == Content(5, b"bob's")
