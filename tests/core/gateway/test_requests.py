"""What is a client answered, and what is left when it leaves?"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kit.gateway_desk import GatewayDesk
from tests.kit.gateway_jobs import JOB, NAME, answer_group, ask, first_dispatch, get_answer, submit

from wakugumi.core.access.identity import Identity, Role, Rules
from wakugumi.core.flows import Answered
from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.outcomes import GONE
from wakugumi.core.gateway.rows import DIGEST_FORM, DONE, RUNNING, Content, GatewayJob
from wakugumi.errors import Lost, Refused
from wakugumi.limits.gateway import GROUP_MISSES_MAX

NO = Rules()


@pytest.fixture
def desk() -> GatewayDesk:
    desk = GatewayDesk(submits_max=2)
    desk.hear(ev.GatewayStarts())
    return desk


def refused(desk: GatewayDesk, request: int) -> str:
    answer = get_answer(desk, request)
    assert isinstance(answer, Refused)
    return answer.code


@pytest.mark.parametrize("question", ["status", "result", "events", "cancel"])
def test_an_unknown_job_is_unknown(desk: GatewayDesk, question: str) -> None:
    ask(desk, 1, question)
    assert refused(desk, 1) == "unknown-job"


ANN, BOB, ONLOOKER = (
    Identity(name, Role.CLIENT, rules).sight() for name, rules in (("ann", NO), ("bob", NO), ("cid", Rules(sees="all")))
)


@pytest.mark.parametrize("question", ["status", "result", "events", "cancel"])
@pytest.mark.parametrize("is_done", [True, False])
def test_a_job_of_another_client_is_unknown(desk: GatewayDesk, question: str, is_done: bool) -> None:
    submit(desk, 1, client="ann", sight=ANN)
    if is_done:
        answer_group(desk)
    ask(desk, 2, question, sight=BOB)
    assert refused(desk, 2) == "unknown-job"
    assert desk.rows.rows[JOB].client == "ann"
    ask(desk, 3, "status", sight=ANN)
    assert isinstance(get_answer(desk, 3), ev.KnownRow)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("has_arrived", [True, False])
@pytest.mark.parametrize("is_done", [True, False])
def test_an_id_of_another_client_is_denied(desk: GatewayDesk, is_async: bool, has_arrived: bool, is_done: bool) -> None:
    submit(desk, 1, client="ann", sight=ANN)
    if is_done:
        answer_group(desk)
    submit(desk, 2, client="bob", sight=BOB, is_async=is_async, has_arrived=has_arrived)
    assert refused(desk, 2) == "denied"


def test_an_id_that_another_client_takes_meanwhile_is_denied(desk: GatewayDesk) -> None:
    desk.answers[ev.AddRow] = lambda act: (desk.rows.add(replace(act.row, client="ann", owner="other"))[0], False)
    submit(desk, 1, client="bob", sight=BOB, is_async=True)
    assert refused(desk, 1) == "denied"


def test_events_end_when_another_client_has_the_id(desk: GatewayDesk) -> None:
    submit(desk, 1, client="ann", sight=ANN)
    sent: list[object] = []
    desk.answers[ev.SendState] = lambda act: sent.append(act.row)
    ask(desk, 2, "events", sight=ANN)
    assert len(sent) == 1
    desk.rows.rows[JOB] = replace(desk.rows.rows[JOB], client="bob", state=DONE)
    desk.wait(1.0)
    assert get_answer(desk, 2) == GONE
    assert len(sent) == 1


def test_an_onlooker_reads_and_joins_jobs_and_changes_none(desk: GatewayDesk) -> None:
    submit(desk, 1, client="ann", sight=ANN)
    ask(desk, 2, "cancel", sight=ONLOOKER)
    assert refused(desk, 2) == "denied"
    submit(desk, 3, client="cid", sight=ONLOOKER)
    ask(desk, 4, "cancel", sight=ANN)
    assert get_answer(desk, 4) == ev.JobCancelled(True)
    for request in (5, 6):
        submit(desk, request, client="cid", sight=ONLOOKER, is_async=request == 6)
        assert refused(desk, request) == "denied"
    assert desk.rows.rows[JOB].client == "ann"


def test_too_many_at_once_are_told_to_come_again(desk: GatewayDesk) -> None:
    for request in (1, 2, 3):
        submit(desk, request, name=f"job{request}")
    assert refused(desk, 3) == "busy"
    answer_group(desk)
    submit(desk, 4, name="job4")
    assert desk.machine.requests.submits == 2


def test_a_client_that_leaves_frees_its_seat_and_its_job_goes_on(desk: GatewayDesk) -> None:
    submit(desk, 1)
    desk.hear(ev.CallerLeft(1))
    assert isinstance(get_answer(desk, 1), Lost)
    assert desk.machine.requests.submits == 0
    assert len(desk.machine.flights.by_job) == 1
    answer_group(desk)
    assert desk.effects_of(ev.DropBody) == [ev.DropBody(1)]


def test_a_client_that_left_without_a_word_is_found(desk: GatewayDesk) -> None:
    submit(desk, 1)
    desk.answers[ev.FindGone] = lambda act: act.requests
    desk.wait(2.0)
    assert isinstance(get_answer(desk, 1), Lost)
    assert len(desk.machine.flights.by_job) == 1


def test_a_full_disk_refuses_new_jobs_and_answers_known_ones(desk: GatewayDesk) -> None:
    submit(desk, 1)
    answer_group(desk)
    submit(desk, 2, is_short=True)
    assert isinstance(get_answer(desk, 2), ev.OpenedAnswer)
    submit(desk, 3, name="new", is_short=True)
    assert refused(desk, 3) == "disk-full"


def test_a_job_of_another_gateway_is_waited_for_and_taken_from_a_dead_one(desk: GatewayDesk) -> None:
    desk.rows.hold("other", 60.0)
    desk.rows.add(GatewayJob(job=JOB, name=NAME, owner="other", state=RUNNING, group="a"))
    submit(desk, 1)
    desk.wait(30.0)
    assert desk.asked_for(ev.Dispatch) == []
    desk.rows.release("other")
    desk.wait(5.0)
    assert len(desk.asked_for(ev.Dispatch)) == 1
    answer_group(desk)
    assert isinstance(get_answer(desk, 1), ev.OpenedAnswer)


def test_the_body_that_another_row_needs_not_is_taken_back(desk: GatewayDesk) -> None:
    desk.answers[ev.AddRow] = lambda _: (_ for _ in ()).throw(Refused("busy", "the store is locked"))
    submit(desk, 1, is_async=True)
    assert refused(desk, 1) == "busy"
    desk.answers[ev.KeepBody] = lambda _: Content(5, None, "file")
    desk.hear(ev.JobSubmitted(2, JOB, NAME, True, "", "", {}, 60.0, 5, False))
    assert desk.effects_of(ev.DropFiles) == [ev.DropFiles(("file",))]


def test_an_answer_whose_file_is_gone_is_removed_and_runs_again(desk: GatewayDesk) -> None:
    row = GatewayJob(job=JOB, name=NAME, owner="me", state=DONE, status=200, answer=Content(2, None, "file"))
    desk.rows.add(row)
    gone = True
    desk.answers[ev.OpenAnswer] = lambda _: not gone
    ask(desk, 2, "result")
    assert refused(desk, 2) == "no-result"
    assert desk.rows.get(JOB) is None


def test_a_small_job_that_has_arrived_takes_three_acts(desk: GatewayDesk) -> None:
    already = len(desk.asked)
    submit(desk, 1, has_arrived=True)
    answer_group(desk)
    assert get_answer(desk, 1).data == b"PK"
    assert [type(act) for act in desk.asked[already:]] == [ev.AddRow, ev.Dispatch, ev.ReplaceRow]


@pytest.mark.parametrize("are_groups_there", [True, False])
def test_a_job_that_has_arrived_again_gets_its_answer(desk: GatewayDesk, are_groups_there: bool) -> None:
    submit(desk, 1, has_arrived=True)
    answer_group(desk)
    if not are_groups_there:
        for name in desk.machine.state.groups.by_name:
            for _ in range(GROUP_MISSES_MAX):
                desk.machine.state.groups.missed(name)
    submit(desk, 2, has_arrived=True)
    assert get_answer(desk, 2).data == b"PK"
    submit(desk, 3, has_arrived=True, content=b"other")
    assert refused(desk, 3) == "conflict"
    assert [type(act) for act in desk.asked].count(ev.Dispatch) == 1


def test_another_request_that_has_arrived_is_a_conflict_while_the_first_one_runs(desk: GatewayDesk) -> None:
    submit(desk, 1, has_arrived=True)
    submit(desk, 2, has_arrived=True, content=b"other")
    assert refused(desk, 2) == "conflict"


def test_a_watcher_gets_each_state_once_and_signs_of_life(desk: GatewayDesk) -> None:
    sent: list[str | None] = []
    desk.answers[ev.SendState] = lambda act: sent.append(None if act.row is None else act.row.state)
    submit(desk, 1, is_async=True)
    ask(desk, 2, "events")
    desk.wait(12.0)
    assert sent[0] == RUNNING
    assert len(sent) > 1
    assert set(sent[1:]) == {None}
    answer_group(desk)
    desk.wait(1.0)
    assert sent[-1] == DONE
    assert isinstance(get_answer(desk, 2), ev.KnownRow)
    assert desk.machine.requests.watchers == 0


def test_a_watcher_of_a_row_that_goes_is_let_go(desk: GatewayDesk) -> None:
    desk.answers[ev.SendState] = lambda _: None
    row, _ = desk.rows.add(GatewayJob(job=JOB, name=NAME, owner="me", state=RUNNING))
    ask(desk, 1, "events")
    assert desk.rows.remove(replace(row))
    desk.wait(1.0)
    assert get_answer(desk, 1) == GONE


@pytest.mark.spec("L6")
def test_a_request_that_comes_while_another_one_claims_the_row_does_not_get_its_answer() -> None:
    """The row has no digest yet, and the flight that began meanwhile knows it."""
    desk = GatewayDesk()
    desk.never |= {ev.AddRow, ev.FinishBody, ev.FinishAnswer, ev.ReplaceRow}
    submit(desk, 1)
    number, act = next((number, act) for number, act in desk.unanswered.items() if isinstance(act, ev.AddRow))
    desk.never.remove(ev.AddRow)
    desk.answers[ev.BeginBody] = lambda _: ev.BodyReceived(False, 9)
    desk.hear(ev.JobSubmitted(2, JOB, NAME, False, "", "", {}, 60.0, 10, False))
    desk.answers[ev.OpenAnswer] = lambda _: True
    desk.hear(Answered(number, desk.rows.add(act.row)))
    dispatch = first_dispatch(desk)
    desk.hear(Answered(dispatch, ev.GroupReply(200, {}, 24, digest=f"{DIGEST_FORM}other")))
    assert refused(desk, 1) == "conflict"
