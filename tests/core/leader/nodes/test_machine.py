"""What does a leader do about a node? Polls, joins and silence, by the four doors."""

from __future__ import annotations

import pytest
from tests.kit.node_desk import NodeDesk

from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.nodes import events as nev
from wakugumi.core.leader.nodes.machine import NodeAt
from wakugumi.core.subject import worker_patterns
from wakugumi.errors import Lost
from wakugumi.limits.node import NODE_POLL_S, NODE_POLL_TIMEOUT_S, NODE_REJOIN_S
from wakugumi.limits.wire import SILENCE_MAX_S


def test_a_node_joins_and_rests_until_its_first_answer() -> None:
    desk = NodeDesk()
    (joined,) = desk.took(ev.WorkerJoined)
    assert (joined.worker, joined.name) == (NodeAt("http://node", ()).worker, "http://node")
    assert joined.simple_only
    assert desk.took(ev.WorkerHolds) == [ev.WorkerHolds(ConnId(1), (), ())]
    assert desk.took(ev.Rested) == [ev.Rested(ConnId(1), "it has not answered yet")]
    desk.polled(limit=3)
    assert desk.took(ev.Rested) == [ev.Rested(ConnId(1), "")]
    assert desk.took(ev.Credited) == [ev.Credited(ConnId(1), 3, most=3)]


def test_the_id_follows_from_the_url() -> None:
    one, other = NodeAt("http://a", worker_patterns("")), NodeAt("http://b", worker_patterns(""))
    assert one.worker == NodeAt("http://a", (), name="rack-1").worker != other.worker


def test_a_poll_follows_a_poll() -> None:
    desk = NodeDesk()
    desk.polled()
    assert not desk.is_asking(nev.PollNode)
    desk.wait(NODE_POLL_S)
    desk.polled()
    assert len(desk.took(ev.PeerHeard)) == 2


@pytest.mark.parametrize("error", [Lost("cut", "dead"), ZeroDivisionError(), RecursionError("too deep")])
def test_a_poll_that_fails_is_no_end_of_the_polls(error: Exception) -> None:
    desk = NodeDesk()
    desk.answer(desk.asks(nev.PollNode), error)
    desk.wait(2.0)
    desk.polled()
    assert desk.took(ev.Credited)


def test_a_poll_without_an_answer_ends() -> None:
    desk = NodeDesk()
    desk.wait(NODE_POLL_TIMEOUT_S)
    assert desk.abandoned == 1
    assert "did not answer" in desk.took(ev.Rested)[-1].why
    desk.wait(2.0)
    assert desk.is_asking(nev.PollNode)


def test_a_new_kind_of_node_is_described_before_its_credit() -> None:
    desk = NodeDesk()
    desk.answer(desk.asks(nev.PollNode), nev.NodeReport(0, 1, as_root=True, env=True))
    kinds = [type(effect) for effect in desk.took(ev.LeaderEvent)]
    assert kinds.index(ev.Described) < kinds.index(ev.Credited)


def test_a_node_whose_connection_was_closed_joins_again_with_its_jobs_but_not_at_once() -> None:
    held = JobId(bytes(15) + b"\7")
    desk = NodeDesk(held)
    desk.polled()
    job = desk.assign()
    desk.took(ev.LeaderEvent)
    desk.hear(nev.NodeClosed(ConnId(2)))
    assert desk.took(ev.Left) == [ev.Left(ConnId(1))]
    assert not desk.took(ev.WorkerJoined)
    desk.wait(NODE_REJOIN_S)
    assert [joined.conn for joined in desk.took(ev.WorkerJoined)] == [2]
    assert desk.took(ev.WorkerHolds) == [ev.WorkerHolds(ConnId(2), (job, held), ())]
    desk.wait(NODE_REJOIN_S)
    desk.hear(nev.NodeClosed(ConnId(3)))
    assert [joined.conn for joined in desk.took(ev.WorkerJoined)] == [3]


def test_a_silent_node_is_hung_up_on() -> None:
    desk = NodeDesk()
    desk.polled()
    desk.assign()
    first = desk.asks(nev.AskNode)
    desk.wait(SILENCE_MAX_S + 1.0)
    assert desk.asks(nev.AskNode) is not first
    assert desk.asks(nev.AskNode).is_bare


def test_no_rounding_of_times_lets_the_look_at_silence_ring_for_ever() -> None:
    """1000.1 + 30.0 - 1000.1 is less than 30.0."""
    desk = NodeDesk()
    desk.now = 1_000.1
    assert desk.now + SILENCE_MAX_S - desk.now < SILENCE_MAX_S
    desk.polled()
    desk.wait(2 * SILENCE_MAX_S)
    assert desk.is_asking(nev.PollNode) or desk.machine.wake_at() is not None


def test_a_closed_machine_asks_nothing() -> None:
    desk = NodeDesk()
    desk.polled()
    desk.assign()
    desk.machine.close()
    assert desk.machine.flows == 0
