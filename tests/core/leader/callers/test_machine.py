"""Which session does a request get, when are callers looked at, and what is left of them?"""

from __future__ import annotations

from itertools import count

import pytest

from wakugumi.core.ids import ClientId, ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.callers import events as cv
from wakugumi.core.leader.callers.machine import CALLERS, CallerBounds, CallersMachine

pytestmark = pytest.mark.spec("G1", "L6")

A, B = JobId(b"a" * 16), JobId(b"b" * 16)
HTTP, DESK = ClientId("http"), ClientId("desk")


class CallersDesk:
    """The machine, with a clock and a script."""

    def __init__(self, bounds: CallerBounds = CALLERS) -> None:
        conns = count(1)
        self.machine = CallersMachine(7, lambda: ConnId(next(conns)), bounds)
        self.now = 100.0

    def hear(self, *events: cv.CallersEvent) -> list[cv.CallersDo]:
        do = list(self.machine.handle(events, self.now).do)
        self.machine.check()
        return do

    def wait(self, seconds: float) -> list[cv.CallersDo]:
        """All that is done until then."""
        end, do = self.now + seconds, []
        while (at := self.machine.wake_at()) is not None and at <= end:
            self.now = max(self.now, at)
            do += self.machine.tick(self.now).do
            self.machine.check()
            later = self.machine.wake_at()
            assert later is None or later > self.now
        self.now = end
        return do

    def want(self, request: int, job: JobId = A, client: ClientId = HTTP) -> list[cv.CallersDo]:
        return self.hear(cv.JobWanted(request, client, job, ev.Claimed(ConnId(0), (job,))))


def told(do: list[cv.CallersDo]) -> list[ev.LeaderEvent]:
    return [effect.event for effect in do if isinstance(effect, cv.TellLeader)]


def claimed(conn: int, job: JobId = A) -> ev.Claimed:
    return ev.Claimed(ConnId(conn), (job,))


def confirmed(conn: int, job: JobId = A) -> cv.TellLeader:
    return cv.TellLeader(ev.Confirmed(ConnId(conn), (job,)))


def receipt(conn: int, job: JobId = A) -> ev.SendReceipts:
    return ev.SendReceipts(ConnId(conn), [job])


def result(conn: int, job: JobId = A) -> ev.SendResult:
    return ev.SendResult(ConnId(conn), job, "sim", b"result")


@pytest.fixture
def desk() -> CallersDesk:
    return CallersDesk()


def test_the_first_request_of_a_client_opens_a_session_and_the_next_one_uses_it(desk: CallersDesk) -> None:
    joined = ev.ClientJoined(ConnId(1), HTTP, 7, receipts=True, heartbeats=False)
    assert desk.want(1) == [cv.SessionOpened(ConnId(1)), cv.TellLeader(joined), cv.TellLeader(claimed(1))]
    assert told(desk.want(2, B)) == [claimed(1, B)]
    assert desk.machine.waiting == 2


def test_a_second_request_for_the_same_job_has_a_session_of_its_own(desk: CallersDesk) -> None:
    desk.want(1)
    assert told(desk.want(2))[1] == claimed(2)
    assert desk.hear(ev.SendRefusal(ConnId(2), A, "conflict", "another")) == [
        cv.RefuseRequest(2, "conflict", "another")
    ]
    assert desk.hear(receipt(1), result(1)) == [cv.GiveResult(1, result(1))]


def test_clients_do_not_share_sessions_and_there_are_only_so_many() -> None:
    desk = CallersDesk(CALLERS._replace(clients_max=2))
    desk.want(1)
    assert told(desk.want(2, A, DESK))[1] == claimed(2)
    assert desk.want(3, A, ClientId("third")) == [
        cv.RefuseRequest(3, "full", "2 client ids are in use over HTTP"),
    ]
    assert told(desk.want(4, B)) == [claimed(1, B)], "a known client is not one more"


def test_a_result_is_confirmed_when_its_answer_is_written(desk: CallersDesk) -> None:
    desk.want(1)
    desk.hear(receipt(1))
    assert desk.hear(result(1)) == [cv.GiveResult(1, result(1))]
    assert desk.hear(cv.AnswerWritten(1)) == [cv.ReleaseRequest(1), confirmed(1)]
    assert desk.hear(cv.AnswerWritten(1)) == []
    assert not desk.machine.requests


def test_a_result_that_is_not_read_is_confirmed_after_a_while(desk: CallersDesk) -> None:
    desk.want(1)
    desk.hear(result(1))
    assert not told(desk.wait(CALLERS.unread_s - 0.5))
    assert desk.wait(1.0)[-2:] == [cv.ReleaseRequest(1), confirmed(1)]


def test_a_repeated_request_gets_an_unread_result_and_one_confirm_is_for_both(desk: CallersDesk) -> None:
    desk.want(1)
    desk.hear(result(1))
    desk.wait(50.0)
    assert told(desk.want(2)) == [claimed(1)]
    assert desk.hear(receipt(1), result(1)) == [cv.GiveResult(2, result(1))]
    assert not told(desk.wait(50.0)), "the later answer counts"
    assert desk.hear(cv.AnswerWritten(1)) == [cv.ReleaseRequest(1), cv.ReleaseRequest(2), confirmed(1)]
    assert desk.hear(cv.AnswerWritten(2)) == []


def test_callers_are_looked_at_again_and_again_while_there_are_sessions(desk: CallersDesk) -> None:
    assert desk.machine.wake_at() is None
    desk.want(1)
    assert desk.wait(CALLERS.gone_s) == [cv.LookAtCallers((1,))]
    assert desk.wait(CALLERS.gone_s) == [cv.LookAtCallers((1,))]
    desk.hear(ev.SendRefusal(ConnId(1), A, "unknown-job", "never heard"))
    assert desk.wait(CALLERS.linger_s + CALLERS.gone_s) == [
        cv.SessionClosed(ConnId(1)),
        cv.TellLeader(ev.Left(ConnId(1))),
    ]
    assert desk.machine.wake_at() is None
    assert not desk.machine.sessions
    assert not desk.machine.clients


def test_a_used_session_is_not_closed_though_no_look_meets_a_request(desk: CallersDesk) -> None:
    for number in range(30):
        desk.want(number, client=DESK)
        desk.hear(result(1), cv.AnswerWritten(number))
        assert cv.SessionClosed(ConnId(1)) not in desk.wait(0.9)


def test_a_gone_caller_is_dropped_and_its_session_stays_until_the_result_is_here(desk: CallersDesk) -> None:
    desk.want(1)
    desk.hear(receipt(1))
    assert desk.hear(cv.CallersSeen((1, 99), is_stopping=False)) == [cv.DropRequest(1)]
    assert not told(desk.wait(300.0)), "its job goes on"
    assert desk.hear(result(1)) == [confirmed(1)]
    desk.wait(CALLERS.linger_s + CALLERS.gone_s)
    assert not desk.machine.sessions


def test_a_caller_that_is_gone_while_its_answer_is_written_may_come_back(desk: CallersDesk) -> None:
    desk.want(1)
    desk.hear(result(1))
    assert desk.hear(cv.HttpCallerGone(1), cv.CallersSeen((1,), is_stopping=False)) == []
    assert desk.hear(cv.CallersSeen((), is_stopping=True)) == [], "a reader has its time"
    assert desk.hear(cv.CallersSeen((1,), is_stopping=True)) == [cv.ReleaseRequest(1), confirmed(1)]


def test_a_closed_machine_refuses_all_that_wait_and_all_that_come(desk: CallersDesk) -> None:
    desk.want(1)
    desk.want(2, B)
    desk.hear(result(1, B))
    refused = ("stopping", "the leader is shutting down")
    assert desk.hear(cv.CallersClosed()) == [cv.RefuseRequest(1, *refused)]
    assert desk.want(3) == [cv.RefuseRequest(3, *refused)]
    assert desk.hear(cv.ResultsAdopted({DESK: [A]})) == []
    assert desk.machine.wake_at() is None
    assert desk.hear(cv.AnswerWritten(2)) == [cv.ReleaseRequest(2), confirmed(1, B)]


def test_results_of_an_earlier_life_are_claimed_and_confirmed_for_callers_that_left() -> None:
    desk = CallersDesk(CALLERS._replace(clients_max=1))
    do = desk.hear(cv.ResultsAdopted({DESK: [A, B], HTTP: [A]}))
    assert told(do)[1:] == [ev.Claimed(ConnId(1), (A, B))], "there is no room for another client"
    assert desk.hear(result(1)) == [confirmed(1)]
    assert desk.hear(ev.SendRefusal(ConnId(1), B, "unknown-job", "no longer")) == []
    desk.wait(CALLERS.linger_s + CALLERS.gone_s)
    assert not desk.machine.sessions


def test_a_session_that_the_leader_closes_refuses_its_requests(desk: CallersDesk) -> None:
    desk.want(1)
    desk.want(2, B)
    desk.hear(result(1, B))
    assert desk.hear(ev.Close(ConnId(1), "full: 2 clients"), ev.Complain(ConnId(1), "only clients submit jobs")) == [
        cv.RefuseRequest(1, "full", "full: 2 clients"),
        cv.ReleaseRequest(2),
        cv.SessionClosed(ConnId(1)),
        cv.TellLeader(ev.Left(ConnId(1))),
    ]
    assert told(desk.want(3))[1] == claimed(2)


def test_the_leader_s_machine_is_told_that_answers_have_connections_of_their_own(desk: CallersDesk) -> None:
    desk.want(1)
    assert desk.hear(ev.TellWhenPeerWritten(ConnId(1))) == [cv.TellLeader(ev.PeerWritten(ConnId(1)))]
    assert desk.hear(ev.Complain(ConnId(1), "odd"), ev.SendWelcome(ConnId(1))) == [cv.WarnOfCaller("odd")]
