"""Who is answered by a result, and what becomes of a job whose caller left?"""

from __future__ import annotations

import pytest

from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.callers import events as cv
from wakugumi.core.leader.callers.session import CallerRequest, CallerSession

pytestmark = pytest.mark.spec("G1", "L6")

A = JobId(b"a" * 16)
CONN = ConnId(1)
RESULT = ev.SendResult(CONN, A, "sim", b"result")
CONFIRMED = cv.TellLeader(ev.Confirmed(CONN, (A,)))
CONFLICT = ev.SendRefusal(CONN, A, "conflict", "another request")


class SessionDesk:
    def __init__(self) -> None:
        self.requests: dict[int, CallerRequest] = {}
        self._do: list[cv.CallersDo] = []
        self.session = CallerSession(CONN, ClientId("http"), None, 0.0, self.requests, self._do)

    def done(self) -> list[cv.CallersDo]:
        do = self._do.copy()
        self._do.clear()
        return do

    def leave(self, number: int) -> None:
        self.session.gone(self.requests[number], is_stopping=False)
        assert self.done() == [cv.DropRequest(number)]


@pytest.fixture
def desk() -> SessionDesk:
    return SessionDesk()


def test_a_caller_that_left_before_its_receipt_keeps_others_off_its_job(desk: SessionDesk) -> None:
    session = desk.session
    session.enter(1, A, 0.0)
    assert not session.takes(A)
    desk.leave(1)
    assert not session.takes(A), "a refusal would be of an unknown request"
    session.receipt_came(A)
    assert session.takes(A)


def test_a_refusal_of_a_caller_that_left_leaves_nothing(desk: SessionDesk) -> None:
    desk.session.enter(1, A, 0.0)
    desk.leave(1)
    desk.session.refusal_came(CONFLICT)
    assert desk.done() == []
    assert desk.session.is_idle


def test_a_repeated_request_is_answered_after_its_own_receipt_only(desk: SessionDesk) -> None:
    session = desk.session
    session.enter(1, A, 0.0)
    session.receipt_came(A)
    desk.leave(1)
    session.enter(2, A, 1.0)
    session.result_came(RESULT, 2.0)
    assert desk.done() == [CONFIRMED], "this result answers the caller that left"
    session.receipt_came(A)
    session.result_came(RESULT, 3.0)
    assert desk.done() == [cv.GiveResult(2, RESULT)]


def test_a_repeated_request_without_a_receipt_is_answered_by_the_second_result(desk: SessionDesk) -> None:
    """The leader sends no receipt for a result that was delivered meanwhile."""
    session = desk.session
    session.enter(1, A, 0.0)
    session.receipt_came(A)
    desk.leave(1)
    session.enter(2, A, 1.0)
    session.result_came(RESULT, 2.0)
    session.result_came(RESULT, 3.0)
    assert desk.done() == [CONFIRMED, cv.GiveResult(2, RESULT)]


def test_another_request_for_a_job_that_was_left_is_told_the_conflict_and_the_job_goes_on(desk: SessionDesk) -> None:
    session = desk.session
    session.enter(1, A, 0.0)
    session.receipt_came(A)
    desk.leave(1)
    session.enter(2, A, 1.0)
    session.refusal_came(CONFLICT)
    assert desk.done() == [cv.RefuseRequest(2, "conflict", "another request")]
    assert list(session.left) == [A]
    session.result_came(RESULT, 2.0)
    assert desk.done() == [CONFIRMED]
    assert session.is_idle


def test_another_request_whose_caller_left_too_does_not_end_the_job(desk: SessionDesk) -> None:
    session = desk.session
    session.enter(1, A, 0.0)
    session.receipt_came(A)
    desk.leave(1)
    session.enter(2, A, 1.0)
    desk.leave(2)
    session.refusal_came(CONFLICT)
    assert session.takes(A), "the job of the first caller goes on, and its leader has answered"
    assert not session.is_idle
    session.refusal_came(ev.SendRefusal(CONN, A, "expired", "no longer"))
    assert session.is_idle, "this refusal is about the job itself"


def test_a_refused_request_that_replaced_nobody_leaves_nothing(desk: SessionDesk) -> None:
    desk.session.enter(1, A, 0.0)
    desk.session.refusal_came(CONFLICT)
    assert desk.done() == [cv.RefuseRequest(1, "conflict", "another request")]
    assert desk.session.is_idle
    assert not desk.requests


def test_a_request_that_was_told_is_refused_for_good(desk: SessionDesk) -> None:
    session = desk.session
    session.enter(1, A, 0.0)
    session.receipt_came(A)
    desk.leave(1)
    session.enter(2, A, 1.0)
    session.receipt_came(A)
    session.refusal_came(ev.SendRefusal(CONN, A, "expired", "no longer"))
    assert desk.done() == [cv.RefuseRequest(2, "expired", "no longer")]
    assert session.is_idle


def test_a_result_that_comes_twice_answers_one_request_once(desk: SessionDesk) -> None:
    desk.session.enter(1, A, 0.0)
    desk.session.result_came(RESULT, 0.0)
    desk.session.result_came(RESULT, 0.0)
    assert desk.done() == [cv.GiveResult(1, RESULT), cv.ReleaseRequest(1), CONFIRMED]


def test_receipts_and_refusals_of_unknown_jobs_are_ignored(desk: SessionDesk) -> None:
    desk.session.receipt_came(A)
    desk.session.refusal_came(CONFLICT)
    assert desk.done() == []
    assert desk.session.is_idle


def test_a_job_that_failed_and_was_submitted_again_by_a_caller_that_left_too_keeps_its_session(
    desk: SessionDesk,
) -> None:
    """The first result answers the first caller, and the leader runs the job once more for the second."""
    session = desk.session
    session.enter(1, A, 0.0)
    session.receipt_came(A)
    desk.leave(1)
    session.enter(2, A, 1.0)
    desk.leave(2)
    session.result_came(RESULT, 2.0)
    assert desk.done() == [CONFIRMED]
    assert not session.is_idle
    session.receipt_came(A)
    session.result_came(RESULT, 3.0)
    assert desk.done() == [CONFIRMED]
    assert session.is_idle
