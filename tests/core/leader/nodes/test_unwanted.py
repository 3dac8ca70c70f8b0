"""How does a node learn that a job is not wanted any more?"""

from __future__ import annotations

import pytest
from tests.kit.node_desk import NodeDesk

from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.nodes import events as nev
from wakugumi.core.leader.nodes import unwanted
from wakugumi.errors import Lost
from wakugumi.limits.node import NODE_POLL_S, NODE_POLL_TIMEOUT_S


@pytest.fixture
def desk() -> NodeDesk:
    desk = NodeDesk()
    desk.polled(limit=9)
    return desk


def cancel(desk: NodeDesk, number: int = 1) -> JobId:
    job = desk.assign(number)
    desk.hear(ev.SendCancel(ConnId(1), job))
    return job


def poll(desk: NodeDesk) -> None:
    desk.wait(NODE_POLL_S)
    desk.polled(limit=9)


@pytest.mark.parametrize("status", [202, 404])
def test_a_cancel_is_sent_once(desk: NodeDesk, status: int) -> None:
    cancel(desk)
    desk.answer(desk.asks(nev.CancelAtNode), status)
    assert not len(desk.machine.unwanted)
    poll(desk)
    assert not desk.is_asking(nev.CancelAtNode)


@pytest.mark.parametrize("answer", [500, Lost("cut", "dead"), ZeroDivisionError()])
def test_a_cancel_that_fails_waits_for_the_next_poll_and_is_tried_five_times(
    desk: NodeDesk, answer: int | Exception
) -> None:
    cancel(desk)
    for _ in range(4):
        desk.answer(desk.asks(nev.CancelAtNode), answer)
        assert not desk.is_asking(nev.CancelAtNode)
        poll(desk)
    desk.answer(desk.asks(nev.CancelAtNode), answer)
    poll(desk)
    assert not desk.is_asking(nev.CancelAtNode)
    assert not len(desk.machine.unwanted)


def test_a_cancel_without_an_answer_ends(desk: NodeDesk) -> None:
    first, second = cancel(desk, 1), cancel(desk, 2)
    assert desk.asks(nev.CancelAtNode).job == first
    desk.wait(NODE_POLL_TIMEOUT_S)
    desk.polled(limit=9)
    assert desk.asks(nev.CancelAtNode).job == second


def test_a_job_that_is_wanted_again_is_not_cancelled(desk: NodeDesk) -> None:
    cancel(desk, 1)
    cancel(desk, 2)
    desk.assign(2)
    assert desk.is_asking(nev.AskNode)
    desk.answer(desk.asks(nev.CancelAtNode), 202)
    assert not desk.is_asking(nev.CancelAtNode)


@pytest.mark.spec("L4")
@pytest.mark.parametrize("answer", [202, Lost("cut", "dead")])
def test_a_job_that_is_wanted_again_waits_for_the_cancel_under_way(desk: NodeDesk, answer: object) -> None:
    """Otherwise the cancel may end the new run."""
    cancel(desk)
    desk.assign()
    assert not desk.is_asking(nev.AskNode)
    desk.answer(desk.asks(nev.CancelAtNode), answer)
    assert not desk.asks(nev.AskNode).is_bare


def test_the_answer_to_an_earlier_cancel_does_not_count_for_a_later_one(desk: NodeDesk) -> None:
    """Otherwise the second run of the job would go on for ever."""
    job = cancel(desk)
    earlier = desk.asks(nev.CancelAtNode)
    desk.assign()
    desk.hear(ev.SendCancel(ConnId(1), job))
    assert not desk.is_asking(nev.AskNode)
    desk.answer(earlier, 202)
    assert desk.asks(nev.CancelAtNode).job == job
    desk.answer(desk.asks(nev.CancelAtNode), 202)
    assert not len(desk.machine.unwanted)


def test_of_too_many_the_oldest_are_left_to_their_end(desk: NodeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwanted, "NODE_LEFT_MAX", 2)
    jobs = [cancel(desk, number) for number in (1, 2, 3)]
    assert [job in desk.machine.unwanted for job in jobs] == [False, True, True]
