"""How does a node run one job? Each answer of the node, and each end of a connection."""

from __future__ import annotations

import pytest
from tests.kit.node_desk import NodeDesk

from wakugumi.core.ids import ConnId, JobId
from wakugumi.core.leader import events as ev
from wakugumi.core.leader.nodes import events as nev
from wakugumi.errors import Lost, PeerError, Refused
from wakugumi.limits.http import BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_S
from wakugumi.limits.leader import REATTACH_GRACE_S, RECOVERY_GRACE_S
from wakugumi.limits.node import NODE_AGAIN_S, NODE_POLL_S, NODE_QUESTION_S, NODE_RETRY_AFTER_MAX_S, NODE_SENDS_MAX
from wakugumi.limits.wire import SILENCE_MAX_S

CUT = Lost("cut", "dead")


@pytest.fixture
def desk() -> NodeDesk:
    desk = NodeDesk()
    desk.polled(limit=2)
    desk.report = nev.NodeReport(0, 2)
    desk.took(ev.LeaderEvent)
    return desk


def ended(desk: NodeDesk) -> bool:
    """No trace of a job is left."""
    jobs = desk.machine.jobs
    return not jobs.running and not jobs.exchanges and len(desk.took(nev.CloseExchange)) == 1


@pytest.mark.spec("G1")
def test_a_result_is_posted_and_the_slot_is_free(desk: NodeDesk) -> None:
    job = desk.assign()
    (opened,) = desk.took(nev.OpenExchange)
    ask = desk.asks(nev.AskNode)
    assert (ask.exchange, ask.job, ask.is_bare) == (opened.exchange, job, False)
    desk.answer(ask, nev.NodeAnswered(True, "", b"result", "", ("blob",)))
    assert desk.took(ev.Acked) == [ev.Acked(ConnId(1), job, True, "", b"result", "", ("blob",))]
    assert desk.took(ev.Credited) == [ev.Credited(ConnId(1), 1, most=2)]
    assert ended(desk)


def test_a_job_that_is_assigned_twice_is_asked_for_once(desk: NodeDesk) -> None:
    desk.assign()
    desk.assign()
    assert len(desk.took(nev.OpenExchange)) == 1


@pytest.mark.parametrize(
    ("retry_after_s", "pause_s"), [(None, 1.0), (0.0, NODE_AGAIN_S), (1e9, NODE_RETRY_AFTER_MAX_S)]
)
def test_a_running_job_is_asked_for_again_without_its_input(
    desk: NodeDesk, retry_after_s: float | None, pause_s: float
) -> None:
    desk.assign()
    desk.reply(423, "running", retry_after_s)
    desk.wait(0.9 * pause_s)
    assert not desk.is_asking(nev.AskNode)
    desk.wait(0.2 * pause_s)
    assert desk.asks(nev.AskNode).is_bare
    desk.reply(409, "conflict")
    assert [failed.code for failed in desk.took(nev.FailAttempt)] == ["conflict"]
    assert ended(desk)


def test_a_node_that_does_not_know_the_job_gets_its_input(desk: NodeDesk) -> None:
    desk.assign()
    desk.reply(423)
    desk.wait(1.0)
    desk.reply(400, "bad-request")
    assert not desk.asks(nev.AskNode).is_bare


@pytest.mark.spec("N2")
def test_a_node_that_does_not_know_envelopes_gets_the_form_and_one_that_does_has_refused(desk: NodeDesk) -> None:
    desk.report = nev.NodeReport(0, 2, takes_envelopes=True)
    desk.wait(NODE_POLL_S)
    for status in (400, 415):
        desk.assign()
        ask = desk.asks(nev.AskNode)
        assert not ask.as_form
        desk.answer(ask, nev.NodeReply(status, "bad-request", "no form", None))
        again = desk.asks(nev.AskNode)
        assert (again.exchange, again.is_bare, again.as_form) == (ask.exchange, False, True)
        desk.reply(400, "bad-request")
        assert [failed.code for failed in desk.took(nev.FailAttempt)] == ["bad-request"]
        desk.assign(2)
        assert desk.asks(nev.AskNode).as_form, "until the next poll"
        desk.answer(desk.asks(nev.AskNode), nev.NodeAnswered(True, "", b"result", ""))
        desk.wait(NODE_POLL_S)
    desk.assign()
    desk.answer(desk.asks(nev.AskNode), nev.NodeReply(400, "bad-request", "no timeout", None, takes_envelopes=True))
    assert [failed.text for failed in desk.took(nev.FailAttempt)] == ["no timeout"]
    desk.assign()
    assert not desk.asks(nev.AskNode).as_form


@pytest.mark.spec("N2", "L4")
def test_a_refused_envelope_is_no_request_with_the_input(desk: NodeDesk) -> None:
    """A node forgets a job NODE_SENDS_MAX times before it is given up, also one that gets forms."""
    desk.report = nev.NodeReport(0, 2, takes_envelopes=True)
    desk.wait(NODE_POLL_S)
    desk.assign()
    desk.reply(400, "bad-request")
    for _ in range(NODE_SENDS_MAX):
        assert not desk.asks(nev.AskNode).is_bare
        assert desk.asks(nev.AskNode).as_form
        desk.answer(desk.asks(nev.AskNode), CUT)
        desk.wait(NODE_AGAIN_S)
        assert desk.asks(nev.AskNode).is_bare
        desk.reply(400, "bad-request")
    assert [failed.code for failed in desk.took(nev.FailAttempt)] == ["worker-lost"]


@pytest.mark.spec("L4")
def test_a_job_that_its_node_forgets_again_and_again_is_a_lost_attempt(desk: NodeDesk) -> None:
    """The job may be what ends the node."""
    job = desk.assign()
    for _ in range(NODE_SENDS_MAX):
        assert not desk.asks(nev.AskNode).is_bare
        desk.answer(desk.asks(nev.AskNode), CUT)
        desk.wait(NODE_AGAIN_S)
        assert desk.asks(nev.AskNode).is_bare
        desk.reply(400, "bad-request")
    assert [(failed.job, failed.code) for failed in desk.took(nev.FailAttempt)] == [(job, "worker-lost")]
    assert ended(desk)


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_a_busy_node_gives_the_job_back_and_rests_first(desk: NodeDesk, status: int) -> None:
    job = desk.assign()
    desk.reply(status, "busy")
    assert [type(effect) for effect in desk.took(ev.LeaderEvent)] == [ev.Rested, ev.Declined]
    assert job not in desk.machine.jobs.running
    assert desk.machine.health.rests == "busy"


def test_a_node_that_shuts_down_may_still_run_what_it_has(desk: NodeDesk) -> None:
    desk.assign()
    desk.reply(503, "stopping")
    assert desk.took(ev.Declined)
    desk.wait(5.0)
    desk.assign(2)
    desk.reply(423)
    desk.wait(1.0)
    desk.reply(503, "stopping")
    assert not desk.took(ev.Declined)
    desk.wait(1.0)
    assert desk.asks(nev.AskNode).is_bare


def test_a_refused_connection_began_nothing(desk: NodeDesk) -> None:
    job = desk.assign()
    desk.answer(desk.asks(nev.AskNode), Lost("nobody listens", "refused"))
    assert desk.took(ev.Declined) == [ev.Declined(ConnId(1), job)]
    assert desk.machine.health.rests == "nobody listens"


@pytest.mark.spec("L4")
@pytest.mark.parametrize("why", ["dead", "refused"])
def test_a_lost_node_is_asked_until_the_grace_is_over(desk: NodeDesk, why: str) -> None:
    job = desk.assign()
    desk.answer(desk.asks(nev.AskNode), CUT)
    lost_at = desk.now
    while desk.now - lost_at < REATTACH_GRACE_S:
        desk.wait(NODE_AGAIN_S)
        assert desk.asks(nev.AskNode).is_bare
        desk.answer(desk.asks(nev.AskNode), Lost("again", why))
    assert [(failed.job, failed.code) for failed in desk.took(nev.FailAttempt)] == [(job, "worker-lost")]
    assert job in desk.machine.unwanted
    assert ended(desk)


def test_a_question_without_an_answer_ends_but_an_answer_may_take_long(desk: NodeDesk) -> None:
    desk.assign()
    desk.reply(423)
    desk.wait(1.0)
    ask = desk.asks(nev.AskNode)
    desk.wait(NODE_QUESTION_S)
    assert ask not in desk.waiting.values()
    desk.wait(NODE_AGAIN_S)
    ask = desk.asks(nev.AskNode)
    desk.hear(nev.AnswerBegan(ask.exchange))
    desk.wait(2 * NODE_QUESTION_S)
    assert desk.asks(nev.AskNode) is ask
    desk.answer(ask, nev.NodeAnswered(True, "", b"", ""))
    assert desk.took(ev.Acked)


@pytest.mark.spec("L4")
def test_an_answer_that_stalls_is_asked_for_again_and_then_lost(desk: NodeDesk) -> None:
    job = desk.assign()
    for is_bare in (False, True):
        ask = desk.asks(nev.AskNode)
        assert ask.is_bare is is_bare
        desk.hear(nev.AnswerBegan(ask.exchange))
        for _ in range(2):
            assert desk.asks(nev.AskNode) is ask
            desk.wait(BODY_RECEIVED_MIN_S)
            assert desk.took(nev.LookAtAnswers) == [nev.LookAtAnswers((ask.exchange,))]
            desk.hear(nev.AnswersSeen({ask.exchange: 7}))
        assert not desk.is_asking(nev.AskNode)
        desk.wait(NODE_AGAIN_S)
    assert [(failed.job, failed.code) for failed in desk.took(nev.FailAttempt)] == [(job, "worker-lost")]
    assert ended(desk)


def test_an_answer_that_moves_may_take_any_time(desk: NodeDesk) -> None:
    desk.assign()
    ask = desk.asks(nev.AskNode)
    for look in range(100):
        desk.wait(BODY_RECEIVED_MIN_S)
        desk.hear(nev.AnswersSeen({ask.exchange: look * BODY_RECEIVED_MIN_BYTES}))
    assert desk.asks(nev.AskNode) is ask
    desk.answer(ask, nev.NodeAnswered(True, "", b"", ""))
    assert desk.took(ev.Acked)


def test_no_one_looks_while_no_answer_is_awaited(desk: NodeDesk) -> None:
    desk.assign()
    desk.answer(desk.asks(nev.AskNode), nev.NodeAnswered(True, "", b"", ""))
    desk.wait(10 * BODY_RECEIVED_MIN_S)
    assert not desk.took(nev.LookAtAnswers)
    desk.assign(2)
    desk.wait(BODY_RECEIVED_MIN_S)
    assert len(desk.took(nev.LookAtAnswers)) == 1


def test_a_result_on_its_way_is_told_to_the_leader(desk: NodeDesk) -> None:
    """Its job is not late, however long that takes."""
    job = desk.assign()
    ask = desk.asks(nev.AskNode)
    desk.took(ev.PeerHeard)
    for size in (0, BODY_RECEIVED_MIN_BYTES, BODY_RECEIVED_MIN_BYTES):
        desk.hear(nev.AnswersSeen({ask.exchange: size}))
    assert [heard.moving for heard in desk.took(ev.PeerHeard)] == [(job,), (job,)]


def test_a_running_job_that_the_leader_assigns_once_more_uses_credit(desk: NodeDesk) -> None:
    """The leader gave the job up as late, and chose this node again."""
    desk.assign()
    desk.assign()
    assert desk.machine.health.offered == 0
    desk.answer(desk.asks(nev.AskNode), nev.NodeAnswered(True, "", b"", ""))
    assert desk.took(ev.Credited) == [ev.Credited(ConnId(1), 2, most=2)]


def test_a_running_job_that_is_sent_again_to_a_node_that_joined_anew_uses_none(desk: NodeDesk) -> None:
    desk.assign()
    desk.hear(nev.NodeClosed(ConnId(2)))
    desk.wait(5.0)
    assert desk.machine.health.offered == 1
    desk.assign()
    assert desk.machine.health.offered == 1


@pytest.mark.parametrize("sign", ["began", "moves", "replied"])
def test_bytes_of_an_answer_are_a_sign_of_life_of_a_node_that_misses_polls(desk: NodeDesk, sign: str) -> None:
    """The node is back, and its next poll is due after the time of silence."""
    desk.assign()
    desk.assign(2)
    first, second = (act for act in desk.waiting.values() if isinstance(act, nev.AskNode))
    desk.report = None
    desk.wait(SILENCE_MAX_S - 1.0)
    match sign:
        case "began":
            desk.hear(nev.AnswerBegan(first.exchange))
        case "moves":
            desk.hear(nev.AnswersSeen({first.exchange: BODY_RECEIVED_MIN_BYTES}))
        case _:
            desk.answer(second, nev.NodeReply(423, "running", "", None))
    desk.wait(2.0)
    assert first in desk.waiting.values()
    desk.wait(SILENCE_MAX_S)
    assert first not in desk.waiting.values()


@pytest.mark.spec("L7")
def test_a_job_of_the_leaders_last_life_is_asked_for_and_waited_for_longer() -> None:
    job = JobId((1).to_bytes(16, "big"))
    desk = NodeDesk(job)
    desk.polled(limit=1)
    assert desk.machine.health.offered == 1
    desk.assign()
    assert desk.machine.health.offered == 1, "the leader sends it again without credit"
    assert desk.asks(nev.AskNode).is_bare
    desk.answer(desk.asks(nev.AskNode), Lost("nobody listens", "refused"))
    for _ in range(int((RECOVERY_GRACE_S - 1.0) / NODE_AGAIN_S)):
        desk.wait(NODE_AGAIN_S)
        desk.answer(desk.asks(nev.AskNode), CUT)
    assert not desk.took(nev.FailAttempt)
    desk.wait(NODE_AGAIN_S)
    desk.reply(400, "bad-request")
    assert not desk.asks(nev.AskNode).is_bare


@pytest.mark.parametrize(
    ("error", "code", "is_fault"),
    [
        (Refused("disk-full", "no room here"), "disk-full", False),
        (PeerError("no ZIP"), "worker-error", True),
        (ZeroDivisionError(), "worker-error", True),
    ],
)
def test_an_exchange_that_fails_is_a_failed_attempt(
    desk: NodeDesk, error: Exception, code: str, is_fault: bool
) -> None:
    desk.assign()
    desk.answer(desk.asks(nev.AskNode), error)
    assert [failed.code for failed in desk.took(nev.FailAttempt)] == [code]
    assert bool(desk.machine.health.rests) is is_fault
    assert ended(desk)


@pytest.mark.parametrize(
    ("status", "code", "told"), [(507, "disk", "disk"), (500, "nonsense", "worker-error"), (504, "timeout", "timeout")]
)
def test_another_problem_is_a_failure_with_its_code(desk: NodeDesk, status: int, code: str, told: str) -> None:
    desk.assign()
    desk.reply(status, code)
    assert [failed.code for failed in desk.took(nev.FailAttempt)] == [told]
    assert bool(desk.machine.health.rests) is (told != "timeout")


@pytest.mark.spec("L10")
def test_a_cancelled_job_ends_at_once_and_is_cancelled_at_its_node(desk: NodeDesk) -> None:
    job = desk.assign()
    desk.hear(ev.SendCancel(ConnId(1), job))
    assert [failed.code for failed in desk.took(nev.FailAttempt)] == ["cancelled"]
    assert not desk.is_asking(nev.AskNode)
    assert desk.asks(nev.CancelAtNode).job == job
    assert ended(desk)
    desk.hear(ev.SendCancel(ConnId(1), job))
    assert not desk.took(nev.FailAttempt)


@pytest.mark.spec("L7", "L10")
def test_a_job_of_the_leaders_last_life_may_be_cancelled_before_it_is_sent_again() -> None:
    job = JobId((1).to_bytes(16, "big"))
    desk = NodeDesk(job)
    desk.hear(ev.SendCancel(ConnId(1), job))
    assert [(failed.job, failed.code) for failed in desk.took(nev.FailAttempt)] == [(job, "cancelled")]
    assert desk.asks(nev.CancelAtNode).job == job
    desk.assign()
    desk.answer(desk.asks(nev.CancelAtNode), 202)
    assert not desk.asks(nev.AskNode).is_bare


def test_a_job_that_is_cancelled_and_assigned_again_in_one_step_has_one_exchange(desk: NodeDesk) -> None:
    job = desk.assign()
    assigned = desk.took(nev.OpenExchange)[0].assigned
    desk.hear(ev.SendCancel(ConnId(1), job), assigned)
    assert job in desk.machine.jobs.running
    assert desk.machine.jobs.exchanges == 1
    assert len([act for act in desk.waiting.values() if isinstance(act, nev.AskNode)]) == 1
