"""Is a node well, and how many jobs may it get? Credit, rests and trials."""

from __future__ import annotations

import pytest
from tests.kit.node_desk import NodeDesk

from wakugumi.core.ids import ConnId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.nodes import events as nev
from wakugumi.errors import Lost, PeerError
from wakugumi.limits.http import CALLS_MAX
from wakugumi.limits.node import NODE_POLL_S


def credit(desk: NodeDesk) -> int:
    return sum(credited.amount for credited in desk.took(ev.Credited))


@pytest.mark.spec("G1")
def test_each_free_slot_is_offered_once() -> None:
    desk = NodeDesk()
    desk.polled(limit=2)
    assert credit(desk) == 2
    desk.wait(NODE_POLL_S)
    desk.polled(limit=2)
    assert credit(desk) == 0
    desk.assign()
    desk.wait(NODE_POLL_S)
    desk.polled(running=1, limit=4)
    assert credit(desk) == 2


def test_jobs_of_others_use_slots_too() -> None:
    desk = NodeDesk()
    desk.polled(running=3, limit=4)
    assert credit(desk) == 1


def test_a_job_that_was_sent_while_a_poll_was_under_way_is_not_taken_for_the_job_of_others() -> None:
    desk = NodeDesk()
    desk.polled(running=1, limit=2)
    assert credit(desk) == 1
    desk.wait(NODE_POLL_S)
    assert desk.is_asking(nev.PollNode)
    desk.assign()
    desk.polled(running=1, limit=2)  # The job of others: ours came behind this count.
    assert credit(desk) == 0
    desk.wait(NODE_POLL_S)
    desk.polled(running=1, limit=2)  # Ours: the other one has ended.
    assert credit(desk) == 1


def test_a_capacity_beyond_all_bounds_is_bounded() -> None:
    desk = NodeDesk()
    desk.polled(limit=10**9)
    assert credit(desk) == CALLS_MAX


def test_a_node_that_cannot_be_reached_rests_ever_longer_and_is_back_at_once() -> None:
    desk = NodeDesk()
    pauses = []
    for _ in range(4):
        desk.answer(desk.asks(nev.PollNode), Lost("nobody listens", "refused"))
        failed_at = desk.now
        while not desk.is_asking(nev.PollNode):
            desk.wait(0.5)
        pauses.append(desk.now - failed_at)
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert len([line for line in desk.log if "out of order" in line]) == 1
    desk.polled(limit=1)
    assert credit(desk) == 1
    assert any("node is back" in line for line in desk.log)


def test_jobs_declined_at_once_count_as_one_and_a_finished_job_ends_the_count() -> None:
    desk = NodeDesk()
    desk.polled(limit=2)
    for number in (1, 2):
        desk.assign(number)
    for act in list(desk.waiting.values()):
        desk.answer(act, nev.NodeReply(503, "busy", "no slot", None))
    assert desk.took(ev.Rested)[-1] == ev.Rested(ConnId(1), "no slot")
    desk.polled(limit=2)  # A poll comes at once, but the node rests.
    credit(desk)
    desk.wait(1.0)
    desk.polled(limit=2)
    assert credit(desk) == 2
    desk.assign(3)
    desk.reply(503, "busy")
    desk.polled(limit=2)
    desk.wait(1.5)
    assert not desk.is_asking(nev.PollNode)
    desk.wait(0.5)
    desk.polled(limit=2)
    assert credit(desk) == 2


@pytest.mark.spec("G1", "L3")
def test_after_a_fault_of_its_own_a_node_gets_one_job_at_a_time() -> None:
    desk = NodeDesk()
    desk.polled(limit=4)
    credit(desk)
    desk.assign(1)
    desk.answer(desk.asks(nev.AskNode), PeerError("no ZIP"))
    desk.polled(limit=4)
    assert credit(desk) == 0
    desk.wait(1.0)
    desk.polled(limit=4)
    assert credit(desk) == 1
    desk.assign(2)
    desk.answer(desk.asks(nev.AskNode), nev.NodeAnswered(True, "", b"", ""))
    assert credit(desk) == 4


def test_the_trial_ends_after_a_while() -> None:
    desk = NodeDesk()
    desk.polled(limit=4)
    desk.assign(1)
    desk.answer(desk.asks(nev.AskNode), nev.NodeAnswered(False, "disk", b"", "disk"))
    credit(desk)
    for _ in range(7):
        if desk.is_asking(nev.PollNode):
            desk.polled(limit=4)
        desk.wait(NODE_POLL_S)
    assert credit(desk) == 4


def test_a_job_that_ended_frees_its_slot_before_the_next_poll() -> None:
    desk = NodeDesk()
    desk.polled(limit=1)
    credit(desk)
    desk.assign()
    desk.wait(NODE_POLL_S)
    desk.polled(running=1, limit=1)
    assert credit(desk) == 0
    desk.answer(desk.asks(nev.AskNode), nev.NodeAnswered(True, "", b"", ""))
    assert credit(desk) == 1
