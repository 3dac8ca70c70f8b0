"""What is a client answered, and what is left when it leaves?"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kit.gateway_desk import GatewayDesk
from tests.kit.gateway_jobs import JOB, NAME, answer_group, ask, get_answer, submit

from wakugumi.core.gateway import events as ev
from wakugumi.core.gateway.outcomes import GONE
from wakugumi.core.gateway.rows import DONE, RUNNING, Content, GatewayJob
from wakugumi.errors import Lost, Refused


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
    submit(desk, 1)
    answer_group(desk)
    gone = True
    desk.answers[ev.OpenAnswer] = lambda _: not gone
    ask(desk, 2, "result")
    assert refused(desk, 2) == "no-result"
    assert desk.rows.get(JOB) is None


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
