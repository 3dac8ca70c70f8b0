"""One gateway from its first event to its last: jobs are sent, answered, given up."""

from __future__ import annotations

import pytest
from tests.kit.gateway_desk import GatewayDesk
from tests.kit.gateway_jobs import DIGEST, JOB, answer_group, ask, get_answer, submit

from wakugumi.core.flows import Answered
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.rows import DONE, Content
from wakugumi.errors import Refused


@pytest.fixture
def desk() -> GatewayDesk:
    desk = GatewayDesk()
    desk.hear(ev.GatewayStarts())
    return desk


def test_a_synchronous_job_is_forwarded_kept_and_answered(desk: GatewayDesk) -> None:
    submit(desk, 1)
    (sent,) = desk.unanswered.values()
    assert isinstance(sent, ev.Dispatch)
    assert (sent.group, sent.path, sent.request) == ("a", "/dispatch/monday", 1)
    answer_group(desk, b"PK")
    assert get_answer(desk, 1) == ev.OpenedAnswer(200, {"Waku-Status": "OK", "Waku-Group": "a"}, 2, b"PK")
    row = desk.rows.get(JOB)
    assert row is not None
    assert (row.state, row.answer, row.request) == (DONE, Content(2, b"PK"), DIGEST)
    assert desk.effects_of(ev.DropBody) == [ev.DropBody(1)]
    assert len(desk.effects_of(ev.CloseTry)) == 1
    assert desk.machine.flights.by_job == {}


def test_an_asynchronous_job_is_accepted_before_it_is_forwarded(desk: GatewayDesk) -> None:
    submit(desk, 1, is_async=True)
    assert isinstance(get_answer(desk, 1), ev.JobAccepted)
    assert desk.asked.index(ev.FlushRows()) < [type(act) for act in desk.asked].index(ev.Dispatch)
    assert desk.effects_of(ev.BodyAccepted) == [ev.BodyAccepted(1, 5)]
    answer_group(desk, b"PK")
    ask(desk, 2, "result")
    assert get_answer(desk, 2) == ev.OpenedAnswer(200, {"Waku-Status": "OK", "Waku-Group": "a"}, 2, b"PK")


def test_two_requests_of_one_job_wait_for_one_flight(desk: GatewayDesk) -> None:
    submit(desk, 1)
    submit(desk, 2)
    assert len(desk.asked_for(ev.Dispatch)) == 1
    answer_group(desk, b"PK")
    assert get_answer(desk, 1) == get_answer(desk, 2)


def test_a_gateway_that_stops_takes_no_job_and_finishes_its_own(desk: GatewayDesk) -> None:
    submit(desk, 1)
    desk.hear(ev.GatewayStops())
    submit(desk, 2, name="tuesday")
    refused = get_answer(desk, 2)
    assert isinstance(refused, Refused)
    assert refused.code == "stopping"
    answer_group(desk, b"PK")
    assert isinstance(get_answer(desk, 1), ev.OpenedAnswer)


def test_a_gateway_that_leaves_removes_rows_of_waiting_clients_and_keeps_accepted_jobs(desk: GatewayDesk) -> None:
    submit(desk, 1)
    submit(desk, 2, name="tuesday", is_async=True)
    desk.hear(ev.GatewayStops(leaves=True))
    assert desk.effects_of(ev.GatewayLeft) == [ev.GatewayLeft()]
    assert get_answer(desk, 1).code == "stopping"
    assert [row.name for row in desk.rows.rows.values()] == ["tuesday"]
    assert desk.machine.flights.by_job == {}
    assert desk.unanswered == {}


def test_a_closed_machine_asks_for_nothing_more(desk: GatewayDesk) -> None:
    submit(desk, 1)
    (number,) = desk.unanswered
    before = len(desk.asked)
    desk.machine.close()
    desk.hear(Answered(number, None))
    desk.wait(100.0)
    assert len(desk.asked) == before
